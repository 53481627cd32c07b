"""Mark tasks as failed or clear them, as people do, while they run, are deferred, or have ended."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from pathlib import Path

import pytest
from scripts import Stage, held, kill_task

from transload.specs import AppDef, Role

MODES = ("sync", "deferrable")
DEFERRED = [pytest.param("sync", marks=pytest.mark.slow), "deferrable"]
"""Both modes where one shows nothing that `test_clear_of_an_app_that_talks` and the conformance
suite do not."""
WAITING = {"sync": "running", "deferrable": "deferred"}
SLOW_END = {"on_cancel": [{"state": "RUNNING", "until": "ended"}, "CANCELLED"]}
"""Of an app that takes its time to end once it is cancelled."""
CANCEL_S = {"sync": 15.0, "deferrable": 5.0}
"""Seconds from a person's click to the cancel, by a heartbeat or a turn of the triggerer.

A heartbeat takes 5 s and the API's time.
"""


@pytest.mark.parametrize("state", ["failed", pytest.param("success", marks=pytest.mark.slow)])
def test_mark_cancels(stage: Stage, state: str) -> None:
    """Marking a waiting task cancels its job. With on_kill="detach" the job goes on."""
    pairs = {
        mode: (stage.run(f"{mode}_plain", held()), stage.run(f"{mode}_detach", held()))
        for mode in MODES
    }
    for mode, pair in pairs.items():
        for each in pair:
            each.wait(WAITING[mode])
            stage.handle(each)
    for each in pairs["deferrable"]:
        stage.server.until(lambda each=each: "starting" in each.log(), "the trigger runs")
    for run, detached in pairs.values():
        detached.mark(state)
        run.mark(state)
    for run, detached in pairs.values():
        app_id = stage.app_id(run)
        stage.server.until(lambda app_id=app_id: stage.ended(app_id), "the job has ended")
        assert stage.cancelled(app_id)
        assert (run.state(), detached.state()) == (state, state)
        other = stage.app_id(detached)
        assert not stage.cancelled(other)
        assert not stage.ended(other)
        stage.control.open("go", other)


@pytest.mark.parametrize("end", ["begun_long_ago", "mark_run"])
def test_end_of_the_run_cancels(stage: Stage, end: str) -> None:
    """A run that a person marks, or whose time is up, ends the job of its deferred task."""
    run = stage.run("timed_out", held())
    run.wait("deferred")
    stage.handle(run)
    stage.server.until(lambda: "starting" in run.log(), "the trigger runs")
    if end == "mark_run":
        run.mark_run("failed")
    else:
        run.begun_long_ago()
    stage.server.until(lambda: stage.ended(stage.app_id(run)), "the job has ended")
    assert stage.cancelled(stage.app_id(run))


def test_mark_while_it_waits_for_a_retry(stage: Stage) -> None:
    """No process has the task then: its job goes on, and ends before a cleared task's next one."""
    run = stage.run("later", held(**SLOW_END))
    first = kill_task(stage, run)
    run.wait("up_for_retry")
    run.mark("failed")
    run.wait("failed")
    assert not stage.cancelled(first)
    run.clear("job")
    stage.server.until(lambda: stage.cancelled(first), "the app is cancelled")
    stage.control.open("ended", first)
    second = stage.app_id(run, 2)
    stage.control.open("go", second)
    run.wait("success")
    assert run.xcom("handle").endswith(second)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_mark_failed_cancels_soon(stage: Stage, mode: str) -> None:
    """From a person's mark to the cancel it takes a turn of the triggerer, or a heartbeat of the
    worker.
    """
    run = stage.run(f"{mode}_plain", held())
    run.wait(WAITING[mode])
    stage.handle(run)
    app_id = stage.app_id(run)
    if mode == "deferrable":
        stage.server.until(lambda: "starting" in run.log(), "the trigger runs")
    began = time.monotonic()
    run.mark("failed")
    stage.server.until(lambda: stage.cancelled(app_id), "the app is cancelled")
    crowd = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert time.monotonic() - began < CANCEL_S[mode] * max(1.0, crowd)


