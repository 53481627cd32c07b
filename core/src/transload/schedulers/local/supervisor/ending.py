"""Ending processes: SIGTERM to the whole tree, a grace period, then SIGKILL until nothing is left."""

from __future__ import annotations

import os
import signal

from . import layout, tree

_KILL_AGAIN_S = (0.02, 1.0)  # at first, and at last where nothing changes: what cannot be killed costs little
_STUCK_S = 2.0
_KEPT_ATTEMPTS = 8  # of each replica: the state is written anew at each change


class Replica:
    """One replica: what it is, and what its latest attempt is doing."""

    def __init__(self, role: int, k: int) -> None:
        self.role = role
        self.k = k
        self.state = "SUBMITTED"
        self.pid = 0
        self.started = 0
        self.exit_code: int | None = None
        self.start_time: float | None = None
        self.end_time: float | None = None
        self.restarts = 0
        self.earlier: list[dict[str, object]] = []
        self.stopping = False
        self.unstarted = False
        self.gpus: list[str] = []

    def begin_again(self) -> None:
        """Put the attempt that has ended to the earlier ones; the replica waits to be started again."""
        attempt: dict[str, object] = {
            "state": self.state,
            "exit_code": self.exit_code,
            "start_time": self.start_time,
            "end_time": self.end_time,
        }
        self.earlier = [*self.earlier, attempt][-_KEPT_ATTEMPTS:]
        self.state = "PENDING"
        self.restarts += 1


class Ending:
    """The end of some replicas (those to be started again), or of the whole app.

    Args:
        replicas: whose processes; with ``everything`` all descendants of the keeper.
        everything: the whole app.
        cookie: the app's cookie, by which the orphans of a replica are told apart.
        grace: seconds between SIGTERM and SIGKILL.
        now: monotonic seconds.

    Attributes:
        stuck: what does not end although it was killed, as text; empty: nothing.
    """

    def __init__(
        self,
        replicas: list[Replica],
        everything: bool,
        cookie: str,
        grace: float,
        now: float,
    ) -> None:
        self.replicas = replicas
        self.everything = everything
        self.because: Replica | None = None
        self._marks = {f"{cookie}:{replica.role}:{replica.k}" for replica in replicas}
        self.deadline = now + grace
        self.due = self.deadline
        self.stuck = ""
        self._left: set[int] = set()
        self._pause = _KILL_AGAIN_S[0]
        for replica in replicas:
            replica.stopping = True
        self._signal(signal.SIGTERM)

    def finished(self, now: float, childless: bool, roots: set[int]) -> bool:
        """Tell whether nothing is left; kill what is, once the grace period is over.

        Args:
            now: monotonic seconds.
            childless: the keeper has no child at all.
            roots: pids of all living replicas.
        """
        if childless:
            return True
        waiting = any(replica.pid for replica in self.replicas)
        if now < self.due:
            return not waiting and not self._members(roots)[1]
        left = self._signal(signal.SIGKILL, roots)
        self._pause = min(self._pause * 2, _KILL_AGAIN_S[1]) if left == self._left else _KILL_AGAIN_S[0]
        self._left, self.due = left, now + self._pause
        self.stuck = tree.cannot_end(left) if now >= self.deadline + _STUCK_S else ""
        return not left and not waiting

    def _members(self, roots: set[int]) -> tuple[tree.Snapshot, set[int]]:
        processes = tree.snapshot()
        own = os.getpid()
        if self.everything:
            return processes, tree.below(processes, {own})
        mine = {replica.pid for replica in self.replicas if replica.pid in processes}
        for pid, (parent, _) in processes.items():
            orphan = parent == own and pid not in roots
            if orphan and tree.cookie_of(pid, layout.COOKIE) in self._marks:
                mine.add(pid)
        return processes, mine | tree.below(processes, mine)

    def _signal(self, number: int, roots: set[int] | None = None) -> set[int]:
        processes, members = self._members(roots or {replica.pid for replica in self.replicas})
        tree.signal_all(processes, members, number)
        return members
