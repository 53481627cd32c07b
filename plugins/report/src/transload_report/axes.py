"""Choose the marks of an axis and their texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

__all__ = [
    "SMALLEST",
    "duration_ticks",
    "is_drawable",
    "is_wide",
    "log_ticks",
    "tick_text",
    "ticks",
]

_DURATIONS: Final = (
    *(digit * 10.0**power for power in range(-3, 1) for digit in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0, 2 * 86400.0, 7 * 86400.0, 14 * 86400.0),
)
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_WIDE: Final = 100.0
_GREATEST: Final = 1e150  # beyond this, ratios and margins might overflow a float
SMALLEST: Final = 1e-150
"""The smallest distance that an axis shows. Quotients of smaller ones might be no numbers."""


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from ``low`` to ``high``, 1, 2 or 5 times a power of ten apart."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return [low]
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return [low]  # marks in between would look the same
    exact = (high - low) / max(1, most)
    if exact <= 0 or not math.isfinite(exact):
        return [low, high]
    step = _round_step(exact)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    count = min(last - first + 1, 2 * most + 2)
    return [(first + k) * step for k in range(count)]


def _round_step(exact: float) -> float:
    """Return the first of 1, 2, 5 or 10 times a power of ten that is at least about ``exact``."""
    base = 10.0 ** math.floor(math.log10(exact))
    for digit in (1, 2, 5):
        if base * digit >= exact * 0.8:
            return base * digit
    return base * 10


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from ``low`` to ``high``, both above 0.

    If there are many, only some are returned. If there are few, multiples of them are added.
    """
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9) + 1)
    digits: tuple[int, ...] = (1,)
    if len(powers) <= 2:
        digits = (1, 2, 5)
    elif len(powers) == 3:
        digits = (1, 3)
    shown = powers[:: len(powers) // 7 + 1]
    marks = [digit * 10.0**power for power in shown for digit in digits]
    return [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]


def tick_text(value: float, neighbours: Sequence[float] = ()) -> str:
    """Return the shortest text of a mark that differs from its neighbours'."""
    distances = [abs(b - a) for a, b in pairwise(neighbours)]
    step = min(distances, default=0.0)
    if not math.isfinite(step):
        step = 0.0
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        return _decimal_text(value, step)
    return _scientific_text(value, step)


def _decimal_text(value: float, step: float) -> str:
    """Write a number with the decimals that a step between marks needs. Step 0 is unknown."""
    if step > 0:
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return f"{value:.{min(digits, 12)}f}"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _scientific_text(value: float, step: float) -> str:
    """Write a number with the digits that a step between marks needs. Step 0 is unknown."""
    digits = 3
    if step > 0:
        needed = math.ceil(math.log10(abs(value) / step)) + 1
        digits = max(3, min(needed, 15))
    text = f"{value:.{digits}g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def is_wide(values: Sequence[float]) -> bool:
    """Tell whether values are so far apart that they need a logarithmic axis."""
    return bool(values) and min(values) > 1 / _GREATEST and max(values) / min(values) > _WIDE


def is_drawable(value: float) -> bool:
    """Tell whether a number has a place on an axis, so that it is finite and not too large."""
    return -_GREATEST < value < _GREATEST


def duration_ticks(seconds: float, most: int = 7) -> list[tuple[float, str]]:
    """Return ``(seconds, text)`` for marks from 0 to ``seconds``."""
    step = _duration_step(seconds, most)
    size, unit = _unit_of(step)
    count = int(seconds / step + 1e-9)
    moments = [k * step for k in range(count + 1)]
    amounts = [k * step / size for k in range(count + 1)]
    digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
    if any(abs(amount - round(amount, digits)) >= 1e-9 for amount in amounts):
        digits += 1
    texts = [f"{amount:.{digits}f} {unit}" for amount in amounts]
    texts[0] = "0"
    return list(zip(moments, texts, strict=True))


def _duration_step(seconds: float, most: int) -> float:
    for step in _DURATIONS:
        if seconds / step <= most:
            return step
    return _DURATIONS[-1] * math.ceil(seconds / 1e7)


def _unit_of(step: float) -> tuple[float, str]:
    """Return the largest unit that is not longer than a step, and its length in seconds."""
    for size, unit in _UNITS:
        if step >= size:
            return size, unit
    return 1.0, "s"
