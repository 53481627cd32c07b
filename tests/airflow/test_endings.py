"""Tasks end on a real Airflow in success, failure, skip, cancellation, retry or mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from airflow_server import AirflowServer
from scripts import Stage, held

from transload.tracker import FsspecTracker

MODES = ("sync", "deferrable")
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_endings(stage: Stage) -> None:
    """A task succeeds, fails or is skipped as its job's end, exit code and options say."""
    wrong = {
        "steps": [
            {"state": "RUNNING", "lines": [{"text": "it broke", "stream": "stderr"}]},
            "FAILED",
        ]
    }
    cancelled = {"steps": [{"state": "RUNNING", "seconds": 0.5}, "CANCELLED"]}
    runs = [
        (
            stage.run(f"{mode}_followed", {"results": {"0": {"x": 1.5}}}),
            stage.run(
                f"{mode}_followed", {**wrong, "exit_code": 3, "page": "http://localhost/app"}
            ),
            stage.run(f"{mode}_skipping", {**wrong, "exit_code": 99}),
            stage.run(f"{mode}_retry", cancelled),
            stage.run(f"{mode}_skipping", cancelled),
        )
        for mode in MODES
    ]
    for good, bad, skip, gone, skipped in runs:
        good.wait("success")
        handle = good.xcom("handle")
        value = good.xcom()
        assert value["results"] == {"0": {"x": 1.5}}
        assert (value["handle"], value["state"]) == (handle, "SUCCEEDED")
        assert (
            good.links()["transload app"] is None
        )  # a folder: Airflow's page would make a page of its own of it
        assert f"transload describe {handle}" in good.log()
        assert good.xcom("look") == f"transload describe {handle}"
        bad.wait("failed")
        assert "/transload_airflow/" not in bad.log()
        assert bad.links()["transload app"] == "http://localhost/app"
        for words in ("main/0", "exit code 3", "it broke"):
            assert words in bad.log()
        bad.wait("upstream_failed", task_id="after")
        skip.wait("skipped")
        gone.wait("failed")
        assert gone.task()["try_number"] == 1, "a cancelled app is not retried"
        skipped.wait("skipped")
        good.wait("success", task_id="after")


@pytest.mark.slow
def test_logs_of_roles_and_replicas_live_and_once(stage: Stage) -> None:
    """Two roles of three replicas are one task, whose log has each line once, and early."""
    lines = [
        {"text": f"{role}-{k}-{stream}", "role": role, "replica": k, "stream": stream}
        for role in ("main", "other")
        for k in range(3)
        for stream in ("stdout", "stderr")
    ]
    runs = [
        stage.run(f"{mode}_plain", held(lines=lines), roles={"main": 3, "other": 3})
        for mode in MODES
    ]
    for run in runs:
        stage.server.until(lambda run=run: "other-2-stderr" in run.log(), "lines while it runs")
        stage.go(run)
        run.wait("success")
        log = run.log()
        for line in lines:
            assert log.count(str(line["text"])) == 1, (line, log)
        assert len(stage.started(run)) == 1


@pytest.mark.slow
def test_mapped_tasks_wait_side_by_side(airflow: AirflowServer, stage: Stage) -> None:
    """Five mapped tasks are all deferred at the same time, each with an app of its own."""
    run = airflow.trigger("mapped")
    airflow.until(
        lambda: [run.state(index=k) for k in range(5)] == ["deferred"] * 5, "all five are deferred"
    )
    for k in range(5):
        stage.go(run, index=k)
    for k in range(5):
        run.wait("success", index=k)
        assert run.xcom(index=k)["results"] == {"0": {"number": k}}
        assert f"line of {k}" in run.log(index=k)
    assert len({run.xcom("handle", index=k) for k in range(5)}) == 5


def test_mistakes_are_one_clear_line_and_no_retry(airflow: AirflowServer) -> None:
    """An unknown scheduler, option or component and a bad spec fail at once, saying what is
    wrong.
    """
    run = airflow.trigger("mistakes")
    for task, words in (
        ("scheduler", "slurn"),
        ("option", "log_dirr"),
        ("spec", "roles"),
        ("component", "utils.ecco"),
    ):
        run.wait("failed", task_id=task)
        assert run.task(task)["try_number"] == 1
        said = [
            line for line in run.log(task).splitlines() if line.startswith("AirflowFailException: ")
        ]
        assert said and all(words in line for line in said), run.log(task)
        assert run.xcom("handle", task) is None


def test_launch_parameters_from_upstream(airflow: AirflowServer) -> None:
    """An upstream's output decides the replicas of a real local job, whose results come back.

    They come back as separate keys too.
    """
    run = airflow.trigger("launch_parameters")
    run.wait("success")
    assert run.xcom()["results"] == {str(k): {"word": "chosen"} for k in range(3)}
    assert run.xcom("results.2") == {"word": "chosen"}
    assert "main/2 CHOSEN 2" in run.log()


