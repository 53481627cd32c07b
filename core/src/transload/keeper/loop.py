"""What the keepers of all engines do: start replicas, hear of them, do what the rules decide, write it down.

This file runs on cluster nodes, too. So it keeps to Python 3.8.
"""

from __future__ import annotations

import time

from . import layout
from .launcher import Ended, Event, Launcher, NotStarted, Progressed, Stalled, Started
from .rules import Gang, Replica, Restart
from .signs import UPDATE_S, ProgressMeter, furthest_behind, stalled_text

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["Loop"]

_STATE_TICK_S = 0.02  # many replicas that end together are one change of state
_SHORT_S = 0.003  # what ends sooner was never shown as RUNNING
_RETRY_WRITE_S = 0.5


class Loop:
    """Takes what happens to replicas to the rules, and has done what these decide.

    Args:
        app: the rules of the job.
        launcher: starts and ends its replicas.
        clock: returns the rules' time.

    Attributes:
        dirty: the state has to be written.
        hasty: nothing is given any time, notices included.
    """

    tick = _STATE_TICK_S

    def __init__(self, app: Gang, launcher: Launcher, clock: Callable[[], float]) -> None:
        self.app = app
        self.launcher = launcher
        self.clock = clock
        self.epoch = layout.now() - clock()  # of the clock
        self.dirty = self.hasty = False
        self.has_news = False  # of progress, which is written once a second
        self.meters: dict[Replica, ProgressMeter] = {}  # of those that have reported progress
        self.progress_before: dict[str, Any] = {}
        self.stalled: set[Replica] = set()
        self._stuck = ""
        self._written = 0.0
        self._shown = app.state
        self._launched = 0.0

    # ---------------------------------------------------------------------------------------------------
    # what happens

    def start(self, replicas: Sequence[Replica]) -> None:
        """Start replicas. If one cannot be started, the job ends."""
        for replica in replicas:
            self.app.starting(replica)
            if replica in self.meters:
                self.meters[replica].pause()
        self.launcher.start(replicas)
        self._launched = time.monotonic()
        self.dirty = True
        self.hear()

    def hear(self) -> None:
        """Take what has happened to the rules."""
        for event in self.launcher.events():
            self.take(event)

    def take(self, event: Event) -> None:
        """Take one event to the rules."""
        replica = event.replica
        if isinstance(event, Progressed):
            self._note_progress(replica, event.report)
            return
        self.dirty = True
        if isinstance(event, Started):
            self.app.started(replica, event.at, event.host)
        elif isinstance(event, Stalled) and event.now:
            self.stalled.add(replica)
        elif isinstance(event, Stalled):
            self.stalled.discard(replica)
        elif isinstance(event, Ended):
            self.stalled.discard(replica)
            replica.attempt.usage = event.usage
            error = ""
            if event.code:
                error = self.launcher.error_of(replica, event.code, event.since)
            self.app.ended(
                replica,
                event.code,
                event.at,
                self.clock(),
                why=event.why,
                error=error,
                retry=event.retry,
                cause=event.cause,
            )
        elif isinstance(event, NotStarted):
            self.app.ended(replica, None, layout.now())
            self.hasty = True
            self.launcher.kill()
            self.app.end("FAILED", f"{self.app.name(replica)} did not start: {event.why}")

    def _note_progress(self, replica: Replica, report: dict[str, Any]) -> None:
        if replica not in self.meters:
            self.meters[replica] = ProgressMeter(self.progress_before)
        if self.meters[replica].update(report):
            self.has_news = True
            if "step" in report:
                self.app.advanced(replica, report["step"])

    def end(self, state: str, reason: str) -> None:
        """Bring the job to an end, with this result, unless another one was decided before."""
        self.hear()
        self.dirty = self.app.end(state, reason) or self.dirty

    # ---------------------------------------------------------------------------------------------------
    # what follows

    def step(self) -> bool:
        """Do what follows from all that has happened, and return True when the job has ended."""
        self.hear()
        now = self.clock()
        decided = self.app.final
        for replica in self.app.notices(now):
            self._give_notice(replica, now)
        self.app.decide(now)
        self.dirty = self.dirty or self.app.final is not decided
        self.stop(now)
        if self.is_over():
            return True
        self._start_again(now)
        self.app.refresh()
        if time.monotonic() >= self._writes():
            self.write()
        return False

    def is_over(self) -> bool:
        """Tell whether the end is decided, and nothing runs any more."""
        return self.app.final is not None and self.launcher.is_stopped(None)

    def _give_notice(self, replica: Replica, now: float) -> None:
        """Send a replica's main process the signal that its end is near."""
        self.launcher.signal(replica, self.app.roles[replica.role]["notice_signal"])
        self.app.notified(replica, now)

    def stop(self, now: float) -> None:
        """Have ended what the rules say, after a notice where the role has one."""
        warns = not self.hasty and not self.app.interrupted  # else the engine has given it
        for replica in self.app.replicas:
            attempt = replica.attempt
            is_due = attempt.alive and attempt.stopping and attempt.kill_at is None
            if is_due and self.app.roles[replica.role]["notice"] and warns:
                self._give_notice(replica, now)
        self.launcher.stop(None if self.app.final is not None else self.app.restarts)
        if self.launcher.stuck != self._stuck:
            self._stuck = self.launcher.stuck
            self.dirty = True

    def _start_again(self, now: float) -> None:
        """Start what has ended and is to be started again."""
        for restart in self._startable():
            if self.app.final is None and restart.is_ready(now):
                replicas = self.app.renew(restart, now)
                self.app.refresh()
                self.write()
                if self.app.final is None:  # its folder is there
                    self.start(replicas)

    def _startable(self) -> list[Restart]:
        """Return the restarts of which nothing runs any more."""
        if self.app.final is not None or not self.starts_again():
            return []
        return [each for each in self.app.restarts if self.launcher.is_stopped(each)]

    def starts_again(self) -> bool:
        """Tell whether restarts are started here."""
        return True

    def pause(self) -> float:
        """Return the seconds until something is due, though nothing happens."""
        now = time.monotonic()
        dues = [self.launcher.due(), self._writes()]
        rules = [self.app.next_end(), self.app.failure_due()]
        rules += [each.due for each in self._startable()]
        offset = now - self.clock()
        dues += [due + offset for due in rules if due is not None]
        return max(0.0, min(dues) - now)

    # ---------------------------------------------------------------------------------------------------
    # writing

    def state(self) -> dict[str, Any]:
        """Return the state in the JSON form of an AppStatus."""
        state = self.app.as_json()
        stalled: list[Replica] = []
        waiting = ""
        if self.app.final is None:
            stalled = [each for each in self.app.replicas if each in self.stalled]
            waiting = self.launcher.waiting
        texts = [
            stalled_text(self.app.name(each), self.app.roles[each.role]["stall_after"])
            for each in stalled
        ]
        texts = [self.app.msg, waiting, self.launcher.stuck, *texts]
        state["msg"] = "; ".join(filter(None, texts))
        if stalled:
            state["stalled"] = True
        progress = furthest_behind(meter.latest for meter in self.meters.values())
        if progress or self.progress_before:
            state["progress"] = progress or self.progress_before
        if self.app.timeout is not None:
            state["time_limit"] = self.app.timeout
            if self.app.began is not None:
                state["ends_by"] = self.epoch + self.app.began + self.app.timeout
        segment_end = self.app.segment_end
        if segment_end is not None:
            state["segment_ends"] = round(self.epoch + segment_end, 3)
        return state

    def _writes(self) -> float:
        """Return when the state is to be written."""
        if self.dirty and self.app.state != self._shown:
            return self._launched + _SHORT_S
        if self.dirty:
            return self._written + self.tick
        return self._written + UPDATE_S if self.has_news else float("inf")

    def write(self) -> bool:
        """Write the state, and return False if that is not possible now."""
        self._written = time.monotonic()
        self._shown = self.app.state
        try:
            self.save(self.state())
        except OSError as exc:
            self._written += _RETRY_WRITE_S
            self.on_failed_write(exc)
            return False
        self.dirty = self.has_news = False
        return True

    def save(self, state: dict[str, Any]) -> None:
        """Write a state where readers look for it.

        Raises:
            OSError: if that is not possible now.
        """
        raise NotImplementedError

    def on_failed_write(self, error: OSError) -> None:
        """Find out whether the job's place is gone."""
