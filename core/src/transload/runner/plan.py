"""Make of a `Launch` the `Plan` that a dry-run shows and a submit starts."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import transload
from transload.errors import ConfigError, SpecError
from transload.runner.environments import (
    headers_of,
    with_environments,
    with_open_settings,
    with_packages,
)
from transload.runner.job import Job
from transload.runner.job_env import (
    Run,
    all_with_checkpoints,
    check_app_id,
    checkpoints_of_ended,
    named_first,
    not_passed,
    own_folder,
    resolve_secrets,
    safe_name,
    surrounding_run,
    tracker_base_of,
    unique_app_id,
    with_variables,
)
from transload.runner.provenance import who_asks
from transload.runner.travel import add_files, announce, is_from_here, with_job_mounts
from transload.runtime.tracking.names import given_base, local_path
from transload.schedulers.api import Submission, refuse_unsupported
from transload.schedulers.follower import emit
from transload.specs import (
    MASK,
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppState,
    AppStatus,
    CfgVal,
    Options,
    Workspace,
    make_app_handle,
    masked_args,
    masked_env,
)
from transload.specs.checks import shorten
from transload.specs.settings import read_settings, with_settings

if TYPE_CHECKING:
    from transload.components import Component
    from transload.runner.api import Runner
    from transload.runner.config import Defaults
    from transload.runner.launch import Launch
    from transload.schedulers.api import SchedulerBase
    from transload.schedulers.environments import Packages

T = TypeVar("T")

_HIDDEN: Final = "xxxxxxxx"
"""Stands for a value that was masked, to see whether it would be masked again."""


@dataclass(repr=False, eq=False, kw_only=True)
class Plan(AppDryRunInfo[T]):
    """A job that can be submitted, with all that is known of it before it runs.

    ``print()`` shows the request, and `to_json` everything. Nothing outside of this process has
    been touched. The request alone may be changed before the submit.

    Attributes:
        request: the scheduler's own request.
        scheduler: name of the scheduler that it goes to.
        session: name of the session that submits it.
        app_id: its id, as the scheduler will know it.
        app: its definition, which ``describe`` will show.
        resolved: the definition that the scheduler converted. It is ``app`` with its id, the
            variables that tell it where it reports, what is passed on, and what travels with it.
        opts: the run options in force.
        tracker_base: where it reports results. None means nowhere.
        parent_run_id: the run that it derives from.
        id_given: the caller gave the id.
        inherit_env: it gets the whole environment of the process that submits it, where its
            scheduler can do that.
        checkpoints: the name under which its checkpoints are kept. None means that it has none.
        packages: role → what it needs installed.
        asked: the words of the orchestrator that asks, under its name (see
            `transload.schedulers.Submission`). The submit adds who it is.
        reattached: the submit found the job, and started nothing.
    """

    scheduler: str
    session: str
    app_id: str
    app: AppDef
    resolved: AppDef
    opts: Options = field(default_factory=Options)
    tracker_base: str | None = None
    parent_run_id: str | None = None
    id_given: bool = False
    inherit_env: bool = True
    checkpoints: str | None = None
    packages: Mapping[str, Packages] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    reattached: bool = False
    _runner: Runner
    _folder: str = ""
    _unchanged: T | None = None
    """A copy of the request, where it may have to be converted again at the submit."""

    @property
    def cfg(self) -> dict[str, CfgVal]:
        """Return its scheduler's options in force, by name."""
        return self.opts.cfg()

    @property
    def handle(self) -> AppHandle:
        """Return the handle that the job will have."""
        return make_app_handle(self.scheduler, self.session, self.app_id)

    @property
    def digest(self) -> str:
        """Return the digest of its definition."""
        return self.app.digest()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, with secret-looking values masked."""
        return {
            "app_id": self.app_id,
            "scheduler": self.scheduler,
            "cfg": self.cfg,
            "app": self.app.masked().to_dict(),
            "request": str(self),
        }

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict())

    def variables_not_passed(self) -> list[str]:
        """Return the variables that programs usually want, are set here, and would not reach it.

        Returns:
            Their names, such as ``HF_TOKEN``, sorted. ``pass_env`` passes those that it names.
        """
        scheduler = self._runner.scheduler(self.scheduler)
        inherits = self.inherit_env and scheduler.inherits_env
        return not_passed(self.resolved, os.environ, inherits)

    def variables_to_name(self) -> list[str]:
        """Return those of `variables_not_passed` that this machine has not named before.

        From now on they count as named.
        """
        return named_first(self.variables_not_passed())

    def submit(self) -> Job:
        """Submit it, with the errors of `Runner.schedule`."""
        scheduler = self._runner.scheduler(self.scheduler)
        # before anything is copied, so that what is missing here leaves nothing behind
        secrets = resolve_secrets(
            self.resolved, scheduler, self._runner.environ, self._runner.secret_sources
        )
        submission = self._submission(secrets)
        self._bring_packages(scheduler, secrets)
        request = self._prepared_request(scheduler)
        started = scheduler.submit(request, self.app_id, submission)
        self.reattached = not started
        if started:
            self._make_given_folder(scheduler)
            emit(self.handle, AppStatus(AppState.SUBMITTED))
        return Job(self.handle, self._runner)

    def _make_given_folder(self, scheduler: SchedulerBase) -> None:
        """Make the job's folder below a tracker base that was given for it, if it is on this disk.

        One that is missing later was removed. If it cannot be made, the job will say so.
        """
        base = self.tracker_base
        if not base or not given_base(base) or not scheduler.shares_disk:
            return
        if local_path(base) == base:
            with contextlib.suppress(OSError):
                os.makedirs(base, exist_ok=True)

    def _submission(self, secrets: Mapping[str, Mapping[str, str]]) -> Submission:
        return Submission(
            app=self.app,
            digest=self.digest,
            session=self.session,
            cfg=self.cfg,
            tracker_base=self.tracker_base,
            parent_run_id=self.parent_run_id,
            id_given=self.id_given,
            inherit_env=self.inherit_env,
            secrets=secrets,
            checkpoints=self.checkpoints,
            asked={**who_asks(self._runner.settings, self._folder), **self.asked},
        )

    def _bring_packages(
        self, scheduler: SchedulerBase, secrets: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Put what uv reads to where the roles run."""
        for role in self.resolved.roles:
            packages = self.packages.get(role.name)
            if packages is not None:
                values = {**role.env, **secrets.get(role.name, {})}
                variables = packages.variables_from(values)
                scheduler.bring_packages(role, packages, self.opts, variables)

    def _prepared_request(self, scheduler: SchedulerBase) -> T:
        """Return the request to submit, after a workspace was copied.

        Raises:
            ConfigError: if the caller changed the request, and a copy needs a new one.
        """
        resolved = self.resolved
        if not scheduler.shares_disk and any(each.workspace for each in resolved.roles):
            announce(resolved, self.scheduler)
        prepared = scheduler.prepare(resolved, self.opts)
        if prepared is self.resolved:
            return self.request
        self._refuse_changed(scheduler)
        request: T = scheduler.convert(prepared, self.opts)
        return request

    def _refuse_changed(self, scheduler: SchedulerBase) -> None:
        """Refuse a request that the caller has changed, and that must be built anew.

        Raises:
            ConfigError: if it differs from what the dry-run has made.
        """
        unchanged = self._unchanged or scheduler.convert(self.resolved, self.opts)
        if self.request != unchanged:
            raise ConfigError(
                "the request was changed after the dry-run, but it must be built anew (workspace)"
            )


