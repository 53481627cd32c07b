"""Submitting: what is put together for a dry-run, and what then starts it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transload.errors import ConfigError, SpecError
from transload.runner._ids import check_app_id, unique_app_id
from transload.runner._inject import (
    ENV_JOB_ID,
    ENV_PARENT_RUN_ID,
    own_folder,
    resolve_secrets,
    run_environment,
    tracker_base_of,
    with_identity,
    with_workspace,
)
from transload.runner._travel import find_from, pass_env, take_along
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
    looks_secret,
    make_app_handle,
)
from transload.specs._check import shorten

if TYPE_CHECKING:
    from transload.components import Overrides
    from transload.runner._runner import Runner


def build(
    runner: Runner,
    app: AppDef,
    scheduler: str | None,
    cfg: Mapping[str, CfgVal] | None,
    workspace: str | Workspace | None,
    parent_run_id: str | None,
    app_id: str | None,
    tracker_base: str | None,
    folder: str | None = None,
    code: str | None = None,
) -> AppDryRunInfo[Any]:
    """Return the request for an app; arguments and errors as in `Runner.dryrun`."""
    from transload.plugins import get_plugins

    if not isinstance(app, AppDef):
        raise SpecError(f"app={shorten(app)}: must be an AppDef of transload.specs (run_component takes components)")
    given = app_id is not None
    name = scheduler or runner.settings.scheduler
    backend = runner.scheduler(name)
    options, configured_base, patterns = runner._options(name, backend, cfg)
    if folder is not None and backend.capabilities.shares_disk and "working_dir" in options:
        options["working_dir"] = options["working_dir"] or folder
    app.check_runnable()
    app = get_plugins().before_submit(app, name, options)
    app = with_workspace(app, workspace if workspace is not None else runner.settings.get("workspace"))
    app.check_runnable()
    _refuse_masks(app)
    app_id = unique_app_id(app.name) if app_id is None else check_app_id(app_id)
    app_id = backend.qualified_id(app_id, options)
    base = tracker_base_of(backend, app_id, options, tracker_base or configured_base)
    base = own_folder(backend, app_id, options, base)
    handle = make_app_handle(name, runner._name, app_id)
    # inside a job, what that one derives from is in ENV_PARENT_RUN_ID: the job itself is nearer
    parent = parent_run_id or os.environ.get(ENV_JOB_ID) or os.environ.get(ENV_PARENT_RUN_ID)
    converted = with_identity(app, app_id, run_environment(handle, app.roles, base, parent, runner.settings))
    if folder is not None:
        find_from(converted, folder)
    if not backend.capabilities.shares_disk and backend.takes_workspace(options):
        take_along(converted, code, folder or os.getcwd())
    pass_env(converted, patterns, runner._environ)
    info = AppDryRunInfo(backend.convert(converted, options), backend.format_request)
    if any(role.workspace for role in converted.roles):
        # a second convert would differ if a file of the workspace did, which is no change of the request
        info._unchanged = copy.deepcopy(info.request)
    for role in app.roles:
        info = role.pre_proc(name, info)
    info._app, info._cfg, info._scheduler = app, options, name
    info._app_id, info._converted = app_id, converted
    info._submission = Submission(
        app=app,
        digest=app.digest(),
        session=runner._name,
        cfg=options,
        tracker_base=base,
        id_given=given,
        inherit_env=runner._inherit_env,
    )
    return info


def _refuse_masks(app: AppDef) -> None:
    """Refuse an app that was taken from a description, where secret-looking values are masked.

    Raises:
        SpecError: for a variable that would be set to the mask.
    """
    for index, role in enumerate(app.roles):
        for name, value in role.env.items():
            if value == MASK and looks_secret(name):
                raise SpecError(
                    f"roles[{index}].env[{name!r}]={MASK}: is what is shown in place of a secret: "
                    "give the value, or take the variable out and name its source in secrets"
                )


def submit(runner: Runner, dryrun_info: AppDryRunInfo[Any]) -> AppHandle:
    """Submit what `build` returned; errors as in `Runner.schedule`."""
    from transload.following.follower import emit

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
            raise ConfigError("the request was changed after the dry-run, but it must be built anew (workspace)")
        request = backend.convert(prepared, info._cfg)
    started = backend.submit(request, info._app_id, submission)
    handle = make_app_handle(info._scheduler, runner._name, info._app_id)
    if started:
        emit(handle, AppStatus(AppState.SUBMITTED))
    return handle


def build_from_component(
    runner: Runner,
    component: str | Callable[..., AppDef],
    component_args: Sequence[str] | Mapping[str, Any],
    scheduler: str | None,
    cfg: Mapping[str, CfgVal] | None,
    workspace: str | Workspace | None,
    parent_run_id: str | None,
    app_id: str | None,
    tracker_base: str | None,
    overrides: Overrides | None = None,
) -> AppDryRunInfo[Any]:
    """Return the request for the app of a component; arguments and errors as in `Runner.dryrun_component`."""
    from transload.components import as_component
    from transload.runner._component import app_of_component, component_arguments

    found = as_component(component)
    name = scheduler or runner.settings.scheduler
    defaults = runner._defaults_of(found.name)
    given = app_id is not None
    if any(parameter.name == "tracker_base" for parameter in found.parameters):
        # the component wants to know where it reports, which may depend on the id: make both first
        app_id = app_id if app_id is not None else unique_app_id(found.fn.__name__)
        backend = runner.scheduler(name)
        options, configured, _ = runner._options(name, backend, cfg)
        base = tracker_base_of(
            backend, backend.qualified_id(check_app_id(app_id), options), options, tracker_base or configured
        )
        if base is not None:
            defaults["tracker_base"] = base
        values = component_arguments(found, component_args, defaults)
        tracker_base = str(values["tracker_base"]) if values["tracker_base"] else tracker_base
        component_args = values
    app = app_of_component(found, component_args, defaults)
    app = app if overrides is None else overrides.apply(app)
    where = {"app_id": app_id, "tracker_base": tracker_base, "code": found.folder}
    info = runner.dryrun(app, name, cfg, workspace, parent_run_id, **where)
    info._submission = replace(info._submission, id_given=given)
    return info
