"""The output of a flow run's app, without what Prefect's own logger in the app sends by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transload.pipelines import LogSink
    from transload.schedulers.api import Stream

_LOGGED: Final = re.compile(r"\d\d:\d\d:\d\d\.\d{3} \| ")
"""How Prefect's lines on a console begin, unless somebody has changed their format."""

_CHAINED: Final = ("Traceback (", "During handling of", "The above exception")


class Output:
    """A sink that hands on what is no line of Prefect's logger, nor of a traceback below one.

    Args:
        sink: gets the rest.
    """

    def __init__(self, sink: LogSink) -> None:
        self._sink = sink
        self._below = self._inside = False

    def __call__(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Hand a line on, or leave it out."""
        if not self._is_prefects(line):
            self._sink(role, replica, stream, line)

    def _is_prefects(self, line: str) -> bool:
        if _LOGGED.match(line):
            self._below, self._inside = True, False
        elif self._inside:
            self._inside = line[:1].isspace()  # else it is the last line: the exception
        elif self._below and line.startswith(_CHAINED):
            self._inside = line.startswith(_CHAINED[0])
        elif line.strip():
            self._below = False
        return self._below
