"""The time for which Slurm lets this job run, from its environment or from Slurm, asked once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FAR_S = 300 * 86400.0
"""Slurm writes a year for a job without a limit."""
_STANDARD = "%Y-%m-%dT%H:%M:%S"


class SlurmLimit:
    """When Slurm ends this job.

    Attributes:
        began: when this start of the job began, seconds since the epoch, or None if not known.
        end: when Slurm ends it, seconds since the epoch, or None without a limit, or if not known.
        answer: file descriptor from which the answer of Slurm is to be read, or None if none is
            awaited.
    """

    def __init__(self) -> None:
        self.began = _number(os.environ.get("SLURM_JOB_START_TIME"))
        self.end: float | None = None
        self.answer: int | None = None
        self._process: Any = None
        self._said = b""
        self._take(_number(os.environ.get("SLURM_JOB_END_TIME")))

    @property
    def seconds(self) -> float | None:
        """Seconds for which Slurm lets this start of the job run, or None if no limit is known."""
        if self.end is None or self.began is None:
            return None
        return self.end - self.began

    def ask(self) -> None:
        """Ask Slurm for the start and end where the environment does not have them.

        The reply is then read from `answer`.
        """
        if self.began is not None:
            return
        command = ["scontrol", "-o", "show", "job", os.environ.get("SLURM_JOB_ID", "")]
        env = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env
            )
            self.answer = self._process.stdout.fileno()

    def read(self) -> bool:
        """Read what has come of the answer, and tell whether that was its end."""
        assert self.answer is not None
        data = os.read(self.answer, 1 << 16)
        self._said += data
        if data:
            return False
        self.answer = None
        self._process.stdout.close()
        self._process.wait()
        words = _own_row(self._said.decode("utf-8", "replace"))
        self.began = _time(words.get("StartTime", ""))
        self._take(_time(words.get("EndTime", "")))
        return True

    def _take(self, end: float | None) -> None:
        if end is not None and end - time.time() < _FAR_S:
            self.end = end


def rows_of(answer: str) -> list[dict[str, str]]:
    """Return what ``scontrol -o show job`` says, of each component of a heterogeneous job."""
    return [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in answer.splitlines()
    ]


def _own_row(answer: str) -> dict[str, str]:
    """Return what ``scontrol`` says of this job."""
    own = os.environ.get("SLURM_JOB_ID", "")
    return next((row for row in rows_of(answer) if row.get("JobId") == own), {})


def _number(text: str | None) -> float | None:
    if text is None or not text.isdigit():
        return None
    return float(text)


def _time(text: str) -> float | None:
    """Return seconds since the epoch of a local time that Slurm has written."""
    try:
        return time.mktime(time.strptime(text, _STANDARD))
    except (ValueError, OverflowError):
        return None
