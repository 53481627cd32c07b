"""Nobody ends a job because its record is damaged or of another version."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.specs import AppState, parse_app_handle


def record_of(home: Path, handle: str) -> Path:
    """Return the record of a job."""
    (found,) = home.glob(f"docker-*/apps/{parse_app_handle(handle).app_id}/record.json")
    return found


def state_of(runner: Runner, handle: str) -> AppState | None:
    """Return the state of a job."""
    status = runner.status(handle)
    return status and status.state


@pytest.mark.parametrize("text", ["", '{"schema": 99}'])
def test_the_job_is_left_alone(
    runner: Runner,
    shell: Any,
    engine: Any,
    eventually: Any,
    transload_home: Path,
    strike: Callable[[str], None],
    text: str,
) -> None:
    """Containers of a job whose record cannot be read are no rubbish, and go on with it."""
    handle = runner.run(shell("sleep 300", replicas=2), "docker")
    eventually(lambda: state_of(runner, handle) is AppState.RUNNING, timeout=60)
    strike(handle)
    record = record_of(transload_home, handle)
    before = record.read_text()
    record.write_text(text)
    runner.wait(runner.run(shell("true"), "docker"), timeout=60)  # its keeper sweeps
    runner.scheduler("docker").prune()
    assert [row["State"] for row in engine.client.containers()] == ["running", "running"]
    record.write_text(before)
    eventually(lambda: state_of(runner, handle) is AppState.RUNNING, timeout=60)


@pytest.mark.parametrize("keeper_lives", [True, False])
def test_cancel(
    runner: Runner,
    shell: Any,
    engine: Any,
    eventually: Any,
    transload_home: Path,
    strike: Callable[[str], None],
    keeper_lives: bool,
) -> None:
    """A job whose record is damaged can be cancelled, and its containers end."""
    handle = runner.run(
        shell("trap 'exit 0' TERM; sleep 300 & wait $!"), "docker", app_id="broken-2"
    )
    eventually(lambda: state_of(runner, handle) is AppState.RUNNING, timeout=60)
    if not keeper_lives:
        strike(handle)
    record = record_of(transload_home, handle)
    record.unlink()
    record.write_text("{")
    runner.cancel(handle)
    eventually(lambda: not engine.client.containers(), timeout=30)
    runner.delete(handle)


def test_newer_record_is_left_alone(runner: Runner, shell: Any, transload_home: Path) -> None:
    """A newer version's record is shown as UNKNOWN, and neither cancelled nor deleted."""
    handle = runner.run(shell("true"), "docker", app_id="newer-1")
    assert runner.wait(handle, timeout=60) is not None
    record = record_of(transload_home, handle)
    before = record.read_text()
    record.write_text(json.dumps({"schema": 99}))
    assert [row.app_handle for row in runner.list("docker")] == [handle]
    status = runner.status(handle)
    assert status is not None
    assert "written by a newer version of transload (schema 99" in status.msg
    for act in (runner.delete, runner.cancel):
        with pytest.raises(SchedulerUnavailable, match="newer version"):
            act(handle)
    record.write_text(before)
    assert state_of(runner, handle) is AppState.SUCCEEDED
