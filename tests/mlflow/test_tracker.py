"""``MlflowTracker`` beyond what the conformance suite asks of every tracker."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.plugins import get_plugins
from transload.tracker import TrackingError, build_trackers, check_trackers
from transload_mlflow import MlflowTracker, create


def test_what_people_see(sqlite_uri: str) -> None:
    """Metadata are tags, numbers are metrics too, and the run bears the handle.

    What MLflow cannot name is left out.
    """
    tracker = MlflowTracker(sqlite_uri)
    tracker.add_metadata(
        "local://s/app",
        lr=0.1,
        epochs=3,
        note="ü\n",
        on=True,
        huge=10**400,
        **{"a/b": 1, "mlflow.user": "me", "☃": 1},
    )
    tracker.add_artifact("local://s/app", "model", "s3://bucket/m.pt")
    tracker.add_source("local://s/app", "local://s/prep", "data")
    run = tracker._runs_of("local://s/app")[0]
    assert run.info.run_name == "local://s/app"
    shown = {
        name: value for name, value in run.data.tags.items() if not name.startswith("transload.")
    }
    source = next(name for name in shown if name.startswith("source."))
    assert shown.pop(source) == "local://s/prep (data)"
    assert len(shown.pop("huge")) == 401
    assert shown == {
        "mlflow.runName": "local://s/app",
        "lr": "0.1",
        "epochs": "3",
        "note": "ü\N{REPLACEMENT CHARACTER}",
        "on": "true",
        "artifact.model": "s3://bucket/m.pt",
    }
    assert run.data.metrics == {"lr": 0.1, "epochs": 3.0}
    assert run.info.status == "RUNNING"


def test_finish(sqlite_uri: str) -> None:
    """The state that MLflow shows can be set, and an unknown run is made."""
    tracker = MlflowTracker(sqlite_uri)
    tracker.add_metadata("run", x=1)
    tracker.finish("run", "FAILED")
    tracker.finish("run", "FINISHED")  # it has ended already
    tracker.finish("silent", "KILLED")
    assert tracker._runs_of("silent")[0].info.status == "KILLED"
    assert tracker._runs_of("run")[0].info.status == "FAILED"
    tracker.add_metadata("run", x=2)
    assert tracker.run_ids() == ["run", "silent"]
    assert tracker.metadata("run") == {"x": 2}


def test_many_points(sqlite_uri: str, caplog: pytest.LogCaptureFixture) -> None:
    """More points than a call takes are all kept, and what MLflow has no name for is told."""
    tracker, steps = (
        MlflowTracker(sqlite_uri),
        {float(step): 1 / (step + 1) for step in range(2000)},
    )
    tracker.finish("run", results={"0": {"loss": 7.0, "a=b": 1.0}}, steps={"0": {"loss": steps}})
    history = tracker.client.get_metric_history(tracker._runs_of("run")[0].info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == sorted(
        [*steps.items(), (1999, 7.0)]
    )
    assert tracker._runs_of("run")[0].data.metrics == {"loss": 7.0}
    assert "run: MLflow does not allow metrics or tags with these names: a=b" in caplog.text


def test_too_long_value_is_refused(sqlite_uri: str) -> None:
    """A value that no tag can hold is refused by name, not cut, and nothing is stored."""
    tracker = MlflowTracker(sqlite_uri)
    with pytest.raises(
        TrackingError,
        match=r"metadata 'long': 80\d\d characters as JSON, but an MLflow tag may have at most 8000",
    ):
        tracker.add_metadata("run", good=1, long="x" * 8000)
    assert tracker.metadata("run") == {}
    tracker.add_metadata("run", long="x" * 7900)
    assert tracker.metadata("run") == {"long": "x" * 7900}


def test_lone_surrogate_is_kept(sqlite_uri: str) -> None:
    """A value that UTF-8 cannot hold is kept all the same."""
    tracker = MlflowTracker(sqlite_uri)
    tracker.add_metadata("run", odd="bad\ud800", good="☃")
    assert tracker.metadata("run") == {"odd": "bad\ud800", "good": "☃"}


def test_more_values_than_a_call_takes(sqlite_uri: str) -> None:
    """Hundreds of values at once are all kept."""
    tracker = MlflowTracker(sqlite_uri)
    values = {f"v{number}": str(number) for number in range(250)}
    tracker.add_metadata("run", **values)
    assert tracker.metadata("run") == values


def test_more_runs_than_a_page_holds(sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs are listed, however many pages they take, without other runs of the experiment."""
    monkeypatch.setattr("transload_mlflow.tracker._RUNS_A_PAGE", 2)
    tracker = MlflowTracker(sqlite_uri)
    for number in range(5):
        tracker.add_metadata(f"run-{number}", x=1)
    tracker.client.create_run(tracker._experiment(), run_name="somebody else's")
    assert tracker.run_ids() == [f"run-{number}" for number in range(5)]