def test_decorator_templates_groups(airflow: AirflowServer) -> None:
    """Functions say what to run, templates reach into jobs by default, and groups are mapped."""
    decorated, templated, grouped = (
        airflow.trigger(dag) for dag in ("decorated", "templated", "grouped")
    )
    decorated.wait("success", task_id="arguments")
    assert "main/0 said hello" in decorated.log("whole_app")
    assert decorated.xcom(task_id="arguments")["results"] == {
        "0": {"word": "loud"},
        "1": {"word": "loud"},
    }
    templated.wait("success")
    templated.wait("success", task_id="literal")
    assert f"args ['{templated.run_id}']" in templated.log()
    assert "env templated" in templated.log()
    assert "args ['{{ run_id }}']" in templated.log("literal")
    for name, number in (("mapped", 0), ("upstream", -1)):
        templated.wait("success", task_id=name, index=number)
        assert "args ['{{ run_id }}']" in templated.log(name, index=number)
    for index, word in enumerate(("one", "two")):
        grouped.wait("success", task_id="stage.job", index=index)
        assert grouped.xcom(task_id="stage.job", index=index)["results"] == {"0": {"word": word}}


def test_sensors_wait_for_what_others_started(airflow: AirflowServer, stage: Stage) -> None:
    """A sensor succeeds with the results of an app that it did not start, deferred or poking."""
    run = stage.run("deferrable_plain", held(results={"0": {"x": 2}}))
    handle = stage.handle(run)
    sensing = airflow.trigger("sensing", {"handle": handle})
    sensing.wait("deferred", task_id="deferred")
    sensing.wait("running", task_id="poking")
    stage.go(run)
    for task in ("deferred", "poking"):
        sensing.wait("success", task_id=task)
        assert sensing.xcom(task_id=task)["results"] == {"0": {"x": 2}}
    missing = airflow.trigger("sensing", {"handle": "scripted://airflow/nothing"})
    for task in ("deferred", "poking"):
        missing.wait("failed", task_id=task)
        assert "does not exist" in missing.log(task)


@pytest.mark.slow  # the session everywhere trains the digits in Airflow
def test_example(airflow: AirflowServer) -> None:
    """The example trains at three learning rates, picks the best, and trains it again with three
    replicas.
    """
    run = airflow.trigger("digits")
    run.wait("success", task_id="retrain", timeout=200)
    first = [run.xcom(task_id="train", index=k)["results"]["final"]["accuracy"] for k in range(3)]
    chosen = run.xcom(task_id="pick")
    assert chosen == {"lr": [0.01, 0.1, 0.5][first.index(max(first))], "replicas": 3, "epochs": 15}
    final = run.xcom(task_id="retrain")["results"]["final"]["accuracy"]
    assert final > 0.9
    assert "trainer/2" in run.log("retrain") or "trainer/0" in run.log("retrain")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_is_shown_without_a_browser(tmp_path: Path) -> None:
    """An Airflow of its own runs the job, and the task's state, log and results are printed."""
    program = [sys.executable, str(EXAMPLES / "everywhere" / "show.py"), "airflow"]
    environment = os.environ | {"PATH": str(Path(sys.executable).parent)}
    said = subprocess.run(
        program,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    shown = said.stdout.partition("what a person sees (a picture of it needs Chromium):")[2]
    assert "task digits of everywhere: success" in shown
    assert "log: trainer/0 epoch   4/4" in shown
    assert "result: final accuracy = 0.9415" in shown


@pytest.mark.slow  # the conformance suite has packages installed, and tests/core runs this script
def test_script_example(airflow: AirflowServer) -> None:
    """A script with a header is a task, unchanged, and runs with its packages."""
    run = airflow.trigger("fit")
    run.wait("success", task_id="fit", timeout=250)
    log = run.log("fit")
    assert "degree 5: error 0.0922" in log
    assert "coefficients.npy" in run.xcom(task_id="fit")["artifacts"]


@pytest.mark.slow  # launch parameters are tested above
def test_chain_example(airflow: AirflowServer, tmp_path: Path) -> None:
    """One job decides how many replicas the next one has.

    The tracker knows both, and their link.
    """
    run = airflow.trigger("chain", {"folder": str(tmp_path), "rows": 2500})
    run.wait("success", task_id="draw", timeout=200)
    assert run.xcom("results.plan", task_id="plan") == {
        "numbers": str(tmp_path / "numbers.txt"),
        "replicas": 3,
    }
    sums = run.xcom(task_id="count")["results"]
    assert sorted(sums) == ["0", "1", "2"]
    assert sum(each["sum"] for each in sums.values()) == sum(range(2500))
    tracker = FsspecTracker(None, airflow.environment["TRANSLOAD_TRACKER_FSSPEC_CONFIG"])
    first, second = (run.xcom("handle", task_id=name) for name in ("plan", "count"))
    assert [source.source_run_id for source in tracker.sources(second)] == [first]
    drawn = (tmp_path / "lineage.svg").read_text()
    assert first in drawn and second in drawn
