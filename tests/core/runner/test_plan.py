"""A dry-run returns a plan that can be read, shown and submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.runner import Job, Launch, Plan, Runner
from transload.specs import AppDef, AppDryRunInfo, AppState, Role, parse_app_handle

pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")


def _echo(**more: object) -> AppDef:
    return AppDef("x", [Role("main", "", entrypoint="echo", args=["hi"], **more)])  # type: ignore[arg-type]


def test_a_plan_says_what_would_be_submitted() -> None:
    """Scheduler, id, handle, options and both definitions are fields, and nothing runs yet."""
    with Runner("mine") as runner:
        plan = runner.dryrun(_echo(), "local", {"working_dir": "/tmp"}, app_id="one")
        assert isinstance(plan, AppDryRunInfo)
        assert (plan.scheduler, plan.session, plan.app_id) == ("local", "mine", "one")
        assert plan.handle == "local://mine/one"
        assert plan.id_given
        assert plan.cfg["working_dir"] == "/tmp"
        assert plan.app == _echo()
        assert plan.digest == _echo().digest()
        assert plan.resolved.roles[0].env["TRANSLOAD_JOB_ID"] == plan.handle
        assert plan.tracker_base is not None and plan.tracker_base.startswith("/")
        assert runner.list("local") == []


def test_a_plan_is_shown_as_its_request_and_as_json() -> None:
    """``print`` shows the request, and the JSON has the definition with its secrets masked."""
    with Runner("mine") as runner:
        plan = runner.dryrun(_echo(env={"API_TOKEN": "s3cr3t"}), "local")
    shown = json.loads(plan.to_json())
    assert shown["request"] == str(plan)
    assert (shown["app_id"], shown["scheduler"]) == (plan.app_id, "local")
    assert AppDef.from_dict(shown["app"]).name == "x"
    assert "s3cr3t" not in plan.to_json()


def test_from_a_launch_to_a_plan_to_a_job() -> None:
    """A launch is planned with a runner, and the plan's submit returns the job."""
    with Runner("mine") as runner:
        plan = Launch(component="utils.echo", args={"msg": "hi"}, scheduler="local").plan(runner)
        job = plan.submit()
        assert isinstance(job, Job)
        assert job.handle == plan.handle
        assert job.wait(timeout=60).state is AppState.SUCCEEDED
        assert list(job.logs()) == ["hi\n"]
        assert job.app_id == parse_app_handle(plan.handle).app_id
        described = job.describe()
        assert described is not None and described.digest() == plan.digest


def test_only_a_plan_can_be_scheduled() -> None:
    """A bare request lacks what a submit needs, and is refused."""
    with Runner("mine") as runner, pytest.raises(ConfigError, match="takes what this runner's"):
        runner.schedule(AppDryRunInfo(5, str))


class _Louder(Role):
    """A role that changes the request, as a subclass of a user may."""

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[object]) -> AppDryRunInfo[object]:
        """Return another object than the one given."""
        return AppDryRunInfo(dryrun_info.request, lambda request: f"{scheduler}: louder")


def test_a_role_may_return_another_request(tmp_path: Path) -> None:
    """What `pre_proc` returns is taken over, and the plan stays a plan."""
    role = _Louder("main", "", entrypoint="touch", args=[str(tmp_path / "made")])
    with Runner("mine") as runner:
        plan = runner.dryrun(AppDef("x", [role]), "local")
        assert isinstance(plan, Plan)
        assert str(plan) == "local: louder"
        assert plan.submit().wait(timeout=60).state is AppState.SUCCEEDED
    assert (tmp_path / "made").exists()
