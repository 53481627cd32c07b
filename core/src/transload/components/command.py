"""Any command as an app, and what is overridden in an app that somebody else has written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from transload.errors import SpecError
from transload.specs import AppDef, Mount, Role, nearest
from transload.specs.checks import shorten
from transload.specs.secrets import masked_arguments

_LONGEST_NAME: Final = 60


def command_app(command: Sequence[str], name: str | None = None) -> AppDef:
    """Return an app of one role, ``main``, that runs a command as it is.

    Args:
        command: the program and its arguments.
        name: of the app; default: that of the script that an interpreter is given, else of the
            program.

    Raises:
        SpecError: if it is not a list of texts that begins with a program.
    """
    if (
        isinstance(command, str)
        or not isinstance(command, Sequence)
        or not command
        or not command[0]
    ):
        raise SpecError(f"command={shorten(command)}: must be a list of texts, the program first")
    entrypoint, *args = (
        str(word) if isinstance(word, int | float) and not isinstance(word, bool) else word
        for word in command
    )
    role = Role("main", "", entrypoint=entrypoint, args=args)
    return AppDef(name or _name_of(command), [role], arguments=masked_arguments(_options(args)))


def _options(words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line, as programs usually read them.

    ``--name value`` and ``--name=value`` are texts, ``--flag`` is True; ``--name 32 16`` is a list,
    and so is an option that stands twice. A text after a number belongs to the program, not to the
    option.
    """
    found: dict[str, list[str]] = {}
    name = ""  # of the option that takes the next word, if there is one
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
    """Return what an option was given: a list only of several texts, True of none."""
    if len(values) > 1:
        return values
    return values[0] if values else True


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _is_number(word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _name_of(command: Sequence[str]) -> str:
    program = os.path.basename(str(command[0]))
    script = str(command[1]) if len(command) > 1 and program.startswith("python") else ""
    named = script if script and not script.startswith("-") else program
    stem = os.path.splitext(os.path.basename(named))[0]
    # nobody gave this name, so it must never be a reason to refuse the command
    name = re.sub(r"[^\w.-]+", "-", stem)[:_LONGEST_NAME].strip("-")
    return name if name.strip(".") else "app"


class Overrides(NamedTuple):
    """What is set in an app over what it says itself; None leaves it.

    Args:
        role: the one role that is meant; None: all.
        name: of the app.
        time_limit: of the app, in seconds.
        env: variables that are added to the roles'.
        image: of the roles.
        replicas: how many of each role.
        retries: how often a failure is answered by starting again.
        retry_delay: seconds before the first retry.
        cpu: cores of each replica.
        gpu: GPUs of each replica.
        mem: main memory of each replica, in bytes.
        mounts: what is mounted into each replica, in place of what is mounted there already.
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

    def apply(self, app: AppDef) -> AppDef:
        """Return a copy of the app with these values.

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
        of_app = _given(name=self.name, timeout=self.time_limit)
        return replace(app, roles=roles, **of_app)

    def _apply(self, role: Role) -> Role:
        memory = None if self.mem is None else -(-self.mem // (1 << 20))
        new = {mount.dst_path for mount in self.mounts}
        mounts = [*(mount for mount in role.mounts if mount.dst_path not in new), *self.mounts]
        again = _given(max_retries=self.retries, retry_delay=self.retry_delay)
        return replace(
            role,
            env={**role.env, **(self.env or {})},
            secrets={
                name: source
                for name, source in role.secrets.items()
                if name not in (self.env or ())
            },
            resource=replace(role.resource, **_given(cpu=self.cpu, gpu=self.gpu, memMB=memory)),
            mounts=mounts,
            **_given(image=self.image, num_replicas=self.replicas),
            **again,
        )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
