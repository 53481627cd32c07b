"""Set fields of an app definition over what it says, as the options of ``transload run`` do.

This is the one list of what can be set from outside of a definition. The command line,
`transload.run` and every adapter read it with `overrides_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, cast

from transload.components.setting_values import READERS, stall_action
from transload.errors import SpecError
from transload.specs import AppDef, Mount, Notice, Resource, Role, nearest
from transload.specs.app import OnStall
from transload.specs.checks import shorten

__all__ = [
    "JOB_SETTINGS",
    "SETTING_HELP",
    "JobSettings",
    "OverrideOptions",
    "Overrides",
    "check_names",
    "overrides_of",
    "split_overrides",
]


class JobSettings(TypedDict, total=False):
    """What every adapter takes by these names, to set over what a definition says.

    A command has no other settings than these. A duration is a text with its unit, such as ``2h``.
    A size is a text such as ``8G`` or a number of bytes. A mount may be a text such as
    ``type=bind,src=/data,dst=/data``. A number may be a text, too. See `Overrides` for the rest.
    """

    image: str | None
    replicas: int | str | None
    cpu: float | str | None
    gpu: int | str | None
    mem: int | str | None
    mounts: Sequence[Mount | str] | str | None
    env: Mapping[str, str] | None
    secrets: Mapping[str, str] | None
    time_limit: str | None
    segment: str | None
    notice: Notice | str | None
    max_interruptions: int | str | None
    stall_after: str | None
    on_stall: str | None
    stall_signal: str | None
    progress_server: bool | str | None


class OverrideOptions(JobSettings, total=False):
    """All settings that can replace what a definition says. `Overrides` describes them.

    Some of these names mean something else to some orchestrators.
    """

    role: str | None
    name: str | None
    retries: int | str | None
    retry_delay: float | str | None
    checkpoints: bool | str | None


JOB_SETTINGS: Final = tuple(JobSettings.__annotations__)
"""The names of `JobSettings`."""

SETTING_HELP: Final[Mapping[str, str]] = {
    "name": "Name of the job.",
    "env": "Variables for the roles.",
    "secrets": "Variables for the roles, and where their values come from: env:NAME, file:PATH.",
    "image": "What the job runs in: a container image, or a folder to work in.",
    "replicas": "How many of each role.",
    "retries": "How often to start again after a failure.",
    "retry_delay": "Wait this long before the first retry (10s), then twice as long.",
    "time_limit": "End the job after this long (2h).",
    "segment": "Ask the queue for this long at a time (12h), and go on in the next segment.",
    "notice": "Warn the job by a signal, this long before its end (5m).",
    "checkpoints": "Keep a folder for checkpoints.",
    "max_interruptions": (
        "How often to start again after a pre-emption or a lost node; default: 100 with a notice "
        "or checkpoints, else 0."
    ),
    "stall_after": "Say that the job has stalled after this long without a sign of life (20m).",
    "on_stall": "note: say so; dump, dump:USR2: send a signal, at which it writes its stacks.",
    "stall_signal": "The signal of dump; default: USR1.",
    "progress_server": "Take the progress that Hugging Face's Trainer posts.",
    "cpu": "Cores of each replica.",
    "gpu": "GPUs of each replica.",
    "mem": "Memory of each replica (8G).",
    "mounts": "Mounts, such as job=HANDLE:outputs,dst=/in (docs/guides/files.md).",
    "role": "The role that these settings are about; default: all.",
}
"""Setting → what it does, in the order of the options of ``transload run``.

