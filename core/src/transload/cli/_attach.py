"""Staying with an app until it has ended: states, logs, Ctrl-C, time limits."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from transload.cli._exit import ExitCode, exit_code_of
from transload.cli._follow import Follower
from transload.cli._interrupts import Left
from transload.cli._output import state_text
from transload.cli._quantities import clock_text, duration_text
from transload.errors import AppNotFound, TransloadError
from transload.specs import AppState, AppStatus

if TYPE_CHECKING:
    from transload.cli._screen import Screen
    from transload.cli._session import Target
    from transload.runner import Runner
    from transload.schedulers import LogPage

_TICK_S: Final = 1.0
_LEAVE_S: Final = 2.0
_LONGEST_S: Final = 3600.0  # a limit of centuries is more than a queue can wait at once
KEPT_LINES: Final = 10
"""How many last lines of each replica are kept for the report of a failure."""

Events = SimpleQueue[tuple[str, Any]]
Tails = dict[tuple[str, int], deque[str]]


@dataclass(slots=True)
class Outcome:
    """How staying ended.

    Args:
        status: the last status; None if the app vanished.
        code: exit code of the command.
        elapsed: seconds since the stay began.
        tails: last log lines of each replica that was followed.
    """

    status: AppStatus | None
    code: ExitCode
    elapsed: float
    tails: Tails


class Stay:
    """One stay with an app.

    Args:
        runner: the runner.
        target: the app.
        screen: where logs and states are shown.
        events: where signals arrive (see `Interrupts`); the first one cancels the app.
        timeout: seconds to wait at most; None: no limit.
        patience: seconds of unbroken UNKNOWN after which to give up.
    """

    def __init__(
        self,
        runner: Runner,
        target: Target,
        screen: Screen,
        events: Events,
        timeout: float | None = None,
        patience: float = 300.0,
    ) -> None:
        self._runner = runner
        self._target = target
        self._screen = screen
        self._events = events
        self._started = time.monotonic()
        self._deadline = None if timeout is None else self._started + timeout
        self._patience = patience
        self._unknown_since: float | None = None
        self._cancelling: threading.Thread | None = None
        self._asked = False
        self._logs_read = False
        self._status: AppStatus | None = None
        self._tails: Tails = {}
        self._follower: Follower | None = None
        self._threads: list[threading.Thread] = []

    def show_logs(self, replicas: list[tuple[str, int]]) -> None:
        """Follow the logs of these replicas during the stay."""
        from transload.schedulers import Stream

        self._tails = {replica: deque(maxlen=KEPT_LINES) for replica in replicas}
        labels = {replica: f"{replica[0]}/{replica[1]}" for replica in replicas}

        def sink(role: str, k: int, page: LogPage) -> None:
            self._tails[role, k].extend(page.lines[-KEPT_LINES:])
            self._screen.write_lines(labels[role, k], page.lines)

        self._follower = Follower(self._target.scheduler, self._target.app_id, replicas, Stream.COMBINED, sink)

    def wait(self) -> Outcome:
        """Stay until the app has ended, time or patience has run out, or a second Ctrl-C came."""
        self._start(self._observe)
        if self._follower is not None:
            self._start(self._forward, self._follower)
        try:
            code = self._loop()
            self._finish_logs(code)
        except Left:
            self._leave()
            raise
        finally:
            self._screen.end()
            self._stop_logs()
        return Outcome(self._status, code, time.monotonic() - self._started, self._tails)

    # -- threads

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True, name=f"transload-{work.__name__.strip('_')}")
        self._threads.append(thread)
        thread.start()

    def _observe(self) -> None:
        try:
            last = self._runner.wait(self._target.handle, on_change=lambda status: self._events.put(("state", status)))
            self._events.put(("end", last))
        except Exception as exc:
            self._events.put(("error", exc))

    def _forward(self, follower: Follower) -> None:
        try:
            follower.follow()
        except AppNotFound:
            return
        except TransloadError as exc:
            self._screen.note(f"the logs cannot be read: {exc}")
        except Exception as exc:
            self._events.put(("error", exc))
        finally:
            self._events.put(("logs", None))

    # -- the main thread

    def _loop(self) -> ExitCode:
        while True:
            kind, value = self._next()
            if kind == "state":
                self._on_state(value)
            elif kind == "end":
                self._status = value
                return exit_code_of(None if value is None else value.state)
            elif kind == "error":
                raise value
            elif kind == "signal":
                self._on_signal(value)
            elif kind == "logs":
                self._logs_read = True
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                return ExitCode.TIMEOUT
            if self._unknown_since is not None and now - self._unknown_since >= self._patience:
                return ExitCode.UNKNOWN

    def _next(self) -> tuple[str, Any]:
        now = time.monotonic()
        ends = [self._deadline - now] if self._deadline is not None else []
        if self._unknown_since is not None:
            ends.append(self._unknown_since + self._patience - now)
        if self._screen.shows_status:
            ends.append(_TICK_S)
        try:
            return self._events.get(timeout=min(max(min(ends), 0.0), _LONGEST_S) if ends else None)
        except Empty:
            self._tick()
            return "tick", None

    def _on_state(self, status: AppStatus) -> None:
        previous, self._status = self._status, status
        if status.state is not AppState.UNKNOWN:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = time.monotonic()
        if self._screen.shows_status:
            self._draw()
        if not status.is_terminal() and (previous is None or _differs(previous, status)):
            self._note_state(previous, status)

    def _note_state(self, previous: AppStatus | None, status: AppStatus) -> None:
        if status.num_restarts and (previous is None or status.num_restarts != previous.num_restarts):
            because = f": {status.msg}" if status.msg else ""
            self._screen.note(f"{status.state}, restart {status.num_restarts}{because}")
        elif not self._screen.shows_status or status.state is AppState.UNKNOWN:
            self._screen.note(f"{status.state}{': ' + status.msg if status.msg else ''}")

    def _on_signal(self, number: int) -> None:
        self._screen.note(f"{signal.Signals(number).name}: cancelling {self._target.handle}; once more leaves at once")
        self._begin_cancel()

    def _begin_cancel(self) -> None:
        # in a thread: the second signal may come while the first one's request is still on its way
        cancelling = threading.Thread(target=self._cancel, daemon=True, name="transload-cancel")
        cancelling.start()
        self._cancelling = cancelling  # only now: a signal between these lines has it begun again, which does no harm

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

    def _leave(self) -> None:
        """Leave after the second signal, but not before the app was asked to end, if that takes a moment only."""
        if self._cancelling is None:  # both signals at once
            self._begin_cancel()
        if self._cancelling is not None:
            self._cancelling.join(_LEAVE_S)
        handle = self._target.handle
        if self._asked:
            self._screen.note(f"left; {handle} was asked to end, see `transload status {handle}`")
        else:
            self._screen.note(f"left; {handle} may not have been asked to end: `transload cancel {handle}` does it")

    def _tick(self) -> None:
        if not self._screen.shows_status:
            return
        if self._target.scheduler.capabilities.reachable_from != "network":
            status = self._runner.status(self._target.handle)
            if status is not None and self._status is not None and status.state is self._status.state:
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
            self._target.handle,
        ]
        self._screen.set_status("  ".join(part for part in parts if part))

    # -- logs at the end

    def _finish_logs(self, code: ExitCode) -> None:
        """Wait for the rest of the logs of an app that has ended."""
        if self._follower is None or code in (ExitCode.TIMEOUT, ExitCode.UNKNOWN):
            return
        self._follower.app_ended()
        while not self._logs_read:
            kind, value = self._events.get()
            if kind == "error":
                raise value
            self._logs_read = kind == "logs"
        if self._follower.dropped:
            self._screen.note(f"{self._follower.dropped} bytes of logs were over the size limit and are not shown")

    def _stop_logs(self) -> None:
        """Stop writing before the process may end; a writer that hangs in a full pipe is not waited for."""
        if self._follower is None:
            return
        self._follower.stop()
        for thread in self._threads[1:]:
            thread.join(0.5)
            if thread.is_alive() and isinstance(sys.exc_info()[1], KeyboardInterrupt):
                os._exit(ExitCode.LEFT)


def _differs(one: AppStatus, other: AppStatus) -> bool:
    return one.state is not other.state or one.num_restarts != other.num_restarts


def timed_out_text(outcome: Outcome, handle: str) -> str:
    """Return what to say when waiting ended before the app."""
    if outcome.status is None:
        return f"{handle} has vanished: somebody deleted it"
    after = duration_text(outcome.elapsed)
    if outcome.code is ExitCode.UNKNOWN:
        return f"the state of {handle} has been UNKNOWN for too long ({outcome.status.msg}); the app may go on"
    return f"waiting timed out after {after}; {handle} goes on ({outcome.status.state})"
