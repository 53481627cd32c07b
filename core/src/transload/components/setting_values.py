"""Read the values that a user gives for the settings of a job, each by the name that was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from transload.errors import SpecError
from transload.specs import Mount, Notice, parse_mounts
from transload.specs.app import mount_from
from transload.specs.checks import (
    check_given,
    check_int,
    check_name,
    check_number,
    check_seconds,
    check_str,
    refuse,
    shorten,
)
from transload.specs.interruptions import signal_name
from transload.specs.serialization import build
from transload.specs.text import (
    parse_bool,
    parse_duration,
    parse_number,
    parse_size,
    refuse_without_unit,
)

_UNSET: Final = -1
"""The value of a resource's fields that are not set."""


def stall_action(value: Any, path: str) -> dict[str, str]:
    """Return the settings that ``note``, ``dump`` or ``dump:USR2`` means."""
    word, _, signal = str(value).partition(":")
    if word not in ("note", "dump") or (signal and word == "note"):
        raise SpecError(f"{path}={shorten(value)}: must be note, dump, or dump:SIGNAL")
    if not signal:
        return {"on_stall": word}
    return {"on_stall": word, "stall_signal": signal_name(signal, path)}


def _whole(value: Any, path: str) -> Any:
    if isinstance(value, str):
        try:
            value = parse_number(value, int)
        except ValueError:
            raise SpecError(f"{path}={shorten(value)}: must be a whole number") from None
    return value


def _count(value: Any, path: str) -> Any:
    value = _whole(value, path)
    check_int(value, path, 0)
    return value


def _at_least_one(value: Any, path: str) -> Any:
    value = _whole(value, path)
    check_int(value, path, 1)
    return value


def _gpus(value: Any, path: str) -> Any:
    value = _whole(value, path)
    if value != _UNSET:
        check_int(value, path, 0)
    return value


def _cores(value: Any, path: str) -> Any:
    if isinstance(value, str):
        try:
            value = parse_number(value, float)
        except ValueError:
            raise SpecError(f"{path}={shorten(value)}: must be a number") from None
    if value != _UNSET:
        check_number(value, path, low=0)
    return value


def _seconds(value: Any, path: str) -> float:
    if not isinstance(value, str):
        check_seconds(value, path, above=0)
    seconds = _pause(value, path)
    if seconds <= 0:
        refuse(path, value, "must be above 0")
    return seconds


def _pause(value: Any, path: str) -> float:
    """Return the seconds of a duration, which must have a unit, be it a number or a text."""
    if isinstance(value, str):
        return parse_duration(value, path, needs_unit=True)
    check_seconds(value, path, low=0)
    if value:
        refuse_without_unit(value, path)
    return 0.0


def _flag(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return parse_bool(value, path)
    return value


def _bytes(value: Any, path: str) -> int:
    if isinstance(value, str):
        return parse_size(value, path)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SpecError(f"{path}={shorten(value)}: must be a size such as 500M or 10G")
    if 0 < value < 1 << 20:
        raise SpecError(
            f"{path}={value}: is a number of bytes: write it with a unit, such as '{value}M' or "
            f"'{value}G'"
        )
    return value


def _notice(value: Any, path: str) -> Notice:
    if isinstance(value, Mapping):
        return build(Notice, value, path)
    if isinstance(value, Notice):
        return value
    return Notice(_seconds(value, path))


def _mounts(value: Any, path: str) -> list[Mount]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        raise SpecError(f"{path}={shorten(value)}: must be a list of mounts")
    mounts: list[Mount] = []
    words: list[str] = []
    for index, each in enumerate(value):
        if isinstance(each, str):
            words += each.split(",")
        elif isinstance(each, Mapping):
            mounts.append(mount_from(each, f"{path}[{index}]"))
        elif isinstance(each, Mount):
            mounts.append(each)
        else:
            raise SpecError(f"{path}[{index}]={shorten(each)}: must be a mount, or a text of one")
    return [*mounts, *parse_mounts(words)]


def _texts(value: Any, path: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise SpecError(f"{path}={shorten(value)}: must be name → value")
    for name, text in value.items():
        check_str(text, f"{path}[{name!r}]")
    return value


def _name(value: Any, path: str) -> Any:
    check_name(value, path)
    check_given(**{path: value})
    return value


def _text(value: Any, path: str) -> Any:
    check_str(value, path)
    check_given(**{path: value})
    return value


READERS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "name": _name,
    "image": _text,
    "replicas": _at_least_one,
    "retries": _count,
    "gpu": _gpus,
    "max_interruptions": _count,
    "cpu": _cores,
    "time_limit": _seconds,
    "segment": _seconds,
    "retry_delay": _pause,
    "stall_after": _seconds,
    "checkpoints": _flag,
    "progress_server": _flag,
    "mem": _bytes,
    "notice": _notice,
    "mounts": _mounts,
    "env": _texts,
    "secrets": _texts,
}
"""Setting → what reads a user's value of it. All others are taken as they are.

It refuses a value that no job can have, by the name that the user gave.
"""
