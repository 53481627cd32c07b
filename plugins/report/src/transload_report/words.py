"""Values as words: times, numbers, and text of unknown origin made fit for a page."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final

from transload.cli.quantities import duration_text
from transload.specs import masked_url

__all__ = ["clean", "duration_text", "log_text", "moment_iso", "moment_text", "shown", "value_text"]

MAX_LINE: Final = 1000
"""How many characters of a log line are shown."""

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
# what HTML does not allow in a document: control characters but tab and newline, surrogates,
# non-characters
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr(plane << 16 | low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
# characters that turn the direction of what follows: a name could look like another one
_TURNING: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    r"""Return a text without characters that a page cannot hold, or that would deceive a reader.

    Each of them is spelled out, for example as ``\x00``.
    """
    text = _FORBIDDEN.sub(_spelled, text)
    return _TURNING.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    """Return the escape sequence of the character that was found."""
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def shown(text: str) -> str:
    """Return a text fit for display: as `clean`, passwords in URLs masked."""
    return clean(masked_url(text))


def log_text(line: str) -> str:
    """Return a log line fit for display.

    It has no colours, the last state of a progress bar only, and is cut after `MAX_LINE`
    characters.
    """
    line = _ANSI.sub("", line.rstrip("\r\n"))
    if "\r" in line:
        line = _last_state(line)
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]} … ({len(line) - MAX_LINE} more characters)"
    return shown(line)


def _last_state(line: str) -> str:
    """Return what a line that overwrites itself showed last."""
    for part in reversed(line.split("\r")):
        if part.strip():
            return part
    return ""


def value_text(value: Any) -> str:
    """Return a value for a person: floats to six digits."""
    if not isinstance(value, float):
        return shown(str(value))
    if not math.isfinite(value):
        return str(value)
    return f"{value:.6g}"


def moment_text(seconds: float | None) -> str:
    """Return a point in time as ``2025-01-31 08:00:00 UTC``, in local time; ``""`` for None."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def moment_iso(seconds: float) -> str:
    """Return a point in time as HTML's ``<time>`` wants it."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")
