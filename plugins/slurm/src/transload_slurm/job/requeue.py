"""What Slurm says of this job: why it was started again, and whether it goes on elsewhere."""

from __future__ import annotations

import os
import time

from transload.keeper import layout

from .limits import rows_of
from .starts import job_id
from .steps import UNREACHABLE, complain, run_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE_S = 60.0
_AGAIN_S = 2.0
_MOST = 1 << 20
_WORDS = (
    ("DUE TO PREEMPTION", "preempted"),
    ("DUE TO NODE FAILURE", "node"),
    ("DUE TO JOB REQUEUE", "requested"),
)
"""What Slurm writes into a job's log when it ends it → what that is."""


def cause_of(before: dict[str, Any] | None, folder: str) -> str:
    """Return the cause of an interruption after which Slurm started a job again.

    Slurm's own words in the job's log count. Without any, and without a signal to the keeper,
    the node that it ran on was lost.

    Args:
        before: what the start before has written, or None if it wrote nothing.
        folder: the job's folder.

    Returns:
        The cause, or "" if it is not known.
    """
    if before is None:
        return ""
    given = before.get("next")
    if isinstance(given, str) and given:
        return given
    log = os.path.join(folder, "batch.log")
    written = layout.end_of_own(log, _MOST, int(before.get("log_at") or 0))
    said = written.decode("utf-8", "replace")
    found = [(said.rfind(words), cause) for words, cause in _WORDS if words in said]
    cause = max(found)[1] if found else ""
    if cause == "requested" and _is_drained(str(before.get("nodes") or "")):
        return "drained"
    if not cause and not before.get("signalled"):
        return "node"
    return cause


def _is_drained(nodes: str) -> bool:
    """Tell whether somebody has taken one of these nodes out of service."""
    if not nodes:
        return False
    code, out, _ = run_tool(["sinfo", "-h", "-N", "-n", nodes, "-o", "%T"])
    return code == 0 and any(line.strip().startswith("drain") for line in out.splitlines())


def go_on() -> str:
    """Have Slurm put the job back into its queue. Return why it refuses, else ""."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _said(run_tool(["scontrol", "requeue", job_id()]), "scontrol requeue")
        except _Unreachable as exc:
            if time.monotonic() >= deadline:
                return str(exc)
            complain(f"Slurm does not answer, and is asked again: {exc}")
            time.sleep(_AGAIN_S)


class JobNow:
    """What Slurm says of this job.

    Args:
        word: its word for the state, or "" if it cannot be asked.
        restarts: how often it has started the job again.
        preempted: whether it is about to take the nodes for another job.
    """

    def __init__(self, word: str, restarts: int, preempted: bool) -> None:
        self.word = word
        self.restarts = restarts
        self.preempted = preempted


def job_now(role: int) -> JobNow:
    """Return what Slurm says of this job, of several roles of that one's component."""
    command = ["scontrol", "-o", "show", "job", os.environ.get("SLURM_JOB_ID", "")]
    jobs = rows_of(run_tool(command)[1])
    found = next((job for job in jobs if job.get("HetJobOffset", str(role)) == str(role)), {})
    preempted = found.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
    return JobNow(found.get("JobState", ""), int(found.get("Restarts", "0")), preempted)


class _Unreachable(Exception):
    """Slurm does not answer now."""


def _said(answer: tuple[int, str, str], what: str) -> str:
    """Return in one line why Slurm refused, or "" if it did what was asked.

    Raises:
        _Unreachable: if it did not answer.
    """
    code, _, err = answer
    if code <= 0:  # a requeue ends what has asked for it
        return ""
    line = "; ".join(line.strip() for line in err.splitlines() if line.strip())
    text = f"{what}: {line or f'exit code {code}'}"
    if any(words in line.lower() for words in UNREACHABLE):
        raise _Unreachable(text)
    return text
