"""An ended job has its state, its results as metrics, and its parent run in MLflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from transload.runner import Cluster, Runner, get_runner
from transload.specs import AppDef, Role
from transload_mlflow import MlflowTracker, ending

_REPORT = """printf '{"schema":1,"key":"%s","results":{"loss":%s}}' $1 $2 > "$TRANSLOAD_TRACKER_BASE/$1.json\""""


@contextmanager
def _server(uri: str, port: int) -> Iterator[str]:
    """A server of MLflow, as people start it."""
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--port",
        str(port),
    ]
    with subprocess.Popen(
        [*command, "--workers", "1"], start_new_session=True, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        return bool(urlopen(url).status == 200)
    except URLError:
        return False


@pytest.fixture
def runner(
    transload_home: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    """A runner whose jobs track in MLflow."""
    monkeypatch.setenv("TRANSLOAD_TRACKERS", "mlflow")
    monkeypatch.setenv("TRANSLOAD_TRACKER_MLFLOW_CONFIG", sqlite_uri)
    with get_runner("tests") as made:
        yield made


def _app(script: str) -> AppDef:
    return AppDef(
        "job",
        [Role("main", "", entrypoint="sh", args=["-c", f"report() {{ {_REPORT}; }}; {script}"])],
    )


@pytest.mark.parametrize(
    ("script", "status"),
    [("report final 0.5", "FINISHED"), ("report final 0.5; exit 3", "FAILED"), ("", "KILLED")],
)
def test_an_app_that_ends_ends_its_run(
    runner: Runner, sqlite_uri: str, eventually: Any, script: str, status: str
) -> None:
    """The MLflow run of a job ends as the job did, and has tags that say who asked for it."""
    tracker = MlflowTracker(sqlite_uri)
    handle = runner.run(_app(script or "exec sleep 100"))
    if not script:
        tracker.add_metadata(handle, lr=0.1)
        runner.cancel(handle)
    assert runner.wait(handle, timeout=60) is not None
    ended = eventually(
        lambda: [run for run in tracker._runs_of(handle) if run.info.status != "RUNNING"],
        timeout=60,
    )
    assert [run.info.status for run in ended] == [status]
    assert ended[0].data.tags["asked.machine"] == os.uname().nodename
    metrics = ended[0].data.metrics
    used = {name: metrics.pop(name) for name in list(metrics) if name.startswith("system/")}
    assert metrics == ({"loss": 0.5} if script else {"lr": 0.1})
    if script:
        assert set(used) == {"system/peak_memory_megabytes", "system/cpu_seconds"}
        assert used["system/peak_memory_megabytes"] > 0.1
    assert runner.wait(handle, timeout=60) is not None  # told again: nothing changes


def test_curves_have_their_steps(runner: Runner, sqlite_uri: str, eventually: Any) -> None:
    """What is reported step by step is a curve in MLflow, and the key of a replica is no step."""
    program = (
        "from transload.runtime import report\n"
        "for epoch, loss in enumerate([0.9, 0.5, 0.25]): report(step=10 * epoch, loss=loss)\n"
        "report(accuracy=0.75, note='good')\n"
        "report(step=3, loss=0.3, key='valid')\n"
        "report(key=7, loss=0.1)\n"
    )
    handle = runner.run(
        AppDef("job", [Role("main", "", entrypoint=sys.executable, args=["-c", program])])
    )
    assert runner.wait(handle, timeout=60) is not None
    tracker = MlflowTracker(sqlite_uri)
    (run,) = eventually(
        lambda: [r for r in tracker._runs_of(handle) if r.info.status == "FINISHED"], timeout=60
    )

    def points(name: str) -> list[tuple[int, float]]:
        return sorted(
            (each.step, each.value)
            for each in tracker.client.get_metric_history(run.info.run_id, name)
        )

    assert points("loss") == [(0, 0.9), (10, 0.5), (20, 0.25)]
    assert (points("accuracy"), points("valid.loss"), points("7.loss")) == (
        [(0, 0.75)],
        [(3, 0.3)],
        [(0, 0.1)],
    )
    assert run.data.metrics["loss"] == 0.25
    assert run.data.tags["note"] == "good"


def test_a_role_is_named(runner: Runner, sqlite_uri: str, eventually: Any) -> None:
    """With several roles the first replica's metrics have plain names, the others' begin with role
    and number.
    """
    program = "import os; from transload.runtime import report; report(step=2, load=float(os.environ['LOAD']))"
    roles = [
        Role(
            name,
            "",
            entrypoint=sys.executable,
            args=["-c", program],
            env={"LOAD": load},
            num_replicas=replicas,
        )
        for name, load, replicas in (("head", "0.5", 1), ("worker", "0.25", 2))
    ]
    handle = runner.run(AppDef("job", roles))
    assert runner.wait(handle, timeout=60) is not None
    tracker = MlflowTracker(sqlite_uri)
    (run,) = eventually(
        lambda: [r for r in tracker._runs_of(handle) if r.info.status == "FINISHED"], timeout=60
    )
    shown = {
        name: value for name, value in run.data.metrics.items() if not name.startswith("system/")
    }
    assert shown == {"load": 0.5, "worker/0.load": 0.25, "worker/1.load": 0.25}
    (point,) = tracker.client.get_metric_history(run.info.run_id, "worker/1.load")
    assert point.step == 2


def test_the_end_is_there_when_the_wait_is_over(runner: Runner, sqlite_uri: str) -> None:
    """A process that ends hard right after its app, as a task of Airflow does, has told MLflow."""
    script = (
        "import os, sys; from transload.runner import get_runner\n"
        "runner = get_runner('tests'); handle = runner.run_component('utils.sh', ['true'], "
        "scheduler='local')\n"
        "print(handle, runner.wait(handle).state, flush=True); os._exit(0)\n"
    )
    handle, state = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    (run,) = MlflowTracker(sqlite_uri)._runs_of(handle)
    assert (state, run.info.status) == ("SUCCEEDED", "FINISHED")


def test_an_outage_is_waited_through(
    runner: Runner,
    sqlite_uri: str,
    free_port: int,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """During an outage of the server a waiting client soon goes on.

    Later the end is written whole.
    """
    monkeypatch.setenv("TRANSLOAD_TRACKER_MLFLOW_CONFIG", f"http://127.0.0.1:{free_port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr("transload_mlflow.ending._LIMIT", 1.0)
    handles = [runner.run(_app("report final 0.5")) for _ in range(2)]
    for handle in handles:
        assert runner.wait(handle, timeout=60) is not None
    assert "is not in MLflow yet; this process tries again until it exits" in caplog.text
    with _server(sqlite_uri, free_port):
        tracker = MlflowTracker(sqlite_uri)
        for handle in handles:
            (run,) = eventually(
                lambda h=handle: [r for r in tracker._runs_of(h) if r.info.status == "FINISHED"],
                timeout=120,
            )
            assert run.data.metrics["loss"] == 0.5
        eventually(lambda: not any(ending._ends.values()), timeout=60)  # it has had its answer, too


def test_results_that_cannot_be_read_are_read_later(
    runner: Runner,
    sqlite_uri: str,
    eventually: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run ends with its results as soon as they can be read, and without them if that takes too
    long.
    """
    monkeypatch.setattr("transload_mlflow.ending._LIMIT", 0.1)
    monkeypatch.setattr("transload_mlflow.ending._READING", 2.0)
    tracker = MlflowTracker(sqlite_uri)
    away = "mv $TRANSLOAD_TRACKER_BASE $TRANSLOAD_TRACKER_BASE.away; touch $TRANSLOAD_TRACKER_BASE"
    handles = [
        runner.run(_app(f"report final 0.5; {away}"), tracker_base=str(tmp_path / name))
        for name in "ab"
    ]
    for handle in handles:
        assert runner.wait(handle, timeout=60) is not None
    assert [tracker._runs_of(handle) for handle in handles] == [[], []]
    (kept,) = (tmp_path / "a").rglob("*.away")
    kept.with_suffix("").unlink()
    kept.rename(kept.with_suffix(""))
    for handle, metrics in zip(handles, ({"loss": 0.5}, {}), strict=True):
        (run,) = eventually(
            lambda h=handle: [r for r in tracker._runs_of(h) if r.info.status != "RUNNING"],
            timeout=60,
        )
        assert {
            name: value for name, value in run.data.metrics.items() if name == "loss"
        } == metrics


def test_a_cluster_of_the_host_alone(
    runner: Runner, sqlite_uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run of a job on an unknown cluster ends as the job did, with one warning."""
    with runner.with_clusters(
        Cluster("mine", "local", {"state_folder": str(tmp_path / "home")})
    ) as host:
        handle = host.run(_app("report final 0.5; exit 3"), "mine")
        assert host.wait(handle, timeout=60) is not None
    (run,) = MlflowTracker(sqlite_uri)._runs_of(handle)
    assert run.info.status == "FAILED"
    warnings = [record for record in caplog.records if record.name == "transload_mlflow"]
    assert len(warnings) == 1
    assert "has ended in MLflow without its results" in caplog.text


def test_a_run_is_nested_below_its_parent(sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that launched a job is MLflow's parent run. Other sources are not."""
    tracker = MlflowTracker(sqlite_uri)
    monkeypatch.setenv("TRANSLOAD_PARENT_RUN_ID", "local://s/search")
    tracker.add_source("local://s/trial", "local://s/search")
    tracker.add_source("local://s/trial", "local://s/data", "table")
    (parent,), (trial,) = tracker._runs_of("local://s/search"), tracker._runs_of("local://s/trial")
    assert trial.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert tracker._runs_of("local://s/data") == []
    assert "mlflow.parentRunId" not in parent.data.tags


def test_trials_are_nested_in_their_search(
    runner: Runner,
    sqlite_uri: str,
    free_port: int,
    eventually: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each trial of ``transload search`` has a run in that of the search, unknown to its job."""
    (tmp_path / "job.py").write_text(
        "from transload.specs import AppDef, Role\n"
        "def train(lr: float) -> AppDef:\n"
        '    """Train."""\n'
        "    words = ['-m', 'transload', 'put', f'loss={lr}']\n"
        f"    return AppDef('train', [Role('main', '', entrypoint={sys.executable!r}, "
        "args=words)])\n"
    )
    command = ["search", "run", "--name", "lr", "--component", "job.py:train", "--minimize", "loss"]
    with _server(sqlite_uri, free_port) as server:
        eventually(lambda: _answers(f"{server}/health"), timeout=120)
        monkeypatch.setenv("TRANSLOAD_TRACKER_MLFLOW_CONFIG", server)
        words = [
            sys.executable,
            "-m",
            "transload",
            *command,
            "--param",
            "lr:float:0.1:0.9",
            "--trials",
            "3",
        ]
        subprocess.run(words, check=True, cwd=tmp_path)
        client = MlflowTracker(server).client
        (experiment,) = (each for each in client.search_experiments() if each.name == "transload")
        runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    (name,) = (name for name in runs if "://" not in name)
    search = runs.pop(name)
    assert name.startswith("search/lr/")
    assert len(runs) == 3
    for run in runs.values():
        assert run.data.tags["mlflow.parentRunId"] == search.info.run_id
        assert 0.1 <= run.data.metrics["loss"] <= 0.9
    assert {run.info.status for run in (search, *runs.values())} == {"FINISHED"}
    assert search.info.end_time >= max(run.info.start_time for run in runs.values())
    tracker = MlflowTracker(sqlite_uri)
    assert tracker.run_ids(parent_run_id=name) == sorted(runs)
