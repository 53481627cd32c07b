"""The lines of a job, and about it, in the log of its task."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

AT_ONCE: Final = 30_000
"""Bytes that one thread writes into a pipe in one go, whatever the others do."""

PIECE: Final = AT_ONCE // 6
"""Characters of a line that are as many bytes at most once they are JSON."""

WARNING: Final = "warning: "
"""How a line about a job begins that is a warning."""

_job_log = logging.getLogger("transload.app")


def write_about_job(log: Any, text: str) -> None:
    """Write a line about the job into the log of a task, at the level it bears.

    Args:
        log: the logger of the task, or of its trigger.
        text: the line.
    """
    if text.startswith(WARNING):
        log.warning("%s", text.removeprefix(WARNING))
    else:
        log.info("%s", text)


def log_line(role: str, replica: int, line: str) -> None:
    """Put a line of a replica into the log of the task. It works in triggers, too."""
    text = line.rstrip("\n")
    _job_log.info("%s", f"{role}/{replica} {text}")


def log_line_in_pieces(role: str, replica: int, line: str) -> None:
    """Do what `log_line` does, in a trigger, where a very long line comes as several.

    The threads of a triggerer share one pipe for their logs. A line that does not fit into it is
    mixed with those of other threads, and Airflow throws both away. That was seen in 3.3.2, from
    about 200,000 bytes on.
    """
    text = line.rstrip("\n")
    if len(text) <= PIECE or len(json.dumps(text)) <= AT_ONCE:
        log_line(role, replica, text)
        return
    for start in range(0, len(text), PIECE):
        log_line(role, replica, text[start : start + PIECE])
