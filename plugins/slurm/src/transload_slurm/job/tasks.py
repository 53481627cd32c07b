"""The replicas of a job as tasks of Slurm, one ``srun`` for each role."""

from __future__ import annotations

import json
import selectors
import time

from transload.keeper.launcher import Ended, Event, Launcher, Progressed, Stalled, Started
from transload.keeper.rules import Gang, Replica

from .agent import patiently
from .rank0 import Rank0
from .steps import Step, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from transload.keeper.rules import Restart

_KILL_S = 10.0
_AGAIN_S = (1.0, 30.0)


class Signalled(Event):
    """Slurm has sent a replica a signal."""


class Terminated(Ended):
    """A replica has ended by SIGTERM, or its task is gone.

    That is no failure of it if Slurm is about to end the whole job.
    """


_TERMINATED = (-15, 128 + 15)


class Tasks(Launcher):
    """Starts replicas by ``srun``, and hears of them from the agent of each.

    Args:
        folder: the job's folder.
        plan: its ``plan.json``.
        app: the rules of the job.
        selector: is told of all descriptors to wait for.
    """

    def __init__(
        self, folder: str, plan: dict[str, Any], app: Gang, selector: selectors.BaseSelector
    ) -> None:
        super().__init__()
        self.folder = folder
        self.plan = plan
        self.app = app
        self._selector = selector
        self._rank0: Rank0 | None = None
        self._steps: dict[int, Step] = {}
        self._ended: set[Replica] = set()  # those whose end was reported
        self._stopped: set[Replica] = set()  # those that were sent a stop
        self._again: dict[int, float] = {}  # role -> when to try once more to start its tasks
        self._pause = _AGAIN_S[0]
        self._why: dict[int, str] = {}  # role -> srun's complaint when it ended
        self._events: list[Event] = []

    def logs_of(self, replica: Replica) -> str:
        """Return the folder of a replica's output."""
        name = self.plan["roles"][replica.role]["name"]
        return f"{self.folder}/logs/{name}/{replica.k}"

    # ----------------------------------------------------------------------------------------------------
    # starting

    def start(self, replicas: Sequence[Replica]) -> None:
        """Order the agents of replicas to start them, and start the agents that are missing."""
        self._ended.difference_update(replicas)
        self._stopped.difference_update(replicas)
        rank0 = self._rank0 = self._rank0 or Rank0(self.plan)
        roles = sorted({replica.role for replica in replicas})
        for role in roles:  # all steps first: they take a while to come up
            self._step(role)
        host = rank0.host()
        for role in roles:
            mine = [replica for replica in replicas if replica.role == role]
            step = self._step(role)
            together = len({(replica.run, replica.restarts) for replica in mine}) == 1
            if together and len(mine) == self.plan["roles"][role]["num_replicas"]:
                step.tell(f"start * {mine[0].run} {host} {mine[0].restarts}")
            else:
                for replica in mine:
                    step.tell(f"start {replica.k} {replica.run} {host} {replica.restarts}")

    def _step(self, role: int) -> Step:
        step = self._steps.get(role)
        if step is not None and step.broken:
            self._leave(step)
            step = None
        if step is None:
            step = self._steps[role] = patiently(lambda: Step(self.folder, self.plan, role))
            self._selector.register(step.reports, selectors.EVENT_READ, step)
            self._selector.register(step.noise, selectors.EVENT_READ, (step,))
        return step

    def _leave(self, step: Step) -> None:
        """End the tasks of a role, and forget them."""
        self._selector.unregister(step.reports)
        if step.noise is not None:
            self._selector.unregister(step.noise)
        self._steps.pop(step.role, None)
        step.dismiss()
        step.wait(_KILL_S)

    # ----------------------------------------------------------------------------------------------------
    # what happens

    def events(self) -> list[Event]:
        """Return what the agents have reported, and ``srun`` has complained of."""
        for key, _ in self._selector.select(0):
            if isinstance(key.data, tuple):
                self._on_noise(*key.data)
            elif isinstance(key.data, Step) and self._steps.get(key.data.role) is key.data:
                self._on_report(key.data)
        self._try_again()
        found = self._events
        self._events = []
        return found

    def due(self) -> float:
        """Return when to try once more to start tasks, or at once if there is news."""
        if self._events:
            return 0.0
        return min(self._again.values(), default=float("inf"))

    def _on_report(self, step: Step) -> None:
        lines = step.lines()
        if lines is None:
            self._on_end(step)
            return
        for line in lines:
            try:
                report = json.loads(line)
                replica = next(
                    r for r in self.app.replicas if (r.role, r.k) == (step.role, report["k"])
                )
            except (ValueError, KeyError, TypeError, StopIteration):
                complain(f"not a report: {line!r}")
                continue
            if (
                report["run"] == replica.run
                and replica.attempt.alive
                and replica not in self._ended
            ):
                self._events.append(self._event(replica, report))

    def _event(self, replica: Replica, report: dict[str, Any]) -> Event:
        """Return what one report of an agent says."""
        kind = report["e"]
        if kind == "progress":
            return Progressed(replica, report["report"])
        if kind == "started":
            return Started(replica, report["time"], report["host"])
        if kind == "signalled":
            return Signalled(replica)
        if kind in ("stalled", "alive"):
            return Stalled(replica, kind == "stalled")
        replica.host = report["host"]
        self._ended.add(replica)
        was_terminated = report.get("signalled") or report["code"] in _TERMINATED
        ended = Terminated if was_terminated else Ended
        return ended(
            replica,
            report["code"],
            report["time"],
            why=report.get("why", ""),
            usage=report.get("usage"),
            since=report.get("began_at", 0),
        )

    def _on_end(self, step: Step) -> None:
        """Note that the tasks of a role are gone, and with them the replicas that had not ended."""
        self._leave(step)
        lost = self._alive(step)
        why = step.never_began()
        if lost and why and self.app.final is None and not self.app.interrupted:
            complain(
                f"no task of role {self.plan['roles'][step.role]['name']!r} was started; it is "
                "tried again"
            )
            self.waiting = f"waiting for Slurm to start the replicas: srun: {why}"
            self._again[step.role] = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _AGAIN_S[1])
            return
        self._lose(step, lost, Terminated)

    def _alive(self, step: Step) -> list[Replica]:
        """Return the replicas of a role that have not ended yet, as far as was reported."""
        mine = [each for each in self.app.replicas if each.role == step.role]
        return [each for each in mine if each.attempt.alive and each not in self._ended]

    def _lose(self, step: Step, lost: list[Replica], kind: type[Ended]) -> None:
        why = "lost: its task ended without a report"
        complaint = step.complaint()
        if complaint:
            why += f": {complaint}"
        self._ended.update(lost)
        self._events += [kind(replica, None, time.time(), why=why) for replica in lost]

    def _on_noise(self, step: Step) -> None:
        """Note the replicas whose tasks were killed. Their role needs new tasks."""
        dead = step.dead_tasks()
        if dead is None:
            self._selector.unregister(step.noise or 0)
            step.noise = None
            return
        lost = [replica for replica in self._alive(step) if replica.k in dead]
        if lost and not self.app.interrupted:
            step.broken = True
            self._lose(step, lost, Ended)

    def _try_again(self) -> None:
        """Start the tasks that Slurm could not start before, which is no failure of the job."""
        for role in [role for role, due in self._again.items() if time.monotonic() >= due]:
            del self._again[role]
            self.waiting = ""
            self.start([r for r in self.app.replicas if r.role == role and r.attempt.alive])

    # ----------------------------------------------------------------------------------------------------
    # ending

    def signal(self, replica: Replica, number: int) -> None:
        """Have a replica given its notice. Its agent knows the signal."""
        if replica.role in self._steps:
            self._steps[replica.role].tell(f"notice {replica.k}")

    def pass_on(self, number: int) -> None:
        """Give all replicas a signal that came to the keeper alone."""
        for step in self._steps.values():
            step.tell(f"signal * {number}")

    def stop(self, restarts: Sequence[Restart] | None) -> None:
        """Order the agents to end the replicas. If Slurm ends the job, it ends them."""
        for replica in self.app.replicas:
            attempt = replica.attempt
            if not attempt.alive or not attempt.stopping or replica in self._stopped:
                continue
            if replica.role in self._again:  # it has not begun
                self._ended.add(replica)
                self._events.append(Ended(replica, None, time.time()))
            elif replica.role in self._steps and not self.app.interrupted:
                self._steps[replica.role].tell(f"stop {replica.k}")
            else:
                continue
            self._stopped.add(replica)

    def is_stopped(self, restart: Restart | None) -> bool:
        """Tell whether the agents have reported the ends of these replicas."""
        if restart is None:
            return not any(replica.attempt.alive for replica in self.app.replicas)
        return restart.is_ended

    def bound_to(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Return those that have to be started again with these, since their tasks are replaced."""
        roles = [step.role for step in self._steps.values() if step.broken]
        broken = {replica.role for replica in replicas if replica.role in roles}
        return [
            each
            for each in self.app.replicas
            if each.role in broken and each.attempt.alive and each not in replicas
        ]

    def close(self) -> None:
        """End all tasks."""
        for step in self._steps.values():
            step.dismiss()
        for step in self._steps.values():
            step.wait(_KILL_S)
