"""Submitting: what is put together for a dry-run, and what then starts it."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import transload
from transload.errors import ConfigError, SpecError
from transload.runner.job_env import (
    check_app_id,
    own_folder,
    resolve_secrets,
    run_environment,
    surrounding_run,
    tracker_base_of,
    unique_app_id,
    with_identity,
    with_workspace,
)
from transload.runner.job_mounts import with_job_mounts
from transload.runner.packaging import add_default_workspace, pass_env, resolve_relative_paths
from transload.schedulers.api import Submission
from transload.specs import (
    MASK,
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppState,
    AppStatus,
    CfgVal,
    Workspace,
    make_app_handle,
    masked_args,
    masked_env,
)
from transload.specs.checks import shorten

if TYPE_CHECKING:
    from transload.components import Component
    from transload.runner.api import Runner
    from transload.runner.config import Defaults
    from transload.runner.launch import Launch
    from transload.schedulers.api import SchedulerBase

_HIDDEN: Final = "xxxxxxxx"
"""Stands for a value that was masked, to see whether it would be masked again."""


def build(
    runner: Runner,
    launch: Launch,
    app_id: str | None = None,
    *,
    context_args: Mapping[str, Any] = MappingProxyType({}),
    change: Callable[[AppDef], AppDef] | None = None,
) -> AppDryRunInfo[Any]:
    """Return the request for what is launched; arguments and errors as in `Runner.dryrun`.

    ``context_args`` is what a host knows of the component's arguments, and ``change`` is done to the app
    first of all.
    """
    name = launch.scheduler or runner.settings.scheduler
    backend = runner.scheduler(name)
    cfg = {**launch.cfg, "pass_env": list(launch.pass_env)} if launch.pass_env else launch.cfg
    options, configured_base, patterns = resolve_options(runner, name, cfg)
    folder, base = launch.folder, launch.tracker_base or configured_base
    if folder is not None and backend.capabilities.shares_disk and "working_dir" in options:
        options["working_dir"] = options["working_dir"] or folder
    given, code, defaults = app_id, None, None

    def whole(app_id: str) -> str:
        return backend.qualified_id(check_app_id(app_id), options)

    if launch.component is not None:
        component = launch.resolve_component()
        launch = replace(launch, component=component)
        code, defaults = (
            component.place.own_folder if component.place else None,
            _defaults_of(runner, component, options),
        )
        if launch.declares("tracker_base"):
            # the component wants to know where it reports, which may depend on the id: make both
            # first
            app_id = whole(app_id or unique_app_id(component.fn_name))
            own = tracker_base_of(backend, app_id, options, base)
            arguments = launch.arguments(
                context_args if own is None else {"tracker_base": own, **context_args}, defaults
            )
            # whoever gave that argument, it says where the app reports
            launch, base = replace(launch, args=arguments), arguments.get("tracker_base") or base
    written = launch.build(context_args, defaults)
    images = {role.name: role.image for role in written.roles}
    app = _app(runner, written, launch.workspace, change, name, options)
    _warn_of_unused_images(runner, app, images, name, options)
    app_id = whole(app_id or unique_app_id(app.name))
    base = own_folder(
        backend, app_id, options, tracker_base_of(backend, app_id, options, base and str(base))
    )
    parent = launch.parent_run_id or surrounding_run()
    handle = make_app_handle(name, runner._name, app_id)
    reachable = with_job_mounts(runner, app, name, options)
    converted = with_identity(
        reachable, app_id, run_environment(handle, app.roles, base, parent, runner.settings)
    )
    if folder is not None:
        resolve_relative_paths(converted, folder)
    if not backend.capabilities.shares_disk and backend.takes_workspace(options):
        without_image = {role for role, image in images.items() if not image}
        add_default_workspace(converted, code, folder or os.getcwd(), without_image)
    pass_env(converted, patterns, runner._environ)
    info = _request(backend, name, app, converted, options)
    info._app_id = app_id
    info._submission = Submission(
        app=app,
        digest=app.digest(),
        session=runner._name,
        cfg=options,
        tracker_base=base,
        parent_run_id=parent,
        id_given=given is not None,
        inherit_env=runner._inherit_env,
    )
    return info


def _warn_of_unused_images(
    runner: Runner,
    app: AppDef,
    before: Mapping[str, str],
    scheduler: str,
    options: Mapping[str, CfgVal],
) -> None:
    """Log one line for an image that somebody asked for by name, and that the scheduler makes
    nothing of.
    """
    asked = {
        role.image: role for role in app.roles if role.image and role.image != before.get(role.name)
    }
    for image, role in asked.items():
        if not runner.scheduler(scheduler).uses_image(role, options):
            logging.getLogger("transload.runner").warning(
                "image %s is not used: scheduler %s runs programs of the machine itself, where it "
                "is no folder",
                image,
                scheduler,
            )


def resolve_options(
    runner: Runner, scheduler: str, cfg: Mapping[str, CfgVal] | None
) -> tuple[dict[str, CfgVal], str | None, Sequence[str]]:
    """Return the run options in force; tracker base and patterns of variables among them or in the
    settings.

    Raises:
        ConfigError: for an unknown scheduler, or an option that is wrong.
    """
    if not isinstance(cfg, Mapping | None):
        raise ConfigError(
            f"cfg={shorten(cfg)}: must be a dict of run options (runopts.cfg_from_str reads a text)"
        )
    merged = {**runner.configured_options(scheduler), **(cfg or {})}
    base = merged.pop("tracker_base", None) or runner.settings.get("tracker_base")
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"run option tracker_base={base!r}: must be a str")
    patterns = merged.pop("pass_env", None) or runner.settings.get("pass_env") or []
    if not isinstance(patterns, Sequence) or isinstance(patterns, str):
        raise ConfigError(f"run option pass_env={shorten(patterns)}: must be a list of texts")
    return runner.scheduler(scheduler).run_opts().resolve(merged), base, patterns


def _defaults_of(runner: Runner, component: Component, options: Mapping[str, CfgVal]) -> Defaults:
    """Return the argument defaults that settings and session set for a component.

    The scheduler's run option ``image`` goes before the public image that built-in components have
    otherwise.
    """
    name = component.name
    found, own = runner.settings.component_defaults(name), runner._component_defaults.get(name, {})
    found.update(own)
    found.sources = {**found.sources, **dict.fromkeys(own, "component_defaults")}
    image = options.get("image")
    if image and any(
        each.name == "image" and each.default == transload.IMAGE for each in component.parameters
    ):
        found.setdefault("image", image)
    return found


def _request(
    backend: SchedulerBase,
    scheduler: str,
    app: AppDef,
    converted: AppDef,
    options: dict[str, CfgVal],
) -> AppDryRunInfo[Any]:
    info = AppDryRunInfo(backend.convert(converted, options), backend.format_request)
    if any(role.workspace for role in converted.roles):
        # a second convert would differ if a file of the workspace did, which is no change of the
        # request
        info._unchanged = copy.deepcopy(info.request)
    for role in app.roles:
        info = role.pre_proc(scheduler, info)
    info._app, info._converted, info._cfg, info._scheduler = app, converted, options, scheduler
    return info


def _app(
    runner: Runner,
    app: AppDef,
    workspace: str | Workspace | None,
    change: Callable[[AppDef], AppDef] | None,
    scheduler: str,
    options: dict[str, CfgVal],
) -> AppDef:
    """Return the app as it is submitted: changed by the caller and by plugins, with a workspace,
    checked.
    """
    from transload.plugins import get_plugins

    app = app if change is None else change(app)
    app.check_runnable()
    app = get_plugins().before_submit(app, scheduler, options)
    app = with_workspace(
        app, workspace if workspace is not None else runner.settings.get("workspace")
    )
    app.check_runnable()
    _refuse_masks(app)
    return app


def _refuse_masks(app: AppDef) -> None:
    """Refuse an app that was taken from a description, where secret-looking values are masked.

    Raises:
        SpecError: for a variable or an argument that would hold the mask.
    """
    for index, role in enumerate(app.roles):
        masked = masked_env(
            {name: value.replace(MASK, _HIDDEN) for name, value in role.env.items()}
        )
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


def submit(runner: Runner, dryrun_info: AppDryRunInfo[Any]) -> AppHandle:
    """Submit what `build` returned; errors as in `Runner.schedule`."""
    from transload.schedulers.follower import emit

    info = dryrun_info
    if info._scheduler is None or info._converted is None:
        raise ConfigError("schedule() takes what this runner's dryrun() returned")
    backend = runner.scheduler(info._scheduler)
    request = info.request
    # before anything is copied: what is missing here starts nothing, and leaves nothing
    secrets = resolve_secrets(info._converted, backend, runner._environ, runner._secret_sources)
    submission = replace(info._submission, secrets=secrets)
    prepared = backend.prepare(info._converted, info._cfg)
    if prepared is not info._converted:
        unchanged = info._unchanged or backend.convert(info._converted, info._cfg)
        if request != unchanged:
            raise ConfigError(
                "the request was changed after the dry-run, but it must be built anew (workspace)"
            )
        request = backend.convert(prepared, info._cfg)
    started = backend.submit(request, info._app_id, submission)
    handle = make_app_handle(info._scheduler, runner._name, info._app_id)
    if started:
        emit(handle, AppStatus(AppState.SUBMITTED))
    return handle
