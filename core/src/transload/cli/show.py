"""Show jobs. What a command knows is made once: `--json` writes it, and the text is drawn from it.

The logs and the end of a job look alike wherever they are shown, by `run`, `wait` and `log`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from transload.cli.exit_codes import ExitCode
from transload.cli.output import (
    SCHEMA,
    emit_json,
    note,
    paint,
    state_text,
    write,
    write_raw,
)
from transload.errors import TransloadError
from transload.runner.logs import PAUSE_S, LineFilter, LogReader, Redraws, tail
from transload.schedulers.patience import patiently
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text, parse_app_handle
from transload.specs.progress import is_next_part
from transload.specs.text import duration_text, usage_texts

if TYPE_CHECKING:
    from transload.cli.screen import Screen
    from transload.runner import AppResults, Job
    from transload.schedulers.api import LogPage
    from transload.specs import Progress

_BAR_WIDTH: Final = 10
_FULL: Final = "█"
_EMPTY: Final = "░"

_KEPT_LINES: Final = 10
"""The number of last lines that are shown of a replica that has failed."""
_SHOWN_REPLICAS: Final = 3
_LACKS_TRANSLOAD: Final = "No module named 'transload"

Tails = Mapping[tuple[str, int], Sequence[str]]
"""Role and number of a replica → its last lines."""


def app_json(handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return the first fields of a job's JSON, from its handle to its state and status."""
    parsed = parse_app_handle(handle)
    shown: dict[str, Any] = {
        "handle": handle,
        "scheduler": parsed.scheduler_backend,
        "app_id": parsed.app_id,
        "state": None,
        "status": None,
    }
    if status is not None:
        shown["state"] = status.state.name
        shown["status"] = json.loads(status.to_json())
    return shown


# -- what a status says


def time_text(when: float | None) -> str:
    """Return local time as ``2025-01-31 08:00:00``, or ``""`` for None."""
    if when is None:
        return ""
    return datetime.fromtimestamp(when).isoformat(" ", "seconds")


def limit_text(status: AppStatus) -> str:
    """Return a job's time limit and what is left of it, or ``""`` without a limit.

    It is a text such as ``2 h 00 min, 1 h 25 min left (until 2025-01-31 08:00:00)``.
    """
    parts = []
    if status.time_limit is not None:
        parts.append(duration_text(status.time_limit))
    if status.ends_by is not None and not status.is_terminal():
        parts.append(_until(status.ends_by))
    return ", ".join(parts)


def segment_text(status: AppStatus, length: float | None = None) -> str:
    """Return how long a job's present segment goes on, or ``""`` without segments.

    It is a text such as ``11 h 40 min left (until 2025-01-31 08:00:00), then the next one begins``.

    Args:
        status: that of the job.
        length: the longest time of a segment, in seconds, which is said first. None means that it
            is not known.
    """
    parts = []
    if length is not None:
        parts.append(duration_text(length))
    if status.segment_ends is not None and status.state is AppState.RUNNING:
        parts.append(f"{_until(status.segment_ends)}, then the next one begins")
    return ", ".join(parts)


def _until(when: float) -> str:
    left = duration_text(max(0.0, when - time.time()))
    return f"{left} left (until {time_text(when)})"


def progress_text(status: AppStatus, stream: TextIO | None = None) -> str:
    """Return how far a job is, or ``""`` if nothing is known.

    It is a text such as ``trainer ███████░░░ 71 % step 710/1000 · 12 min left``.

    Args:
        status: the status of the job.
        stream: where the bar is shown. None means no bar, as in
            ``71 %, step 710/1000, 12 min left``.
    """
    progress = status.progress
    if progress is None:
        return ""
    if stream is None:
        return progress.in_words(None if status.is_terminal() else time.time())
    name = ""
    if len(status.roles) == 1:
        name = status.roles[0].role
    words = [name, _bar(progress, stream), progress.percent_text(), progress.step_text()]
    parts = [" ".join(word for word in words if word), left_text(status), progress.text or ""]
    return " · ".join(part for part in parts if part)


def left_text(status: AppStatus) -> str:
    """Return a text such as ``12 min 05 s left``, or ``""`` if a job has ended or nothing is known."""
    if status.progress is None or status.is_terminal():
        return ""
    return status.progress.left_text(time.time())


def _bar(progress: Progress, stream: TextIO) -> str:
    if progress.fraction is None:
        return ""
    full = _FULL
    empty = _EMPTY
    try:
        (full + empty).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        full = "#"
        empty = "-"
    done = int(min(1.0, max(0.0, progress.fraction)) * _BAR_WIDTH)
    return full * done + empty * (_BAR_WIDTH - done)


