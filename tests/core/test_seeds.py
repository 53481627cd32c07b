"""The names that the documents which this project began from describe, each used as they use it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from transload import specs, workspace
from transload.cli import main
from transload.components import get_component
from transload.errors import ConfigError, UnsupportedFeature
from transload.pipelines import get_adapter
from transload.runner import get_runner
from transload.runtime.tracking import FsspecResultTracker, ResultTracker
from transload.schedulers import SchedulerBase
from transload.tracker import api
from transload.tracker.api import (
    ENV_TRANSLOAD_JOB_ID,
    ENV_TRANSLOAD_PARENT_RUN_ID,
    ENV_TRANSLOAD_TRACKERS,
    AppRun,
    AppRunTrackableSource,
    Lineage,
    TrackerArtifact,
    TrackerBase,
    TrackerSource,
    build_trackers,
    tracker_config_env_var_name,
    trackers_from_environ,
)


def echo(text: str) -> specs.AppDef:
    """Return the definition of the concepts' first example."""
    role = specs.Role(
        name="echo", entrypoint="/bin/echo", image="/tmp", args=[text], num_replicas=1
    )
    return specs.AppDef(name="echo", roles=[role])


# -- concepts


def test_an_app_definition_is_plain_data() -> None:
    """``specs.AppDef``, ``Role`` and ``Resource`` are dataclasses with these fields."""
    size = specs.Resource(cpu=4, gpu=1, memMB=1024)
    role = specs.Role(
        name="trainer",
        entrypoint="train",
        image="i",
        resource=size,
        args=["--lr", "1"],
        num_replicas=2,
    )
    app = specs.AppDef(name="ddp", roles=[role])
    assert app.roles[0].resource.memMB == 1024
    assert specs.AppDef.from_json(app.to_json()) == app


def test_a_runner_runs_it(transload_home: Path) -> None:
    """``runner.get_runner().run(appdef)`` returns a handle, and the state ends as SUCCEEDED."""
    with get_runner() as runner:
        handle = runner.run(echo("hello world"), "local")
        status = runner.wait(handle)
        assert status is not None and status.state is specs.AppState.SUCCEEDED
        assert runner.stop(handle) is None