# -- from a launch to a plan


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a job goes, which is a scheduler and the run options in force there.

    Args:
        name: name of the scheduler.
        scheduler: the scheduler itself.
        opts: its run options.
        tracker_base: where the job reports, by options or settings. None means that they do not
            say.
        pass_env: patterns of variables to pass on, by options or settings.
        environment: what jobs need installed there, by options or settings.
        folder: what relative paths are relative to. None means the working directory.
    """

    name: str
    scheduler: SchedulerBase
    opts: Options
    tracker_base: str | None
    pass_env: Sequence[str]
    environment: str | None
    folder: str | None = None

    @property
    def cfg(self) -> dict[str, CfgVal]:
        """Return the scheduler's own options, by name."""
        return self.opts.cfg()

    @property
    def here(self) -> str:
        """Return the folder that relative paths are relative to."""
        return self.folder or os.getcwd()

    @property
    def shares_disk(self) -> bool:
        """Tell whether its jobs see the files of this machine."""
        return self.scheduler.shares_disk

    def full_id(self, app_id: str) -> str:
        """Return an id as the scheduler knows it.

        Raises:
            SpecError: if it cannot be an id.
        """
        return self.scheduler.qualified_id(check_app_id(app_id), self.opts)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A definition as it was written, before anything was set over it.

    Args:
        app: the definition.
        app_id: its id, where that is known already.
        tracker_base: where it reports, by the launch, its component or the destination.
        from_here: the roles whose code lies in the working folder, which the job does not see.
        code_folder: the folder of the component's file, if it comes from one.
    """

    app: AppDef
    app_id: str | None
    tracker_base: str | None
    from_here: frozenset[str]
    code_folder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Planning:
    """A launch that is being planned, with the arguments of `Launch.plan`, which describes them."""

    launch: Launch
    runner: Runner
    app_id: str | None = None
    context_args: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[AppDef], AppDef] | None = None
    checkpoint_name: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)


def make_plan(given: Planning) -> Plan[Any]:
    """Return the plan of a launch, with the errors of `Launch.plan`."""
    runner = given.runner
    to = _destination(given)
    written = _written(given, to)
    app = _final(given, to, written)
    run = _run_of(app, given, to, written)
    resolved = with_variables(with_job_mounts(app, to, runner), run, to, runner)
    add_files(resolved, to, written)
    refuse_unsupported(resolved, to.scheduler)
    resolved, packages = with_packages(resolved, to.scheduler, to.opts)
    plan = Plan(
        request=to.scheduler.convert(resolved, to.opts),
        _fmt=to.scheduler.format_request,
        scheduler=to.name,
        session=runner.name(),
        app_id=run.app_id,
        app=app,
        resolved=resolved,
        opts=to.opts,
        tracker_base=run.tracker_base,
        parent_run_id=run.parent,
        id_given=given.app_id is not None,
        checkpoints=run.checkpoints,
        packages=packages,
        asked=dict(given.asked),
        inherit_env=runner.inherit_env,
        _runner=runner,
        _folder=to.here,
    )
    return _changed_by_roles(plan)


def destination(runner: Runner, name: str, cfg: Mapping[str, CfgVal]) -> Destination:
    """Return where a job goes, as `Runner.destination` does."""
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"cfg={shorten(cfg)}: must be a dict of run options")
    scheduler = runner.scheduler(name)
    opts = scheduler.options.read({**runner.configured_options(name), **cfg})
    return Destination(
        name=name,
        scheduler=scheduler,
        opts=opts,
        tracker_base=opts.tracker_base or runner.settings.get("tracker_base"),
        pass_env=opts.pass_env or runner.settings.get("pass_env") or [],
        environment=opts.environment,
    )


def _destination(given: Planning) -> Destination:
    """Return where a launch goes. Its job works in the launch's folder, if it sees that."""
    launch = given.launch
    runner = given.runner
    cfg = launch.cfg
    if launch.pass_env:
        cfg = {**cfg, "pass_env": list(launch.pass_env)}
    to = runner.destination(launch.scheduler_name(runner.settings), cfg)
    to = replace(to, folder=launch.folder)
    is_open = "working_dir" in to.cfg and not to.cfg["working_dir"]
    if launch.folder is not None and to.shares_disk and is_open:
        to = replace(to, opts=to.opts.read({**to.opts.to_dict(), "working_dir": launch.folder}))
    return to