def interruptions_text(status: AppStatus) -> str:
    """Return a text such as ``2 (preempted, segment)``, or ``""`` if it was never interrupted."""
    if not status.interruptions:
        return ""
    attempts = [attempt for replica in _replicas(status) for attempt in replica.earlier]
    found = {attempt.cause: None for attempt in attempts if attempt.cause not in (None, "failed")}
    causes = [str(cause) for cause in found]
    if not causes:
        return str(status.interruptions)
    return f"{status.interruptions} ({', '.join(causes)})"


def _replicas(status: AppStatus) -> list[ReplicaStatus]:
    return [replica for role in status.roles for replica in role.replicas]


def _because(status: AppStatus) -> str:
    """Return a colon and the message of a status, or ``""`` if it has none."""
    if not status.msg:
        return ""
    return f": {status.msg}"


# -- while a job runs


def status_line(status: AppStatus, handle: str, waited: float, *, cancelling: bool) -> str:
    """Return the line that a terminal shows below the logs.

    Args:
        status: of the job.
        handle: of the job.
        waited: for how long this command has waited, in seconds.
        cancelling: whether this command has asked the job to end.
    """
    replicas = _replicas(status)
    running = sum(replica.state is AppState.RUNNING for replica in replicas)
    state = state_text(status.state, sys.stderr)
    parts = [
        f"{state} (cancelling)" if cancelling else state,
        f"{running}/{len(replicas)} running" if replicas else "",
        _counted(status.num_restarts, "restart"),
        _counted(status.interruptions, "interruption"),
        progress_text(status, sys.stderr),
        _clock_text(waited),
        status.why_waiting(),
        handle,
    ]
    return "  ".join(part for part in parts if part)


