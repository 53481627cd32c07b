"""Termination processes: SIGTERM to the whole tree, a grace period, then SIGKILL until nothing is
left.
"""

from __future__ import annotations

import os

from transload.retries import Replica

from . import tree
from .kernel import signal

_KILL_AGAIN_S = (
    0.02,
    1.0,
)  # at first, and at last where nothing changes: what cannot be killed costs little
_STUCK_S = 2.0


class Termination:
    """The end of some replicas (those to be started again; None: of the whole app, all that
    descends from the supervisor).

    ``processes`` has pid and start time of each replica that lives; by the app's cookie the orphans
    of a replica are told apart. ``stuck`` is what does not end although it was killed, as text.
    """

    def __init__(
        self,
        replicas: list[Replica] | None,
        processes: dict[Replica, tuple[int, int]],
        cookie: str,
        grace: float,
        now: float,
    ) -> None:
        self.done = False
        self._everything = replicas is None
        self._replicas = replicas or []
        self._processes = processes
        self._marks = {f"{cookie}:{replica.role}:{replica.k}" for replica in self._replicas}
        self._deadline = self.due = now + grace
        self.stuck = ""
        self._left: set[int] = set()
        self._pause = _KILL_AGAIN_S[0]
        self._signal(signal.SIGTERM)

    def finished(self, now: float, childless: bool) -> bool:
        """Tell whether nothing is left; kill what is, once the grace period is over."""
        if childless:
            return True
        # until its parent knows how it ended, a process has not: the last of its threads may take a
        # moment
        waiting = (
            bool(self._processes)
            if self._everything
            else any(r in self._processes for r in self._replicas)
        )
        if now < self.due:
            return not waiting and not self._members()[1]
        left = self._signal(signal.SIGKILL)
        self._pause = (
            min(self._pause * 2, _KILL_AGAIN_S[1]) if left == self._left else _KILL_AGAIN_S[0]
        )
        self._left, self.due = left, now + self._pause
        self.stuck = tree.cannot_end(left) if now >= self._deadline + _STUCK_S else ""
        return not left and not waiting

    def _members(self) -> tuple[tree.Snapshot, set[int]]:
        processes = tree.snapshot()
        own = os.getpid()
        if self._everything:
            return processes, tree.below(processes, {own})
        roots = {pid for pid, _ in self._processes.values()}
        mine = {
            self._processes[replica][0] for replica in self._replicas if replica in self._processes
        }
        mine &= processes.keys()
        for pid, (parent, _) in processes.items():
            orphan = parent == own and pid not in roots
            if orphan and tree.cookie_of(pid) in self._marks:
                mine.add(pid)
        return processes, mine | tree.below(processes, mine)

    def _signal(self, number: int) -> set[int]:
        processes, members = self._members()
        tree.signal_all(processes, members, number)
        return members
