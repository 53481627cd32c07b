"""The state of a job, and the next steps of its supervisor, from facts alone. No I/O here.

The facts of an engine become events for `transload.keeper.rules`, which has the rules. Every step is
safe to repeat. A supervisor may die at any point, and the next one comes to the same steps.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Final

from transload.keeper.failures import exit_text
from transload.keeper.rules import INTERRUPTION, RETRY, Gang, Replica, Restart
from transload.specs import AppState, AppStatus, RetryPolicy
from transload_docker import states
from transload_docker.plan import (
    Container,
    Facts,
    Interruptions,
    Notice,
    Plan,
    Restarts,
    signal_number,
)

CANCEL: Final = "cancel"
FAILURE: Final = "failure"
END: Final = "end"
"""Cause of a notice to what is to be ended."""

Key = tuple[str, int]

_HINTS: Final = {
    126: "its entrypoint may not be executed",
    127: "there may be no such entrypoint in the image",
}


@dataclass(frozen=True, slots=True)
class Renewal:
    """A replica that is to be started again.

    Args:
        last: its last container.
        attempt: number of the new one.
        restarts: what the new one gets.
        retry: how often it was started again after a failure.
        interruptions: what the new one gets of them, or None if none are counted.
    """

    last: Container
    attempt: int
    restarts: Restarts
    retry: int
    interruptions: Interruptions | None = None


@dataclass(slots=True)
class Decision:
    """The status of a job, and the steps that its supervisor takes next.

    Args:
        status: what the job is doing.
        stop: ``(reason, message)``: note that the job is being ended.
        end: containers that are to end, and had no notice yet.
        kill: containers that had one, and whose time after it is over.
        warn: containers that get a notice since the end of the job's time is near.
        renew: replicas to make anew.
        start: containers to start, all together.
        note: the status is final and is to be noted.
        due: when to look again though nothing happens, seconds since the epoch.
    """

    status: AppStatus
    stop: tuple[str, str] | None = None
    end: list[Container] = field(default_factory=list)
    kill: list[Container] = field(default_factory=list)
    warn: list[Container] = field(default_factory=list)
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
    starts_again = [item for item in plan.roles if item.max_retries or item.max_interruptions]
    wide = {item.retry_policy for item in starts_again} - {RetryPolicy.REPLICA.value}
    return RetryPolicy.APPLICATION.value in wide or plan.role(role).retry_policy in wide


def _current(plan: Plan, facts: Facts) -> dict[Key, Container | None]:
    """Return the latest container of each replica, or None where there is none (any more)."""
    latest = latest_containers(facts.containers)
    keys = [(role.name, k) for role in plan.roles for k in range(role.num_replicas)]
    return {key: latest.get(key) for key in keys}


class _Look:
    """One look at a job, which turns its containers into events for the rules."""

    def __init__(self, plan: Plan, facts: Facts, now: float) -> None:
        self.plan = plan
        self.facts = facts
        self.now = now
        self.stop = facts.stop
        roles = [
            asdict(role) | {"notice_signal": signal_number(role.notice_signal)}
            for role in plan.roles
        ]
        self.app = Gang(roles, plan.timeout)
        self.counted = _latest_counts(facts.containers)
        for scope, count in self.counted.counts.items():
            self.app.spent[INTERRUPTION, scope] = count
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
            self.app.restart(behind, 0.0, self._cause_of_halfway(behind))
        if self.stop is None:
            self._tell_all()
        else:
            self._tell_around(self.stop)
        self.app.decide(now)

    def _show(self, replica: Replica) -> None:
        """Tell of a replica's latest attempt, as if it ran."""
        container = self.of[replica]
        self.app.starting(replica)
        if container is None:
            return
        level = container.restarts
        spent = self.app.spent
        for scope, count in (("", level.app), (replica.scopes["ROLE"], level.role)):
            spent[RETRY, scope] = max(self.app.count(RETRY, scope), count)
        own = replica.scopes["REPLICA"]
        spent[RETRY, own] = level.replica
        counted = container.interruptions or Interruptions()
        spent[INTERRUPTION, own] = counted.own
        replica.restarts = max(0, container.attempt - counted.replica)
        replica.interruptions = counted.replica
        replica.earlier = list(counted.earlier)
        step = self.facts.signs.get("steps", {}).get(f"{container.role}/{container.replica}")
        if step is not None:
            self.app.advanced(replica, step)
        replica.row = level.row
        if level.cpu:
            replica.used = {"peak_memory": level.peak or None, "cpu_seconds": level.cpu / 1000}
        if not _has_ended(container):
            replica.attempt.state = states.STATES.get(container.status, AppState.UNKNOWN).name
        replica.attempt.start = container.started
        replica.host = container.name
        notice = self.facts.notice_to(container)
        if notice is not None:
            cause = "requested" if notice.cause == END else ""
            self.app.notified(replica, notice.time, cause)
        elif container.asked_to_end is not None:
            self.app.notified(replica, container.asked_to_end, "requested")

    def _is_behind(self, replica: Replica, container: Container) -> bool:
        return self._misses_failure(replica, container) or self._misses_interruption(
            replica, container
        )

    def _misses_failure(self, replica: Replica, container: Container) -> bool:
        """Tell whether others were started again after a failure that was its, too."""
        known = (container.restarts.app, container.restarts.role)
        return known < self._wide_counts(RETRY, replica)

    def _misses_interruption(self, replica: Replica, container: Container) -> bool:
        """Tell whether others were started again after an interruption that was its, too."""
        counts = (container.interruptions or Interruptions()).counts
        known = (counts.get("", 0), counts.get(replica.scopes["ROLE"], 0))
        return known < self._wide_counts(INTERRUPTION, replica)

    def _wide_counts(self, kind: str, replica: Replica) -> tuple[int, int]:
        """Return how often its job, and its role, were started again as a whole."""
        return self.app.count(kind, ""), self.app.count(kind, replica.scopes["ROLE"])

    def _cause_of_halfway(self, behind: Collection[Replica]) -> str:
        """Return why a restart was begun that is not finished, or "" if that was a failure."""
        for replica in behind:
            container = self.of[replica]
            assert container is not None
            if self._misses_failure(replica, container):
                return ""
        return "requested"

    # -- what happened

    def _tell_all(self) -> None:
        """Tell of all ends, in the order in which they happened."""
        for replica in self._ended():
            self._tell(replica)
            self.app.decide()
        for replica, container in self.present:
            if replica.attempt.stopping and _is_new(container):  # it need not start any more
                self.app.ended(replica, None, self.now)
                replica.attempt.end = None

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
            failed = stop.get("failed")
            if isinstance(failed, list) and len(failed) == 2:
                self.app.failed = (failed[0], failed[1])
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

    def _cause(self, container: Container) -> str:
        """Return what interrupted a container by force, or "" if that is not known.

        A container that somebody else stopped was sure to end. That interrupted it if it ended by
        the signal of its notice, or by KILL.
        """
        if not container.was_stopped or container.oom or container.asked_to_end is None:
            return ""
        if self.facts.notice_to(container) is not None:
            return ""
        ends = (signal.SIGKILL, signal_number(self.plan.role(container.role).notice_signal))
        if states.exit_code(container.exit_code) in [-number for number in ends]:
            return "requested"
        return ""

    def _tell(self, replica: Replica) -> None:
        """Tell the rules of a replica's end, unless they know of it."""
        container = self.of[replica]
        if container is None:
            self.app.ended(
                replica, None, self.now, why="lost: its container was removed", retry=False
            )
            replica.attempt.end = None
            return
        state = states.replica_state(container.status, container.exit_code, container.error)
        why = ""
        if state is not AppState.SUCCEEDED:
            why = _why(container, self.facts)
        at = container.finished or 0.0
        replica.attempt.usage = container.used
        self.app.ended(
            replica,
            states.exit_code(container.exit_code),
            at,
            min(at, self.now),
            why=why,
            error=container.said,
            cause=self._cause(container),
        )
        replica.attempt.end = container.finished

    # -- the verdict

    def decision(self) -> Decision:
        """Return the status, and what comes next."""
        alive = [container for _, container in self.present if is_alive(container)]
        if self.app.final is not None and not alive:
            self.app.finish(self._last_moment())
            return Decision(self._status(self.app.msg), note=True)
        if self.stop is not None:
            decision = Decision(self._status(self.app.msg))
            self._end(decision, alive)
            return decision
        if self.app.final is not None:
            return Decision(
                self._status(f"{self.app.msg}; what runs is being ended"),
                stop=(FAILURE, self.app.msg),
            )
        restarts = self.app.restarts
        msg = self.app.msg or self.counted.msg
        if restarts and not msg:
            msg = "being started again"
        decision = Decision(self._status(msg))
        due = self.app.due()
        if due is not None:
            decision.due = due
        waiting = [self.of[replica] for each in restarts for replica in each.replicas]
        self._end(decision, [each for each in waiting if each is not None and is_alive(each)])
        decision.warn = self._to_warn()
        for restart in restarts:
            if restart.is_ready(self.now):
                decision.renew += self._renewals(restart)
        if not self.halfway:
            decision.start = [
                c for replica, c in self.present if _is_new(c) and not replica.waiting
            ]
        return decision

    def _to_warn(self) -> list[Container]:
        """Return the containers that are due a notice since the end of the job's time is near."""
        found = [self.of[replica] for replica in self.app.notices(self.now)]
        return [each for each in found if each is not None and is_alive(each)]

    def _end(self, decision: Decision, containers: Collection[Container]) -> None:
        """Decide how containers are ended, first by a notice, and by KILL when its time is over."""
        for container in containers:
            notice = self.facts.notice_to(container)
            if notice is None:
                decision.end.append(container)
                continue
            kill_at = self._kill_at(notice, container)
            if self.now >= kill_at:
                decision.kill.append(container)
            elif decision.due is None or kill_at < decision.due:
                decision.due = kill_at

    def _kill_at(self, notice: Notice, container: Container) -> float:
        """Return when a container's time after its notice is over, seconds since the epoch."""
        kill_at = notice.time + self.plan.seconds_to_end(container.role)
        if notice.cause == "" and self.plan.timeout is not None:
            kill_at = min(kill_at, self.plan.created + self.plan.timeout)
        return kill_at

    def _last_moment(self) -> float:
        """Return when the last thing happened that ended the job, as far as the engine tells."""
        times = [
            container.finished for _, container in self.present if container.finished is not None
        ]
        if self.stop is not None:
            times.append(float(self.stop.get("time") or 0.0))
        return max(times, default=self.now)

    def _renewals(self, restart: Restart) -> list[Renewal]:
        """Return what is made anew of a restart that is due."""
        again = self.app.renew(restart, self.now)
        return [
            self._renewal(replica, last)
            for replica in again
            if (last := self.of[replica]) is not None
        ]

    def _renewal(self, replica: Replica, container: Container) -> Renewal:
        counts = (
            *self._wide_counts(RETRY, replica),
            self.app.count(RETRY, replica.scopes["REPLICA"]),
            replica.row,
        )
        used = replica.used
        more = used.get("peak_memory", 0), round(1000 * used.get("cpu_seconds", 0.0))
        return Renewal(
            container,
            container.attempt + 1,
            Restarts(*counts, *more),
            replica.restarts,
            self._interruptions(replica),
        )

    def _interruptions(self, replica: Replica) -> Interruptions | None:
        """Return a replica's counts of interruptions for a new container, or None without them."""
        if not any(role.max_interruptions for role in self.plan.roles):
            return None
        spent = self.app.spent.items()
        counts = {scope: count for (kind, scope), count in spent if kind == INTERRUPTION}
        return Interruptions(
            replica.interruptions,
            self.app.count(INTERRUPTION, replica.scopes["REPLICA"]),
            counts,
            earlier=replica.earlier,
            msg=self.app.msg,
            time=self.now,
        )

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
        seen = {replica.attempt.state for replica in self.app.replicas}
        if self.app.final is None or not self.app.is_idle:
            self.app.state = self._state_before_end(seen)
        values = self.app.as_json()
        if self.app.final is None:
            stalled = self.facts.signs.get("stalled", ())
            msg = "; ".join([*filter(None, [msg]), *stalled])
            if stalled:
                values["stalled"] = True
        progress = self.facts.signs.get("progress")
        if progress:
            values["progress"] = progress
        status = AppStatus.from_dict({**values, "msg": msg})
        status.cancel_requested = self.stop is not None and self.stop.get("reason") == CANCEL
        if self.plan.timeout is not None:
            status.time_limit = self.plan.timeout
            status.ends_by = self.plan.created + self.plan.timeout
        return status