def _written(given: Planning, to: Destination) -> Written:
    """Return the definition that was asked for, with the settings of its component alone."""
    if given.app_id is not None:
        check_app_id(given.app_id)
    if given.launch.component is not None:
        return _of_component(given, to)
    app = given.launch.definition(given.context_args)
    return Written(
        app=app,
        app_id=given.app_id,
        tracker_base=given.launch.tracker_base or to.tracker_base,
        from_here=_roles_from_here(app, to),
    )


def _of_component(given: Planning, to: Destination) -> Written:
    runner = given.runner
    component = given.launch.resolve_component()
    launch = replace(given.launch, component=component)
    defaults = _defaults_of(component, runner, to)
    app_id = given.app_id
    base = launch.tracker_base or to.tracker_base
    context_args = given.context_args
    if launch.declares("tracker_base"):
        # the component asks where it reports, which may depend on the id, so make both first
        app_id = to.full_id(app_id or unique_app_id(component.fn_name))
        own_base = tracker_base_of(to, app_id, base)
        if own_base is not None:
            context_args = {"tracker_base": own_base, **context_args}
        arguments = launch.arguments(context_args, defaults)
        # whoever gave that argument, it says where the job reports
        launch = replace(launch, args=arguments)
        base = arguments.get("tracker_base") or base
    app = launch.definition(context_args, defaults)
    app = with_settings(app, runner.settings.component_settings(component))
    return Written(
        app=app,
        app_id=app_id,
        tracker_base=base and str(base),
        code_folder=component.folder,
        from_here=_roles_from_here(app, to),
    )


def _roles_from_here(app: AppDef, to: Destination) -> frozenset[str]:
    return frozenset(role.name for role in app.roles if is_from_here(role, to))


def _defaults_of(component: Component, runner: Runner, to: Destination) -> Defaults:
    """Return the argument defaults that settings and session set for a component.

    The scheduler's run option ``image`` goes before the public image that built-in components have
    otherwise.
    """
    found = runner.settings.component_defaults(component)
    own = runner.component_defaults.get(component.name, {})
    found.update(own)
    found.sources = {**found.sources, **dict.fromkeys(own, "component_defaults")}
    image = to.cfg.get("image")
    if image and any(
        each.name == "image" and each.default == transload.IMAGE for each in component.parameters
    ):
        found.setdefault("image", image)
    return found


