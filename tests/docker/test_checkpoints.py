"""Folders of checkpoints on an engine are shared by name and kept as long as needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound, SubmitError, UnsupportedFeature
from transload.runner import Launch, Runner
from transload.specs import AppState, Resource, RetryPolicy, Role, parse_app_handle

COUNT = 'cd "$TRANSLOAD_CHECKPOINT_DIR"; echo x >> steps; [ "$(wc -l < steps)" -ge {} ]'


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def kept(home: Path) -> list[str]:
    """Return the names under which checkpoints are kept."""
    folder = home / "docker" / "checkpoints"
    if not folder.exists():
        return []
    return sorted(path.name for path in folder.iterdir())


def test_attempts_of_a_job_share_their_checkpoints(
    runner: Runner, shell: Any, transload_home: Path
) -> None:
    """An attempt finds what the one before has kept, as any user of a container.

    Each role that asks for a folder has its own.
    """
    app = shell(
        {
            "main": COUNT.format(3),
            "other": "touch $TRANSLOAD_CHECKPOINT_DIR/mine",
            "plain": "env | grep CHECKPOINT_DIR || true",
        },
        checkpoints=True,
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        retry_delay=0.0,
    )
    app.roles[1].checkpoints = True
    handle = runner.run(app, "docker", {"user": "1234:1234"}, app_id="mine")
    status = ends(runner, handle)
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 2), status
    assert list(runner.log_lines(handle, "plain", 0)) == []
    scheduler = runner.scheduler("docker")
    description = scheduler.describe("mine")
    assert description is not None and description.checkpoints == "mine"
    first, second = scheduler.checkpoints("mine")
    assert (first.role, second.role) == ("main", "other")
    assert Path(first.path) == transload_home / "docker" / "checkpoints" / "mine" / "main"
    assert first.size and first.changed is not None
    assert time.time() - 90 < first.changed < time.time() + 1
    store = scheduler.checkpoint_store("mine", "main")
    assert store is not None and store.read("steps") == b"x\n" * 3
    assert scheduler.checkpoint_store("mine", "plain") is None


def test_kept_until_the_last_job_that_names_them_is_deleted(
    runner: Runner, shell: Any, transload_home: Path
) -> None:
    """A second job uses the folder of the first, which is removed with the last of the two."""
    first = runner.run(shell(COUNT.format(2), checkpoints=True), "docker", app_id="first")
    assert ends(runner, first).state is AppState.FAILED
    launch = Launch(app=shell(COUNT.format(2)), checkpoints=first)
    second = runner.run(launch, "docker", app_id="second")
    assert ends(runner, second).state is AppState.SUCCEEDED
    runner.delete(first)
    assert kept(transload_home) == ["first"]
    runner.delete(second)
    assert kept(transload_home) == []
    with pytest.raises(AppNotFound):
        runner.scheduler("docker").checkpoints("second")


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
    (transload_home / "docker").mkdir(parents=True)
    (transload_home / "docker" / "checkpoints").write_text("in the way")
    with pytest.raises(SubmitError, match=r"checkpoints"):
        runner.run(shell("true", checkpoints=True), "docker", app_id="none")
    assert runner.scheduler("docker").describe("none") is None


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
