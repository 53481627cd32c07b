"""Write log lines (stdout) and the status line (stderr) so that they never mix."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final, TextIO

from transload.cli.output import (
    REPLICA_COLOURS,
    columns,
    has_colour,
    is_terminal,
    one_line,
    write_raw,
)
from transload.runner.logs import PAUSE_S
from transload.runtime import progress_lines

__all__ = ["open_screen"]


_MOST_LIVE: Final = 8
_MOVES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-ln-z]|[^\[])")
"""Control sequences except for those of colours, which end with ``m``."""


class Screen:
    """Writes the logs of replicas and, on a terminal, keeps a status line below them. Thread-safe.

    Args:
        logs: the stream for log lines.
        notes: the stream for the status line and for notes.
        labels: ``role/k`` of each replica that may write, for widths and colours. If it is empty,
            lines have no prefixes.
        plain: show no status line, even on a terminal.
    """

    def __init__(
        self, logs: TextIO, notes: TextIO, labels: Sequence[str] = (), plain: bool = False
    ) -> None:
        self._logs = logs
        self._notes = notes
        self._lock = threading.Lock()
        self._prefixes = _prefixes(labels, has_colour(logs), is_terminal(logs))
        self._status = ""
        self._live: dict[str, str] = {}
        self._rows = 0  # the lines that the terminal shows below the logs now
        self.shows_status = (
            is_terminal(notes) and os.environ.get("TERM", "dumb") != "dumb" and not plain
        )
        self._shared = self.shows_status and is_terminal(logs)

    def write_lines(self, label: str, lines: Sequence[str]) -> None:
        """Write complete log lines of one replica, each with its prefix and a newline."""
        if not lines:
            return
        prefix = self._prefixes.get(label, "")
        text = prefix + prefix.join(lines)
        if text.count("\n") < len(lines):  # the last one of each stream may lack it
            ended = [line if line.endswith("\n") else f"{line}\n" for line in lines]
            text = prefix + prefix.join(ended)
        with self._lock:
            if self._shared:
                self._clear()
            write_raw(self._logs, text, flush=True)
            if self._shared:
                self._draw()

    def note(self, text: str) -> None:
        """Write a note of one line beside the logs."""
        with self._lock:
            self._clear()
            self._notes.write(f"transload: {one_line(text)}\n")
            self._draw()
            self._notes.flush()

    def set_status(self, text: str) -> None:
        """Show ``text`` as the status line, if there is a terminal."""
        if not self.shows_status:
            return
        with self._lock:
            self._status = text
            self._draw()

    @property
    def redraw_pause(self) -> float:
        """Return the seconds between two printed states of an overwritten line (see `set_live`)."""
        return float("inf") if self._shared else PAUSE_S

    def set_live(self, label: str, text: str) -> None:
        """Show the unfinished line of a replica below the logs on a terminal. ``""`` removes it."""
        if not self._shared or self._live.get(label, "") == text:
            return
        with self._lock:
            if text:
                self._live[label] = text
            else:
                self._live.pop(label, None)
            if not self._live and not self._status:
                self._clear()
            self._draw()

    def end(self) -> None:
        """Remove the status line and the unfinished lines."""
        with self._lock:
            self._clear()
            self._status = ""
            self._live.clear()

    def _clear(self) -> None:
        if self._rows:
            write_raw(self._notes, self._back(), flush=True)
            self._rows = 0

    def _back(self) -> str:
        """Return the control sequence that removes the lines below the logs."""
        if self._rows > 1:
            return f"\r\x1b[{self._rows - 1}A\x1b[J"
        return "\r\x1b[K"

    def _draw(self) -> None:
        """Show the latest unfinished lines, and the status line below them."""
        live = list(self._live.items())[-_MOST_LIVE:]
        rows = [self._prefixes.get(label, "") + _plain(text) for label, text in live]
        if self._status:
            rows.append(one_line(self._status))
        if not self.shows_status or not rows:
            return
        width = columns(self._notes) - 1
        text = "\n".join(_cut(row, width) for row in rows)
        write_raw(self._notes, self._back() + text, flush=True)
        self._rows = len(rows)


def _plain(text: str) -> str:
    """Return a text without control sequences, except for those of colours."""
    return one_line(_MOVES.sub("", text.expandtabs()))


def open_screen(labels: Sequence[str] = (), *, as_json: bool = False) -> Screen:
    """Return a screen on which a command shows logs, states and the progress of long work.

    It is the only one until the command ends, or opens another. With ``--json``, logs go to stderr
    and no progress is shown.

    Args:
        labels: as of `Screen`.
        as_json: whether stdout is for JSON.
    """
    from click import get_current_context

    if as_json:
        return Screen(sys.stderr, sys.stderr, labels, plain=True)
    progress_lines.screen = Screen(sys.stdout, sys.stderr, labels)
    get_current_context().call_on_close(partial(setattr, progress_lines, "screen", None))
    return progress_lines.screen


def _prefixes(labels: Sequence[str], coloured: bool, aligned: bool) -> dict[str, str]:
    width = 0
    if aligned:
        width = max(map(len, labels), default=0)
    prefixes = {}
    for index, label in enumerate(labels):
        text = label.ljust(width)
        if coloured:
            colour = REPLICA_COLOURS[index % len(REPLICA_COLOURS)]
            text = f"\x1b[{colour}m{text}\x1b[0m"
        prefixes[label] = f"{text} "
    return prefixes


def _cut(text: str, width: int) -> str:
    """Cut to ``width`` visible columns, keeping colour codes."""
    out = []
    used = 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b"):
            out.append(part)
        elif used < width:
            out.append(part[: width - used])
            used += len(part)
    return "".join(out)
