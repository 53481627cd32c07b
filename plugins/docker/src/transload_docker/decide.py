"""What a job is doing, and what is to be done about it, told from facts alone. No I/O here.

What follows from what is `transload.retries`'; here the facts of an engine become its events. Every
step is safe to repeat: whoever keeps the job may die at any point, and the next keeper comes to the
same steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Final

from transload.retries import Gang, Replica, exit_text, total_usage
from transload.specs import AppState, AppStatus, RetryPolicy
from transload_docker import states
from transload_docker.plan import Container, Facts, Plan, Restarts

CANCEL: Final = "cancel"
FAILURE: Final = "failure"

Key = tuple[str, int]

_HINTS: Final = {
    126: "its entrypoint may not be executed",
    127: "there may be no such entrypoint in the image",
}


@dataclass(frozen=True, slots=True)
class Renewal:
    """A replica that is to be started again, with its last container and what the new one gets."""

    last: Container
    attempt: int
    restarts: Restarts


@dataclass(slots=True)
class Decision:
    """The status of a job, and the steps that its keeper takes next.

    Args:
        status: what the job is doing.
        stop: ``(reason, message)``: note that the job is being ended.
        end: containers to end: SIGTERM, then SIGKILL after the grace period.
        renew: replicas to make anew.
        start: containers to start, all together.
        note: the status is final and is to be noted.
        due: when to look again though nothing happens, seconds since the epoch.
    """

    status: AppStatus
    stop: tuple[str, str] | None = None
    end: list[Container] = field(default_factory=list)
    renew: list[Renewal] = field(default_factory=list)
    start: list[Container] = field(default_factory=list)
    note: bool = False
    due: float | None = None


def decide(facts: Facts, now: float) -> Decision:
    """Return what a job does and what comes next, at ``now`` (epoch, this machine).

    The facts must have a plan.
    """
    assert facts.plan is not None
    if facts.ended is not None:
        return Decision(AppStatus.from_json(facts.ended))
    return _Look(facts.plan, facts, now).decision()


def is_alive(container: Container | None) -> bool:
    """Tell whether a container has processes, or may have."""
    return container is not None and (
        container.status in states.ALIVE or container.status not in states.STATES
    )


def may_run_again(plan: Plan, facts: Facts, role: str, replica: int) -> bool:
    """Tell whether a replica that is not alive may still be started, so that its log may grow."""
    decision = decide(facts, plan.created)
    if decision.status.is_terminal() or facts.stop is not None:
        return False
    own = _current(plan, facts).get((role, replica))
    if own is None:
        return False
    if states.replica_state(own.status, own.exit_code, own.error) is not AppState.SUCCEEDED:
        return True
    wide = {item.retry_policy for item in plan.roles if item.max_retries} - {
        RetryPolicy.REPLICA.value
    }
    return RetryPolicy.APPLICATION.value in wide or plan.role(role).retry_policy in wide


def _current(plan: Plan, facts: Facts) -> dict[Key, Container | None]:
    """Return the latest container of each replica; None where there is none (any more)."""
    found: dict[Key, Container | None] = {
        (role.name, k): None for role in plan.roles for k in range(role.num_replicas)
    }
    for container in facts.containers:
        key = (container.role, container.replica)
        before = found.get(key)
        if key in found and (before is None or before.attempt < container.attempt):
            found[key] = container
    return found


class _Look:
    """One look at a job: the rules are told what the containers show."""

    def __init__(self, plan: Plan, facts: Facts, now: float) -> None:
        self.plan = plan
        self.facts = facts
        self.now = now
        self.stop = facts.stop
        self.app = Gang([asdict(role) for role in plan.roles], plan.timeout)
        self.app.begin(plan.created)
        current = _current(plan, facts)
        self.of = {
            replica: current[plan.roles[replica.role].name, replica.k]
            for replica in self.app.replicas
        }
        self.present = [
            (replica, container) for replica, container in self.of.items() if container is not None
        ]
        self.begun = any(container.attempt or container.started for _, container in self.present)
        for replica in self.app.replicas:
            self._show(replica)
        behind = [
            replica for replica, container in self.present if self._is_behind(replica, container)
        ]
        self.halfway = bool(behind) and self.stop is None
        if self.halfway:  # a wider restart that was begun and not finished
            for replica in behind:
                replica.row = max(other.row for other in self.app.replicas)
            self.app.restart(behind, 0.0)
        if self.stop is None:
            self._tell_all()
        else:
            self._tell_around(self.stop)
        self.app.settle(now)

    def _show(self, replica: Replica) -> None:
        """Tell of a replica's latest attempt, as if it ran."""
        container = self.of[replica]
        self.app.starting(replica)
        if container is None:
            return
        level = container.restarts
        self.app.app_restarts = max(self.app.app_restarts, level.app)
        self.app.role_restarts[replica.role] = max(self.app.role_restarts[replica.role], level.role)
        replica.attempt = container.attempt
        replica.spent = level.replica
        replica.row = level.row
        if level.cpu:
            replica.used = {"peak_memory": level.peak or None, "cpu_seconds": level.cpu / 1000}
        if not _has_ended(container):
            replica.state = states.STATES.get(container.status, AppState.UNKNOWN).name
        replica.start = container.started
        replica.host = container.name

    def _is_behind(self, replica: Replica, container: Container) -> bool:
        level = (container.restarts.app, container.restarts.role)
        return level < (self.app.app_restarts, self.app.role_restarts[replica.role])

    # -- what happened

    def _tell_all(self) -> None:
        """Tell of all ends, in the order in which they happened."""
        for replica in self._ended():
            self._tell(replica)
            self.app.settle()
        for replica, container in self.present:
            if replica.stopping and _is_new(container):  # it need not start any more
                self.app.ended(replica, None, self.now)
                replica.end = None

    def _tell_around(self, stop: dict[str, object]) -> None:
        """Tell what had ended when somebody asked for the job's end, then that, then the rest."""
        moment = float(stop.get("time", 0.0))  # type: ignore[arg-type]
        ended = self._ended()
        before = [
            r
            for r in ended
            if (c := self.of[r]) is None or (c.finished is not None and c.finished <= moment)
        ]
        for replica in before:
            self._tell(replica)
        if not (self.app.is_idle and self.app.succeeded()):
            is_cancel = stop.get("reason", CANCEL) == CANCEL
            state = "CANCELLED" if is_cancel else "FAILED"
            self.app.end(state, str(stop.get("msg", "")))
        for replica in ended:
            self._tell(replica)

    def _ended(self) -> list[Replica]:
        """Return the replicas that do not run and will not by themselves, by time of their end."""
        found = [
            replica
            for replica, container in self.of.items()
            if container is None or _has_ended(container)
        ]
        return sorted(
            found, key=lambda replica: ((c := self.of[replica]) is not None and c.finished) or 0.0
        )

    def _tell(self, replica: Replica) -> None:
        """Tell the rules of a replica's end, unless they know of it."""
        container = self.of[replica]
        if container is None:
            self.app.ended(
                replica, None, self.now, why="lost: its container was removed", retry=False
            )
            replica.end = None
            return
        state = states.replica_state(container.status, container.exit_code, container.error)
        why = ""
        if state is not AppState.SUCCEEDED:
            why = _why(container, self.facts.engine_since)
        at = container.finished or 0.0
        replica.usage = container.used
        self.app.ended(
            replica,
            states.exit_code(container.exit_code),
            at,
            min(at, self.now),
            why=why,
            error=container.said,
        )
        replica.end = container.finished

    # -- the verdict

    def decision(self) -> Decision:
        """Return the status, and what comes next."""
        alive = [container for _, container in self.present if is_alive(container)]
        if self.app.final is not None and not alive:
            self.app.finish(self._last_moment())
            return Decision(self._status(self.app.msg), note=True)
        if self.stop is not None:
            return Decision(self._status(self.app.msg), end=alive)
        if self.app.final is not None:
            return Decision(
                self._status(f"{self.app.msg}; what runs is being ended"),
                stop=(FAILURE, self.app.msg),
            )
        restarts = self.app.restarts
        msg = self.app.msg
        if restarts and not msg:
            msg = "being started again"
        decision = Decision(self._status(msg), due=self.app.due())
        decision.end = [
            c
            for each in restarts
            for r in each.replicas
            if (c := self.of[r]) is not None and is_alive(c)
        ]
        for restart in restarts:
            if restart.is_ready(self.now):
                decision.renew += [
                    self._renewal(r, c) for r in restart.replicas if (c := self.of[r]) is not None
                ]
        if not self.halfway:
            decision.start = [
                c for replica, c in self.present if _is_new(c) and not replica.waiting
            ]
        return decision

    def _last_moment(self) -> float:
        """Return when the last thing happened that ended the job, as far as the engine tells."""
        times = [
            container.finished for _, container in self.present if container.finished is not None
        ]
        if self.stop is not None:
            times.append(float(self.stop.get("time") or 0.0))
        return max(times, default=self.now)

    def _renewal(self, replica: Replica, container: Container) -> Renewal:
        counts = (
            self.app.app_restarts,
            self.app.role_restarts[replica.role],
            replica.spent,
            replica.row,
        )
        used = total_usage((replica.used, replica.usage))
        more = used.get("peak_memory", 0), round(1000 * used.get("cpu_seconds", 0.0))
        return Renewal(container, container.attempt + 1, Restarts(*counts, *more))

    def _state_before_end(self, seen: Collection[str]) -> str:
        """Return the state of a job that has not ended, from the states of its replicas."""
        if "RUNNING" in seen:
            return "RUNNING"
        if "UNKNOWN" in seen:
            return "UNKNOWN"
        if self.begun or self.app.restarts:
            return "PENDING"
        return "SUBMITTED"

    def _status(self, msg: str) -> AppStatus:
        seen = {replica.state for replica in self.app.replicas}
        if self.app.final is None or not self.app.is_idle:
            self.app.state = self._state_before_end(seen)
        status = AppStatus.from_dict({**self.app.as_json(), "msg": msg})
        status.cancel_requested = self.stop is not None and self.stop.get("reason") == CANCEL
        if self.plan.timeout is not None:
            status.time_limit = self.plan.timeout
            status.ends_by = self.plan.created + self.plan.timeout
        return status


def _has_ended(container: Container) -> bool:
    """Tell whether a container does not run and will not by itself."""
    return not (is_alive(container) or _is_new(container) or container.status == "removing")


def _is_new(container: Container) -> bool:
    """Tell whether a container waits for its first start."""
    return container.status == "created" and not container.error


def _why(container: Container, engine_since: float | None) -> str:
    """Return why a container ended badly."""
    if container.error:
        return f"could not be started: {container.error}"
    if container.oom:
        return "out of memory: killed at its memory limit"
    text = exit_text(states.exit_code(container.exit_code))
    hint = _HINTS.get(container.exit_code or 0)
    if engine_since is not None and (container.exit_code or 0) > 128:
        # what an engine finds running when it is started it ends within a moment
        started_before = (container.started or engine_since) < engine_since
        ended_before = (container.finished or 0.0) - 1.0 < engine_since
        hint = None
        if started_before and ended_before:
            hint = "the engine went away, and was started again since"
    if not hint:
        return text
    return f"{text}: {hint}"
