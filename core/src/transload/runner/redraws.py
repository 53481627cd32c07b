"""Make the lines of a program that draws over itself, such as a progress bar, readable.

A carriage return sets a terminal back to the beginning of its line. This is the one place that
decides what becomes of it. A line is shown as a terminal shows it in the end. While it is still
drawn, its latest state is shown now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

PAUSE_S: Final = 5.0
"""Seconds between two states of one line, where each of them becomes a line of its own."""


def drawn(line: str) -> str:
    r"""Return what a terminal shows of a line in the end.

    Of ``"10%\r100%\n"`` this is ``"100%\n"``.
    """
    if "\r" not in line:
        return line
    text = line.removesuffix("\n")
    newline = line[len(text) :]
    for state in reversed(text.split("\r")):
        if state.strip():
            return state + newline
    return newline


class Redraws:
    """Turns the lines of one log, among them states that are drawn over, into lines to be shown.

    Args:
        pause: seconds between two states of one line. If it is infinite, only a line's last state
            becomes a line.
        clock: returns the seconds.

    Attributes:
        live: what a terminal shows at this moment of the line that is not finished, or ``""`` if
            there is none.
    """

    def __init__(self, pause: float = PAUSE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.live = ""
        self._pause = pause
        self._clock = clock
        self._drawing = False  # the line that is being written is drawn over
        self._held = ""  # the latest state of that line
        self._shown = ""  # the state that last became a line
        self._due = 0.0

    @property
    def idle(self) -> bool:
        """Tell whether no line is being drawn over.

        A line without a carriage return then stays as it is.
        """
        return not self._drawing

    def take(self, lines: Iterable[str], unfinished: str = "") -> list[str]:
        """Return what becomes of the next lines of the log.

        Args:
            lines: as in `transload.schedulers.LogPage`.
            unfinished: the text behind them, which no newline has ended yet.
        """
        found = []
        for line in lines:
            if self._drawing or "\r" in line:
                found.extend(self._next(line))
            else:
                found.append(line)
        if self._drawing:
            self._held = drawn(unfinished) or self._held
            found.extend(self._state_if_due())
        self.live = drawn(unfinished) or self._held
        return found

    def rest(self) -> list[str]:
        """Return the last state that was drawn, if it has not become a line yet.

        It is called when the log has ended.
        """
        last = self._held
        self.live = ""
        self._held = ""
        self._drawing = False
        if last in ("", self._shown):
            return []
        return [f"{last}\n"]

    def _next(self, line: str) -> list[str]:
        if line.endswith("\r"):
            self._drawing = True
            self._held = drawn(line) or self._held
            return []
        text = drawn(line)
        before = self._held
        shown = self._shown
        self._held = ""
        self._shown = ""
        self._drawing = False
        if not before:
            return [text]
        if not text.strip():
            text = f"{before}\n"  # the newline that a bar ends with, whose last state stays
        if text.rstrip("\n") == shown:
            return []
        return [text]

    def _state_if_due(self) -> list[str]:
        now = self._clock()
        if now < self._due or self._held in ("", self._shown):
            return []
        if self._pause == float("inf"):
            return []
        self._due = now + self._pause
        self._shown = self._held
        return [f"{self._held}\n"]
