"""Read values that users typed, and write quantities for them.

The values are booleans, sizes, durations and ``key=value`` lists.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn, TypeVar

from transload.errors import SpecError
from transload.specs.checks import LONGEST_S, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transload.specs.status import Usage

__all__ = ["duration_text", "parse_number", "usage_texts"]

Number = TypeVar("Number", int, float)

_TRUE = {"true", "t", "yes", "y", "on", "1"}
_FALSE = {"false", "f", "no", "n", "off", "0"}
_NUMBERS = {
    int: r"[+-]?[0-9]+",
    float: r"(?i)[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)",
}
_SIZE = r"(?i)([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(i?B?)\Z"
SIZE_UNITS = "KMGTP"
_KEY = r"[^\s=,;-][^\s=,;]*"  # what begins with a dash is an option within a value
_VALUE = r"""(?:"([^"]*)"|'([^']*)'|(.*?))"""
_PAIR = rf"(?s)\s*({_KEY})\s*=\s*{_VALUE}\s*(?=\Z|[,;]\s*(?:\Z|{_KEY}\s*=))"

_JSON_PAIR = rf"\s*({_KEY})\s*=\s*[\[{{]"


def parse_number(text: str, kind: type[Number]) -> Number:
    """Return the int or float that a text spells in plain digits.

    What only Python takes for a number, such as ``2024_01`` and digits of other scripts, is a text.

    Raises:
        ValueError: for any other text.
    """
    if re.fullmatch(_NUMBERS[kind], text.strip()) is None:
        raise ValueError(f"{text!r}: must be a number")
    return kind(text)


def parse_bool(text: str, path: str = "value") -> bool:
    """Return the bool that ``text`` spells in any case.

    It is one of true/false, yes/no, on/off, t/f, y/n, 1/0.

    Raises:
        SpecError: for any other text.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise SpecError(f"{path}={text!r}: must be true or false (also yes/no, on/off, 1/0)")


def split_pairs(text: str) -> dict[str, str]:
    """Split ``A=1,B=x,y;C='a,D=b'`` into pairs.

    A delimiter without a ``key=`` after it belongs to the value. A list or an object in JSON is one
    value, with all delimiters in it.

    Raises:
        SpecError: for a text of another form.
    """
    pairs: dict[str, str] = {}
    position = 0
    while text[position:].strip(" ,;"):
        spelled = _json_pair(text, position)
        if spelled is not None:
            key, value, position = spelled
            pairs[key] = value
            continue
        match = re.compile(_PAIR).match(text, position)
        if match is None:
            raise SpecError(f"{text!r}: must be of the form key=value[,key=value…]")
        pairs[match.group(1)] = next((item for item in match.groups()[1:] if item is not None), "")
        position = match.end() + 1
    return pairs


def _json_pair(text: str, position: int) -> tuple[str, str, int] | None:
    """Return a pair whose value is JSON, and where the next pair begins, or None."""
    match = re.compile(_JSON_PAIR).match(text, position)
    if match is None:
        return None
    begin = match.end() - 1
    try:
        _, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    rest = re.compile(r"\s*(?:[,;]|\Z)").match(text, end)
    if rest is None:
        return None
    return match.group(1), text[begin:end], rest.end()


def split_list(text: str) -> list[str]:
    """Split a list at each ``,`` and ``;``, and drop empty elements."""
    return [part.strip() for part in text.replace(";", ",").split(",") if part.strip()]


def named(names: Iterable[str], pattern: str) -> set[str]:
    """Return the name that a text is, or else all names that it matches as a pattern.

    A pattern has ``*`` (which matches ``/``, too), ``?`` and ``[a-z]``. A name may hold any of
    these, and is meant itself where it is given.
    """
    from fnmatch import fnmatchcase

    found = set(names)
    if pattern in found:
        return {pattern}
    return {name for name in found if fnmatchcase(name, pattern)}


def parse_size(text: str, what: str = "size") -> int:
    """Return bytes from ``512B``, ``10M`` or ``1.5GiB``, whose units are powers of 1024.

    Only 0 needs no unit.

    Raises:
        SpecError: for any other text.
    """
    match = re.match(_SIZE, text.strip())
    if match is None:
        raise SpecError(f"{what}={text!r}: must be a size such as 500M or 10G")
    number, letter, ending = match.groups()
    if not letter and not ending and float(number):
        raise SpecError(f"{what}={text!r}: must have a unit, such as {number}M or {number}G")
    power = 0
    if letter:
        power = SIZE_UNITS.index(letter.upper()) + 1
    size = float(number) * 1024**power
    if size >= 1 << 63:
        raise SpecError(f"{what}={text[:40]!r}: too large; at most 8 EiB")
    return int(size)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)"

_CLOCK = r"(?:([0-9]+)-)?([0-9]+):([0-5][0-9]):([0-5][0-9])"


def parse_duration(text: str, what: str = "duration", *, needs_unit: bool = False) -> float:
    """Return seconds from a duration.

    It is written ``90``, ``1.5h``, ``10m``, ``1h30m``, ``2:00:00`` or ``1-12:00:00`` (a day and a
    half).

    Args:
        text: the duration.
        what: names it in messages.
        needs_unit: a number alone, other than 0, is refused.

    Raises:
        SpecError: for any other text, and for more than `LONGEST_S`.
    """
    seconds = _seconds_of(text.strip(), what, needs_unit)
    if seconds > LONGEST_S:
        refuse(what, text, f"must be {LONGEST_S:g} s (317 years) or less")
    return seconds


def _seconds_of(text: str, what: str, needs_unit: bool) -> float:
    clock = re.fullmatch(_CLOCK, text)
    if clock is not None:
        days, hours, minutes, seconds = (float(each or 0) for each in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        if needs_unit and float(text):
            refuse_without_unit(text, what)
        return float(text)
    if not text or re.sub(_DURATION, "", text):
        raise SpecError(
            f"{what}={text!r}: must be a duration such as 90s, 10m, 1h30m, 2:00:00 or 7d"
        )
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION, text))


def refuse_without_unit(number: str | float, what: str) -> NoReturn:
    """Raise SpecError for a duration that is a number alone, which may be hours or seconds."""
    raise SpecError(
        f"{what}={number!r}: must have a unit, such as '{number}s', '{number}m' or '{number}h'"
    )


def duration_text(seconds: float) -> str:
    """Return ``40 ms``, ``2.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min`` or ``3 d 4 h``."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def usage_texts(usage: Usage | None) -> tuple[str, str]:
    """Return peak memory and CPU time as texts, with ``""`` for what is not known."""
    memory = ""
    cpu_time = ""
    if usage is not None and usage.peak_memory is not None:
        memory = size_text(usage.peak_memory)
    if usage is not None and usage.cpu_seconds is not None:
        cpu_time = duration_text(usage.cpu_seconds)
    return memory, cpu_time


def size_text(size: float) -> str:
    """Return ``512 B``, ``1.5 KiB`` …"""
    if size < 1024:
        return f"{size:.0f} B"
    unit = ""
    for letter in SIZE_UNITS:
        size /= 1024
        unit = f"{letter}iB"
        if size < 1024:
            break
    return f"{size:.1f} {unit}"
