"""Wait for the end of a job, show its states and logs, and report its end.

This includes Ctrl-C and time limits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.cli.advance import ProgressNotes, progress_text
from transload.cli.exit_codes import ExitCode, exit_code_of
from transload.cli.output import emit_json, note, paint, state_text, write_raw
from transload.cli.quantities import clock_text, duration_text, usage_texts
from transload.cli.session import app_json
from transload.errors import AppNotFound, SchedulerUnavailable, TransloadError
from transload.runner.logs import LogReader, Redraws, drain, read_now, tail
from transload.schedulers.api import LogPage, LogQuery, Stream
from transload.schedulers.follower import read_logs, watch
from transload.schedulers.patience import DEFAULT_PATIENCE, patiently
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text, is_started

if TYPE_CHECKING:
    from types import FrameType

    from transload.cli.screen import Screen
    from transload.runner import AppResults, Job, Runner
    from transload.schedulers.subscription import Observation, Subscription


_TICK_S: Final = 1.0
_QUEUED_S: Final = 600.0
"""Seconds between two log lines that say that a job still waits."""
_LEAVE_S: Final = 2.0
_LONGEST_S: Final = 3600.0  # the longest wait of a queue, since a limit may be centuries
KEPT_LINES: Final = 10
"""The number of last lines that are kept of each replica for the report of a failure."""

Events = SimpleQueue[tuple[str, Any]]
_LACKS_TRANSLOAD: Final = "No module named 'transload"
Tails = dict[tuple[str, int], deque[str]]


class LeaveNow(KeyboardInterrupt):
    """A second signal has arrived.

    Attributes:
        number: its number.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interrupts(events: Events) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into the event ``("signal", number)``.

    The second one raises `LeaveNow`.
    """
    before: dict[int, Any] = {}
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise LeaveNow(number)
        events.put(("signal", number))

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # ignored from the start, for example by nohup
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Outcome(NamedTuple):
    """The result of waiting."""

    status: AppStatus | None
    code: ExitCode
    elapsed: float
    tails: Tails


class AppWait:
    """Waits for a job on a terminal, and shows its logs and states.

    Args:
        job: the job.
        screen: the screen for logs and states.
        events: the queue for signals (see `interrupts`). The first one cancels the job if its end
            was requested.
        timeout: the longest wait, in seconds. None means no limit.
        patience: the unreachable timeout, in seconds of UNKNOWN in a row.
        startup_timeout: seconds of waiting before the first run, after which the job is cancelled.
            None means no limit.
        replicas: the replicas whose logs are followed meanwhile.
    """

    def __init__(
        self,
        job: Job,
        screen: Screen,
        events: Events,
        timeout: float | None = None,
        patience: float = 300.0,
        replicas: Sequence[tuple[str, int]] = (),
        *,
        startup_timeout: float | None = None,
    ) -> None:
        self._job = job
        self._screen = screen
        self._events = events
        self._started = time.monotonic()
        self._deadline = None if timeout is None else self._started + timeout
        self._patience = patience
        self._startup_timeout = startup_timeout
        # when to cancel the job, unless it runs by then
        self._startup_ends: float | None = None
        self._cancelling: threading.Thread | None = None
        self._asked = False
        self._status: AppStatus | None = None
        self._tails: Tails = {replica: deque(maxlen=KEPT_LINES) for replica in replicas}
        self._dropped = 0
        self._stopped = False
        self._reading: Subscription | None = None
        queries = [LogQuery(role, k, Stream.COMBINED) for role, k in replicas]
        self._logs = [LogReader(job.scheduler, job.app_id, query) for query in queries]
        self._redraws: dict[LogReader, Redraws] = {}
        self._progress: ProgressNotes | None = None
        self._warned_of_limit = False
        self._said = ""  # the message that was written last

    def _take(self, log: LogReader, page: LogPage) -> None:
        if self._stopped:
            log.complete = True
            return
        self._dropped += page.dropped
        label = f"{log.role}/{log.replica}"
        lines = self._drawn_lines(log, page)
        self._tails[log.role, log.replica].extend(lines[-KEPT_LINES:])
        self._screen.write_lines(label, lines)
        live = ""
        if log in self._redraws:
            live = self._redraws[log].live
        self._screen.set_live(label, live)

    def _drawn_lines(self, log: LogReader, page: LogPage) -> list[str]:
        """Return the lines of a page for display.

        They differ from the program's output if it has overwritten a line.
        """
        if log not in self._redraws:
            if not page.unfinished and not any("\r" in line for line in page.lines):
                return page.lines
            self._redraws[log] = Redraws(self._screen.redraw_pause)
        redraws = self._redraws[log]
        lines = redraws.take(page.lines, page.unfinished)
        if page.complete:
            lines += redraws.rest()
        return lines

    def wait(self) -> Outcome:
        """Wait until the job has ended, a timeout has passed, or a second Ctrl-C arrives."""
        job = self._job
        if self._logs:
            self._reading = read_logs(job.scheduler, job.app_id, self._read)

        def tell(seen: Observation) -> None:
            self._events.put(("seen", seen))

        try:
            with watch(job.scheduler, job.handle, tell, patience=self._patience):
                code = self._loop()
            self._finish_logs(code)
            if code is ExitCode.TIMEOUT and self._status is None:  # it left before it saw a status
                self._status = job.status()
        except LeaveNow as exc:
            self._leave(exc.number)
            raise
        except BrokenPipeError:
            self._act_without_reader()
            raise
        finally:
            self._screen.end()
            self._stop_logs()
        return Outcome(self._status, code, time.monotonic() - self._started, self._tails)

    def _read(self) -> bool:
        """Show the new log lines of the replicas. The thread for the scheduler's logs calls it."""
        try:
            with suppress(SchedulerUnavailable):  # the rest comes when it answers again
                return read_now(self._logs, self._take)
            return False
        except TransloadError as exc:
            self._logs.clear()
            self._screen.note(f"the logs cannot be read: {exc}")
        except Exception as exc:
            self._logs.clear()
            self._events.put(("error", exc))
        return False

    # -- the main thread

    def _loop(self) -> ExitCode:
        while True:
            kind, value = self._next()
            if kind == "error":
                raise value
            if kind == "signal":
                if not _asked_by(value, self._job.runner):
                    return ExitCode.TERMINATED
                self._on_signal(value)
            elif kind == "seen":
                if value.status is not None:
                    self._on_state(value.status)
                if value.exhausted:
                    return ExitCode.UNKNOWN
                if value.final:
                    self._status = value.status
                    return _exit_code_at_end(value.status)
            now = time.monotonic()
            if self._startup_ends is not None and now >= self._startup_ends:
                self._give_up_waiting()
            if self._deadline is not None and now >= self._deadline:
                return ExitCode.TIMEOUT

    def _count_waiting(self, state: AppState) -> None:
        """Start the startup timeout when the job waits, and end it when the job runs."""
        if is_started(state):
            self._startup_ends = None
            self._startup_timeout = None
            return
        if self._startup_timeout is None or self._startup_ends is not None:
            return
        if state in (AppState.SUBMITTED, AppState.PENDING):
            self._startup_ends = time.monotonic() + self._startup_timeout

    def _give_up_waiting(self) -> None:
        """Cancel a job that has waited too long for its first run."""
        limit = duration_text(self._startup_timeout or 0.0)
        self._startup_ends = None
        self._startup_timeout = None
        text = f"it did not start within {limit}; cancelling it"
        why = self._why_waiting()
        self._begin_cancel()
        self._screen.note(f"{text}: {why}" if why else text)

    def _why_waiting(self) -> str:
        """Return why the job waits, or ``""`` if it does not wait, or the reason is unknown."""
        if self._status is None:
            return ""
        return self._status.why_waiting()

    def _next(self) -> tuple[str, Any]:
        """Return the next event, or ``("tick", None)`` when a limit or the pause has passed."""
        now = time.monotonic()
        pauses = [_TICK_S if self._screen.shows_status else _QUEUED_S, _LONGEST_S]
        for limit in (self._deadline, self._startup_ends):
            if limit is not None:
                pauses.append(max(limit - now, 0.0))
        try:
            return self._events.get(timeout=min(pauses))
        except Empty:
            self._show_waiting()
            return "tick", None

    def _show_waiting(self) -> None:
        """Draw the status line, or write into a log why the job still waits."""
        if self._screen.shows_status:
            self._tick()
        elif self._status is not None and self._status.why_waiting():
            after = duration_text(time.monotonic() - self._started)
            why = self._status.why_waiting()
            self._screen.note(f"{self._status.state.name} after {after}: {why}")

    def _on_state(self, status: AppStatus) -> None:
        previous = self._status
        self._status = status
        self._count_waiting(status.state)
        if self._screen.shows_status:
            self._draw()
        if status.is_terminal():
            return
        if not _looks_alike(previous, status):
            self._note_state(previous, status)
        if status.progress is not None and not self._screen.shows_status:
            self._note_progress(status)
        self._warn_of_limit(status)
        if status.is_stalled and not (previous is not None and previous.is_stalled):
            self._screen.note(f"warning: {status.msg}")

    def _note_progress(self, status: AppStatus) -> None:
        """Write how far it is, for each twentieth of its work."""
        if self._progress is None:
            self._progress = ProgressNotes()
        line = self._progress.line(status)
        if line:
            self._screen.note(line)

    def _warn_of_limit(self, status: AppStatus) -> None:
        """Say once that it will not end within its limit of time."""
        late = ""
        if not self._warned_of_limit:
            late = status.late_for_limit(time.time())
        if late:
            self._warned_of_limit = True
            self._screen.note(f"warning: {late}")

    def _note_state(self, previous: AppStatus | None, status: AppStatus) -> None:
        """Write what has changed since the status before."""
        because = ""
        if status.msg != self._said:
            because = _because(status)
        self._said = status.msg
        earlier_restarts = 0
        earlier_interruptions = 0
        if previous is not None:
            earlier_restarts = previous.num_restarts
            earlier_interruptions = previous.interruptions
        if status.num_restarts != earlier_restarts:
            self._screen.note(f"{status.state.name}, restart {status.num_restarts}{because}")
        elif status.interruptions != earlier_interruptions:
            count = f"interruption {status.interruptions}"
            self._screen.note(f"{status.state.name}, {count}{because}")
        elif not self._screen.shows_status or status.state is AppState.UNKNOWN:
            self._screen.note(f"{status.state.name}{because}")

    def _on_signal(self, number: int) -> None:
        self._begin_cancel()  # first, since Ctrl-C ends the reader of a pipe as well
        self._screen.note(
            f"{signal.Signals(number).name}: cancelling {self._job.handle}; a second signal leaves "
            "without waiting"
        )

    def _act_without_reader(self) -> None:
        """Act on a signal that came when the reader of this command's pipe was ended, too."""
        while not self._events.empty():
            kind, value = self._events.get()
            if kind == "signal" and _asked_by(value, self._job.runner):
                self._begin_cancel()
        if self._cancelling is not None:
            self._cancelling.join(_LEAVE_S)

    def _begin_cancel(self) -> threading.Thread:
        # in a thread, because a second signal may arrive during the request for the first one
        cancelling = threading.Thread(target=self._cancel, daemon=True, name="transload-cancel")
        cancelling.start()
        # set only now, since a signal between these lines starts another request, which is harmless
        self._cancelling = cancelling
        return cancelling

    def _cancel(self) -> None:
        try:
            self._job.cancel()
        except AppNotFound:
            pass
        except TransloadError as exc:
            self._screen.note(f"cannot cancel: {exc}")
            return
        except Exception as exc:
            self._events.put(("error", exc))
            return
        self._asked = True

    def _leave(self, number: int) -> None:
        """Leave after the second signal, after a short wait for the cancel request."""
        if self._cancelling is None and number != signal.SIGINT:
            self._screen.note(
                f"left; {self._job.handle} goes on; see `transload status {self._job.handle}`"
            )
            return
        cancelling = self._cancelling or self._begin_cancel()
        cancelling.join(_LEAVE_S)
        handle = self._job.handle
        outcome = f"may not have been asked to end; to end it: transload cancel {handle}"
        if self._asked:
            outcome = f"was asked to end; see `transload status {handle}`"
        self._screen.note(f"left; {handle} {outcome}")

    def _tick(self) -> None:
        """Draw the status line, with a new status if the scheduler can be asked cheaply."""
        if self._job.scheduler.capabilities.reachable_from != "network":
            status = self._job.status()
            previous_state = None if self._status is None else self._status.state
            if status is not None and status.state is previous_state:
                self._status = status
                self._warn_of_limit(status)
        self._draw()

    def _draw(self) -> None:
        status = self._status
        if status is None:
            return
        replicas = [replica for role in status.roles for replica in role.replicas]
        running = sum(replica.state is AppState.RUNNING for replica in replicas)
        state = state_text(status.state, sys.stderr)
        parts = [f"{state} (cancelling)" if self._cancelling else state]
        if replicas:
            parts.append(f"{running}/{len(replicas)} running")
        if status.num_restarts:
            parts.append(_counted(status.num_restarts, "restart"))
        if status.interruptions:
            parts.append(_counted(status.interruptions, "interruption"))
        advance = progress_text(status, sys.stderr)
        if advance:
            parts.append(advance)
        parts.append(clock_text(time.monotonic() - self._started))
        if status.why_waiting():
            parts.append(status.why_waiting())
        parts.append(self._job.handle)
        self._screen.set_status("  ".join(parts))

    # -- logs at the end

    def _finish_logs(self, code: ExitCode) -> None:
        """Show the rest of the logs of a job that has ended."""
        goes_on = code in (ExitCode.TIMEOUT, ExitCode.UNKNOWN, ExitCode.TERMINATED)
        if self._reading is None or goes_on:
            return
        self._reading.close(-1)
        while not self._events.empty():
            kind, value = self._events.get()
            if kind == "error":
                raise value
        drain(
            lambda: read_now(self._logs, self._take),
            lambda: all(log.complete for log in self._logs),
            patience=self._patience,
        )
        if self._dropped:
            self._screen.note(
                f"{self._dropped} bytes of logs were over the size limit and are not shown"
            )

    def _stop_logs(self) -> None:
        """Stop writing before the process may end, without waiting for a writer in a full pipe."""
        if self._reading is None:
            return
        self._stopped = True
        if not self._reading.close(0.5) and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            os._exit(ExitCode.LEFT)


