"""Checkpoints of a job are named, handed to the job, and continued by another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from transload.errors import AppFailed, ConfigError, SpecError, UnsupportedFeature
from transload.pipelines import ExecutionOptions, Identity
from transload.runner import Launch, Runner
from transload.runner.config import Settings
from transload.runner.job_env import safe_name
from transload.schedulers import AppDescription, Submission
from transload.specs import AppDef, AppState, Notice, Role
from transload_testing.scripted import ScriptedScheduler
from transload_testing.steps import PlainStep

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


class Keeping(ScriptedScheduler):
    """A scripted scheduler that has a place for checkpoints."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.notice_signals = frozenset({"USR1"})
        self.submissions: dict[str, Submission] = {}
        self.requests: list[Any] = []

    def checkpoint_folder(self, name: str, role: Role, cfg: Mapping[str, Any]) -> str:
        """Return a folder below one of our own."""
        return f"/kept/{name}/{role.name}"

    def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
        """Keep what goes with it."""
        self.submissions[app_id] = submission
        self.requests.append(request)
        return super().submit(request, app_id, submission)

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Say under which name the checkpoints are kept."""
        found = super().describe(app_ids)
        for app_id, description in found.items():
            if description is not None and app_id in self.submissions:
                description.checkpoints = self.submissions[app_id].checkpoints
        return found


def app(**values: Any) -> AppDef:
    """Return an app of two roles, of which the second asks for checkpoints."""
    reader = Role("reader", "", entrypoint="true")
    trainer = Role("trainer", "", entrypoint="true", checkpoints=True, **values)
    return AppDef("job", [reader, trainer])


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a runner that has the scheduler alone."""
    schedulers: dict[str, Any] = {
        "scripted": lambda session, **_: Keeping(session, str(tmp_path / "apps")),
        "elsewhere": lambda session, **_: Keeping(session, str(tmp_path), name="elsewhere"),
    }
    return Runner("tests", schedulers, settings=Settings({}, {}))


RUNS = {"script": '{"steps": ["RUNNING"]}'}
FAILS = {"script": '{"steps": ["FAILED"]}'}


def failed_try(runner: Runner, launch: Launch, identity: Identity, checkpoints: Any) -> str:
    """Run a try of an orchestrator's step, whose job fails, and return the job."""
    step = PlainStep(runner, launch, identity, ExecutionOptions(checkpoints=checkpoints))
    with pytest.raises(AppFailed):
        step.run()
    assert step.handle is not None
    return step.handle


def folders(plan: Any) -> list[str | None]:
    """Return what each role finds in its environment."""
    return [role.env.get("TRANSLOAD_CHECKPOINT_DIR") for role in plan.resolved.roles]


def test_only_roles_that_ask_have_a_folder(runner: Runner) -> None:
    """The folder is named after the job, the definition is not changed, and others pay nothing."""
    plan = runner.dryrun(app(), "scripted", app_id="mine")
    assert folders(plan) == [None, "/kept/mine/trainer"]
    assert plan.checkpoints == "mine"
    assert plan.digest == app().digest()
    plan = runner.dryrun(AppDef("a", [Role("r", "", entrypoint="true")]), "scripted")
    assert (plan.checkpoints, folders(plan)) == (None, [None])


def test_a_job_goes_on_with_the_checkpoints_of_an_ended_one(runner: Runner) -> None:
    """The handle of an ended job leads to its folder, of which the scheduler is to keep the name."""
    first = runner.dryrun(app(), "scripted", RUNS, app_id="first").submit()
    scheduler = runner.scheduler("scripted")
    with pytest.raises(SpecError, match="writes them still"):
        runner.dryrun(Launch(app=app(), checkpoints=first.handle), "scripted")
    first.cancel()
    assert first.wait(timeout=60).state is AppState.CANCELLED

    plan = runner.dryrun(
        Launch(app=app(), checkpoints=first.handle), "scripted", RUNS, app_id="second"
    )
    assert folders(plan) == [None, "/kept/first/trainer"]
    second = plan.submit()
    found = scheduler.describe(["second"])["second"]
    assert found is not None
    assert found.checkpoints == "first"
    second.cancel()
    second.wait(timeout=60)
    # a chain: the third begins from the second, which used the folder of the first
    third = Launch(app=app(), checkpoints=second.handle)
    assert runner.dryrun(third, "scripted").checkpoints == "first"


def test_a_handle_asks_for_checkpoints_where_no_role_does(runner: Runner) -> None:
    """All roles have the folder of the ended job, then."""
    first = runner.dryrun(app(), "scripted", RUNS, app_id="first").submit()
    first.cancel()
    first.wait(timeout=60)
    plain = AppDef("a", [Role("r", "", entrypoint="true"), Role("s", "", entrypoint="true")])
    plan = runner.dryrun(Launch(app=plain, checkpoints=first.handle), "scripted")
    assert folders(plan) == ["/kept/first/r", "/kept/first/s"]