Options of commands, fields of forms and variables of pools show these texts.
"""


class Overrides(NamedTuple):
    """Values that replace those of an app definition. None keeps its own value.

    Args:
        role: the role to change. None means all roles.
        name: name of the job.
        time_limit: time limit of the job, in seconds.
        env: variables to add to those of the roles.
        image: image of the roles.
        replicas: number of replicas of each role.
        retries: largest number of restarts after failures.
        retry_delay: seconds before the first retry.
        cpu: cores of each replica.
        gpu: GPUs of each replica.
        mem: main memory of each replica, in bytes.
        mounts: what is mounted into each replica, in place of what is mounted there already.
        segment: seconds that the queue gives the job at a time.
        notice: the warning that the roles get before they are ended.
        checkpoints: the roles have a folder for checkpoints.
        max_interruptions: largest number of restarts after interruptions.
        stall_after: seconds without a sign of life after which a replica has stalled.
        on_stall: what is done then, ``note`` or ``dump``.
        progress_server: Hugging Face's Trainer finds an address to which it posts its progress.
        stall_signal: name of the signal of ``dump``.
        secrets: variables of the roles → where their values come from, added to those of the roles.
    """

    role: str | None = None
    name: str | None = None
    time_limit: float | None = None
    env: Mapping[str, str] | None = None
    image: str | None = None
    replicas: int | None = None
    retries: int | None = None
    retry_delay: float | None = None
    cpu: float | None = None
    gpu: int | None = None
    mem: int | None = None
    mounts: Sequence[Mount] = ()
    segment: float | None = None
    notice: Notice | None = None
    checkpoints: bool | None = None
    max_interruptions: int | None = None
    stall_after: float | None = None
    on_stall: OnStall | None = None
    progress_server: bool | None = None
    stall_signal: str | None = None
    secrets: Mapping[str, str] | None = None

    def apply(self, app: AppDef) -> AppDef:
        """Return a copy of the app definition with these values.

        Raises:
            SpecError: if it has no such role, or a value is not allowed.
        """
        names = [role.name for role in app.roles]
        if self.role is not None and self.role not in names:
            raise SpecError(
                f"role {self.role!r}: {app.name!r} has no such role: {nearest(self.role, names)}"
            )
        roles = [
            self._apply(role) if self.role in (None, role.name) else role for role in app.roles
        ]
        changes = {
            "roles": roles,
            "name": self.name,
            "timeout": self.time_limit,
            "segment": self.segment,
        }
        return _set(app, changes)

    def _apply(self, role: Role) -> Role:
        memory_mib = None
        if self.mem is not None:
            memory_mib = -(-self.mem // (1 << 20))
        resource = _set(role.resource, {"cpu": self.cpu, "gpu": self.gpu, "memMB": memory_mib})
        env = dict(self.env or {})
        secrets = {name: source for name, source in role.secrets.items() if name not in env}
        secrets.update(self.secrets or {})
        kept_env = {name: value for name, value in role.env.items() if name not in secrets}
        replaced = {mount.dst_path for mount in self.mounts}
        kept = [mount for mount in role.mounts if mount.dst_path not in replaced]
        changes = {
            "image": self.image,
            "num_replicas": self.replicas,
            "max_retries": self.retries,
            "retry_delay": self.retry_delay,
            "env": {**kept_env, **env},
            "secrets": secrets,
            "resource": resource,
            "mounts": [*kept, *self.mounts],
            "notice": self.notice,
            "checkpoints": self.checkpoints,
            "max_interruptions": self.max_interruptions,
            "stall_after": self.stall_after,
            "on_stall": self.on_stall,
            "progress_server": self.progress_server,
            "stall_signal": self.stall_signal,
        }
        return _set(role, changes)


T = TypeVar("T", AppDef, Role, Resource)


def _set(record: T, changes: Mapping[str, Any]) -> T:
    """Return a copy of a record with the changes that are not None."""
    return replace(record, **{name: each for name, each in changes.items() if each is not None})


def check_names(values: object) -> None:
    """Refuse settings that are no mapping, and unknown names.

    Raises:
        SpecError: for the first of these names, with the nearest.
    """
    if not isinstance(values, Mapping):
        raise SpecError(f"overrides={shorten(values)}: must be setting → value")
    known = list(Overrides._fields)
    for name in values:
        if name not in known:
            raise SpecError(f"{name}: no setting of a job: {nearest(name, known)}")


def split_overrides(options: Mapping[str, Any]) -> tuple[OverrideOptions, dict[str, Any]]:
    """Return what an adapter's options set over a definition, and its other options.

    Args:
        options: settings by the names of `JobSettings`, ``overrides`` (a mapping of any that
            `OverrideOptions` has), and others. A setting by its own name goes before the mapping.

    Raises:
        SpecError: if ``overrides`` is no mapping, or has an unknown name.
    """
    given = options.get("overrides") or {}
    check_names(given)
    overrides = cast("OverrideOptions", dict(given))
    others = {}
    for name, value in options.items():
        if name in JOB_SETTINGS:
            if value is not None:
                overrides[name] = value  # type: ignore[literal-required]
        elif name != "overrides":
            others[name] = value
    return overrides, others


def overrides_of(
    values: OverrideOptions | Mapping[str, Any], spelled: Callable[[str], str] = str
) -> Overrides:
    """Return the overrides that settings say. A setting that is None is not given.

    Args:
        values: name → value.
        spelled: returns what the user calls a setting, for messages.

    Raises:
        SpecError: for an unknown name, or a value that cannot be read.
    """
    check_names(values)
    found: dict[str, Any] = {}
    for name, value in values.items():
        read = READERS.get(name)
        if value is None:
            continue
        if read is not None:
            value = read(value, spelled(name))
        found[name] = value
    if "on_stall" in found:
        found.update(stall_action(found["on_stall"], spelled("on_stall")))
    return Overrides(**found)