def _final(given: Planning, to: Destination, written: Written) -> AppDef:
    """Return the definition that is submitted.

    It has all settings, the changes of caller and plugins, what must be installed for it, and a
    workspace.
    """
    from transload.plugins import get_plugins

    launch = given.launch
    settings = given.runner.settings
    workspace = launch.workspace
    if workspace is None:
        workspace = settings.get("workspace")
    folders = _script_folders(to, written)
    headers = headers_of(_with_workspace(written.app, workspace), folders)
    is_command = launch.command is not None
    app = with_open_settings(written.app, headers, settings.job(), is_command=is_command)
    app = with_settings(app, read_settings(launch.overrides))
    if given.change is not None:
        app = given.change(app)
    if launch.checkpoints is not None:
        app = all_with_checkpoints(app)
    app = with_environments(app, launch.environment, to.environment, headers, to.here)
    app.check_runnable()
    app = get_plugins().before_submit(app, to.name, to.cfg)
    app = _with_workspace(app, workspace)
    app.check_runnable()
    _refuse_masks(app)
    _warn_of_unused_images(app, to, written)
    return app


def _script_folders(to: Destination, written: Written) -> dict[str, list[str]]:
    """Return the folders in which each role's script may lie.

    They are the folder of the component file, and the one that the role runs in or that travels
    with it.
    """
    first = [] if written.code_folder is None else [written.code_folder]
    here = to.here
    if to.shares_disk:
        here = str(to.cfg.get("working_dir") or here)
    return {
        role.name: [*first, here] if to.shares_disk or role.name in written.from_here else first
        for role in written.app.roles
    }


def _with_workspace(app: AppDef, workspace: str | Workspace | None) -> AppDef:
    """Return a job with a workspace for every role that has none of its own."""
    given = Workspace.from_str(workspace) if isinstance(workspace, str) else workspace
    if not given:
        return app
    app = copy.deepcopy(app)
    for role in app.roles:
        role.workspace = role.workspace or given
    return app


def _refuse_masks(app: AppDef) -> None:
    """Refuse a definition that was taken from a description, where secret-looking values are masked.

    Raises:
        SpecError: for a variable or an argument that would hold the mask.
    """
    for index, role in enumerate(app.roles):
        env = {name: value.replace(MASK, _HIDDEN) for name, value in role.env.items()}
        masked = masked_env(env)
        for name, value in role.env.items():
            if MASK in value and masked[name] == value:
                raise SpecError(
                    f"roles[{index}].env[{name!r}]={value}: {MASK} is what is shown in place of a "
                    "secret: give the value, or take the variable out and name its source in "
                    "secrets"
                )
        words = masked_args([word.replace(MASK, _HIDDEN) for word in role.args])
        for number, word in enumerate(role.args):
            if MASK in word and words[number] == word:
                raise SpecError(
                    f"roles[{index}].args[{number}]={word[:80]!r}: {MASK} is what is shown in "
                    "place of a secret: give the value, or have the program read it from a "
                    "variable that secrets names"
                )


def _warn_of_unused_images(app: AppDef, to: Destination, written: Written) -> None:
    """Log one line for an image that was set over a definition and that the scheduler ignores."""
    before = {role.name: role.image for role in written.app.roles}
    asked = {role.image: role for role in app.roles if role.image != before.get(role.name)}
    for image, role in asked.items():
        if image and not to.scheduler.uses_image(role, to.opts):
            logging.getLogger("transload.runner").warning(
                "image %s is not used: scheduler %s runs programs of the machine itself, where "
                "no folder has that name",
                image,
                to.name,
            )


def _run_of(app: AppDef, given: Planning, to: Destination, written: Written) -> Run:
    """Return which run a job is, and where it reports."""
    launch = given.launch
    runner = given.runner
    app_id = to.full_id(written.app_id or unique_app_id(app.name))
    name = safe_name(given.checkpoint_name or app_id)
    checkpoints = None
    if any(role.checkpoints for role in app.roles):
        checkpoints = name
        if launch.checkpoints is not None:
            checkpoints = checkpoints_of_ended(runner, launch.checkpoints, to.name)
    return Run(
        handle=make_app_handle(to.name, runner.name(), app_id),
        app_id=app_id,
        tracker_base=own_folder(to, app_id, tracker_base_of(to, app_id, written.tracker_base)),
        parent=launch.parent_run_id or surrounding_run(),
        name=name,
        checkpoints=checkpoints,
    )


def _changed_by_roles(plan: Plan[Any]) -> Plan[Any]:
    """Let roles of subclasses change the request (`Role.pre_proc`)."""
    if any(role.workspace for role in plan.resolved.roles):
        # a second convert would differ if a file of the workspace did, which is no change of the
        # request
        plan._unchanged = copy.deepcopy(plan.request)
    for role in plan.app.roles:
        changed = role.pre_proc(plan.scheduler, plan)
        plan.request = changed.request
        plan._fmt = changed._fmt
    return plan
