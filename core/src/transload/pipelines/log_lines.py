"""Write the log lines that say when a job is out of reach, is back, or has ended."""

from __future__ import annotations

from transload.specs import AppStatus
from transload.specs.text import duration_text, usage_texts

__all__ = ["end_line", "reach"]


def end_line(handle: str, status: AppStatus, created: float | None) -> str:
    """Return the line that says how a job has ended.

    It also says how long the job took from its submit, and what it used.

    Args:
        handle: the job.
        status: its final status.
        created: when it was submitted, seconds since the epoch. None means unknown.
    """
    text = f"{handle} {status.state.name}"
    seconds = status.seconds_since(created)
    if seconds is not None:
        text += f" after {duration_text(seconds)}"
    used = [part for part in usage_texts(status.usage()) if part]
    if len(used) > 1:
        text += f" ({used[1]} of CPU, {used[0]})"
    return text


def reach(handle: str, away: bool, why: str = "") -> str:
    """Return the line that says that a job cannot be reached, or can again."""
    if not away:
        return f"{handle} is back"
    if why:
        return f"{handle} cannot be reached, waiting ({why})"
    return f"{handle} cannot be reached, waiting"
