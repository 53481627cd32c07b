"""Folders of checkpoints on an engine are shared by name and kept as long as needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.errors import SubmitError, UnsupportedFeature
from transload.runner import Launch, Runner
from transload.specs import Resource, Role, parse_app_handle


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def kept(home: Path) -> list[str]:
    """Return the names under which checkpoints are kept."""
    return sorted(path.name for path in home.glob("docker-*/checkpoints/*"))


def test_a_submit_that_fails_leaves_none(
    runner: Runner, shell: Any, engine: Any, transload_home: Path
) -> None:
    """What is refused after the folder was made takes it away, but not another job's."""
    plain = shell("true", checkpoints=True)
    plain.roles[0].entrypoint = "/none"
    with pytest.raises(SubmitError):
        runner.run(plain, "docker", {"network": "none-of-that-name"})
    assert kept(transload_home) == []
    first = runner.run(shell("true", checkpoints=True), "docker", app_id="first")
    ends(runner, first)
    with pytest.raises(SubmitError):
        runner.run(Launch(app=plain, checkpoints=first), "docker", {"network": "none-of-that-name"})
    assert kept(transload_home) == [parse_app_handle(first).app_id]


def test_no_room_for_checkpoints(runner: Runner, shell: Any, transload_home: Path) -> None:
    """A submit whose folder cannot be made is refused and says so. Nothing was started."""
    runner.list("docker")
    folder = Path(runner.scheduler("docker").results_folder("x", {}) or "").parents[2]  # type: ignore[arg-type]
    folder.mkdir(parents=True)
    (folder / "checkpoints").write_text("in the way")
    with pytest.raises(SubmitError, match=r"checkpoints"):
        runner.run(shell("true", checkpoints=True), "docker", app_id="none")
    assert runner.scheduler("docker").describe(["none"])["none"] is None


@pytest.mark.unit
def test_an_engine_on_another_machine(
    monkeypatch: pytest.MonkeyPatch, transload_home: Path
) -> None:
    """An engine that mounts nothing of this machine refuses checkpoints, with what to do."""
    from transload_docker.scheduler import create_docker

    monkeypatch.setenv("DOCKER_HOST", "ssh://someone@far.example")
    role = Role("main", "image", checkpoints=True, resource=Resource(cpu=1, gpu=0, memMB=1))
    with pytest.raises(UnsupportedFeature, match=r"far\.example is on another machine.*submit"):
        create_docker("tests").checkpoint_folder("name", role, {})
