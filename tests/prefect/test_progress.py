"""A job that reports progress has a bar, its interruptions and its checkpoints."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

import pytest
from jobs import second_time_lucky, training

from transload.specs import AppState, AppStatus, Progress, ReplicaStatus, RoleStatus
from transload_prefect import api, app_task
from transload_prefect.artifacts import Bar, bar_of
from transload_prefect.background import background
from transload_prefect.runs import RunContext
from transload_prefect.traces import Traces

HANDLE = "local://prefect/train-1"


def test_a_training_that_is_interrupted_and_fails(host: Any, eventually: Any) -> None:
    """The log has the interruption and the warning of the limit.

    The second try goes on from the checkpoint, unless it is to begin anew.
    """
    from prefect import flow
    from prefect.runtime import flow_run

    task = app_task(training, name="training", retries=1)
    lucky = app_task(second_time_lucky, name="lucky", retries=1)

    @flow
    def work() -> Any:
        anew = app_task(second_time_lucky, name="anew", retries=1, checkpoints="new")
        tasks = [task, lucky, anew]
        futures = [each.submit(return_state=False) for each in tasks]
        for each in futures:
            each.wait()
        return str(flow_run.id), [each.state.type.name for each in futures]

    flow_run_id, states = work()
    assert states == ["COMPLETED", "COMPLETED", "FAILED"]

    def lines(text: str, level: int = logging.INFO) -> list[str]:
        found = [each for each in host.logs(flow_run_id) if text in each["message"]]
        return [each["message"] for each in found if each["level"] == level]

    def bars() -> list[float]:
        found = [each for each in host.artifacts(flow_run_id) if each["type"] == "progress"]
        return sorted(each["data"] for each in found if each["key"] == "training-progress")

    assert eventually(lambda: lines("from step 600."), 30)
    assert lines("interrupted (segment) at step 400")
    assert lines("40 %, step 400/1000")
    assert lines("its limit of time", logging.WARNING)
    assert eventually(lambda: bars() == [60.0, 100.0], 30)


@pytest.mark.parametrize(
    ("state", "progress", "bar"),
    [
        (AppState.RUNNING, None, Bar(50, f"replicas of {HANDLE} that have ended")),
        (AppState.FAILED, None, Bar(100, f"replicas of {HANDLE} that have ended")),
        (
            AppState.RUNNING,
            Progress(fraction=0.719, step=719, total=1000, eta_seconds=90, at=60.0),
            Bar(71, f"{HANDLE}: 71 %, step 719/1000, 1 min 20 s left"),
        ),
        (
            AppState.FAILED,
            Progress(fraction=0.4, eta_seconds=90, at=60.0, text="epoch 3"),
            Bar(40, f"{HANDLE}: FAILED, 40 %, epoch 3"),
        ),
        (AppState.SUCCEEDED, Progress(fraction=0.97), Bar(100, f"{HANDLE}: SUCCEEDED")),
        # it does not say which part of its work is done
        (AppState.RUNNING, Progress(step=7), Bar(50, f"replicas of {HANDLE} that have ended")),
    ],
)
def test_what_the_bar_shows(state: AppState, progress: Progress | None, bar: Bar) -> None:
    """The job's own account goes before the number of its replicas that have ended."""
    states = (state, AppState.SUCCEEDED)
    replicas = [ReplicaStatus(k, each, "main", "here") for k, each in enumerate(states)]
    status = AppStatus(state, roles=[RoleStatus("main", replicas)], progress=progress)
    assert bar_of(HANDLE, status, now=70.0) == bar


def test_prefect_refuses_the_bar(
    drain: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job goes on, and the log says so once. Of later progress the newest is sent."""
    sent: list[object] = []
    is_busy = threading.Event()

    def refuse(*_: object, **artifact: object) -> None:
        sent.append(artifact["data"])
        raise RuntimeError("no room")

    monkeypatch.setattr(api, "create_artifact", refuse)
    run = RunContext("train", "train#0")
    traces = Traces(run, logging.getLogger("train"), artifacts=True, events=False)
    background().post(partial(is_busy.wait, 60))
    for fraction in (0.1, 0.2, 0.3):
        progress = Progress(fraction=fraction)
        traces.show_progress(HANDLE, AppStatus(AppState.RUNNING, progress=progress))
    is_busy.set()
    drain()
    traces.show_progress(HANDLE, AppStatus(AppState.RUNNING, progress=Progress(fraction=0.4)))
    drain()
    assert sent == [30, 40]
    refused = [each for each in caplog.records if "no room" in each.getMessage()]
    assert [each.levelname for each in refused] == ["WARNING"]
