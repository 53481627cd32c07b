"""Plan a job, from what was asked to what would be submitted, without touching anything."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import transload
from transload.runner.checkpoints import (
    all_with_checkpoints,
    name_of_ended,
    safe_name,
    with_checkpoint_folders,
)
from transload.runner.environments import (
    headers_of,
    with_environments,
    with_open_settings,
)
from transload.runner.job_env import (
    check_app_id,
    name_wandb_runs,
    own_folder,
    python_output,
    run_environment,
    surrounding_run,
    tracker_base_of,
    unique_app_id,
    with_identity,
    with_workspace,
)
from transload.runner.job_mounts import with_job_mounts
from transload.runner.packaging import (
    add_default_workspace,
    code_named_in,
    pass_env,
    refuse_windows_scripts,
    resolve_relative_paths,
)
from transload.runner.plan import Plan
from transload.specs import (
    MASK,
    AppDef,
    CfgVal,
    Role,
    SpecError,
    Workspace,
    make_app_handle,
    masked_args,
    masked_env,
)
from transload.specs.settings import read_settings, with_settings

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.runner.launch import Launch
    from transload.schedulers.api import SchedulerBase

_HIDDEN: Final = "xxxxxxxx"
"""Stands for a value that was masked, to see whether it would be masked again."""


@dataclass(frozen=True)
class Destination:
    """Where a job goes, which is a scheduler and the run options in force there.

    Args:
        name: name of the scheduler.
        scheduler: the scheduler itself.
        cfg: its run options, resolved.
        tracker_base: where the job reports, by options or settings. None means that they do not
            say.
        pass_env: patterns of variables to pass on, by options or settings.
        environment: what jobs need installed there, by options or settings.
    """

    name: str
    scheduler: SchedulerBase
    cfg: dict[str, CfgVal]
    tracker_base: str | None
    pass_env: Sequence[str]
    environment: str | None = None


@dataclass
class _Definition:
    """A definition as it was built from what was asked, and what came to light meanwhile.

    Args:
        app: the definition.
        app_id: the id, where it had to be made before the definition.
        tracker_base: where the job reports, by the launch, its component or the destination.
        code_folder: the folder of the component's file, if it comes from one.
    """

    app: AppDef
    app_id: str | None
    tracker_base: str | None
    code_folder: str | None = None


def make_plan(
    launch: Launch,
    runner: Runner,
    app_id: str | None,
    context_args: Mapping[str, Any],
    change: Callable[[AppDef], AppDef] | None,
    *,
    checkpoint_name: str | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Plan[Any]:
    """Return the plan of a launch, with the arguments and errors of `Launch.plan`."""
    id_given = app_id is not None
    to = runner.destination(launch.scheduler_name(runner.settings), _asked_options(launch))
    _work_in(launch.folder, to)

    # the header of a script fills in what is open before anything is set over it
    if app_id is not None:
        check_app_id(app_id)
    built = _build(replace(launch, overrides={}), runner, to, app_id, context_args)
    from_here = _roles_from_here(launch, to, built)
    images = {role.name: role.image for role in built.app.roles}
    app = _final_app(launch, runner, to, built, change, from_here)
    _warn_of_unused_images(app, images, to)

    app_id = _full_id(to, built.app_id or unique_app_id(app.name))
    given_base = built.tracker_base and str(built.tracker_base)
    base = own_folder(to.scheduler, app_id, to.cfg, _results_base(to, app_id, given_base))
    parent = launch.parent_run_id or surrounding_run()
    handle = make_app_handle(to.name, runner.name(), app_id)
    environment = run_environment(handle, app.roles, base, parent, runner.settings)

    resolved = with_job_mounts(runner, app, to.name, to.cfg)
    defaults = python_output(runner._environ, to.cfg)
    resolved = with_identity(resolved, app_id, environment, defaults)
    checkpoints = _checkpoints(launch, runner, to, app, checkpoint_name or app_id)
    if checkpoints is not None:
        resolved = with_checkpoint_folders(resolved, checkpoints, to.scheduler, to.cfg)
    _pack(resolved, launch, to, built.code_folder, from_here)
    folder = launch.folder or os.getcwd()
    refuse_windows_scripts(resolved, folder if to.scheduler.capabilities.shares_disk else None)
    pass_env(resolved, to.pass_env, runner._environ)
    name_wandb_runs(resolved, checkpoints or safe_name(checkpoint_name or app_id))

    plan = Plan(
        request=to.scheduler.convert(resolved, to.cfg),
        _fmt=to.scheduler.format_request,
        scheduler=to.name,
        session=runner.name(),
        app_id=app_id,
        app=app,
        resolved=resolved,
        cfg=to.cfg,
        tracker_base=base,
        parent_run_id=parent,
        id_given=id_given,
        checkpoints=checkpoints,
        asked=dict(asked or {}),
        inherit_env=runner._inherit_env,
        _runner=runner,
    )
    if any(role.workspace for role in resolved.roles):
        # a second convert would differ if a file of the workspace did, which is no change of the
        # request
        plan._unchanged = copy.deepcopy(plan.request)
    _let_roles_change(plan)
    return plan


def _checkpoints(
    launch: Launch, runner: Runner, to: Destination, app: AppDef, own_name: str
) -> str | None:
    """Return the name under which the checkpoints of a job are kept, or None if it has none."""
    if not any(role.checkpoints for role in app.roles):
        return None
    if launch.checkpoints is not None:
        return name_of_ended(runner, launch.checkpoints, to.name)
    return safe_name(own_name)


def _full_id(to: Destination, app_id: str) -> str:
    """Return an id as the scheduler knows it.

    Raises:
        SpecError: if it cannot be an id.
    """
    return to.scheduler.qualified_id(check_app_id(app_id), to.cfg)


def _results_base(to: Destination, app_id: str, given: str | None) -> str | None:
    """Return the base of the results of a job, by the base that was given for it."""
    return tracker_base_of(to.scheduler, app_id, to.cfg, given)


def _asked_options(launch: Launch) -> Mapping[str, CfgVal]:
    """Return the run options that a launch names."""
    if not launch.pass_env:
        return launch.cfg
    return {**launch.cfg, "pass_env": list(launch.pass_env)}


def _work_in(folder: str | None, to: Destination) -> None:
    """Have a job work in a folder, where it sees the submitter's disk and has no other folder."""
    if folder is None or not to.scheduler.capabilities.shares_disk:
        return
    if "working_dir" in to.cfg and not to.cfg["working_dir"]:
        to.cfg["working_dir"] = folder


