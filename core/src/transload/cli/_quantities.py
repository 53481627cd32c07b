"""Durations, points in time and sizes as people type and read them."""

from __future__ import annotations

import re
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError
from transload.specs._text import SIZE_UNITS

if TYPE_CHECKING:
    from transload.specs import Usage

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)"


def parse_duration(text: str, what: str = "duration") -> float:
    """Return seconds from ``90``, ``1.5h``, ``10m`` or ``1h30m``."""
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or re.sub(_DURATION, "", text):
        raise SpecError(f"{what}={text!r}: must be a duration such as 90s, 10m, 1h30m or 7d")
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION, text))


def parse_when(text: str, what: str, now: datetime | None = None) -> datetime:
    """Return a point in time from a duration before now (``10m``) or from ISO 8601; naive times are local."""
    text = text.strip()
    try:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            return (now or datetime.now().astimezone()) - timedelta(seconds=parse_duration(text))
        if when.tzinfo is None and when.year == MAXYEAR:  # Python 3.13 cannot tell the local zone of its last day
            return when.replace(tzinfo=UTC)
        return when.astimezone() if when.tzinfo is None else when
    except (ValueError, OverflowError):  # a SpecError is a ValueError, and so is a local time in the year 0
        message = f"{what}={text!r}: must be a duration (10m, 2h: that long ago) or a time (2025-01-31T08:00)"
        raise SpecError(message) from None


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


def clock_text(seconds: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def time_text(when: float | None) -> str:
    """Return local time as ``2025-01-31 08:00:00``; ``""`` for None."""
    return "" if when is None else datetime.fromtimestamp(when).isoformat(" ", "seconds")


def usage_texts(usage: Usage | None) -> tuple[str, str]:
    """Return peak memory and CPU time as texts; ``""`` for what is not known."""
    peak, seconds = (None, None) if usage is None else (usage.peak_memory, usage.cpu_seconds)
    return "" if peak is None else size_text(peak), "" if seconds is None else duration_text(seconds)


def size_text(size: float) -> str:
    """Return ``512 B``, ``1.5 KiB`` …"""
    for unit in ("B", *(f"{letter}iB" for letter in SIZE_UNITS)):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