def test_the_command_line_runs_a_component(
    plain_folder: str, transload_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``run FILE`` calls the component, a function that returns an ``AppDef``."""
    Path("app_spec.py").write_text(
        "import transload.specs as specs\n\n\n"
        "def echo(text: str = 'hello') -> specs.AppDef:\n"
        "    role = specs.Role('echo', image='', entrypoint='/bin/echo', args=[text])\n"
        "    return specs.AppDef('echo', [role])\n"
    )
    assert main(["run", "app_spec.py"]) == 0
    assert "echo/0 hello" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["utils.echo", "utils.python", "dist.ddp"])
def test_components_that_come_along(name: str) -> None:
    """They are found by name, and return an ``AppDef``."""
    given = {"dist.ddp": {"script": "main.py"}, "utils.python": {"script": "main.py"}}
    app = get_component(name).fn(**given.get(name, {}))
    assert isinstance(app, specs.AppDef)


def test_a_workspace_is_copied(tmp_path: Path) -> None:
    """``workspace`` brings local code to a job."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "main.py").write_text("")
    workspace.copy_workspace(specs.Workspace({str(source): ""}), str(target))
    assert (target / "main.py").exists()


def test_pipelines_and_schedulers_are_named() -> None:
    """An adapter is asked for by name, and a scheduler has one base class."""
    assert issubclass(type(get_runner().scheduler("local")), SchedulerBase)
    with pytest.raises((ConfigError, KeyError, UnsupportedFeature, ValueError), match="nobody"):
        get_adapter("nobody")


# -- results


@pytest.mark.parametrize("key", ["1", 1, "attempt_1/out"])
def test_a_result_tracker_is_a_map(tmp_path: Path, key: str | int) -> None:
    """``put`` and ``get`` are ``[]``, of another tracker with the same base, too."""
    tracker: ResultTracker = FsspecResultTracker(str(tmp_path))
    tracker.put(key, l2norm=1.2)
    assert tracker.get(key)["l2norm"] == tracker[key]["l2norm"] == 1.2
    tracker[key] = {"l2norm/mean": 1.2, "l2norm/sem": 3.4, "note": "text"}
    assert FsspecResultTracker(str(tmp_path))[key] == tracker[key]
    assert tracker[key]["l2norm/sem"] == 3.4
    assert FsspecResultTracker(str(tmp_path / "other"))[key] == {}


# -- trackers


class Recorded(TrackerBase):
    """A tracker as a user writes it, which keeps everything in memory."""

    kept: dict[str, object]

    def __init__(self, config: str | None) -> None:
        self.kept = {"config": config}
        self.links: list[tuple[str, TrackerSource]] = []

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Keep an artifact."""
        self.kept[name] = TrackerArtifact(name, path, metadata)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts."""
        return {k: each for k, each in self.kept.items() if isinstance(each, TrackerArtifact)}

    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Keep metadata."""
        self.kept.update(kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return all that is kept."""
        return self.kept

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Keep a link."""
        self.links.append((run_id, TrackerSource(source_id, artifact_name)))

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the links from a run."""
        return [source for run, source in self.links if run == run_id]

    def lineage(self, run_id: str) -> Lineage:
        """Return nothing but the run."""
        return Lineage(run_id)

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Return the runs that have a source."""
        return [run for run, _ in self.links]


FACTORY = f"{__name__}:Recorded"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppRun]:
    """The run of a process that was launched with two trackers and a parent."""
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setenv(ENV_TRANSLOAD_JOB_ID, "local://s/app")
    monkeypatch.setenv(ENV_TRANSLOAD_PARENT_RUN_ID, "local://s/parent")
    monkeypatch.setenv(ENV_TRANSLOAD_TRACKERS, f"{FACTORY}")
    monkeypatch.setenv(tracker_config_env_var_name(FACTORY), "its settings")
    AppRun.run_from_env.cache_clear()
    yield AppRun.run_from_env()
    AppRun.run_from_env.cache_clear()


def test_the_run_of_a_job(job: AppRun) -> None:
    """``AppRun`` has an id and backends, writes to all of them, and is always the same object."""
    assert AppRun.run_from_env() is job
    assert job.id == job.job_id() == "local://s/app"
    job.add_metadata(md_1="foo", md_2="bar")
    job.add_artifact("model", "s3://m", {"step": 1})
    job.add_source("experiment", artifact_name="data")
    (backend,) = job.backends
    kept = backend.metadata(job.id)
    assert (kept["config"], kept["md_1"], kept["md_2"]) == ("its settings", "foo", "bar")
    assert backend.artifacts(job.id)["model"] == TrackerArtifact("model", "s3://m", {"step": 1})
    sources = list(job.sources())
    assert all(isinstance(each, AppRunTrackableSource) for each in sources)
    named = [(each.parent.id, each.artifact_name) for each in sources]
    assert named == [("local://s/parent", None), ("experiment", "data")]
    assert [child.id for child in job.children()] == ["local://s/app"] * 2


def test_trackers_come_from_variables(job: AppRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are built of names and configurations, in the environment or given."""
    (tracker,) = trackers_from_environ()
    assert isinstance(tracker, Recorded)
    (other,) = build_trackers({FACTORY: None})
    assert other.metadata("x")["config"] is None
    monkeypatch.delenv(ENV_TRANSLOAD_TRACKERS)
    assert list(trackers_from_environ()) == []
    assert tracker_config_env_var_name("mlflow") == "TRANSLOAD_TRACKER_MLFLOW_CONFIG"


def test_outside_of_a_job_a_run_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is ``<UNDEFINED>``, and whatever is added goes nowhere."""
    for name in [name for name in os.environ if name.startswith("TRANSLOAD_")]:
        monkeypatch.delenv(name)
    AppRun.run_from_env.cache_clear()
    run = AppRun.run_from_env()
    run.add_metadata(x=1)
    assert (run.id, list(run.sources()), list(run.children())) == ("<UNDEFINED>", [], [])
    AppRun.run_from_env.cache_clear()


def test_the_file_tracker(tmp_path: Path) -> None:
    """``fsspec`` is a tracker of this kind, with lineage both ways."""
    (tracker,) = build_trackers({"fsspec": str(tmp_path)})
    parent, child = AppRun("parent", [tracker]), AppRun("child", [tracker])
    child.add_source("parent", "model")
    assert [each.id for each in parent.children()] == ["child"]
    assert isinstance(api.TrackerBase, type) and isinstance(tracker, TrackerBase)
    lineage = tracker.lineage("parent")
    assert isinstance(lineage, Lineage)
    assert (lineage.parents, lineage.descendants) == ([], ["child"])
