"""Tell a job by its variables which run it is, where it reports, and what is passed on to it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, ConfigError, SpecError, UnsupportedFeature
from transload.runtime.tracking import app_folder, output_folder
from transload.runtime.tracking.names import local_path
from transload.specs import (
    AppDef,
    AppHandle,
    Role,
    looks_secret,
    macros,
    masked_url,
    nearest,
    parse_app_handle,
    resolve_secret,
)
from transload.specs.job_variables import PYTHONUNBUFFERED, of_other_jobs
from transload.specs.macro_values import replace_macros

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.runner.config import Settings
    from transload.runner.plan import Destination
    from transload.schedulers.api import SchedulerBase

__all__ = ["surrounding_run"]

ENV_CHECKPOINT_DIR = "TRANSLOAD_CHECKPOINT_DIR"
ENV_CHECKPOINT_NAME = "TRANSLOAD_CHECKPOINT_NAME"
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
_WANTED: Final = (
    r"(HF|HUGGINGFACE|TRANSFORMERS|MLFLOW|WANDB|COMET|NEPTUNE|CLEARML|AWS|GOOGLE|AZURE|OPENAI|TORCH"
    r"|KERAS|RAY|OTEL)_.*|PYTHONPATH|(HTTP|HTTPS|NO)_PROXY|(http|https|no)_proxy"
)
"""Variables that programs usually want, and that reach no job by themselves."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Which run a job is, and where it reports.

    Args:
        handle: the handle of the job.
        app_id: its id, as the scheduler knows it.
        tracker_base: where it reports. None means nowhere.
        parent: the run that it derives from.
        name: what all attempts of the run have in common.
        checkpoints: the name under which its checkpoints are kept. None means that it has none.
    """

    handle: AppHandle
    app_id: str
    tracker_base: str | None
    parent: str | None
    name: str
    checkpoints: str | None


# -- ids


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


def surrounding_run() -> str | None:
    """Return the run that what is submitted here derives from, if that is known."""
    # inside a job, ENV_PARENT_RUN_ID has what that one derives from, but the job itself is nearer
    return os.environ.get(ENV_JOB_ID) or os.environ.get(ENV_PARENT_RUN_ID) or None


# -- where it reports


def tracker_base_of(to: Destination, app_id: str, given: str | None) -> str | None:
    """Return the base of a job's results, or None if there is none.

    It is the given one (``${app_id}`` replaced), else the scheduler's. A path that is relative, or
    in the user's home, is made absolute here, since the job and its readers may run in other
    folders.

    Raises:
        ConfigError: for a URL that no storage can be opened with, or none that the job shares with
            its readers.
    """
    if not given:
        return to.scheduler.results_folder(app_id, to.opts)
    base = given.replace(macros.app_id, app_id)
    path = local_path(base) or ""
    if path.startswith("~"):
        return to.scheduler.expand_user(path)
    if "://" not in base and "::" not in base:
        return os.path.abspath(base) if not os.path.isabs(base) else base
    _check_protocol(base)
    return base


def own_folder(to: Destination, app_id: str, base: str | None) -> str | None:
    """Return where a job reports, which is the scheduler's folder or one below another base."""
    if base is None or base == to.scheduler.results_folder(app_id, to.opts):
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


# -- where its checkpoints are