def _exit_code_at_end(status: AppStatus | None) -> ExitCode:
    """Return the exit code for a job's last status, which is None if the job has vanished."""
    if status is None:
        return exit_code_of(None)
    return exit_code_of(status.state)


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


def _because(status: AppStatus) -> str:
    """Return a colon and the message of a status, or ``""`` if it has none."""
    if not status.msg:
        return ""
    return f": {status.msg}"


def _asked_by(number: int, runner: Runner) -> bool:
    """Tell whether a signal requests the end of the job.

    It does if it is a person's Ctrl-C, or if the job around this process was cancelled.
    """
    # only an end needs what adapters share, and importing it takes as long as all else
    from transload.pipelines.end_requests import may_be_by_hand, somebody_asked

    if number == signal.SIGINT and may_be_by_hand():
        return True
    return somebody_asked(runner, lambda: False)


_SHOWN_REPLICAS: Final = 3


def report_end(
    job: Job, outcome: Outcome, as_json: bool = False, patience: float = DEFAULT_PATIENCE
) -> None:
    """Write the result of waiting for a job to stderr, and as JSON to stdout if requested.

    A scheduler that is unreachable is asked for the results again, for ``patience`` seconds.
    """
    status = outcome.status
    results = None
    if status is None:
        note(f"{job.handle} has vanished; another user or program deleted it")
    elif status.is_terminal():
        results = _report(job, outcome, status, patience)
    else:
        note(_unended_text(outcome, status, job.handle))
        note(
            f"to follow it: transload log -f {job.handle}; to end it: transload cancel {job.handle}"
        )
    if not as_json:
        return
    shown = {
        **app_json(job.handle, status),
        "timed_out": outcome.code is ExitCode.TIMEOUT,
        "elapsed": round(outcome.elapsed, 3),
        "results": None,
        "looked_in": [],
    }
    if results is not None:
        shown["results"] = results.results
        shown["looked_in"] = results.looked_in
    emit_json(shown)


