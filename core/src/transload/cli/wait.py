"""Waiting for an app until it has ended, with its states, logs, Ctrl-C and time limits; and what is
said at its end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.cli.exit_codes import ExitCode, exit_code_of
from transload.cli.output import emit_json, note, paint, state_text, write_raw
from transload.cli.quantities import clock_text, duration_text, usage_texts
from transload.cli.session import app_json
from transload.errors import AppNotFound, TransloadError
from transload.runner.logs import LogReader, drain, read_now, tail
from transload.runner.redraws import Redraws
from transload.schedulers.api import LogPage, LogQuery, Stream
from transload.schedulers.follower import read_logs, watch
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text, is_started

if TYPE_CHECKING:
    from types import FrameType

    from transload.cli.screen import Screen
    from transload.cli.session import Target
    from transload.runner import AppResults, Runner
    from transload.schedulers.subscription import Observation, Subscription


_TICK_S: Final = 1.0
_QUEUED_S: Final = 600.0
"""How often a log is told that an app still waits."""
_LEAVE_S: Final = 2.0
_LONGEST_S: Final = 3600.0  # a limit of centuries is more than a queue can wait at once
KEPT_LINES: Final = 10
"""How many last lines of each replica are kept for the report of a failure."""

Events = SimpleQueue[tuple[str, Any]]
Tails = dict[tuple[str, int], deque[str]]


class LeaveNow(KeyboardInterrupt):
    """The second signal.

    Attributes:
        number: which one.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def interrupts(events: Events) -> Iterator[None]:
    """Make the first SIGINT or SIGTERM an event, ``("signal", number)``; the second raises
    `LeaveNow`.
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
            # ignored from the start (nohup, a background job of a script): stays so
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Outcome(NamedTuple):
    """How waiting ended."""

    status: AppStatus | None
    code: ExitCode
    elapsed: float
    tails: Tails


class AppWait:
    """Waits for an app on a terminal, and shows its logs and states.

    Args:
        runner: the runner.
        target: the app.
        screen: where logs and states are shown.
        events: where signals arrive (see `interrupts`); the first one cancels the app, if somebody
            asked for its end.
        timeout: seconds to wait at most; None: no limit.
        patience: seconds of unbroken UNKNOWN after which to give up.
        startup_timeout: seconds in PENDING, before it first runs, after which it is cancelled;
            None: no limit.
        replicas: those whose logs are followed meanwhile.
    """

    def __init__(
        self,
        runner: Runner,
        target: Target,
        screen: Screen,
        events: Events,
        timeout: float | None = None,
        patience: float = 300.0,
        replicas: Sequence[tuple[str, int]] = (),
        *,
        startup_timeout: float | None = None,
    ) -> None:
        self._runner, self._target, self._screen, self._events = runner, target, screen, events
        self._started = time.monotonic()
        self._deadline = None if timeout is None else self._started + timeout
        self._patience = patience
        self._startup_timeout = startup_timeout
        self._startup_ends: float | None = (
            None  # when it is cancelled, unless it has begun to run by then
        )
        self._cancelling: threading.Thread | None = None
        self._asked = False
        self._status: AppStatus | None = None
        self._tails: Tails = {replica: deque(maxlen=KEPT_LINES) for replica in replicas}
        self._dropped = 0
        self._stopped = False
        self._reading: Subscription | None = None
        queries = [LogQuery(role, k, Stream.COMBINED) for role, k in replicas]
        self._logs = [LogReader(target.scheduler, target.app_id, query) for query in queries]
        self._redraws: dict[LogReader, Redraws] = {}

    def _take(self, log: LogReader, page: LogPage) -> None:
        if self._stopped:
            log.complete = True
            return
        self._dropped += page.dropped
        label = f"{log.role}/{log.replica}"
        lines = self._drawn_lines(log, page)
        self._tails[log.role, log.replica].extend(lines[-KEPT_LINES:])
        self._screen.write_lines(label, lines)
        self._screen.set_live(label, self._redraws[log].live if log in self._redraws else "")

    def _drawn_lines(self, log: LogReader, page: LogPage) -> list[str]:
        """Return the lines of a page as they are shown; nearly always they are as the program wrote
        them.
        """
        if log not in self._redraws:
            if not page.unfinished and not any("\r" in line for line in page.lines):
                return page.lines
            self._redraws[log] = Redraws(self._screen.redraw_pause)
        redraws = self._redraws[log]
        lines = redraws.take(page.lines, page.unfinished)
        return lines + redraws.rest() if page.complete else lines

    def wait(self) -> Outcome:
        """Wait until the app has ended, time or patience has run out, or a second Ctrl-C came."""
        target = self._target
        if self._logs:
            self._reading = read_logs(target.scheduler, target.app_id, self._read)

        def tell(seen: Observation) -> None:
            self._events.put(("seen", seen))

        try:
            with watch(target.scheduler, target.handle, tell, patience=self._patience):
                code = self._loop()
            self._finish_logs(code)
            if code is ExitCode.TIMEOUT and self._status is None:  # so soon that nothing was seen
                self._status = self._runner.status(target.handle)
        except LeaveNow as exc:
            self._leave(exc.number)
            raise
        finally:
            self._screen.end()
            self._stop_logs()
        return Outcome(self._status, code, time.monotonic() - self._started, self._tails)

    def _read(self) -> bool:
        """Show what the replicas have written; in the thread of the scheduler's logs."""
        try:
            return read_now(self._logs, self._take)
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
                if not _asked_by(value, self._runner):
                    return ExitCode.TERMINATED
                self._on_signal(value)
            elif kind == "seen":
                if value.status is not None:
                    self._on_state(value.status)
                if value.exhausted:
                    return ExitCode.UNKNOWN
                if value.final:
                    self._status = value.status
                    return exit_code_of(None if value.status is None else value.status.state)
            now = time.monotonic()
            if self._startup_ends is not None and now >= self._startup_ends:
                self._give_up_waiting()
            if self._deadline is not None and now >= self._deadline:
                return ExitCode.TIMEOUT

    def _count_waiting(self, state: AppState) -> None:
        """Have the limit for an app that waits to run begin, or end."""
        if is_started(state):
            self._startup_ends = self._startup_timeout = None
        elif (
            self._startup_timeout is not None
            and self._startup_ends is None
            and state is AppState.PENDING
        ):
            self._startup_ends = time.monotonic() + self._startup_timeout

    def _give_up_waiting(self) -> None:
        """Cancel an app that has waited too long to run."""
        limit = duration_text(self._startup_timeout or 0.0)
        self._startup_ends = self._startup_timeout = None
        waits = f": {self._status.why_waiting()}" if self._status is not None else ""
        self._screen.note(
            f"it did not begin to run within {limit}; cancelling it{waits.rstrip(': ')}"
        )
        self._begin_cancel()

    def _next(self) -> tuple[str, Any]:
        limits = [each for each in (self._deadline, self._startup_ends) if each is not None]
        ends = [each - time.monotonic() for each in limits]
        ends.append(_TICK_S if self._screen.shows_status else _QUEUED_S)
        try:
            return self._events.get(timeout=min(max(min(ends), 0.0), _LONGEST_S))
        except Empty:
            if self._screen.shows_status:
                self._tick()
            elif self._status is not None and self._status.why_waiting():
                after = duration_text(time.monotonic() - self._started)
                self._screen.note(
                    f"{self._status.state.name} after {after}: {self._status.why_waiting()}"
                )
            return "tick", None

    def _on_state(self, status: AppStatus) -> None:
        previous, self._status = self._status, status
        self._count_waiting(status.state)
        if self._screen.shows_status:
            self._draw()
        before = (
            None
            if previous is None
            else (previous.state, previous.num_restarts, previous.why_waiting())
        )
        if status.is_terminal() or before == (
            status.state,
            status.num_restarts,
            status.why_waiting(),
        ):
            return
        because = f": {status.msg}" if status.msg else ""
        if status.num_restarts != (0 if previous is None else previous.num_restarts):
            self._screen.note(f"{status.state.name}, restart {status.num_restarts}{because}")
        elif not self._screen.shows_status or status.state is AppState.UNKNOWN:
            self._screen.note(f"{status.state.name}{because}")

    def _on_signal(self, number: int) -> None:
        self._screen.note(
            f"{signal.Signals(number).name}: cancelling {self._target.handle}; once more leaves at "
            "once"
        )
        self._begin_cancel()

    def _begin_cancel(self) -> threading.Thread:
        # in a thread: the second signal may come while the first one's request is still on its way
        cancelling = threading.Thread(target=self._cancel, daemon=True, name="transload-cancel")
        cancelling.start()
        # only now: a signal between these lines has it begun again, which does no harm
        self._cancelling = cancelling
        return cancelling

    def _cancel(self) -> None:
        try:
            self._runner.cancel(self._target.handle)
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
        """Leave after the second signal; give the cancel request a moment to get through first."""
        if self._cancelling is None and number != signal.SIGINT:
            self._screen.note(
                f"left; {self._target.handle} goes on, see `transload status {self._target.handle}`"
            )
            return
        (self._cancelling or self._begin_cancel()).join(_LEAVE_S)
        handle = self._target.handle
        told = f"was asked to end, see `transload status {handle}`"
        untold = f"may not have been asked to end: `transload cancel {handle}` does it"
        self._screen.note(f"left; {handle} {told if self._asked else untold}")

    def _tick(self) -> None:
        if self._target.scheduler.capabilities.reachable_from != "network":
            status = self._runner.status(self._target.handle)
            if (
                status is not None
                and self._status is not None
                and status.state is self._status.state
            ):
                self._status = status
        self._draw()

    def _draw(self) -> None:
        status = self._status
        if status is None:
            return
        replicas = [replica for role in status.roles for replica in role.replicas]
        running = sum(replica.state is AppState.RUNNING for replica in replicas)
        parts = [
            state_text(status.state, sys.stderr) + (" (cancelling)" if self._cancelling else ""),
            f"{running}/{len(replicas)} running" if replicas else "",
            f"{status.num_restarts} restarts" if status.num_restarts else "",
            clock_text(time.monotonic() - self._started),
            status.why_waiting(),
            self._target.handle,
        ]
        self._screen.set_status("  ".join(part for part in parts if part))

    # -- logs at the end

    def _finish_logs(self, code: ExitCode) -> None:
        """Show the rest of the logs of an app that has ended."""
        if self._reading is None or code in (
            ExitCode.TIMEOUT,
            ExitCode.UNKNOWN,
            ExitCode.TERMINATED,
        ):
            return
        self._reading.close(-1)
        while not self._events.empty():
            kind, value = self._events.get()
            if kind == "error":
                raise value
        drain(
            lambda: read_now(self._logs, self._take),
            lambda: all(log.complete for log in self._logs),
        )
        if self._dropped:
            self._screen.note(
                f"{self._dropped} bytes of logs were over the size limit and are not shown"
            )

    def _stop_logs(self) -> None:
        """Stop writing before the process may end; a writer that hangs in a full pipe is not waited
        for.
        """
        if self._reading is None:
            return
        self._stopped = True
        if not self._reading.close(0.5) and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            os._exit(ExitCode.LEFT)


