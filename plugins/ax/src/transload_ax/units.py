"""Which trial a job belongs to, how it is launched, and what is kept of it.

Imports nothing of Ax.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import ConfigError
from transload.pipelines import JOB_SETTINGS, ExecutionOptions, ExecutionSettings, Launch
from transload.specs import nearest

if TYPE_CHECKING:
    from transload.specs import AppDef

HOST: Final = "ax"
"""Session name of all handles."""

PARAMETERS: Final = "parameters"
"""The word of a try of a trial that tells it from others: a digest of the arm's parameters."""

HANDLE: Final = "transload_app_handle"
BASE: Final = "transload_tracker_base"
CLUSTER: Final = "transload_cluster"
PROGRESS: Final = "transload_progress"
"""Keys in a trial's run metadata.

They are for the handle, the tracker base, the cluster where the job is, and the progress (fields of
`transload.specs.Progress`).
"""


class TrialKey(NamedTuple):
    """Which trial of an experiment, or which arm of a batch trial, a job belongs to."""

    experiment: str
    trial: int
    arm: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The key as texts, for an identity."""
        if not self.arm:
            return (self.experiment, str(self.trial))
        return (self.experiment, str(self.trial), self.arm)


class JobView(NamedTuple):
    """What is known of a trial's job now.

    Args:
        handle: the job.
        status: name of the ``TrialStatus`` that it comes to, or None if all is as it was.
        reason: why it did not end well, or ``""`` if it did.
        abandoned: it may still be running and is to be left alone.
    """

    handle: str
    status: str | None
    reason: str = ""
    abandoned: bool = False


def base_of(tracker_base: str | None, arm: str = "") -> str | None:
    """Return the tracker base of a trial, or of one arm of a batch trial, if one was given."""
    if not tracker_base or not arm:
        return tracker_base
    return f"{tracker_base.rstrip('/')}/{arm}"


def log_of(key: TrialKey) -> logging.Logger:
    """Return the logger of a trial's lines, ``transload_ax.<experiment>.<trial>``."""
    name = re.sub(r"\.+", "_", key.experiment) or "experiment"
    return logging.getLogger(f"transload_ax.{name}.{key.arm or key.trial}")


@dataclass(frozen=True)
class TrialNotes:
    """What a trial's run metadata says of its jobs. It lasts as the experiment does, if it is stored.

    A job is known by its arm, which is ``""`` where the trial has one job.

    Args:
        metadata: of the trial.
    """

    metadata: MutableMapping[str, Any]

    def handles(self) -> dict[str, str]:
        """Return arm → the job that it had when the trial was run last."""
        found = self.metadata.get(HANDLE)
        if isinstance(found, str):
            found = {"": found}
        if not isinstance(found, Mapping):
            return {}
        return {str(arm): str(handle) for arm, handle in found.items() if handle}

    def get(self, name: str, arm: str) -> dict[str, Any]:
        """Return the values of a name (`CLUSTER`, `PROGRESS`) for an arm, or {}."""
        found = self.metadata.get(_arm_key(name, arm))
        return found if isinstance(found, dict) else {}

    def put(self, name: str, arm: str, values: dict[str, Any]) -> None:
        """Note the values of a name for an arm."""
        self.metadata[_arm_key(name, arm)] = values


def _arm_key(name: str, arm: str) -> str:
    return f"{name}/{arm}" if arm else name


@dataclass(kw_only=True, frozen=True)
class TrialLaunch(Launch):
    """A launch of a trial, whose job ends with the trial's time to live.

    Args:
        mark: a digest of the arm's parameters, or ``""`` if they are not known.
        ttl: seconds, or None for no limit.
    """

    mark: str = ""
    ttl: float | None = None

    def definition(
        self,
        context_args: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> AppDef:
        """Return the job as it was written, with this limit."""
        app = Launch.definition(self, context_args, defaults)
        limits = [limit for limit in (app.timeout, self.ttl) if limit is not None]
        return replace(app, timeout=min(limits, default=None))


def execution_options(options: ExecutionSettings) -> ExecutionOptions:
    """Return the options of a runner as `ExecutionOptions`.

    A trial has one job. One that failed is a FAILED trial, which Ax answers with another trial. So
    whoever runs a trial again, for instance because an optimiser died before it stored how the job
    ended, collects that end.

    Raises:
        ConfigError: for an unknown name or a value that is not allowed.
    """
    allowed = [name for name in ExecutionOptions.__dataclass_fields__ if name != "resubmit_on"]
    for name in options:
        if name not in allowed:
            hint = nearest(name, [*allowed, *JOB_SETTINGS])
            raise ConfigError(f"option {name!r} does not exist: {hint}")
    settings: ExecutionSettings = {**options, "resubmit_on": frozenset()}
    return ExecutionOptions(**settings)
