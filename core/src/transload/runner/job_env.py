"""Add to a job, before it is converted, its identity and where it reports."""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from transload.errors import ConfigError, SpecError
from transload.runtime.tracking import app_folder, output_folder
from transload.runtime.tracking.names import local_path
from transload.specs import (
    AppDef,
    CfgVal,
    Role,
    Workspace,
    macros,
    masked_url,
    nearest,
    resolve_secret,
)
from transload.specs.job_variables import PYTHONUNBUFFERED
from transload.specs.macro_values import replace_macros

if TYPE_CHECKING:
    from transload.runner.config import Settings
    from transload.schedulers.api import SchedulerBase

__all__ = ["surrounding_run"]


ENV_JOB_ID = "TRANSLOAD_JOB_ID"
ENV_PARENT_RUN_ID = "TRANSLOAD_PARENT_RUN_ID"
ENV_NOTICE_SIGNAL = "TRANSLOAD_NOTICE_SIGNAL"
ENV_OUTPUT_DIR = "TRANSLOAD_OUTPUT_DIR"
ENV_ROLES = "TRANSLOAD_ROLES"
ENV_TRACKER_BASE = "TRANSLOAD_TRACKER_BASE"
_WANDB_RESUME = "WANDB_RESUME"
_WANDB_RUN_ID = "WANDB_RUN_ID"
_LONGEST_WANDB_ID = 64
_UNSAFE = r"[^a-z0-9]+"
_GIVEN = r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}\Z"
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # without l, o, 0 and 1, since people read ids aloud


def unique_app_id(name: str) -> str:
    """Return a fresh id such as ``trainer-k3w9x2m4pd``.

    It has at most 40 lower-case letters, digits and dashes.
    """
    readable = re.sub(_UNSAFE, "-", name.lower()).strip("-")[:29].rstrip("-") or "app"
    if not readable[0].isalpha():
        readable = f"a-{readable}"[:29]
    suffix = "".join(_ALPHABET[byte & 31] for byte in os.urandom(10))
    return f"{readable}-{suffix}"


def check_app_id(app_id: str) -> str:
    """Return ``app_id`` if it may be used as one.

    Raises:
        SpecError: if it is not 1 to 200 letters, digits, ``_ . : @ -``, starting with a letter,
            digit or ``_``.
    """
    if not isinstance(app_id, str) or not re.match(_GIVEN, app_id):
        raise SpecError(
            f"app_id={app_id!r}: must be 1 to 200 letters, digits, '_', '.', ':', '@' or '-', "
            "starting with a letter, a digit or '_'"
        )
    return app_id


def with_workspace(app: AppDef, workspace: str | Workspace | None) -> AppDef:
    """Return ``app`` with ``workspace`` for every role that has none of its own."""
    given = Workspace.from_str(workspace) if isinstance(workspace, str) else workspace
    if not given:
        return app
    app = copy.deepcopy(app)
    for role in app.roles:
        role.workspace = role.workspace or given
    return app


def python_output(environ: Mapping[str, str], cfg: Mapping[str, CfgVal]) -> dict[str, str]:
    """Return the variable that has Python write each line at once, unless the user says otherwise.

    Args:
        environ: the user's variables.
        cfg: the run options, which may have variables too.
    """
    given = cfg.get("env")
    if isinstance(given, dict) and PYTHONUNBUFFERED in given:
        return {}
    return {PYTHONUNBUFFERED: environ.get(PYTHONUNBUFFERED, "1")}