def _unended_text(outcome: Outcome, status: AppStatus, handle: str) -> str:
    """Return why this command ends before the job does."""
    if outcome.code is ExitCode.UNKNOWN:
        why = f"the state of {handle} has been UNKNOWN for too long ({status.msg})"
        return f"{why}; the job may go on"
    if outcome.code is ExitCode.TERMINATED:
        why = f"ended by a signal, but the end of {handle} was not requested"
        return f"{why}; it goes on ({status.state.name})"
    waited = duration_text(outcome.elapsed)
    return f"waiting timed out after {waited}; {handle} goes on ({status.state.name})"


def _report(job: Job, outcome: Outcome, status: AppStatus, patience: float) -> AppResults | None:
    """Write the end of a job and its results to stderr, and return the results if readable."""
    took = _app_seconds(job, status)
    if took is None:
        took = outcome.elapsed
    end = f"{state_text(status.state, sys.stderr)} after {duration_text(took)}"
    peak, cpu_time = usage_texts(status.usage())
    if peak and cpu_time:
        end = f"{end} ({cpu_time} of CPU, {peak})"
    note(f"{end}  {job.handle}{_because(status)}")
    if peak:
        for line in status.short_of_memory(job.describe()):
            note(f"warning: {line}")
    if status.state is AppState.FAILED:
        _report_failures(job, status, outcome.tails)
        if _LACKS_TRANSLOAD in _because(status):
            note(
                "the program imports transload, which its Python there does not have: install it "
                "there, or take one file along: transload runtime > transload_runtime.py"
            )
    try:
        results = patiently(job.results, patience)
    except (TransloadError, OSError, ImportError) as exc:
        note(f"the results cannot be read: {exc}")
        return None
    for line in results.lines(lambda key: paint(key, "bold", stream=sys.stderr)):
        note(line)
    for line in results.refusals():
        note(f"not read: {line}")
    return results


