"""Make values and names safe for an orchestrator, whose JSON takes less than a job may write."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["json_safe", "name_safe"]

_SMALLEST_INT: Final = -(2**63)
_LARGEST_INT: Final = 2**63 - 1


def json_safe(value: Any) -> Any:
    r"""Return a value as JSON that every orchestrator and its database take.

    NaN, infinities and ints beyond 64 bits become texts. So does what JSON has not. In texts, bytes
    that are no UTF-8 (in a file's name) and the character NUL are written as ``\xff`` and ``\x00``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _SMALLEST_INT <= value <= _LARGEST_INT else str(value)
    if isinstance(value, float):
        return _safe_float(value)
    if isinstance(value, Mapping):
        return {_safe_text(str(key)): json_safe(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(each) for each in value]
    return _safe_text(str(value))


def name_safe(text: str, reserved: str = "") -> str:
    r"""Return a name as one line of printable characters. What cannot be shown is escaped (``\n``).

    Args:
        text: the name, for example of a file.
        reserved: other characters that the orchestrator takes in no name, which are escaped too.
    """
    return "".join(_safe_character(each, reserved) for each in _safe_text(text))


def _safe_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _safe_text(text: str) -> str:
    if not text.isascii():
        text = "".join(map(_visible, text))
    return text.replace("\0", r"\x00")


def _visible(character: str) -> str:
    """Return a character, or the escape of one that no encoding has (half of a surrogate pair)."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's own way to keep a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return f"\\u{code:04x}"
    return character


def _safe_character(character: str, reserved: str) -> str:
    if character in reserved:
        return f"\\x{ord(character):02x}"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
