"""Where the marks of an axis stand, and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = ["duration_ticks", "is_drawable", "is_wide", "log_ticks", "tick_text", "ticks"]

_DURATIONS: Final = (
    *(digit * 10.0**power for power in range(-3, 1) for digit in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0, 2 * 86400.0, 7 * 86400.0, 14 * 86400.0),
)
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_WIDE: Final = 100.0
_GREATEST: Final = 1e150  # beyond, ratios and margins might not fit a float


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from ``low`` to ``high``: 1, 2 or 5 times a power of ten apart."""
    if not (math.isfinite(low) and math.isfinite(high)) or high - low <= 1e-9 * max(
        abs(low), abs(high)
    ):
        return [low]  # no marks in between could be told apart
    exact = (high - low) / max(1, most)
    if exact <= 0 or not math.isfinite(exact):
        return [low, high]
    base = 10.0 ** math.floor(math.log10(exact))
    step = next((base * digit for digit in (1, 2, 5) if base * digit >= exact * 0.8), base * 10)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + k) * step for k in range(min(count, 2 * most + 2))]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from ``low`` to ``high`` (both above 0), thinned out where many; where
    few, 2 and 5 too.
    """
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9) + 1)
    digits = (1, 2, 5) if len(powers) <= 2 else (1, 3) if len(powers) <= 3 else (1,)
    marks = [digit * 10.0**power for power in powers[:: len(powers) // 7 + 1] for digit in digits]
    return [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]


def tick_text(value: float, neighbours: Sequence[float] = ()) -> str:
    """Return a mark's number as short as it can be told from its neighbours."""
    step = min((abs(b - a) for a, b in pairwise(neighbours)), default=0.0)
    step = step if math.isfinite(step) else 0.0
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 6
        text = f"{value:.{min(digits, 12)}f}"
        return text.rstrip("0").rstrip(".") if step <= 0 and "." in text else text
    digits = math.ceil(math.log10(abs(value) / step)) + 1 if step > 0 else 3
    return (
        f"{value:.{max(3, min(digits, 15))}g}".replace("e-0", "e-")
        .replace("e+0", "e")
        .replace("e+", "e")
    )


def is_wide(values: Sequence[float]) -> bool:
    """Tell whether values are so far apart that only a logarithmic axis shows them all."""
    return bool(values) and min(values) > 1 / _GREATEST and max(values) / min(values) > _WIDE


def is_drawable(value: float) -> bool:
    """Tell whether a number has a place on an axis: NaN, the infinities and what is almost infinite
    have none.
    """
    return -_GREATEST < value < _GREATEST


def duration_ticks(seconds: float, most: int = 7) -> list[tuple[float, str]]:
    """Return ``(seconds, text)`` of marks from 0 to ``seconds``."""
    step = next(
        (each for each in _DURATIONS if seconds / each <= most),
        _DURATIONS[-1] * math.ceil(seconds / 1e7),
    )
    size, unit = next((each for each in _UNITS if step >= each[0]), (1.0, "s"))
    count = int(seconds / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
    marks = [(k * step, k * step / size) for k in range(count + 1)]
    exact = all(abs(value - round(value, digits)) < 1e-9 for _, value in marks)
    return [
        (at, "0" if not at else f"{value:.{digits if exact else digits + 1}f} {unit}")
        for at, value in marks
    ]
