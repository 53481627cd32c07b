"""What a user's type checker sees of the core's wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.pipelines import get_adapter
from transload.runner import AppResults, Runner, get_runner
from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppDef, AppState, AppStatus, Resource, Role, RoleStatus, macros
from transload.tracker import AppRun


def component(replicas: int = 1) -> AppDef:
    """Return an app as a user's component would."""
    role = Role(
        "main",
        "",
        entrypoint="echo",
        args=[macros.app_id],
        resource=Resource(cpu=1, gpu=0, memMB=64),
    )
    assert_type(role.num_replicas, int)
    assert_type(role.env, dict[str, str])
    return AppDef("name", [role], metadata={"team": "vision"})


def runner_api() -> None:
    """Return types of the runner."""
    with get_runner("session") as runner:
        assert_type(runner, Runner)
        handle = runner.run(component(), "local", {"log_dir": "logs"})
        status = runner.wait(handle, timeout=5.0)
        assert_type(status, AppStatus | None)
        if status is not None:
            assert_type(status.state, AppState)
            assert_type(status.is_terminal(), bool)
            assert_type(status.roles, list[RoleStatus])
        assert_type(runner.results(handle), AppResults)
        assert_type(runner.results(handle).value("accuracy"), int | float | str)
        for line in runner.log_lines(handle, "main", 0):
            assert_type(line, str)


def tracking_api() -> None:
    """Return types of results and tracking."""
    tracker = FsspecResultTracker("base")
    tracker[0] = {"loss": 0.5}
    assert_type("0" in tracker, bool)
    run = AppRun.run_from_env()
    run.add_metadata(seed=1)
    assert_type(run.job_id(), str)


def adapter_api() -> None:
    """What converts is found by its host's name."""
    get_adapter("airflow").convert(component)
