"""Make an app definition from a command, and override fields of an existing one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from transload.errors import SpecError
from transload.specs import AppDef, Mount, Notice, Resource, Role, nearest
from transload.specs.app import OnStall
from transload.specs.checks import shorten
from transload.specs.secrets import masked_arguments

_LONGEST_NAME: Final = 60


def command_app(command: Sequence[str], name: str | None = None) -> AppDef:
    """Return an app definition with one role, ``main``, that runs an unchanged command.

    Args:
        command: the program and its arguments.
        name: the name of the job; default: the name of an interpreter's script, else of the program.

    Raises:
        SpecError: if the command is not a list of texts that starts with a program.
    """
    if (
        isinstance(command, str)
        or not isinstance(command, Sequence)
        or not command
        or not command[0]
    ):
        raise SpecError(f"command={shorten(command)}: must be a list of texts, the program first")
    entrypoint, *args = [_word(each) for each in command]
    role = Role("main", "", entrypoint=entrypoint, args=args)
    return AppDef(name or _name_of(command), [role], arguments=masked_arguments(_options(args)))


def _word(word: Any) -> Any:
    """Return a number as its text; the role refuses other values that are not texts."""
    if isinstance(word, int | float) and not isinstance(word, bool):
        return str(word)
    return word


def _options(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line, read like most programs do.

    ``--name value`` and ``--name=value`` are texts, and ``--flag`` is True. ``--name 32 16`` is a
    list, and so is an option that is given twice. A text after a number belongs to the program.
    """
    found: dict[str, list[str]] = {}
    name = ""  # the option that takes the next word, if there is one
    taken = 0  # words after it so far
    for word in words:
        if not _is_option(word):
            if name and taken and _is_number(word) != _is_number(found[name][-1]):
                name = ""
            if name:
                found[name].append(word)
                taken += 1
            continue
        option, sign, value = word.removeprefix("--").partition("=")
        name = ""
        taken = 0
        if not word.startswith("--") or not option:
            continue
        values = found.setdefault(option, [])
        if sign:
            values.append(value)
        else:
            name = option
    return {option: _value_of(values) for option, values in found.items()}


def _value_of(values: list[str]) -> Any:
    """Return the value of an option: True without texts, a list of several ones."""
    if not values:
        return True
    if len(values) == 1:
        return values[0]
    return values


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _is_number(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _name_of(command: Sequence[str]) -> str:
    """Return a name for the job of a command, from the program or from Python's script."""
    file = os.path.basename(str(command[0]))
    if file.startswith("python") and len(command) > 1:
        script = str(command[1])
        if script and not script.startswith("-"):
            file = os.path.basename(script)
    stem = os.path.splitext(file)[0]
    # the user did not choose this name, so it must never be a reason to refuse the command
    name = re.sub(r"[^\w.-]+", "-", stem)[:_LONGEST_NAME].strip("-")
    if not name.strip("."):
        return "app"
    return name


class Overrides(NamedTuple):
    """Values that replace those of an app definition; None keeps its own value.

    Args:
        role: the role to change; None for all roles.
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
        on_stall: what is done then: ``note`` or ``dump``.
        progress_server: Hugging Face's Trainer finds an address to which it posts its progress.
        stall_signal: name of the signal of ``dump``.
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
        replaced = {mount.dst_path for mount in self.mounts}
        kept = [mount for mount in role.mounts if mount.dst_path not in replaced]
        changes = {
            "image": self.image,
            "num_replicas": self.replicas,
            "max_retries": self.retries,
            "retry_delay": self.retry_delay,
            "env": {**role.env, **env},
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
