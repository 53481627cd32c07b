"""Write the lines about a job in an orchestrator's log, and remember which it has had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from transload.specs import AppState, AppStatus, ReplicaStatus, is_started
from transload.specs.progress import is_next_part
from transload.specs.text import duration_text, usage_texts

__all__ = [
    "Interruption",
    "Reported",
    "end_line",
    "interruptions_of",
    "reach_line",
    "status_lines",
]

_ENDINGS: Final = {1: "st", 2: "nd", 3: "rd"}
"""Last digit → the end of the ordinal number, which is ``th`` for all others."""


@dataclass
class Reported:
    """The reports that a job's log has had. It survives a process, so that no report comes twice.

    Args:
        reason: why it waits.
        part: the twentieth of its work (see `Progress.part`).
        percent: the whole percent that the orchestrator displays (see `Progress.percent`).
        interruptions: how many of them, or None if the job was not seen yet.
        late: that it will not end within its limit.
        stalled: that it has stalled.
        part_at: when the job was at that part, seconds since the epoch.
    """

    reason: str = ""
    part: int | None = None
    percent: int | None = None
    interruptions: int | None = None
    late: bool = False
    stalled: bool = False
    part_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what was reported as JSON values, or ``{}`` if nothing was."""
        nothing = asdict(Reported())
        return {name: value for name, value in asdict(self).items() if value != nothing[name]}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Reported:
        """Read what `to_dict` returned, and ignore unknown fields."""
        known = {field.name for field in fields(Reported)}
        return Reported(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Interruption:
    """One time at which a job was interrupted, and started again.

    Args:
        number: the first one is 1.
        role: name of the role that was interrupted.
        cause: what interrupted it, or ``""`` if that is not known.
        step: the step that it had reported last, or None.
        seconds: how long the attempt took, or None if that is not known.
    """

    number: int
    role: str = ""
    cause: str = ""
    step: float | None = None
    seconds: float | None = None

    def in_words(self, allowed: int | None = None) -> str:
        """Return what happened, as part of a line.

        An example is ``interrupted (preempted) at step 4,200 after 3 h 12 min; started again, 2nd
        of 100``.

        Args:
            allowed: how many interruptions the role may have, or None if that is not known.
        """
        text = "interrupted"
        if self.cause:
            text += f" ({self.cause})"
        if self.step is not None:
            text += f" at step {self.step:,g}"
        if self.seconds is not None:
            text += f" after {duration_text(self.seconds)}"
        text += f"; started again, {_ordinal(self.number)}"
        if allowed:
            text += f" of {allowed}"
        return text


def interruptions_of(status: AppStatus) -> list[Interruption]:
    """Return the interruptions of a job, oldest first, as far as its scheduler keeps them.

    They are those of the replica that had the most. If the scheduler does not keep them, there is
    only the last one, without a cause.
    """
    replicas = [replica for role in status.roles for replica in role.replicas]
    most = max(replicas, key=_count, default=None)
    if most is None or not most.interruptions:
        return []
    found = [each for each in most.earlier if each.cause not in (None, "failed")]
    if not found:
        return [Interruption(most.interruptions, most.role)]
    first = most.interruptions - len(found) + 1
    kept = []
    for number, attempt in enumerate(found, first):
        seconds = None
        if attempt.start_time is not None and attempt.end_time is not None:
            seconds = attempt.end_time - attempt.start_time
        cause = str(attempt.cause)
        kept.append(Interruption(number, most.role, cause, attempt.step, seconds))
    return kept


def new_interruptions(status: AppStatus, reported: Reported) -> list[Interruption]:
    """Return the interruptions that were not reported, or the last one of a job not seen before."""
    found = interruptions_of(status)
    if reported.interruptions is None:
        return found[-1:]
    return [each for each in found if each.number > reported.interruptions]


def status_lines(
    handle: str, status: AppStatus, reported: Reported, now: float, deadline: float | None = None
) -> list[str]:
    """Return the lines that a status deserves after what was reported, and note them there.

    They say why it waits, how far it is, that it has stalled, and that it will not end in time.
    Those about interruptions are `new_interruptions`.

    Args:
        handle: the job.
        status: what was seen.
        reported: what was reported before, which is changed.
        now: seconds since the epoch.
        deadline: when the orchestrator ends it, seconds since the epoch. None means that it does
            not.
    """
    lines = []
    reason = status.why_waiting()
    if reason and reason != reported.reason:
        lines.append(f"{handle} is {status.state}: {reason}")
    if reason or is_started(status.state):
        reported.reason = reason
    progress = status.progress
    if progress is not None and is_next_part(progress, reported.part, reported.part_at):
        reported.part = progress.part()
        reported.part_at = progress.at
        words = progress.in_words(now)
        if status.is_terminal():
            words = progress.in_words()
        lines.append(f"{handle}: {words}")
    if status.is_stalled and not reported.stalled:
        lines.append(f"warning: {handle}: {status.msg}")
    if status.state is AppState.RUNNING:
        reported.stalled = status.is_stalled
    late = ""
    if not reported.late:
        late = status.late_for_limit(now, deadline)
    if late:
        reported.late = True
        lines.append(f"warning: {handle}: {late}")
    return lines


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


def reach_line(handle: str, away: bool, why: str = "") -> str:
    """Return the line that says that a job cannot be reached, or can again."""
    if not away:
        return f"{handle} is back"
    if why:
        return f"{handle} cannot be reached, waiting ({why})"
    return f"{handle} cannot be reached, waiting"


def _count(replica: ReplicaStatus) -> int:
    return replica.interruptions


def _ordinal(number: int) -> str:
    ending = _ENDINGS.get(number % 10, "th")
    if number % 100 in (11, 12, 13):
        ending = "th"
    return f"{number}{ending}"