def _app_seconds(job: Job, status: AppStatus) -> float | None:
    """Return the seconds from a job's submit to its last replica's end, or None if unknown."""
    try:
        found = job.description()
    except TransloadError:
        return None
    if found is None:
        return status.seconds_since(None)
    return status.seconds_since(found.created)


def _report_failures(job: Job, status: AppStatus, tails: Tails) -> None:
    """Write which replicas failed, their exit codes, and their last log lines."""
    failed = _failed_replicas(status)
    for replica in failed[:_SHOWN_REPLICAS]:
        text = f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}"
        note(paint(text, "red", stream=sys.stderr))
        for line in _last_lines(job, status, replica, tails):
            write_raw(sys.stderr, f"    {line.rstrip()}\n")
    if len(failed) > _SHOWN_REPLICAS:
        note(
            f"and {len(failed) - _SHOWN_REPLICAS} more replicas failed: `transload status "
            f"{job.handle}`"
        )


def _last_lines(job: Job, status: AppStatus, replica: ReplicaStatus, tails: Tails) -> Iterable[str]:
    """Return the last log lines of a replica's last attempt."""
    # the lines kept while following the log are those of all attempts
    if not replica.restarts and not replica.interruptions:
        kept = tails.get((replica.role, replica.id))
        if kept:
            return kept
    return tail(job.scheduler, job.app_id, replica.role, replica.id, KEPT_LINES, status)


def _failed_replicas(status: AppStatus) -> list[ReplicaStatus]:
    """Return the failed replicas, first those that exited by themselves, then the killed ones."""
    replicas = [replica for role in status.roles for replica in role.replicas]
    failed = [replica for replica in replicas if replica.state is AppState.FAILED]

    def rank(replica: ReplicaStatus) -> tuple[bool, float]:
        was_killed = replica.exit_code is None or replica.exit_code < 0
        return was_killed, replica.end_time or 0.0

    return sorted(failed, key=rank)


def _counted(count: int, word: str) -> str:
    """Return ``1 restart`` or ``2 restarts``."""
    if count == 1:
        return f"1 {word}"
    return f"{count} {word}s"
