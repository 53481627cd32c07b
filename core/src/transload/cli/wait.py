"""Wait for the end of a job, and meanwhile show its states and logs.

This includes Ctrl-C and time limits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from transload.cli.exit_codes import ExitCode, exit_code_of
from transload.cli.show import Outcome, ReplicaLog, StatusNotes, status_line
from transload.errors import AppNotFound, SchedulerUnavailable, TransloadError
from transload.runner.logs import LogReader, drain, read_now
from transload.schedulers.api import LogPage, LogQuery, Stream
from transload.schedulers.follower import read_logs, watch
from transload.specs import AppState, AppStatus, is_started
from transload.specs.text import duration_text

if TYPE_CHECKING:
    from types import FrameType

    from transload.cli.screen import Screen
    from transload.runner import Job, Runner
    from transload.schedulers.subscription import Observation, Subscription


_TICK_S: Final = 1.0
_QUEUED_S: Final = 600.0
"""Seconds between two log lines that say that a job still waits."""
_LEAVE_S: Final = 2.0
_LONGEST_S: Final = 3600.0  # the longest wait of a queue, since a limit may be centuries

Events = SimpleQueue[tuple[str, Any]]


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
        self._stopped = False
        self._reading: Subscription | None = None
        queries = [LogQuery(role, k, Stream.COMBINED) for role, k in replicas]
        readers = [LogReader(job.scheduler, job.app_id, query) for query in queries]
        self._logs = {reader: ReplicaLog(reader, screen) for reader in readers}
        self._notes = StatusNotes(screen.shows_status)

    def _take(self, log: LogReader, page: LogPage) -> None:
        if self._stopped:
            log.complete = True
            return
        self._logs[log].show(page)

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
        tails = {(log.role, log.replica): shown.last for log, shown in self._logs.items()}
        return Outcome(self._status, code, time.monotonic() - self._started, tails)

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
        self._status = status
        self._count_waiting(status.state)
        if self._screen.shows_status:
            self._draw()
        self._note(status)

    def _note(self, status: AppStatus) -> None:
        for line in self._notes.lines(status):
            self._screen.note(line)

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
        if self._job.scheduler.reach != "network":
            status = self._job.status()
            previous_state = None if self._status is None else self._status.state
            if status is not None and status.state is previous_state:
                self._status = status
                self._note(status)
        self._draw()

    def _draw(self) -> None:
        status = self._status
        if status is None:
            return
        waited = time.monotonic() - self._started
        cancelling = self._cancelling is not None
        line = status_line(status, self._job.handle, waited, cancelling=cancelling)
        self._screen.set_status(line)

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


def _asked_by(number: int, runner: Runner) -> bool:
    """Tell whether a signal requests the end of the job.

    It does if it is a person's Ctrl-C, or if the job around this process was cancelled.
    """
    # only an end needs what adapters share, and importing it takes as long as all else
    from transload.pipelines.end_requests import may_be_by_hand, somebody_asked

    if number == signal.SIGINT and may_be_by_hand():
        return True
    return somebody_asked(runner, lambda: False)
