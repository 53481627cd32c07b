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
    """Return a text in which everything that a page cannot hold, or that would deceive, is spelled
    out.
    """
    text = _FORBIDDEN.sub(lambda found: _spelled(found[0]), text)
    return _TURNING.sub(lambda found: _spelled(found[0]), text)


def _spelled(char: str) -> str:
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def shown(text: str) -> str:
    """Return a text fit for display: as `clean`, passwords in URLs masked."""
    return clean(masked_url(text))


def log_text(line: str) -> str:
    """Return a log line fit for display: without colours, of a progress bar its last state, cut
    where it is endless.
    """
    line = _ANSI.sub("", line.rstrip("\r\n"))
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]} … ({len(line) - MAX_LINE} more characters)"
    return shown(line)


def value_text(value: Any) -> str:
    """Return a value for a person: floats to six digits."""
    if isinstance(value, bool) or not isinstance(value, float):
        return shown(str(value))
    return f"{value:.6g}" if math.isfinite(value) else str(value)


def moment_text(seconds: float | None) -> str:
    """Return a point in time as ``2025-01-31 08:00:00 UTC``, in local time; ``""`` for None."""
    return (
        ""
        if seconds is None
        else datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    )


def moment_iso(seconds: float) -> str:
    """Return a point in time as HTML's ``<time>`` wants it."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")
