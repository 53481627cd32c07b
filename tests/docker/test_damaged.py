"""Nobody ends a job because its notes on the engine are damaged or of another version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.specs import AppState, parse_app_handle
from transload_docker.engine import Engine
from transload_docker.home import Home
from transload_docker.plan import ENDED, RECORD, STOP
from transload_docker.supervisor import Supervisor

DEEP = "[" * 100_000


def _runs(runner: Runner, handle: str) -> bool:
    status = runner.status(handle)
    return status is not None and status.state is AppState.RUNNING


@pytest.mark.parametrize("text", ["", '{"schema": 99}'])
def test_supervisor_leaves_the_job_alone(
    runner: Runner, shell: Any, engine: Any, renote: Any, eventually: Any, text: str
) -> None:
    """A supervisor takes the containers of an app whose record it cannot read for no rubbish."""
    handle = runner.run(shell("sleep 300", replicas=2), "docker")
    eventually(lambda: _runs(runner, handle), timeout=60)
    app_id = parse_app_handle(handle).app_id
    before = renote(app_id, RECORD, text)
    supervisor = Supervisor(Engine(engine.url), Home(engine.url))
    supervisor._all()
    supervisor._clear(app_id)
    assert [row["State"] for row in engine.client.containers()] == ["running", "running"]
    assert runner.status(handle).state is AppState.UNKNOWN  # type: ignore[union-attr]
    renote(app_id, RECORD, before)
    assert _runs(runner, handle)


def test_cancel(runner: Runner, shell: Any, engine: Any, renote: Any, eventually: Any) -> None:
    """Such a job can be cancelled, and its containers end."""
    handle = runner.run(
        shell("trap 'exit 0' TERM; sleep 300 & wait $!"), "docker", app_id="broken-2"
    )
    eventually(lambda: _runs(runner, handle), timeout=60)
    renote("broken-2", RECORD, "{")
    runner.cancel(handle)
    eventually(lambda: not engine.client.containers(), timeout=30)
    runner.delete(handle)


def test_newer_record_is_left_alone(runner: Runner, shell: Any, renote: Any) -> None:
    """A newer version's record is shown as UNKNOWN, and neither cancelled nor deleted."""
    handle = runner.run(shell("true"), "docker", app_id="newer-1")
    assert runner.wait(handle, timeout=60) is not None
    before = renote("newer-1", RECORD, json.dumps({"schema": 99}))
    assert [row.app_handle for row in runner.list("docker")] == [handle]
    assert "written by a newer version of transload (schema 99" in runner.status(handle).msg  # type: ignore[union-attr]
    for act in (runner.delete, runner.cancel):
        with pytest.raises(SchedulerUnavailable, match="newer version"):
            act(handle)
    renote("newer-1", RECORD, before)
    assert runner.status(handle).state is AppState.SUCCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [STOP, ENDED])
@pytest.mark.parametrize("text", [DEEP, '{"state": "RUNNING", "roles": 5}'])
def test_other_notes(runner: Runner, shell: Any, renote: Any, kind: str, text: str) -> None:
    """A damaged note of a cancel or of an end hides no other app, and the app can be deleted."""
    good, bad = (runner.run(shell("true"), "docker", app_id=name) for name in ("good-1", "bad-1"))
    for handle in (good, bad):
        assert runner.wait(handle, timeout=60) is not None
    renote("bad-1", kind, text)
    assert {row.app_handle for row in runner.list("docker")} == {good, bad}
    assert runner.status(bad).is_terminal()  # type: ignore[union-attr]
    runner.delete(bad)
    assert [row.app_handle for row in runner.list("docker")] == [good]
