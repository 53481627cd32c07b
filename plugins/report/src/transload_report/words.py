"""Format times, numbers and untrusted text for a page."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final

from transload.specs import masked_url
from transload.specs.text import duration_text

__all__ = ["clean", "duration_text", "log_text", "moment_iso", "moment_text", "shown", "value_text"]

MAX_LINE: Final = 1000
"""The largest number of characters shown of a log line."""

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# characters that HTML does not allow: control characters except for tab and newline, surrogates,
# non-characters
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr(plane << 16 | low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
# characters that change the direction of the text after them, so that a name could look different
_TURNING: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    r"""Replace the characters that a page cannot contain, or that could deceive a reader.

    Each of them becomes its escape sequence, for example ``\x00``.
    """
    text = _FORBIDDEN.sub(_spelled, text)
    return _TURNING.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    """Return the escape sequence of a matched character."""
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def shown(text: str) -> str:
    """Return a text for display, cleaned by `clean`, with passwords in URLs masked."""
    return clean(masked_url(text))


def log_text(line: str) -> str:
    """Return a log line for display.

    It has no colours and only the last state of a progress bar. It is cut after `MAX_LINE`
    characters.
    """
    line = _ANSI.sub("", line.rstrip("\r\n"))
    if "\r" in line:
        line = _last_state(line)
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]} … ({len(line) - MAX_LINE} more characters)"
    return shown(line)


def _last_state(line: str) -> str:
    """Return the last state of a line that overwrites itself."""
    for part in reversed(line.split("\r")):
        if part.strip():
            return part
    return ""


def value_text(value: Any) -> str:
    """Return a value as text, floats with six digits."""
    if not isinstance(value, float):
        return shown(str(value))
    if not math.isfinite(value):
        return str(value)
    return f"{value:.6g}"


def moment_text(seconds: float | None) -> str:
    """Return a point in time as ``2025-01-31 08:00:00 UTC``, in local time, or ``""`` for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def moment_iso(seconds: float) -> str:
    """Return a point in time in the form of HTML's ``<time>``."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")