def test_wrong_handles(runner: Runner) -> None:
    """A job of another scheduler, or one without checkpoints, is refused, with what to type."""
    with pytest.raises(UnsupportedFeature, match=r"checkpoints=elsewhere:.*get --checkpoints"):
        runner.dryrun(Launch(app=app(), checkpoints="elsewhere://tests/a"), "scripted")
    plain = AppDef("a", [Role("r", "", entrypoint="true")])
    other = runner.dryrun(plain, "scripted", app_id="plain").submit()
    with pytest.raises(SpecError, match="did not ask for checkpoints"):
        runner.dryrun(Launch(app=app(), checkpoints=other.handle), "scripted")


def test_the_program_is_told_the_signal_of_its_notice(runner: Runner) -> None:
    """The variable is there only where there is a notice."""
    roles = [Role("r", "", entrypoint="true", notice=Notice(60, "USR1"))]
    plan = runner.dryrun(AppDef("a", [*roles, Role("s", "", entrypoint="true")]), "scripted")
    names = [role.env.get("TRANSLOAD_NOTICE_SIGNAL") for role in plan.resolved.roles]
    assert names == ["USR1", None]


def test_names_are_safe_and_stay_apart() -> None:
    """An id that no folder can have becomes one that no other id becomes."""
    assert safe_name("trainer-k3w9") == "trainer-k3w9"
    names = {safe_name("a:b"), safe_name("a-b"), safe_name("a@b")}
    assert len(names) == 3
    assert not [name for name in names if ":" in name or "@" in name]


def test_launch_is_read_by_an_older_version() -> None:
    """The field is written only where it says something, and survives JSON then."""
    assert "checkpoints" not in Launch(app=app()).to_dict()
    launch = Launch(app=app(), checkpoints="local://a/b")
    assert Launch.from_dict(launch.to_dict()).checkpoints == "local://a/b"


def test_attempts_of_a_unit_share_a_folder(runner: Runner) -> None:
    """All tries of an orchestrator's step find the same folder. With ``new`` each has its own."""
    names = {}
    for which in ("keep", "new"):
        identity = Identity("host", ("here", which), ("unit",))
        launch = Launch(app=app(), scheduler="scripted", cfg=FAILS)
        handles = [failed_try(runner, launch, identity, which) for _ in range(2)]
        names[which] = [runner.job(each).need_description().checkpoints for each in handles]
    assert len(set(names["keep"])) == 1
    assert len(set(names["new"])) == 2
    changed = ExecutionOptions(checkpoints="new")
    assert ExecutionOptions.from_dict(changed.to_dict()).checkpoints == "new"
    with pytest.raises(ConfigError, match="checkpoints='none': must be 'keep' or 'new'"):
        ExecutionOptions(checkpoints="none")  # type: ignore[arg-type]


def wandb_runs(plan: Any) -> list[str | None]:
    """Return the W&B run of each role."""
    return [role.env.get("WANDB_RUN_ID") for role in plan.resolved.roles]


ASKS = {"WANDB_RESUME": "allow"}


@pytest.mark.parametrize(("which", "count"), [("keep", 1), ("new", 2)])
def test_attempts_of_a_unit_share_a_wandb_run(runner: Runner, which: Any, count: int) -> None:
    """All tries of an orchestrator's step have one id, also without checkpoints.

    With ``new`` each has its own.
    """
    asks = AppDef("job", [Role("r", "", entrypoint="true", env=ASKS)])
    launch = Launch(app=asks, scheduler="scripted", cfg=FAILS)
    identity = Identity("host", ("here",), ("unit",))
    scheduler: Any = runner.scheduler("scripted")
    for _ in range(2):
        failed_try(runner, launch, identity, which)
    requested = [each.app.roles[0].env["WANDB_RUN_ID"] for each in scheduler.requests]
    assert len(requested) == 2
    assert len(set(requested)) == count


def test_a_wandb_run_is_named_where_a_role_asks(runner: Runner) -> None:
    """Each role that asks has its own run, or the one that it names. Others have none."""
    environments = [ASKS, {}, {**ASKS, "WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "must"}]
    roles = [
        Role(f"r{number}", "", entrypoint="true", env=env)
        for number, env in enumerate(environments)
    ]
    plan = runner.dryrun(AppDef("job", roles), "scripted", app_id="own")
    assert wandb_runs(plan) == ["own-r0", None, "mine", None]
    one = AppDef("job", roles[:1])
    assert wandb_runs(runner.dryrun(one, "scripted", app_id="a:b")) == [safe_name("a:b")]
    ids = [runner.dryrun(one, "scripted", app_id="x" * 150 + end) for end in "ab"]
    long = {wandb_runs(plan)[0] for plan in ids}
    assert {len(str(each)) for each in long} == {64}
    assert len(long) == 2


def test_all_roles_find_the_name_that_trackers_use(runner: Runner) -> None:
    """A role without checkpoints is in the same run. A job without any has no such variable."""
    plan = runner.dryrun(app(), "scripted", app_id="mine")
    names = [role.env.get("TRANSLOAD_CHECKPOINT_NAME") for role in plan.resolved.roles]
    assert names == ["mine", "mine"]
    plan = runner.dryrun(AppDef("a", [Role("r", "", entrypoint="true")]), "scripted")
    assert "TRANSLOAD_CHECKPOINT_NAME" not in plan.resolved.roles[0].env