def _build(
    launch: Launch,
    runner: Runner,
    to: Destination,
    app_id: str | None,
    context_args: Mapping[str, Any],
) -> _Definition:
    """Build the definition that was asked for."""
    base = launch.tracker_base or to.tracker_base
    if launch.component is None:
        return _Definition(launch.build(context_args), app_id, base)

    component = launch.resolve_component()
    launch = replace(launch, component=component)
    defaults = runner.component_defaults(component, to.cfg)
    if launch.declares("tracker_base"):
        # the component asks where it reports, which may depend on the id, so make both first
        app_id = _full_id(to, app_id or unique_app_id(component.fn_name))
        own_base = _results_base(to, app_id, base)
        if own_base is not None:
            context_args = {"tracker_base": own_base, **context_args}
        arguments = launch.arguments(context_args, defaults)
        # whoever gave that argument, it says where the job reports
        launch = replace(launch, args=arguments)
        base = arguments.get("tracker_base") or base
    code_folder = component.place.own_folder if component.place else None
    settings = runner.settings.component_settings(component)
    app = with_settings(launch.build(context_args, defaults), settings)
    return _Definition(app, app_id, base, code_folder)


def _final_app(
    launch: Launch,
    runner: Runner,
    to: Destination,
    built: _Definition,
    change: Callable[[AppDef], AppDef] | None,
    from_here: Collection[str],
) -> AppDef:
    """Return the definition that is submitted.

    It has the environments that scripts name, the changes of caller and plugins, and a workspace.
    """
    from transload.plugins import get_plugins

    app = built.app
    workspace: str | Workspace | None = launch.workspace
    if workspace is None:
        workspace = runner.settings.get("workspace")
    folders = _script_folders(launch, to, built, from_here)
    headers = headers_of(with_workspace(app, workspace), folders)
    is_command = launch.command is not None
    app = with_open_settings(app, headers, runner.settings.job(), is_command=is_command)
    app = with_settings(app, read_settings(launch.overrides))
    if change is not None:
        app = change(app)
    if launch.checkpoints is not None:
        app = all_with_checkpoints(app)
    folder = launch.folder or os.getcwd()
    app = with_environments(app, launch.environment, to.environment, headers, folder)
    app.check_runnable()
    app = get_plugins().before_submit(app, to.name, to.cfg)
    app = with_workspace(app, workspace)
    app.check_runnable()
    _refuse_masks(app)
    return app