def _counted(count: int, word: str) -> str:
    """Return ``1 restart``, ``2 restarts``, or ``""`` for none."""
    if count == 0:
        return ""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _clock_text(seconds: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


class StatusNotes:
    """Says which lines the statuses of a job are worth, as they come.

    Args:
        beside_line: whether a terminal shows `status_line` as well, so that states and progress
            need no lines of their own.
    """

    def __init__(self, beside_line: bool) -> None:
        self._beside_line = beside_line
        self._before: AppStatus | None = None
        self._said = ""  # the message that was written last
        self._warned_of_limit = False
        self._part: int | None = None
        self._at: float | None = None

    def lines(self, status: AppStatus) -> list[str]:
        """Return the lines for the next status. The end of a job is no matter of these lines."""
        before = self._before
        self._before = status
        if status.is_terminal():
            return []
        lines = []
        if not _looks_alike(before, status):
            lines.append(self._change(before, status))
        if not self._beside_line:
            lines.append(self._progress(status))
        lines.append(self._late(status))
        if status.is_stalled and not (before is not None and before.is_stalled):
            lines.append(f"warning: {status.msg}")
        return [line for line in lines if line]

    def _change(self, before: AppStatus | None, status: AppStatus) -> str:
        """Return what has changed since the status before."""
        because = ""
        if status.msg != self._said:
            because = _because(status)
        self._said = status.msg
        restarts = 0
        interruptions = 0
        if before is not None:
            restarts = before.num_restarts
            interruptions = before.interruptions
        if status.num_restarts != restarts:
            return f"{status.state.name}, restart {status.num_restarts}{because}"
        if status.interruptions != interruptions:
            return f"{status.state.name}, interruption {status.interruptions}{because}"
        if self._beside_line and status.state is not AppState.UNKNOWN:
            return ""
        return f"{status.state.name}{because}"

    def _progress(self, status: AppStatus) -> str:
        """Return how far it is, for each twentieth of its work."""
        progress = status.progress
        if progress is None or not is_next_part(progress, self._part, self._at):
            return ""
        self._part = progress.part()
        self._at = progress.at
        return progress_text(status)

    def _late(self, status: AppStatus) -> str:
        """Return once that it will not end within its limit of time."""
        late = ""
        if not self._warned_of_limit:
            late = status.late_for_limit(time.time())
        if not late:
            return ""
        self._warned_of_limit = True
        return f"warning: {late}"


def _looks_alike(before: AppStatus | None, now: AppStatus) -> bool:
    """Tell whether two statuses look the same to a person."""
    if before is None:
        return False
    return (
        before.state is now.state
        and before.num_restarts == now.num_restarts
        and before.interruptions == now.interruptions
        and before.why_waiting() == now.why_waiting()
    )


# -- logs


class ReplicaLog:
    """Shows the log of one replica: as lines on a screen, or as JSON with the unchanged lines.

    Args:
        reader: reads the log.
        screen: shows the lines. None means JSON on stdout.
        chosen: the wanted lines. None means all.

    Attributes:
        label: ``role/k``.
        last: the last lines that were shown.
        silent: whether the replica has written no line yet.
        missing: the file of the log, if there is none.
    """

    def __init__(
        self, reader: LogReader, screen: Screen | None, chosen: LineFilter | None = None
    ) -> None:
        self.reader = reader
        self.label = f"{reader.role}/{reader.replica}"
        self.last: deque[str] = deque(maxlen=_KEPT_LINES)
        self.silent = True
        self.missing = ""
        self._screen = screen
        self._chosen = chosen or LineFilter()
        self._redraws = Redraws(PAUSE_S if screen is None else screen.redraw_pause)
        self._unfinished = ""

    def show_so_far(self, tail: int | None) -> None:
        """Show the lines so far, in constant memory, or with `tail` only the last ones."""
        if tail is None:
            for page in self.reader.pages():
                self.show(page)
            return
        last: deque[str] = deque(maxlen=tail)
        for page in self.reader.pages():
            last.extend(self._lines_of(page))
        self._write(list(last))

    def show(self, page: LogPage) -> None:
        """Show the lines of the next page, and on a terminal the unfinished line below them."""
        self._write(self._lines_of(page))

    def leave(self) -> None:
        """Write the unfinished line, because the command does not wait for its end."""
        if self._screen is None:
            return
        self._screen.set_live(self.label, "")
        if not self._redraws.idle:
            self._screen.write_lines(self.label, self._redraws.rest())
        elif self._unfinished.strip():
            self._screen.write_lines(self.label, [f"{self._unfinished}\n"])

    def _lines_of(self, page: LogPage) -> list[str]:
        """Return the lines of a page for display.

        They differ from the program's output if it has overwritten a line.
        """
        self.missing = page.missing
        if page.lines:
            self.silent = False
        lines = self._chosen.take(page)
        if self._screen is None:
            return lines
        self._unfinished = "".join(self._chosen.choose([page.unfinished]))
        found = self._redraws.take(lines, self._unfinished)
        if page.complete:
            found += self._redraws.rest()
        return found

    def _write(self, lines: list[str]) -> None:
        if self._screen is None:
            write(sys.stdout, "".join(map(self._json, lines)), flush=True)
            return
        self.last.extend(lines[-_KEPT_LINES:])
        self._screen.write_lines(self.label, lines)
        self._screen.set_live(self.label, self._redraws.live)

    def _json(self, line: str) -> str:
        place = {"schema": SCHEMA, "role": self.reader.role, "replica": self.reader.replica}
        return json.dumps({**place, "line": line.removesuffix("\n")}) + "\n"


# -- the end


class Outcome(NamedTuple):
    """The result of waiting, which took ``elapsed`` seconds."""

    status: AppStatus | None
    code: ExitCode
    elapsed: float
    tails: Tails


@dataclass
class End:
    """What became of a job that a command has waited for."""

    handle: str
    outcome: Outcome
    took: float | None = None
    """Seconds from the job's submit to the end of its last replica, if they are known."""
    results: AppResults | None = None
    failed: list[ReplicaStatus] = field(default_factory=list)
    """Replicas that failed: first those that exited by themselves, then the killed ones."""
    last_lines: list[Sequence[str]] = field(default_factory=list)
    """The last lines of the first of these replicas."""
    short_of_memory: Sequence[str] = ()
    reattached: bool | None = None
    """Whether `run` found the job and started none. None: another command has waited."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `run` and `wait`."""
        return {
            **app_json(self.handle, self.outcome.status),
            **({} if self.reattached is None else {"reattached": self.reattached}),
            "timed_out": self.outcome.code is ExitCode.TIMEOUT,
            "elapsed": round(self.outcome.elapsed, 3),
            "results": None if self.results is None else self.results.results,
            "looked_in": [] if self.results is None else self.results.looked_in,
        }

    def write(self) -> None:
        """Write it to stderr in words."""
        status = self.outcome.status
        handle = self.handle
        if status is None:
            note(f"{handle} has vanished; another user or program deleted it")
        elif status.is_terminal():
            self._write_end(status)
        else:
            note(self._why_it_goes_on(status))
            note(f"to follow it: transload log -f {handle}; to end it: transload cancel {handle}")

    def _why_it_goes_on(self, status: AppStatus) -> str:
        """Return why this command ends before the job does."""
        if self.outcome.code is ExitCode.UNKNOWN:
            why = f"the state of {self.handle} has been UNKNOWN for too long ({status.msg})"
            return f"{why}; the job may go on"
        if self.outcome.code is ExitCode.TERMINATED:
            why = f"ended by a signal, but the end of {self.handle} was not requested"
            return f"{why}; it goes on ({status.state.name})"
        waited = duration_text(self.outcome.elapsed)
        return f"waiting timed out after {waited}; {self.handle} goes on ({status.state.name})"

    def _write_end(self, status: AppStatus) -> None:
        took = self.outcome.elapsed if self.took is None else self.took
        end = f"{state_text(status.state, sys.stderr)} after {duration_text(took)}"
        peak, cpu_time = usage_texts(status.usage())
        if peak and cpu_time:
            end = f"{end} ({cpu_time} of CPU, {peak})"
        note(f"{end}  {self.handle}{_because(status)}")
        for line in self.short_of_memory:
            note(f"warning: {line}")
        self._write_failures()
        if status.state is AppState.FAILED and _LACKS_TRANSLOAD in status.msg:
            note(
                "the program imports transload, which its Python there does not have: install it "
                "there, or take one file along: transload runtime > transload_runtime.py"
            )

    def write_results(self) -> None:
        """Write the results to stderr, a line for each key."""
        if self.results is None:
            return
        for line in self.results.lines(lambda key: paint(key, "bold", stream=sys.stderr)):
            note(line)
        for line in self.results.refusals():
            note(f"not read: {line}")

    def _write_failures(self) -> None:
        """Write which replicas failed, their exit codes, and their last log lines."""
        for replica, lines in zip(self.failed, self.last_lines, strict=False):
            text = f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}"
            note(paint(text, "red", stream=sys.stderr))
            for line in lines:
                write_raw(sys.stderr, f"    {line.rstrip()}\n")
        more = len(self.failed) - len(self.last_lines)
        if more > 0:
            note(f"and {more} more replicas failed: `transload status {self.handle}`")