@pytest.mark.slow
@pytest.mark.parametrize("mode", DEFERRED)
def test_nothing_is_left_of_a_real_app(stage: Stage, mode: str) -> None:
    """Marking a waiting task as failed ends every process of its app, also those in sessions of
    their own.
    """
    mark = uuid.uuid4().hex
    code = (
        "import subprocess, sys, time; print('up', flush=True);"
        "sys.argv[2:] or subprocess.Popen([*sys.orig_argv, 'again'], start_new_session=True); "
        "time.sleep(600)"
    )
    role = Role(
        "main", image="", entrypoint=sys.executable, args=["-c", code, mark], num_replicas=2
    )
    run = stage.run(f"{mode}_plain", AppDef(f"app-{mark}", [role]))
    run.wait(WAITING[mode])
    stage.server.until(
        lambda: len(processes_with(mark)) >= 4, "both replicas and their children run"
    )
    stage.handle(run)
    if mode == "deferrable":
        stage.server.until(lambda: "starting" in run.log(), "the trigger runs")
    run.mark("failed")
    stage.server.until(lambda: not processes_with(mark), "all processes have ended")
    assert run.state() == "failed"


@pytest.mark.slow
def test_clear_with_detach_leaves_the_app(stage: Stage) -> None:
    """With on_kill="detach", clearing leaves the job.

    The new generation waits for its end, then starts its own.
    """
    run = stage.run("deferrable_detach", held())
    run.wait("deferred")
    stage.handle(run)
    first = stage.app_id(run)
    stage.server.until(lambda: "starting" in run.log(), "the trigger runs")
    run.clear("job")
    stage.server.until(
        lambda: run.task()["try_number"] == 2 and "waiting for its end" in run.log(), "it waits"
    )
    assert not stage.cancelled(first)
    assert stage.started(run) == [first]
    stage.control.open("go", first)
    second = stage.app_id(run, 2)
    stage.control.open("go", second)
    run.wait("success")
    assert run.xcom("handle").endswith(second)
    assert not stage.cancelled(first)


@pytest.mark.slow
def test_clear_of_an_app_that_talks(stage: Stage) -> None:
    """Clearing a running task ends its app, also while each second brings lines whose positions are
    noted.
    """
    mark = uuid.uuid4().hex
    talk = "for k in $(seq 3000); do echo still here; sleep 0.1; done"
    role = Role("main", image="", entrypoint="sh", args=["-c", talk, mark])
    try:
        run = stage.run("sync_plain", AppDef(f"app-{mark}", [role]))
        stage.server.until(lambda: run.log().count("still here") > 20, "lines")
        first = processes_with(mark)
        run.clear("job")
        stage.server.until(lambda: not set(first) & set(processes_with(mark)), "the app is ended")
        stage.server.until(
            lambda: processes_with(mark) and "still here" in run.log(),
            "the next one runs, and is heard",
        )
        run.mark("failed")
        stage.server.until(lambda: not processes_with(mark), "all processes have ended")
    finally:
        for pid in processes_with(mark):
            os.kill(pid, signal.SIGKILL)


def processes_with(mark: str) -> list[int]:
    """Return the living processes that have a word among their arguments, keepers apart."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in words and state not in "ZX":
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("mode", DEFERRED)
def test_clear_runs_again(stage: Stage, mode: str) -> None:
    """Clearing a waiting task ends its job, then starts another.

    Clearing a success runs it again.
    """
    run = stage.run(f"{mode}_plain", held(**SLOW_END))
    run.wait(WAITING[mode])
    stage.handle(run)
    first = stage.app_id(run)
    if mode == "deferrable":
        stage.server.until(lambda: "starting" in run.log(), "the trigger runs")
    run.clear("job")
    stage.server.until(lambda: stage.cancelled(first), "the app is cancelled")
    stage.server.until(lambda: "waiting for its end" in run.log(), "the next try waits for its end")
    assert stage.started(run) == [first]
    stage.control.open("ended", first)
    second = stage.app_id(run, 2)
    stage.control.open("go", second)
    run.wait("success")
    run.accounted("job", 2, 1 + run.log().count("Pausing task as DEFERRED"))
    run.clear("job")
    third = stage.app_id(run, 3)
    stage.control.open("go", third)
    run.wait("success")
    assert len({first, second, third}) == 3
    assert run.xcom("handle").endswith(third)


@pytest.mark.slow  # the rule is tested by itself
def test_clear_another_task_keeps_the_app(stage: Stage) -> None:
    """Clearing a neighbour does not make a finished task's app run again."""
    run = stage.run("sync_followed", {})
    run.wait("success", task_id="after")
    run.accounted("after", 1)
    run.clear("after")
    stage.server.until(lambda: run.task("after")["try_number"] == 2, "the neighbour runs again")
    run.wait("success", task_id="after")
    assert len(stage.started(run)) == 1