def _roles_from_here(launch: Launch, to: Destination, built: _Definition) -> set[str]:
    """Return the names of the roles whose code lies in the working folder.

    These are the roles without an image. A role whose image holds no code counts too, if its
    command names a file or module of the folder. There are none where jobs see the folder itself.
    """
    if to.scheduler.capabilities.shares_disk:
        return set()
    folder = launch.folder or os.getcwd()
    return {role.name for role in built.app.roles if _is_from_here(role, to, folder)}


def _is_from_here(role: Role, to: Destination, folder: str) -> bool:
    """Tell whether the code of a role lies in a folder of this machine, and in no image."""
    if not role.image:
        return True
    is_default = role.image in (transload.IMAGE, to.cfg.get("image"))
    if not is_default and to.scheduler.uses_image(role, to.cfg):
        return False
    return code_named_in(role, folder) is not None


def _script_folders(
    launch: Launch, to: Destination, built: _Definition, from_here: Collection[str]
) -> dict[str, list[str]]:
    """Return the folders in which each role's script may lie.

    They are the folder of the component file, and the one that the role runs in or that travels
    with it.
    """
    folder = launch.folder or os.getcwd()
    if to.scheduler.capabilities.shares_disk:
        folder = str(to.cfg.get("working_dir") or folder)
    folders = {}
    for role in built.app.roles:
        is_here = to.scheduler.capabilities.shares_disk or role.name in from_here
        found = [folder] if is_here else []
        folders[role.name] = found if built.code_folder is None else [built.code_folder, *found]
    return folders


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
                    "secret: "
                    "give the value, or take the variable out and name its source in secrets"
                )
        words = masked_args([word.replace(MASK, _HIDDEN) for word in role.args])
        for number, word in enumerate(role.args):
            if MASK in word and words[number] == word:
                raise SpecError(
                    f"roles[{index}].args[{number}]={word[:80]!r}: {MASK} is what is shown in "
                    "place of a secret: "
                    "give the value, or have the program read it from a variable that secrets names"
                )


def _warn_of_unused_images(app: AppDef, before: Mapping[str, str], to: Destination) -> None:
    """Log one line for an image that was asked for by name and that the scheduler does not use.

    Args:
        app: the definition as it is submitted.
        before: role → image as the definition was built, before anything was set over it.
        to: where it goes.
    """
    asked = {}
    for role in app.roles:
        if role.image and role.image != before.get(role.name):
            asked[role.image] = role
    for image, role in asked.items():
        if not to.scheduler.uses_image(role, to.cfg):
            logging.getLogger("transload.runner").warning(
                "image %s is not used: scheduler %s runs programs of the machine itself, where "
                "no folder has that name",
                image,
                to.name,
            )


def _pack(
    app: AppDef,
    launch: Launch,
    to: Destination,
    code_folder: str | None,
    from_here: Collection[str],
) -> None:
    """Make local paths in ``app`` absolute, and add the folders that travel."""
    if launch.folder is not None:
        resolve_relative_paths(app, launch.folder)
    if to.scheduler.capabilities.shares_disk:
        return
    folder = launch.folder or os.getcwd()
    if to.scheduler.takes_workspace(to.cfg):
        add_default_workspace(app, code_folder, folder, from_here)
    else:
        _warn_of_code_left_here(app, to, folder)


def _warn_of_code_left_here(app: AppDef, to: Destination, folder: str) -> None:
    """Log one line for a role that names code of the folder, which reaches it in no way."""
    for role in app.roles:
        if role.workspace or role.image != transload.IMAGE:
            continue
        word = code_named_in(role, folder)
        if word is not None:
            logging.getLogger("transload.runner").warning(
                "role %s: %s lies in %s, which does not travel to scheduler %s with these run "
                "options; --workspace says what it needs, or give --image with the code in it",
                role.name,
                word,
                folder,
                to.name,
            )


def _let_roles_change(plan: Plan[Any]) -> None:
    """Let roles of subclasses change the request (`Role.pre_proc`)."""
    for role in plan.app.roles:
        changed = role.pre_proc(plan.scheduler, plan)
        plan.request = changed.request
        plan._fmt = changed._fmt
