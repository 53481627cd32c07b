"""``AppRun`` is what an application uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.tracker import AppRun, FsspecTracker, injected_environment


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the run of this process before and after."""
    for name in list(os.environ):
        if name.startswith("TRANSLOAD_") and name != "TRANSLOAD_HOME":
            monkeypatch.delenv(name)
    AppRun.run_from_env.cache_clear()
    yield
    AppRun.run_from_env.cache_clear()


def _launch(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> AppRun:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return AppRun.run_from_env()


def _job(trackers: dict[str, str | None]) -> dict[str, str]:
    return {**injected_environment(trackers), "TRANSLOAD_JOB_ID": "local://s/app"}


def test_outside_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that was not launched has an empty run, and writing to it does nothing."""
    run = _launch(monkeypatch, injected_environment({"fsspec": str(tmp_path / "runs")}))
    assert run.job_id() == run.id == "<UNDEFINED>"
    run.add_metadata(x=1)
    run.add_artifact("a", "/a")
    run.add_source("s")
    assert list(run.sources()) == list(run.children()) == []
    assert not (tmp_path / "runs").exists()


def test_in_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A launched process writes to every tracker under its handle, and its parent is a source."""
    roots = [tmp_path / "one", tmp_path / "two"]
    trackers = {"fsspec": str(roots[0]), "transload.tracker.fsspec:create": str(roots[1])}
    run = _launch(monkeypatch, {**_job(trackers), "TRANSLOAD_PARENT_RUN_ID": "local://s/parent"})
    assert run is AppRun.run_from_env()
    run.add_metadata(lr=0.1, self=1)
    run.add_artifact("model", "/m", {"step": 1})
    run.add_source("data", "csv")
    for root in roots:
        tracker = FsspecTracker(None, root)
        assert tracker.metadata("local://s/app") == {"lr": 0.1, "self": 1}
        assert tracker.artifacts("local://s/app")["model"].path == "/m"
        assert tracker.run_ids(parent_run_id="local://s/parent") == ["local://s/app"]
        assert tracker.run_ids(parent_run_id="data") == ["local://s/app"]
    assert {(s.parent.id, s.artifact_name) for s in run.sources()} == {
        ("local://s/parent", None),
        ("data", "csv"),
    }
    assert [child.id for child in AppRun("data", run.backends).children()] == ["local://s/app"]


def test_broken_tracker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that cannot be made is an error in the job, not silence."""
    with pytest.raises(ConfigError, match="tracker 'fsspec': nothing is configured"):
        _launch(monkeypatch, _job({"fsspec": None}))


def test_job_loads_little(tmp_path: Path) -> None:
    """A job with a built-in tracker on a folder looks up no plugin and loads no fsspec."""
    code = (
        "import sys\n"
        "from transload.tracker import AppRun\n"
        "run = AppRun.run_from_env(); run.add_metadata(x=1); run.add_artifact('a', '/a'); "
        "run.add_source('s')\n"
        "assert list(run.children()) == []\n"
        "heavy = {'fsspec', 'pluggy', 'click', 'asyncio', 'importlib.metadata', "
        "'transload.plugins.manager'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    environment = os.environ | _job({"fsspec": str(tmp_path)})
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert FsspecTracker(None, tmp_path).metadata("local://s/app") == {"x": 1}
