"""Find out where the checkpoints of a job are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from transload.errors import AppNotFound, SpecError, UnsupportedFeature
from transload.specs import AppDef, CfgVal, Role, parse_app_handle

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.schedulers.api import SchedulerBase

ENV_CHECKPOINT_DIR = "TRANSLOAD_CHECKPOINT_DIR"
ENV_CHECKPOINT_NAME = "TRANSLOAD_CHECKPOINT_NAME"


def safe_name(name: str) -> str:
    """Return a name under which checkpoints can be kept in any file system.

    It is ``name`` itself where that is safe. Two names never become one.
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    if safe == name:
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def all_with_checkpoints(app: AppDef) -> AppDef:
    """Return the job with checkpoints for the roles that ask for them, or for all if none does."""
    if any(role.checkpoints for role in app.roles):
        return app
    return replace(app, roles=[replace(role, checkpoints=True) for role in app.roles])


def name_of_ended(runner: Runner, handle: str, scheduler: str) -> str:
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


def with_checkpoint_folders(
    app: AppDef, name: str, scheduler: SchedulerBase, cfg: Mapping[str, CfgVal]
) -> AppDef:
    """Return a job whose roles that ask for checkpoints find the folder in their environment.

    All roles find the name, by which trackers show jobs that share checkpoints as one run.

    Args:
        app: the job, which is not changed.
        name: the name under which they are kept.
        scheduler: where it goes.
        cfg: its run options.

    Raises:
        UnsupportedFeature: if the scheduler has no place for them.
    """
    if not scheduler.capabilities.checkpoints:
        return app  # which `convert` refuses
    roles = [_role(role, name, scheduler, cfg) for role in app.roles]
    return replace(app, roles=roles)


def _role(role: Role, name: str, scheduler: SchedulerBase, cfg: Mapping[str, CfgVal]) -> Role:
    env = {**role.env, ENV_CHECKPOINT_NAME: name}
    if role.checkpoints:
        folder = scheduler.checkpoint_folder(name, role, cfg)
        if folder is not None:
            env[ENV_CHECKPOINT_DIR] = folder
    return replace(role, env=env)