def latest_containers(containers: Collection[Container]) -> dict[Key, Container]:
    """Return the latest container of each replica that has one."""
    found: dict[Key, Container] = {}
    for container in containers:
        key = (container.role, container.replica)
        before = found.get(key)
        if before is None or before.attempt < container.attempt:
            found[key] = container
    return found


def _latest_counts(containers: Collection[Container]) -> Interruptions:
    """Return what was counted of interruptions when the latest container was made."""
    counted = [each.interruptions for each in containers if each.interruptions is not None]
    return max(counted, key=lambda each: each.time, default=Interruptions())


def _has_ended(container: Container) -> bool:
    """Tell whether a container does not run and will not by itself."""
    return not (is_alive(container) or _is_new(container) or container.status == "removing")


def _is_new(container: Container) -> bool:
    """Tell whether a container waits for its first start."""
    return container.status == "created" and not container.error


def _why(container: Container, facts: Facts) -> str:
    """Return why a container ended badly."""
    if container.error:
        return f"could not be started: {container.error}"
    if container.oom:
        return "out of memory: killed at its memory limit"
    text = exit_text(states.exit_code(container.exit_code))
    hint = _HINTS.get(container.exit_code or 0)
    if (container.exit_code or 0) > 128:
        hint = _killed_by(container, facts)
    if not hint:
        return text
    return f"{text}: {hint}"


def _killed_by(container: Container, facts: Facts) -> str:
    """Return who ended a container by a signal, or "" if that is not known."""
    since = facts.engine_since
    if since is not None:
        # what an engine finds running when it is started it ends within a moment
        started_before = (container.started or since) < since
        ended_before = (container.finished or 0.0) - 1.0 < since
        if started_before and ended_before:
            return "the engine went away, and was started again since"
    if container.asked_to_end is not None and facts.notice_to(container) is None:
        return "somebody else stopped its container"
    return ""