def test_experiments_are_apart(sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker knows the runs of its experiment only, whether named, configured or by default."""
    MlflowTracker(sqlite_uri, "one").add_metadata("run", x=1)
    assert MlflowTracker(sqlite_uri).run_ids() == []
    assert MlflowTracker(sqlite_uri).experiment_name == "transload"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "one")
    assert MlflowTracker(sqlite_uri).metadata("run") == {"x": 1}
    config = json.dumps({"tracking_uri": sqlite_uri, "experiment_name": "two"})
    assert create(config).run_ids() == []


def test_run_that_was_made_twice(sqlite_uri: str) -> None:
    """Two processes that make a run at the very same moment end up with one, and nothing of either
    is lost.
    """
    one, two = MlflowTracker(sqlite_uri), MlflowTracker(sqlite_uri)
    one.add_metadata("run", a=1, both=1)
    first = one._runs_of("run")[0]
    marks = {name: first.data.tags[name] for name in ("transload.run_key", "transload.run_id")}
    twin = two.client.create_run(first.info.experiment_id, tags=marks)
    two._runs["run"] = twin.info.run_id
    two.add_metadata("run", b=2, both=2)
    assert MlflowTracker(sqlite_uri).metadata("run") == {"a": 1, "b": 2, "both": 2}
    assert one.run_ids() == ["run"]


def test_pickle(sqlite_uri: str) -> None:
    """A tracker can be sent to another process."""
    tracker = MlflowTracker(sqlite_uri, "one")
    tracker.add_metadata("run", x=1)
    assert pickle.loads(pickle.dumps(tracker)).metadata("run") == {"x": 1}
    assert repr(tracker) == f"MlflowTracker({sqlite_uri!r}, 'one')"


def test_unknown_filter(sqlite_uri: str) -> None:
    """A filter that does not exist is refused."""
    with pytest.raises(TrackingError, match="unknown filter status"):
        MlflowTracker(sqlite_uri).run_ids(status="x")


# -------------------------------------------------------------------------------------------------------
# configuration


def test_registered() -> None:
    """The plugin is found by its entry point."""
    assert "mlflow" in get_plugins().names("trackers")
    assert [info.status for info in get_plugins().infos() if info.name == "mlflow"] == ["loaded"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "no tracking_uri.*MLFLOW_TRACKING_URI"),
        ("{}", "no tracking_uri"),
        ("{", "must be a tracking URI or a JSON object"),
        ('{"uri": "x"}', "unknown setting uri; known: tracking_uri, experiment_name"),
        ('{"tracking_uri": 7}', "tracking_uri=7: must be a text"),
        ('{"experiment_name": ""}', "experiment_name='': must be a text"),
        ("sqlite:///mlflow.db", "tracking_uri='sqlite:///mlflow.db': relative; .*absolute path"),
        ("sqlite://", "relative"),
        ("file:mlruns", "relative"),
        ("file://mlruns", "relative"),
        ("relative/mlruns", "must be a database, a server or an absolute path"),
        ("ftp://user:secret@host/x", "tracking_uri=ftp:…"),
    ],
)
def test_wrong_configuration(config: str | None, message: str) -> None:
    """A wrong configuration is an error where the app is submitted, and shows no password."""
    with pytest.raises(ConfigError, match=f"tracker 'mlflow': .*{message}") as caught:
        check_trackers({"mlflow": config})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////a/m.db",
        "sqlite:///file:/a/m.db?uri=true",
        "file:///a",
        "file:/a",
        "file://localhost/a",
        "/a",
    ],
)
def test_absolute_places(uri: str) -> None:
    """What is the same file from every folder is taken, in every way to write it."""
    check_trackers({"mlflow": uri})


def test_configuration_from_mlflows_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configuration MLflow's own variable counts."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    (tracker,) = build_trackers({"mlflow": None})
    assert isinstance(tracker, MlflowTracker)
    assert tracker.tracking_uri == "http://127.0.0.1:1"


def test_submit_loads_no_mlflow(tmp_path: Path) -> None:
    """Where an app is submitted the tracker is checked without loading MLflow or touching its
    store.
    """
    code = (
        "import sys\n"
        "from transload.plugins import get_plugins\n"
        "from transload.tracker import check_trackers\n"
        "get_plugins().infos(); check_trackers({'mlflow': sys.argv[1]})\n"
        "assert 'mlflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, f"sqlite:///{tmp_path}/m.db"], check=True)
    assert list(tmp_path.iterdir()) == []