def safe_name(name: str) -> str:
    """Return a name under which checkpoints can be kept in any file system.

    It is ``name`` itself where that is safe. Two names never become one.
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return name if safe == name else f"{safe}-{_digest(name)}"


def all_with_checkpoints(app: AppDef) -> AppDef:
    """Return the job with checkpoints for the roles that ask for them, or for all if none does."""
    if any(role.checkpoints for role in app.roles):
        return app
    return replace(app, roles=[replace(role, checkpoints=True) for role in app.roles])


def checkpoints_of_ended(runner: Runner, handle: AppHandle, scheduler: str) -> str:
    """Return the name under which the checkpoints of an ended job are kept.

    Args:
        runner: asks for it.
        handle: the handle of the job.
        scheduler: where the job goes that is to begin from them.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: if it has not ended, or has no checkpoints.
        UnsupportedFeature: if it ran on another scheduler.
    """
    other = parse_app_handle(handle)
    if other.scheduler_backend != scheduler:
        raise UnsupportedFeature(
            f"checkpoints={handle}: that job is on scheduler {other.scheduler_backend!r}, and this "
            f"one goes to {scheduler!r}, where its checkpoints are not: copy them "
            f"(transload get --checkpoints {handle})",
            "checkpoints",
        )
    description = runner.job(handle).description()
    if description is None:
        raise AppNotFound(handle, f"checkpoints={handle}: there is no such job")
    if description.checkpoints is None:
        raise SpecError(f"checkpoints={handle}: that job did not ask for checkpoints")
    if not description.status.is_terminal():
        state = description.status.state
        raise SpecError(
            f"checkpoints={handle}: that job is {state}, and writes them still: wait until it has "
            "ended"
        )
    return description.checkpoints


# -- its variables


def with_variables(app: AppDef, run: Run, to: Destination, runner: Runner) -> AppDef:
    """Return a copy of a job whose roles have their variables. Macros are replaced.

    ``${app_id}`` and ``${output_dir}`` are known here. The other macros are left for the scheduler.
    A variable of the user's is kept where the run does not decide it.

    Raises:
        SpecError: for ``${output_dir}`` where the job has no such folder.
        ConfigError: for a tracker that is not there or cannot be built from its configuration.
    """
    decided = {ENV_ROLES: ",".join(role.name for role in app.roles), **_of_run(run)}
    decided |= _of_trackers(runner.settings)
    passed = _passed(to.pass_env, runner.environ)
    default = _python_output(runner.environ, to.cfg.get("env"))
    roles = []
    for role in app.roles:
        made = _macros_replaced(role, run)
        unset = {name: value for name, value in default.items() if name not in made.secrets}
        # what the runner says of the run wins over what a role may have inherited from another run
        made.env = unset | made.env | decided | _of_role(made, run, to)
        _pass_on(made, passed)
        _name_wandb_run(made, run, is_only=len(app.roles) == 1)
        roles.append(made)
    return replace(app, roles=roles)


def _macros_replaced(role: Role, run: Run) -> Role:
    values = {"app_id": run.app_id}
    if run.tracker_base:
        values["output_dir"] = output_folder(run.tracker_base)
    elif any(macros.output_dir in text for text in (*role.args, *role.env.values())):
        raise SpecError(
            f"role {role.name!r}: {macros.output_dir}: there is no such folder here: give "
            "tracker_base"
        )
    return replace_macros(role, values)


def _of_run(run: Run) -> dict[str, str]:
    """Return the variables that tell a job which run it is and where it reports."""
    found = {ENV_JOB_ID: run.handle}
    if run.parent:
        found[ENV_PARENT_RUN_ID] = run.parent
    if run.tracker_base:
        found[ENV_TRACKER_BASE] = run.tracker_base
        found[ENV_OUTPUT_DIR] = output_folder(run.tracker_base)
    if run.checkpoints is not None:
        # trackers show jobs that share checkpoints as one run
        found[ENV_CHECKPOINT_NAME] = run.checkpoints
    return found


def _of_trackers(settings: Settings) -> dict[str, str]:
    trackers = settings.trackers()
    if not trackers:
        return {}
    from transload.tracker import check_trackers, injected_environment

    try:
        check_trackers(trackers)
    except ConfigError as exc:
        raise ConfigError(
            f"{exc}; the settings name it in a table [tracker.NAME]: `transload configure` "
            "shows the file"
        ) from exc
    return injected_environment(trackers)


def _of_role(role: Role, run: Run, to: Destination) -> dict[str, str]:
    """Return the variables of a role that asks for a notice, or for checkpoints."""
    found = {}
    if role.notice is not None:
        found[ENV_NOTICE_SIGNAL] = role.notice.signal
    if role.checkpoints and run.checkpoints is not None:
        folder = to.scheduler.checkpoint_folder(run.checkpoints, role, to.opts)
        if folder is not None:
            found[ENV_CHECKPOINT_DIR] = folder
    return found


def _python_output(environ: Mapping[str, str], given: Any) -> dict[str, str]:
    """Return the variable that has Python write each line at once, unless the user says otherwise.

    Args:
        environ: the user's variables.
        given: those of the run options.
    """
    if isinstance(given, dict) and PYTHONUNBUFFERED in given:
        return {}
    return {PYTHONUNBUFFERED: environ.get(PYTHONUNBUFFERED, "1")}


def _name_wandb_run(role: Role, run: Run, is_only: bool) -> None:
    """Name the W&B run of a role that asks for one over all attempts.

    It asks with ``WANDB_RESUME=allow`` among its variables. One that names a run keeps it.
    """
    is_named = _WANDB_RUN_ID in role.env or _WANDB_RUN_ID in role.secrets
    if is_named or role.env.get(_WANDB_RESUME) != "allow":
        return
    name = run.checkpoints or run.name
    if not is_only:
        name = f"{name}-{role.name}"
    role.env[_WANDB_RUN_ID] = _shortened(name, _LONGEST_WANDB_ID)


def _shortened(name: str, longest: int) -> str:
    """Return a name of at most ``longest`` characters. Two names never become one."""
    if len(name) <= longest:
        return name
    digest = _digest(name)
    return f"{name[: longest - len(digest) - 1]}-{digest}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:10]


# -- what is passed on


def _passed(patterns: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names match.

    What belongs to the job that runs this process alone is passed only where a pattern is its name.
    """
    asked = list(patterns)
    if not asked:
        return {}
    own = of_other_jobs(environ).difference(asked)
    return {
        name: value
        for name, value in environ.items()
        if name not in own and any(fnmatchcase(name, pattern) for pattern in asked)
    }


def _pass_on(role: Role, variables: Mapping[str, str]) -> None:
    """Give a role the variables that it does not set, secret-looking ones by reference."""
    for name, value in variables.items():
        if name in role.env or name in role.secrets:
            continue
        if looks_secret(name):
            role.secrets[name] = f"env:{name}"
        else:
            role.env[name] = value


def not_passed(app: AppDef | None, environ: Mapping[str, str], inherited: bool) -> list[str]:
    """Return the variables that programs usually want, are set here, and reach no role of the job.

    Args:
        app: the job as it is submitted.
        environ: the variables that are set here.
        inherited: the job inherits all of them.
    """
    if inherited:
        return []
    given = {
        name
        for role in (app.roles if app is not None else ())
        for name in (*role.env, *role.secrets)
    }
    return sorted(name for name in environ if re.fullmatch(_WANTED, name) and name not in given)


def named_first(names: Iterable[str]) -> list[str]:
    """Return those of these variables that were not named on this machine before.

    From now on they are. Where that cannot be kept, all are returned.
    """
    from transload.schedulers.folder.home import make_private, state_home

    found = []
    for name in names:
        try:
            folder = f"{state_home()}/not-passed"
            make_private(folder)
            os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        except (OSError, ConfigError):
            pass
        found.append(name)
    return found


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
