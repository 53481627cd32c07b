"""What an app is doing, and what is to be done about it, told from facts alone. No I/O here.

Every step is safe to repeat: whoever keeps the app may die at any point, and the next keeper comes to the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from transload.specs import AppState, AppStatus, ReplicaStatus, RetryPolicy, RoleStatus, exit_text
from transload_docker import states
from transload_docker.plan import Container, Facts, Plan, Restarts, RolePlan

CANCEL: Final = "cancel"
TIMEOUT: Final = "timeout"
FAILURE: Final = "failure"

Key = tuple[str, int]

_HINTS: Final = {
    126: "its entrypoint may not be executed",
    127: "there may be no such entrypoint in the image",
}


@dataclass(frozen=True, slots=True)
class Renewal:
    """A replica that is to be started again.

    Args:
        last: the container of its last attempt.
        attempt: number of the new attempt.
        restarts: see `Restarts`.
    """

    last: Container
    attempt: int
    restarts: Restarts


@dataclass(slots=True)
class Verdict:
    """The status of an app, and the steps that its keeper takes next.

    Args:
        status: what the app is doing.
        stop: ``(reason, message)``: note that the app is being ended.
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


def judge(facts: Facts, now: float) -> Verdict:
    """Return what an app is doing and what comes next.

    Args:
        facts: all that the engine knows of it; ``facts.plan`` must be there.
        now: seconds since the epoch, by the clock of the submitter's machine.
    """
    assert facts.plan is not None
    if facts.ended is not None:
        return Verdict(AppStatus.from_json(facts.ended))
    look = _Look(facts.plan, facts)
    if facts.stop is not None:
        return look.stopping()
    look.judge_failures()
    if look.failure is None and facts.plan.timeout is not None and look.open:
        due = facts.plan.created + facts.plan.timeout
        if now >= due:
            verdict = look.verdict(f"timed out after {facts.plan.timeout:g} s")
            verdict.stop = (TIMEOUT, verdict.status.msg)
            return verdict
        verdict = look.going_on()
        verdict.due = due
        return verdict
    return look.going_on()


def is_alive(container: Container | None) -> bool:
    """Tell whether a container has processes, or may have."""
    return container is not None and (container.status in states.ALIVE or container.status not in states.STATES)


def may_run_again(plan: Plan, facts: Facts, role: str, replica: int) -> bool:
    """Tell whether a replica that is not alive now may still be started (again), so that its log may grow."""
    verdict = judge(facts, plan.created)
    if verdict.status.is_terminal() or facts.stop is not None:
        return False
    own = _current(plan, facts).get((role, replica))
    if own is None:
        return False
    if states.replica_state(own.status, own.exit_code, own.error) is not AppState.SUCCEEDED:
        return True
    policies = {item.policy for item in plan.roles if item.max_retries and item.policy != RetryPolicy.REPLICA.value}
    return RetryPolicy.APPLICATION.value in policies or plan.role(role).policy in policies


def _current(plan: Plan, facts: Facts) -> dict[Key, Container | None]:
    """Return the latest container of each replica; None where there is none (any more)."""
    found: dict[Key, Container | None] = {(role.name, k): None for role in plan.roles for k in range(role.replicas)}
    for container in facts.containers:
        key = (container.role, container.replica)
        before = found.get(key)
        if key in found and (before is None or before.attempt < container.attempt):
            found[key] = container
    return found


