"""Write with colours and tables on a terminal, as plain text in a pipe, or as JSON.

A job chooses many of the shown texts, such as names of files and results, errors and metadata.
They must not move the cursor of a terminal, change its title or its clipboard, or look like another
line. So `safe_streams` puts a `CleanStream` over stdout and stderr, also for text of plugins,
warnings and tracebacks. Only the job's own log lines (`write_raw`) do not pass through it.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO, cast
from unicodedata import combining, east_asian_width

from transload.runtime import progress_lines

if TYPE_CHECKING:
    from transload.specs import AppState

__all__ = ["emit_json", "emit_table", "note"]


SCHEMA: Final = 1
"""Version number of the JSON that the command line writes."""

_COLOURS: Final = ("red", "green", "yellow", "blue", "magenta", "cyan")
_CODES: Final = {
    "bold": "1",
    "dim": "2",
    **{name: str(31 + index) for index, name in enumerate(_COLOURS)},
}

REPLICA_COLOURS: Final = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")
"""ANSI colour codes of the replicas, in turn."""

_LEAST_COLUMN: Final = 16
"""A column is only wrapped if it is at least this wide."""

_UNSEEN: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_STYLE: Final = "(?:0|(?:1|2|3[1-6])(?:;(?:1|2|3[1-6]))*)m"  # the sequences that `paint` makes

STATE_COLOURS: Final[Mapping[str, str]] = {
    "UNSUBMITTED": "dim",
    "SUBMITTED": "blue",
    "PENDING": "yellow",
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "UNKNOWN": "magenta",
}


def is_terminal(stream: TextIO) -> bool:
    """Tell whether the stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def columns(stream: TextIO) -> int:
    """Return the width of a terminal, which is 80 if it is not known."""
    # like shutil.get_terminal_size, but importing shutil takes as long as all of this package
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def has_colour(stream: TextIO) -> bool:
    """Tell whether to use colours on a stream.

    This is so on a capable terminal without ``NO_COLOR``, and always with ``FORCE_COLOR``.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Return ``text`` in a style (see ``_CODES``), unchanged if ``stream`` has no colours."""
    if not styles or not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


def state_text(state: AppState, stream: TextIO | None = None) -> str:
    """Return the name of a state in its colour."""
    return paint(state.name, STATE_COLOURS[state.name], stream=stream)


