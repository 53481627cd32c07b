"""Show what is logged as lines of the command line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from transload.cli.output import note

_OWN = "transload"


class LogLines(logging.Handler):
    """Writes each warning that is logged as a line ``transload: …`` on stderr.

    A line of another library begins with the name of its logger after that. A traceback follows
    as it is.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. A closed stderr changes nothing."""
        try:
            text = record.getMessage()
            if not record.name.startswith(_OWN):
                text = f"{record.name}: {text}"
            note(text)
            if record.exc_info:
                trace = logging.Formatter().formatException(record.exc_info)
                sys.stderr.write(f"{trace}\n")
        except Exception:
            self.handleError(record)


@contextmanager
def shown_log() -> Iterator[None]:
    """Have warnings shown as `LogLines` does in this block, unless the log goes somewhere else."""
    before = logging.lastResort
    logging.lastResort = LogLines(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before