class _Look:
    """One look at an app."""

    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan = plan
        self.facts = facts
        self.current = _current(plan, facts)
        present = [c for c in self.current.values() if c is not None]
        self.app_level = max((c.restarts.app for c in present), default=0)
        self.role_level = {
            role.name: max((c.restarts.role for c in present if c.role == role.name), default=0) for role in plan.roles
        }
        self.renewing: dict[Key, Restarts] = {}
        self.failed: set[Key] = set()
        self.failure: str | None = None
        self.again: str = ""
        for key, container in self.current.items():  # a wider restart that was begun and not finished
            if container is not None and self._behind(container):
                self.renewing[key] = self._level(container)

    @property
    def open(self) -> bool:
        """True while something runs or is to run."""
        return any(is_alive(c) or self._waiting(c) for c in self.current.values()) or bool(self.renewing)

    def _behind(self, container: Container) -> bool:
        return (container.restarts.app, container.restarts.role) < (self.app_level, self.role_level[container.role])

    def _level(self, container: Container) -> Restarts:
        return Restarts(self.app_level, self.role_level[container.role], container.restarts.replica)

    @staticmethod
    def _waiting(container: Container | None) -> bool:
        return container is not None and container.status == "created" and not container.error

    # ------------------------------------------------------------------------------------------------- what follows

    def judge_failures(self) -> None:
        """Draw the conclusions from each failure, in the order in which they happened."""
        lost = [key for key, container in self.current.items() if container is None]
        failed = [c for c in self.current.values() if c is not None and self._has_failed(c)]
        for key in lost:
            self._final(key, f"role {key[0]!r}, replica {key[1]} is lost: its container was removed")
        for container in sorted(failed, key=lambda c: (c.finished or 0.0, c.role, c.replica)):
            key = (container.role, container.replica)
            if key in self.renewing:
                continue  # it ended for a restart that it is part of
            role = self.plan.role(container.role)
            self._judge_one(container, role)

    def _has_failed(self, container: Container) -> bool:
        return states.replica_state(container.status, container.exit_code, container.error) is AppState.FAILED

    def _judge_one(self, container: Container, role: RolePlan) -> None:
        reason = f"role {role.name!r}, replica {container.replica} failed ({_why(container, self.facts.engine_since)})"
        key = (container.role, container.replica)
        if container.restarts.used(role.policy) >= role.max_retries:
            self._final(key, reason)
            return
        self.again = self.again or reason
        if role.policy == RetryPolicy.REPLICA.value:
            self.renewing[key] = replace(container.restarts, replica=container.restarts.replica + 1)
        elif role.policy == RetryPolicy.ROLE.value:
            self._renew([each for each in self.current if each[0] == role.name], app=0, role=1)
        else:
            self._renew(list(self.current), app=1, role=0)

    def _renew(self, keys: list[Key], app: int, role: int) -> None:
        for key in keys:
            container = self.current[key]
            if container is not None:
                level = self._level(container)
                self.renewing[key] = replace(level, app=level.app + app, role=level.role + role)

    def _final(self, key: Key, reason: str) -> None:
        self.failed.add(key)
        role = self.plan.role(key[0])
        if role.replicas - sum(1 for name, _ in self.failed if name == role.name) < role.needed:
            self.failure = self.failure or reason

    # --------------------------------------------------------------------------------------------------- the verdicts

    def going_on(self) -> Verdict:
        """Return the verdict on an app that nobody is ending."""
        alive = [c for c in self.current.values() if c is not None and is_alive(c)]
        if self.failure is not None:
            if alive:
                verdict = self.verdict(f"{self.failure}; the other replicas are being ended")
                verdict.stop = (FAILURE, self.failure)
                return verdict
            return self.verdict(self.failure, AppState.FAILED)
        if self.renewing:
            verdict = self.verdict(f"{self.again}; started again" if self.again else "being started again")
            verdict.end = [c for key in self.renewing if (c := self.current[key]) is not None and is_alive(c)]
            if not verdict.end:
                verdict.renew = [
                    Renewal(c, c.attempt + 1, restarts)
                    for key, restarts in self.renewing.items()
                    if (c := self.current[key]) is not None
                ]
            return verdict
        waiting = [c for c in self.current.values() if c is not None and self._waiting(c)]
        if waiting:
            verdict = self.verdict("")
            verdict.start = waiting
            return verdict
        if alive or any(c is not None and c.status == "removing" for c in self.current.values()):
            return self.verdict("")
        return self.verdict("", AppState.SUCCEEDED)

    def stopping(self) -> Verdict:
        """Return the verdict on an app that is being ended."""
        stop = self.facts.stop or {}
        reason, msg = stop.get("reason", CANCEL), str(stop.get("msg", ""))
        alive = [c for c in self.current.values() if c is not None and is_alive(c)]
        if alive:
            verdict = self.verdict(msg)
            verdict.end = alive
            return verdict
        if self._ended_well_before(float(stop.get("time", 0.0))):
            return self.verdict("", AppState.SUCCEEDED)
        return self.verdict(msg, AppState.CANCELLED if reason == CANCEL else AppState.FAILED)

    def _ended_well_before(self, moment: float) -> bool:
        """Tell whether the app had succeeded when somebody asked for its end."""
        good = dict.fromkeys((role.name for role in self.plan.roles), 0)
        for container in self.current.values():
            if container is None or (container.finished or moment + 1) > moment:
                return False
            if states.replica_state(container.status, container.exit_code, container.error) is AppState.SUCCEEDED:
                good[container.role] += 1
        return all(good[role.name] >= role.needed for role in self.plan.roles)

    def verdict(self, msg: str, final: AppState | None = None) -> Verdict:
        """Return a verdict with the status as it is, or as it is in the end."""
        roles = [
            RoleStatus(role.name, [self._replica((role.name, k), final) for k in range(role.replicas)])
            for role in self.plan.roles
        ]
        state = final if final is not None else self._state()
        cancelled = (self.facts.stop or {}).get("reason") == CANCEL
        status = AppStatus(state, self._count(), msg, roles=roles, cancel_requested=cancelled)
        return Verdict(status, note=final is not None)

    def _state(self) -> AppState:
        present = [c for c in self.current.values() if c is not None]
        if any(c.status in states.ALIVE and c.status != "restarting" for c in present):
            return AppState.RUNNING
        if any(is_alive(c) or c.status == "removing" for c in present):
            return AppState.UNKNOWN
        begun = bool(self.renewing) or any(c.attempt or c.started for c in present)
        return AppState.PENDING if begun else AppState.SUBMITTED

    def _count(self) -> int:
        single = sum(c.restarts.replica for c in self.current.values() if c is not None)
        return self.app_level + sum(self.role_level.values()) + single

    def _replica(self, key: Key, final: AppState | None) -> ReplicaStatus:
        role, k = key
        container = self.current[key]
        if container is None:
            return ReplicaStatus(k, AppState.FAILED, role, "")
        state = states.replica_state(container.status, container.exit_code, container.error)
        if state is AppState.FAILED and key in self.renewing and final is None:
            state = AppState.PENDING
        elif state is AppState.FAILED and self._was_stopped(container):
            state = AppState.CANCELLED
        elif final is not None and states.STATES.get(container.status, AppState.UNKNOWN) is not AppState.FAILED:
            state = AppState.CANCELLED if final is AppState.CANCELLED else AppState.FAILED
        return ReplicaStatus(
            k,
            state,
            role,
            container.name,
            exit_code=states.exit_code(container.exit_code),
            start_time=container.started,
            end_time=container.finished,
            restarts=container.attempt,
        )

    def _was_stopped(self, container: Container) -> bool:
        stop = self.facts.stop
        return stop is not None and (container.finished or 0.0) >= float(stop.get("time", 0.0))


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
        before = (container.started or engine_since) < engine_since > (container.finished or 0.0) - 1.0
        hint = "the engine went away, and was started again since" if before else None
    return f"{text}: {hint}" if hint else text
