"""One writer for log lines (stdout) and the status line (stderr), so that they never mix."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from transload import progress
from transload.cli._output import REPLICA_COLOURS, has_colour, is_terminal, one_line, write_raw


class Screen:
    """Writes the logs of replicas and, on a terminal, keeps a status line below them. Thread-safe.

    Args:
        logs: where log lines go.
        notes: where the status line and notes go.
        labels: ``role/k`` of each replica that may write, for widths and colours; prefixes are left out if empty.
        plain: no status line, even on a terminal: notes and logs alone.
    """

    def __init__(self, logs: TextIO, notes: TextIO, labels: Sequence[str] = (), plain: bool = False) -> None:
        self._logs = logs
        self._notes = notes
        self._lock = threading.Lock()
        self._prefixes = _prefixes(labels, has_colour(logs), is_terminal(logs))
        self._status = ""
        self._shown = False
        self.shows_status = is_terminal(notes) and os.environ.get("TERM", "dumb") != "dumb" and not plain
        self._shared = self.shows_status and is_terminal(logs)

    def write_lines(self, label: str, lines: Sequence[str]) -> None:
        """Write whole log lines of one replica, each behind its prefix; a missing last newline is added."""
        if not lines:
            return
        prefix = self._prefixes.get(label, "")
        text = prefix + prefix.join(lines) if prefix else "".join(lines)
        if not text.endswith("\n"):
            text += "\n"
        with self._lock:
            if self._shared:
                self._clear()
            write_raw(self._logs, text, flush=True)
            if self._shared:
                self._draw()

    def note(self, text: str) -> None:
        """Write one line for the person, beside the logs."""
        with self._lock:
            self._clear()
            self._notes.write(f"transload: {one_line(text)}\n")
            self._draw()
            self._notes.flush()

    def set_status(self, text: str) -> None:
        """Show ``text`` as the status line; nothing happens where there is no terminal."""
        if not self.shows_status:
            return
        with self._lock:
            self._status = text
            self._draw()

    def end(self) -> None:
        """Remove the status line."""
        with self._lock:
            self._clear()
            self._status = ""

    def _clear(self) -> None:
        if self._shown:
            write_raw(self._notes, "\r\x1b[K", flush=True)
            self._shown = False

    def _draw(self) -> None:
        if self.shows_status and self._status:
            text = _cut(one_line(self._status), _columns(self._notes) - 1)
            write_raw(self._notes, f"\r\x1b[K{text}", flush=True)
            self._shown = True


def show_progress() -> None:
    """Have long work show itself on stderr, until this command ends."""
    from click import get_current_context

    progress.screen = Screen(sys.stdout, sys.stderr)
    get_current_context().call_on_close(partial(setattr, progress, "screen", None))


def _columns(stream: TextIO) -> int:
    # shutil.get_terminal_size would do, but importing shutil costs as much as the rest of this module
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _prefixes(labels: Sequence[str], coloured: bool, aligned: bool) -> dict[str, str]:
    width = max((len(label) for label in labels), default=0) if aligned else 0
    prefixes = {}
    for index, label in enumerate(labels):
        text = label.ljust(width)
        if coloured:
            text = f"\x1b[{REPLICA_COLOURS[index % len(REPLICA_COLOURS)]}m{text}\x1b[0m"
        prefixes[label] = f"{text} "
    return prefixes


def _cut(text: str, width: int) -> str:
    """Cut to ``width`` visible columns, keeping colour codes."""
    import re

    out, used = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b"):
            out.append(part)
        elif used < width:
            out.append(part[: width - used])
            used += len(part)
    return "".join(out)