def _asked_by(number: int, runner: Runner) -> bool:
    """Tell whether a signal is a person's Ctrl-C, or comes because the job around this one was
    cancelled.
    """
    from transload.pipelines.end_requests import may_be_by_hand, somebody_asked

    if number == signal.SIGINT and may_be_by_hand():
        return True
    return somebody_asked(runner, lambda: False)


_SHOWN_REPLICAS: Final = 3


def report_end(runner: Runner, target: Target, outcome: Outcome, as_json: bool = False) -> None:
    """Write to stderr how waiting for an app ended, and, if asked for, all of it as JSON to
    stdout.
    """
    status = outcome.status
    if status is None or not status.is_terminal():
        note(_unended_text(outcome, target.handle))
        if status is not None:
            note(
                f"`transload log -f {target.handle}` follows it, `transload cancel "
                f"{target.handle}` ends it"
            )
        results = None
    else:
        results = _report(runner, target, outcome, status)
    if as_json:
        emit_json(
            {
                **app_json(target.handle, status),
                "timed_out": outcome.code is ExitCode.TIMEOUT,
                "elapsed": round(outcome.elapsed, 3),
                "results": None if results is None else results.results,
                "looked_in": [] if results is None else results.looked_in,
            }
        )


def _unended_text(outcome: Outcome, handle: str) -> str:
    if outcome.status is None:
        return f"{handle} has vanished: somebody deleted it"
    if outcome.code is ExitCode.UNKNOWN:
        return f"the state of {handle} has been UNKNOWN for too long ({outcome.status.msg}); the app may go on"
    if outcome.code is ExitCode.TERMINATED:
        return f"ended by a signal, but nobody asked for the end of {handle}: it goes on ({outcome.status.state.name})"
    return f"waiting timed out after {duration_text(outcome.elapsed)}; {handle} goes on ({outcome.status.state.name})"