def show_end(
    job: Job, outcome: Outcome, as_json: bool, patience: float, *, reattached: bool | None = None
) -> None:
    """Write the result of waiting for a job to stderr, and as JSON to stdout if requested.

    A scheduler that is unreachable is asked for the results again, for ``patience`` seconds.
    """
    end = _end_of(job, outcome)
    end.reattached = reattached
    end.write()
    if outcome.status is not None and outcome.status.is_terminal():
        try:
            end.results = patiently(job.results, patience)
        except (TransloadError, OSError, ImportError) as exc:
            note(f"the results cannot be read: {exc}")
    end.write_results()
    if as_json:
        emit_json(end.to_json())


def _end_of(job: Job, outcome: Outcome) -> End:
    status = outcome.status
    end = End(job.handle, outcome)
    if status is None or not status.is_terminal():
        return end
    end.took = _app_seconds(job, status)
    if usage_texts(status.usage())[0]:
        end.short_of_memory = status.short_of_memory(job.describe())
    if status.state is AppState.FAILED:
        end.failed = _failed_replicas(status)
        shown = end.failed[:_SHOWN_REPLICAS]
        end.last_lines = [_last_lines(job, status, each, outcome.tails) for each in shown]
    return end


def _app_seconds(job: Job, status: AppStatus) -> float | None:
    """Return the seconds from a job's submit to its last replica's end, or None if unknown."""
    try:
        found = job.description()
    except TransloadError:
        return None
    if found is None:
        return status.seconds_since(None)
    return status.seconds_since(found.created)


def _failed_replicas(status: AppStatus) -> list[ReplicaStatus]:
    failed = [each for each in _replicas(status) if each.state is AppState.FAILED]

    def rank(replica: ReplicaStatus) -> tuple[bool, float]:
        was_killed = replica.exit_code is None or replica.exit_code < 0
        return was_killed, replica.end_time or 0.0

    return sorted(failed, key=rank)


def _last_lines(job: Job, status: AppStatus, replica: ReplicaStatus, tails: Tails) -> Sequence[str]:
    """Return the last log lines of a replica's last attempt."""
    # the lines kept while following the log are those of all attempts
    if not replica.restarts and not replica.interruptions:
        kept = tails.get((replica.role, replica.id))
        if kept:
            return kept
    return tail(job.scheduler, job.app_id, replica.role, replica.id, _KEPT_LINES, status)
