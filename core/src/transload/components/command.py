"""Make an app definition from a command."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

from transload.errors import SpecError
from transload.specs import AppDef, Role
from transload.specs.checks import shorten
from transload.specs.secrets import masked_arguments

_LONGEST_NAME: Final = 60


def command_app(command: Sequence[str], name: str | None = None) -> AppDef:
    """Return an app definition with one role, ``main``, that runs an unchanged command.

    Args:
        command: the program and its arguments.
        name: the name of the job. By default it is that of an interpreter's script, else of the
            program.

    Raises:
        SpecError: if the command is not a list of texts that starts with a program.
    """
    if (
        isinstance(command, str)
        or not isinstance(command, Sequence)
        or not command
        or not command[0]
    ):
        text = f"command={shorten(command)}: must be a list of texts, the program first"
        if isinstance(command, str) and command.strip():
            text = f"{text}: command={shorten(command.split())}"
        raise SpecError(text)
    entrypoint, *args = [_word(each) for each in command]
    role = Role("main", "", entrypoint=entrypoint, args=args)
    return AppDef(name or _name_of(command), [role], arguments=masked_arguments(_options(args)))


def _word(word: Any) -> Any:
    """Return a number as its text. The role refuses other values that are not texts."""
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


def _python_name(words: Sequence[str]) -> str:
    """Return the name of the script or module that words after Python run, or ``""`` for none."""
    left = iter(words)
    for word in left:
        if word == "-m":
            return next(left, "")
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(left, None)
        elif not word.startswith("-"):
            return os.path.splitext(os.path.basename(word))[0]
        elif word in ("-c", "-"):
            return ""
    return ""


def _value_of(values: list[str]) -> Any:
    """Return the value of an option, which is True without texts, and a list for several texts."""
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
    """Return a name for the job of a command, from the program or Python's script or module."""
    program = os.path.basename(str(command[0]))
    stem = os.path.splitext(program)[0]
    if program.startswith("python"):
        stem = _python_name([str(word) for word in command[1:]]) or stem
    # the user did not choose this name, so it must never be a reason to refuse the command
    name = re.sub(r"[^\w.-]+", "-", stem)[:_LONGEST_NAME].strip("-")
    if not name.strip("."):
        return "app"
    return name