def _report(
    runner: Runner, target: Target, outcome: Outcome, status: AppStatus
) -> AppResults | None:
    took = _app_seconds(runner, target, status)
    after = duration_text(outcome.elapsed if took is None else took)
    because = f": {status.msg}" if status.msg else ""
    peak, seconds = usage_texts(status.usage())
    used = f" ({seconds} of CPU, {peak})" if peak and seconds else ""
    note(f"{state_text(status.state, sys.stderr)} after {after}{used}  {target.handle}{because}")
    for line in status.short_of_memory(runner.describe(target.handle)) if peak else ():
        note(f"warning: {line}")
    if status.state is AppState.FAILED:
        _report_failures(target, status, outcome.tails)
    try:
        results = runner.results(target.handle)
    except (TransloadError, OSError, ImportError) as exc:
        note(f"the results cannot be read: {exc}")
        return None
    for line in results.lines(lambda key: paint(key, "bold", stream=sys.stderr)):
        note(line)
    for line in results.refusals():
        note(f"not read: {line}")
    return results


def _app_seconds(runner: Runner, target: Target, status: AppStatus) -> float | None:
    """Return the seconds from an app's submit to the end of its last replica; None if that is not
    known.
    """
    try:
        found = runner.description(target.handle)
    except TransloadError:
        return None
    return status.seconds_since(None if found is None else found.created)


def _report_failures(target: Target, status: AppStatus, tails: Tails) -> None:
    """Write which replicas failed, how, and their last log lines."""
    failed = _failed_replicas(status)
    for replica in failed[:_SHOWN_REPLICAS]:
        note(
            paint(
                f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}",
                "red",
                stream=sys.stderr,
            )
        )
        # what was kept while it was followed is of all attempts
        known = None if replica.restarts else tails.get((replica.role, replica.id))
        where = (target.scheduler, target.app_id, replica.role, replica.id)
        for line in known or tail(*where, KEPT_LINES, status):
            write_raw(sys.stderr, f"    {line.rstrip()}\n")
    if len(failed) > _SHOWN_REPLICAS:
        note(
            f"and {len(failed) - _SHOWN_REPLICAS} more replicas failed: `transload status "
            f"{target.handle}`"
        )


def _failed_replicas(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas that failed: those that exited by themselves first, then those that were
    killed.
    """
    failed = [
        replica
        for role in status.roles
        for replica in role.replicas
        if replica.state is AppState.FAILED
    ]
    return sorted(
        failed,
        key=lambda item: (item.exit_code is None or item.exit_code < 0, item.end_time or 0.0),
    )