class CleanStream:
    """A text stream that escapes all control characters except for this module's colours.

    Args:
        stream: the underlying stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, cleaned."""
        self._stream.write(clean(text, coloured=has_colour(self._stream)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, cleaned."""
        for line in lines:
            self.write(line)

    def write_raw(self, text: str) -> None:
        """Write text unchanged."""
        self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Have stdout and stderr take any text in this block, and escape control characters."""
    _replace_closed_streams()
    stdout = sys.stdout
    stderr = sys.stderr
    for stream in (stdout, stderr):
        _tolerate_any_text(stream)
    sys.stdout = cast("TextIO", CleanStream(stdout))
    sys.stderr = cast("TextIO", CleanStream(stderr))
    try:
        yield
    finally:
        sys.stdout = stdout
        sys.stderr = stderr
        try:
            stderr.flush()
        except OSError:
            silence(stderr)  # notes that cannot be written do not change the exit code


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that was closed before the start (``>&-``).

    Python has None in place of such a stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life


def _tolerate_any_text(stream: TextIO) -> None:
    """Let a stream write any log line.

    Bytes that are not UTF-8 pass unchanged, and characters that it cannot encode are escaped.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        errors = "surrogateescape" if is_utf8 else "backslashreplace"
        reconfigure(errors=errors)


def silence(stream: TextIO) -> None:
    """Send the interpreter's last flush of a stream to the null device, since nobody reads it any
    more (`| head`), or there is no room for it.
    """
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    except (OSError, ValueError):
        note("the reader of the output has gone")


class OutputFailed(OSError):
    """The output cannot be written (a full disk), although its reader still exists."""


def clean(text: str, *, coloured: bool = False) -> str:
    """Escape all control characters of a text, except for tabs and line ends.

    Args:
        text: the text.
        coloured: whether to keep the colours that `paint` makes.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    pattern = f"(?![\n\t])[{_UNSEEN}]"
    if coloured:
        pattern = f"\x1b(?!\\[{_STYLE})|(?![\n\t\x1b])[{_UNSEEN}]"
    return re.sub(pattern, _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode("ascii")


def write_raw(stream: TextIO, text: str, *, flush: bool = False) -> None:
    """Write log lines of a job, or control sequences, unchanged, with the errors of `write`."""
    write(stream, text, flush=flush, raw=True)


def write(stream: TextIO, text: str, *, flush: bool = False, raw: bool = False) -> None:
    """Write text to a stream.

    Raises:
        BrokenPipeError: if its reader is gone.
        OutputFailed: if it cannot be written for another reason.
    """
    try:
        if raw and isinstance(stream, CleanStream):
            stream.write_raw(text)
        else:
            stream.write(text)
        if flush:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OutputFailed(exc.errno, exc.strerror) from exc


def emit(text: str = "") -> None:
    """Write one line to stdout."""
    write(sys.stdout, f"{text}\n")


def emit_json(values: Mapping[str, Any]) -> None:
    """Write ``values`` as JSON with a ``schema`` number, indented on a terminal only."""
    from transload.specs.serialization import dump

    indent = 2 if is_terminal(sys.stdout) else None
    text = dump({"schema": SCHEMA, **values}, indent)
    if not text.replace("\n", "").isprintable():
        # JSON escapes characters below a space in the same way, so the values do not change
        text = re.sub(f"(?!\n)[{_UNSEEN}]", lambda found: f"\\u{ord(found.group()):04x}", text)
    write(sys.stdout, f"{text}\n")


def visible(text: str) -> str:
    """Return a user's text (a key, a run id) as one line, with control characters escaped."""
    if text.isprintable():
        return text
    return re.sub(f"[{_UNSEEN}]", _escaped, text)


def value_text(value: Any) -> str:
    """Return a result as text, with floats of six digits, and texts on one line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(value))


def pairs_text(values: Mapping[str, Any] | None, between: str = ", ") -> str:
    """Return ``name=value, name=value`` without values that are None."""
    return between.join(
        f"{name}={value}" for name, value in (values or {}).items() if value is not None
    )


def one_line(text: str) -> str:
    """Return a text as one line, cleaned, with its colours."""
    return clean(text.replace("\n", "\\n"), coloured=True)


def note(text: str) -> None:
    """Write one line ``transload: …`` to stderr, if it can be written."""
    try:
        if progress_lines.screen is not None:
            progress_lines.screen.note(text)
            return
        sys.stderr.write(f"transload: {one_line(text)}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        pass  # a failed note must not change the exit code


def note_error(text: str) -> None:
    """Write the one line ``transload: error: …`` to stderr."""
    line = " ".join(part.strip() for part in text.splitlines() if part.strip())
    note(f"{paint('error:', 'red', 'bold', stream=sys.stderr)} {line}")


def emit_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows, aligned below headers on a terminal, else with tabs and without headers."""
    coloured = has_colour(sys.stdout)

    def shown(cell: str) -> str:
        return clean(cell.replace("\t", " ").replace("\n", " "), coloured=coloured)

    cells = [list(map(shown, row)) for row in rows]
    if not is_terminal(sys.stdout):
        for row in cells:
            emit("\t".join(row))
        return
    by_column = zip(headers, *cells, strict=True)
    widths = [max(map(_width, column)) for column in by_column]
    emit(paint(_aligned(headers, widths), "bold"))
    for row in cells:
        for line in _wrapped(row, widths):
            emit(line)


def emit_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Write ``name  value`` lines, aligned on a terminal, else with a tab, without empty values."""
    shown = [(name, one_line(value)) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        if is_terminal(sys.stdout):
            emit(f"{paint(name.ljust(width), 'bold')}  {value}")
        else:
            emit(f"{name}\t{value}")


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return a row as lines. On a narrow terminal, the last column is wrapped."""
    room = columns(sys.stdout) - sum(widths[:-1]) - 2 * len(widths[:-1])
    if len(row) == 1 or room < _LEAST_COLUMN or _width(row[-1]) <= room:
        return [_aligned(row, widths)]
    first, *more = textwrap.wrap(row[-1], room) or [""]
    blank = [""] * (len(row) - 1)
    lines = [_aligned([*row[:-1], first], widths)]
    lines += [_aligned([*blank, text], widths) for text in more]
    return lines


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for cell, width in zip(row, widths, strict=True):
        padding = " " * (width - _width(cell))
        cells.append(cell + padding)
    return "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """Return the columns of a text. Colours take none, and wide characters take two."""
    if "\x1b" in text:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    if text.isascii():
        return len(text)
    base = [char for char in text if not combining(char)]
    wide = [char for char in base if east_asian_width(char) in "WF"]
    return len(base) + len(wide)