def with_identity(
    app: AppDef,
    app_id: str,
    environment: Mapping[str, str],
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> AppDef:
    """Return a copy of ``app`` with ``environment`` added to every role.

    A role gets the ``defaults`` that it does not set itself.

    ``${app_id}`` and ``${output_dir}`` are replaced. The other macros are left for the scheduler.

    Raises:
        SpecError: for ``${output_dir}`` where the job has no such folder.
    """
    outputs = environment.get(ENV_OUTPUT_DIR)
    values = {"app_id": app_id} | ({} if outputs is None else {"output_dir": outputs})
    changed = copy.copy(app)
    changed.roles = []
    for role in app.roles:
        if outputs is None and any(
            macros.output_dir in text for text in (*role.args, *role.env.values())
        ):
            raise SpecError(
                f"role {role.name!r}: {macros.output_dir}: there is no such folder here: give "
                "tracker_base"
            )
        role = replace_macros(role, values)
        unset = {name: value for name, value in defaults.items() if name not in role.secrets}
        role.env = unset | role.env
        # what the runner says of the run wins over what a role may have inherited from another run
        role.env.update(environment)
        if role.notice is not None:
            role.env[ENV_NOTICE_SIGNAL] = role.notice.signal
        changed.roles.append(role)
    return changed


def tracker_base_of(
    backend: SchedulerBase, app_id: str, cfg: Mapping[str, CfgVal], given: str | None
) -> str | None:
    """Return the base of a job's results, or None if there is none.

    It is the given one (``${app_id}`` replaced), else the scheduler's. A path that is relative, or
    in the user's home, is made absolute here, since the job and its readers may run in other
    folders.

    Raises:
        ConfigError: for a URL that no storage can be opened with, or none that the job shares with
            its readers.
    """
    if not given:
        return backend.results_folder(app_id, cfg)
    base = given.replace(macros.app_id, app_id)
    path = local_path(base) or ""
    if path.startswith("~"):
        return backend.expand_user(path)
    if "://" not in base and "::" not in base:
        return os.path.abspath(base) if not os.path.isabs(base) else base
    _check_protocol(base)
    return base


def surrounding_run() -> str | None:
    """Return the run that what is submitted here derives from, if that is known."""
    # inside a job, ENV_PARENT_RUN_ID has what that one derives from, but the job itself is nearer
    return os.environ.get(ENV_JOB_ID) or os.environ.get(ENV_PARENT_RUN_ID) or None


def own_folder(
    backend: SchedulerBase, app_id: str, cfg: Mapping[str, CfgVal], base: str | None
) -> str | None:
    """Return where a job reports, which is the scheduler's folder or one below another base."""
    if base is None or base == backend.results_folder(app_id, cfg):
        return base
    return app_folder(base, app_id)


def _check_protocol(base: str) -> None:
    if local_path(base) is not None:
        return
    from fsspec import available_protocols

    known, shown = available_protocols(), f"tracker_base={masked_url(base)!r}"
    for name in base.partition("://")[0].split("::"):
        if name not in known:
            raise ConfigError(f"{shown}: protocol {name!r}: {nearest(name, known)}")
        if name == "memory":
            raise ConfigError(
                f"{shown}: is the memory of one process, and the job is another; give a folder or "
                "a store"
            )


def run_environment(
    handle: str,
    roles: Sequence[Role],
    tracker_base: str | None,
    parent_run_id: str | None,
    settings: Settings,
) -> dict[str, str]:
    """Return the variables that tell a job which run it is and where it reports.

    Raises:
        ConfigError: for a tracker that is not there or cannot be built from its configuration.
    """
    environment = {ENV_JOB_ID: handle, ENV_ROLES: ",".join(role.name for role in roles)}
    if parent_run_id:
        environment[ENV_PARENT_RUN_ID] = parent_run_id
    if tracker_base:
        environment |= {ENV_TRACKER_BASE: tracker_base, ENV_OUTPUT_DIR: output_folder(tracker_base)}
    trackers = settings.trackers()
    if trackers:
        from transload.tracker import check_trackers, injected_environment

        try:
            check_trackers(trackers)
        except ConfigError as exc:
            raise ConfigError(
                f"{exc}; the settings name it in a table [tracker.NAME]: `transload configure` "
                "shows the file"
            ) from exc
        environment.update(injected_environment(trackers))
    return environment


def name_wandb_runs(app: AppDef, name: str) -> None:
    """Name the W&B run of each role that asks for one over all attempts, by changing ``app``.

    A role asks with ``WANDB_RESUME=allow`` among its variables. One that names a run keeps it.

    Args:
        app: the job as the scheduler converts it.
        name: what all attempts have in common. A role of several adds its own name.
    """
    for role in app.roles:
        is_named = _WANDB_RUN_ID in role.env or _WANDB_RUN_ID in role.secrets
        if is_named or role.env.get(_WANDB_RESUME) != "allow":
            continue
        run = name
        if len(app.roles) > 1:
            run = f"{name}-{role.name}"
        role.env[_WANDB_RUN_ID] = _shortened(run, _LONGEST_WANDB_ID)


def _shortened(name: str, longest: int) -> str:
    """Return a name of at most ``longest`` characters. Two names never become one."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: longest - len(digest) - 1]}-{digest}"


def resolve_secrets(
    app: AppDef,
    backend: SchedulerBase,
    environ: Mapping[str, str],
    kinds: Mapping[str, Callable[[str], str]],
) -> dict[str, dict[str, str]]:
    """Return role → variable → value of all secrets.

    Sources of the scheduler's own kinds are left to it.

    Raises:
        SpecError: if one is missing.
    """
    resolved: dict[str, dict[str, str]] = {}
    for index, role in enumerate(app.roles):
        for name, source in role.secrets.items():
            if source.partition(":")[0] in backend.secret_kinds:
                continue
            path = f"roles[{index}].secrets[{name!r}]"
            resolved.setdefault(role.name, {})[name] = resolve_secret(source, path, environ, kinds)
    return resolved
