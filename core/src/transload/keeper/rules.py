"""Decide what follows when a replica of a job ends: retries, interruptions, limits of time.

The keepers of local, Docker and Slurm jobs use these rules, since their engines have none. A keeper
reports to a `Gang` what happens to the replicas. The gang decides. `Gang.restarts` are to be ended
and started again, and `Gang.final` is the end of the job. Nothing here makes a system call or reads
a clock.

This file runs on cluster nodes, and in processes that must start within milliseconds. So it keeps
to Python 3.8 and imports nothing that a job does not need.
"""

from __future__ import annotations

from .failures import ASKS_AGAIN, code_of_processes, error_line, exit_text, is_about_peer

TYPE_CHECKING = False  # importing typing would cost more than all of this file
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

__all__ = [
    "INTERRUPTION",
    "RETRY",
    "TERMINAL",
    "Attempt",
    "Gang",
    "Replica",
    "Restart",
    "cancelled_for",
    "needed_replicas",
    "retry_delay",
    "total_usage",
]

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

RETRY = "retry"
"""The kind of a restart after a failure. `max_retries` bounds them."""
INTERRUPTION = "interruption"
"""The kind of a restart after an interruption. `max_interruptions` bounds them."""
_REQUEUE = "requeue"
"""The kind of a restart by the engine for no known reason, which counts as a retry of all."""

DELAY_S = 1.0
"""Seconds before the first retry. Each further failure in a row doubles them."""
LONGEST_DELAY_S = 300.0
HEALTHY_S = 600.0
"""Seconds that an attempt must run so that its failure begins a new row."""
PEER_S = 3.0
"""Seconds for which a failure that is about a lost replica waits for the failure of that one."""

_KILLED = ": transload did not send it; perhaps the system was out of memory"
_KEPT_ATTEMPTS = 8  # of each replica, since the status is written anew at each change


def needed_replicas(role: Mapping[str, Any]) -> int:
    """Return how many replicas of a role must succeed for the role to succeed.

    Args:
        role: its record, with ``num_replicas`` and ``min_replicas`` (None means all).
    """
    least: int | None = role["min_replicas"]
    if least is None:
        least = role["num_replicas"]
    return least


def retry_delay(failures: int, first: float = DELAY_S) -> float:
    """Return the seconds to wait before a retry.

    Args:
        failures: how many failures in a row there were before this one.
        first: the seconds before the first retry.
    """
    longest = max(first, LONGEST_DELAY_S)
    return min(first * 2.0 ** min(failures, 60), longest)


def total_usage(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the highest peak of memory and the sum of CPU time, as far as they are known.

    Args:
        parts: each in the JSON form of `transload.specs.Usage`, as is the result.
    """
    known = [each for each in parts if each]
    peaks = [each["peak_memory"] for each in known if each.get("peak_memory") is not None]
    seconds = [each["cpu_seconds"] for each in known if each.get("cpu_seconds") is not None]
    found: dict[str, Any] = {}
    if peaks:
        found["peak_memory"] = max(peaks)
    if seconds:
        found["cpu_seconds"] = round(sum(seconds), 3)
    return found


def cancelled_for(who: str) -> str:
    """Return the message of a job that was cancelled, with who asked for that if it is known."""
    if not who:
        return Gang.ON_REQUEST
    return f"{Gang.ON_REQUEST} of {who}"


def _ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``11th``."""
    ending = "th"
    if number % 100 not in (11, 12, 13):
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _time_text(seconds: float) -> str:
    """Return ``45 s``, ``5 min`` or ``3 h 12 min``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Attempt:
    """One attempt of a replica.

    The caller sets ``usage``, the JSON form of `transload.specs.Usage`, before it calls
    `Gang.ended`.
    """

    def __init__(self, state: str) -> None:
        self.state = state  # name of an `AppState`
        self.alive = False  # it is being started, or runs
        self.stopping = False  # it is being ended, so its exit code is no failure
        self.noticed = ""  # the reason of the notice, which is a cause, ``limit``, or ""
        self.kill_at: float | None = None  # when its time after a notice is over, caller's clock
        self.code: int | None = None  # its exit code, −N for a death by signal N
        self.start: float | None = None  # seconds since the epoch
        self.end: float | None = None
        self.ended = 0.0  # the same on the caller's clock
        self.why = ""  # what happened, for a message
        self.cause = ""  # what interrupted it, or ``failed`` if its role may be interrupted
        self.may_retry = True  # it can be started again
        self.error = ""  # its own report of the failure, as `read_error` returns it
        self.usage: dict[str, Any] | None = None

    @property
    def is_interrupted(self) -> bool:
        """Tell whether it has ended by an interruption."""
        return self.cause not in ("", "failed")

    def as_json(self, cause: str, step: float | None) -> dict[str, Any]:
        """Return the JSON form of a `ReplicaAttempt`.

        Args:
            cause: why it is followed by another, or "" after a failure.
            step: how far it came.
        """
        found: dict[str, Any] = {
            "state": self.state,
            "exit_code": self.code,
            "start_time": self.start,
            "end_time": self.end,
        }
        if self.cause == "failed":
            cause = self.cause
        if cause:
            found["cause"] = cause
        if step is not None:
            found["step"] = step
        return found


class Replica:
    """One replica, with its latest attempt and what is known of those before.

    Args:
        role: number of its role.
        k: its number within the role.
        scopes: what its restarts may be counted for, by the names of the policies (`Gang.spent`).
    """

    def __init__(self, role: int, k: int, scopes: Mapping[str, str]) -> None:
        self.role = role
        self.k = k
        self.scopes = scopes
        self.attempt = Attempt("SUBMITTED")
        self.waiting = False  # it is to be started again
        self.restarts = 0  # how often it was started again after a failure
        self.interruptions = 0  # how often it was started again after an interruption
        self.row = 0  # how many failures in a row came before this attempt
        self.step: float | None = None  # the step that it reported last
        self.host = ""
        self.used: dict[str, Any] = {}  # the usage of the attempts before
        self.earlier: list[dict[str, Any]] = []  # the attempts before, in JSON form

    @property
    def run(self) -> int:
        """Return the number of its attempt, counting failures and interruptions together."""
        return self.restarts + self.interruptions

    def begin_again(self, cause: str = "") -> None:
        """Move the attempt that has ended to the earlier ones, and expect the next.

        Args:
            cause: what interrupted it, or a replica that is started again together with it. It is
                "" after a failure.
        """
        last = self.attempt.as_json(cause, self.step)
        self.earlier = [*self.earlier, last][-_KEPT_ATTEMPTS:]
        self.used = total_usage((self.used, self.attempt.usage))
        if cause:
            self.interruptions += 1
        else:
            self.restarts += 1
        self.attempt = Attempt("PENDING")
        self.waiting = False

    def take_over(self, before: Mapping[str, Any]) -> None:
        """Take over what `as_json` returned before the engine ended the job."""
        state = before["state"]
        self.attempt = Attempt(state if state in TERMINAL else "CANCELLED")
        self.attempt.code = before["exit_code"]
        self.attempt.start = before["start_time"]
        self.attempt.end = before["end_time"]
        self.restarts = before["restarts"]
        self.interruptions = before.get("interruptions", 0)
        self.step = before.get("step")
        self.used = before.get("usage") or {}
        self.earlier = list(before.get("earlier", ()))

    def snapshot(self) -> dict[str, Any]:
        """Return all that is known of it, in JSON values, for `restore`."""
        values = {name: value for name, value in vars(self).items() if name != "scopes"}
        return {**values, "attempt": dict(vars(self.attempt))}

    def restore(self, before: Mapping[str, Any]) -> None:
        """Take over what `snapshot` returned."""
        vars(self).update(before)
        self.attempt = Attempt("")
        vars(self.attempt).update(before["attempt"])

    def as_json(self, role: str) -> dict[str, Any]:
        """Return the JSON form of a `ReplicaStatus`."""
        attempt = self.attempt
        state = attempt.state
        if self.waiting and not attempt.alive:
            state = "PENDING"
        found = {
            "id": self.k,
            "state": state,
            "role": role,
            "hostname": self.host,
            "exit_code": attempt.code,
            "start_time": attempt.start,
            "end_time": attempt.end,
            "restarts": self.restarts,
        }
        more = {
            "earlier": self.earlier,
            "interruptions": self.interruptions,
            "step": self.step,
            "usage": total_usage((self.used, attempt.usage)),
            "structured_error_msg": attempt.error,
        }
        return {**found, **{name: value for name, value in more.items() if value}}


class Restart:
    """Replicas that are to be ended and then started again, all of them together.

    Args:
        replicas: which, in the order of the job.
        due: before when they are not started, on the caller's clock.
        cause: what interrupted them, or "" if one of them has failed.
    """

    def __init__(self, replicas: list[Replica], due: float, cause: str = "") -> None:
        self.replicas = replicas
        self.due = due
        self.cause = cause

    @property
    def is_ended(self) -> bool:
        """Tell whether none of them runs any more."""
        return not any(replica.attempt.alive for replica in self.replicas)

    def is_ready(self, now: float) -> bool:
        """Tell whether none of them runs any more and the delay is over."""
        return now >= self.due and self.is_ended


class Gang:
    """The replicas of a job, and what follows when they end.

    Times are seconds on a clock of the caller's. `Attempt.start` and `Attempt.end` are seconds
    since the epoch.

    Args:
        roles: of each role ``name``, ``num_replicas``, ``min_replicas`` (None means all),
            ``max_retries`` and ``retry_policy`` (``REPLICA``, ``ROLE`` or ``APPLICATION``).
            Optional are ``retry_delay`` (seconds), ``max_interruptions`` (0), ``notice`` (seconds
            between it and the end) and ``notice_signal`` (its number).
        timeout: how long the job may take. None means no limit.
        before: what `as_json` returned before the engine started the job again, with `counts` under
            ``counts``. None means that this is the first start.
        segment: how long the job may run at a time. None means no such limit.
        cause: why the engine started the job again, if that is an interruption. It needs
            ``before``.
        judged: whether that interruption was counted before the engine ended the job. It needs
            ``cause``.

    Attributes:
        state: what the job is doing, name of an `AppState`.
        msg: why.
        final: (state, message) once the end is decided. All that still runs is to be ended.
        failed: (role, replica) of the first that failed for good.
        restarts: what is to be started again.
        spent: how many restarts were counted, by their kind and by what they were counted for: the
            job (""), a role (its name) or a replica (role and number).
        interrupted: the engine is ending the job by itself.
        engine_end: when the engine ends the job by a limit that it keeps itself, on the caller's
            clock. None means no such limit. Notices are due before that end as well.
    """

    ON_REQUEST = "cancelled on request"
    """Message of a job that was cancelled through transload, the same on every scheduler."""

    def __init__(
        self,
        roles: Sequence[Mapping[str, Any]],
        timeout: float | None = None,
        before: Mapping[str, Any] | None = None,
        *,
        segment: float | None = None,
        cause: str = "",
        judged: bool = False,
    ) -> None:
        self.roles = roles
        self.timeout = timeout
        self.segment = segment
        self.segment_began: float | None = None
        self.engine_end: float | None = None
        self.replicas = [
            Replica(index, k, _scopes(role["name"], k))
            for index, role in enumerate(roles)
            for k in range(role["num_replicas"])
        ]
        self.state = "SUBMITTED"
        self.msg = ""
        self.final: tuple[str, str] | None = None
        self.failed: tuple[str, int] | None = None
        self.restarts: list[Restart] = []
        self.spent: dict[tuple[str, str], int] = {}
        self.interrupted = False
        self.began: float | None = None
        self._ended_badly: list[Replica] = []  # what `decide` has to judge
        self._first = ""  # why the first failed that failed for good
        self._error = ""  # the error that it reported
        if before is not None:
            self._go_on(before, cause, judged)

    def _go_on(self, before: Mapping[str, Any], cause: str, judged: bool) -> None:
        """Go on from where the engine ended the job to start it again."""
        self.count_on(before.get("counts") or {})
        if cause and not judged and not self._most_interruptions_of_all():
            cause = ""
        if not cause:
            self.spend(_REQUEUE, "")
        elif not judged:
            self.spend(INTERRUPTION, "")
        known = {
            (role["role"], old["id"]): old
            for role in before.get("roles", ())
            for old in role["replicas"]
        }
        for replica in self.replicas:
            old = known.get((self.roles[replica.role]["name"], replica.k))
            if not old:
                continue
            replica.take_over(old)
            if not (judged and self._is_done(replica)):
                replica.begin_again(cause)

    def count_on(self, counts: Mapping[str, Any]) -> None:
        """Take over what `counts` returned before."""
        self.began = counts.get("began")
        self.spent = {(kind, scope): count for kind, scope, count in counts.get("spent", ())}

    def counts(self) -> dict[str, Any]:
        """Return the counts that a later `Gang` needs besides `as_json` (see ``before``)."""
        spent = [[kind, scope, count] for (kind, scope), count in self.spent.items()]
        return {"began": self.began, "spent": spent}

    def snapshot(self) -> dict[str, Any]:
        """Return all that has been decided and noted, in JSON values, for `restore`."""
        index = {replica: number for number, replica in enumerate(self.replicas)}
        restarts = [
            [[index[each] for each in restart.replicas], restart.due, restart.cause]
            for restart in self.restarts
        ]
        return {
            **self.counts(),
            "state": self.state,
            "msg": self.msg,
            "final": self.final,
            "failed": self.failed,
            "first": self._first,
            "error": self._error,
            "ended_badly": [index[each] for each in self._ended_badly],
            "restarts": restarts,
            "replicas": [each.snapshot() for each in self.replicas],
        }

    def restore(self, before: Mapping[str, Any]) -> None:
        """Go on from what `snapshot` returned, as if nothing had happened in between."""
        self.count_on(before)
        self.state = before["state"]
        self.msg = before["msg"]
        self.final = tuple(before["final"]) if before["final"] else None
        self.failed = tuple(before["failed"]) if before["failed"] else None
        self._first = before["first"]
        self._error = before["error"]
        for replica, values in zip(self.replicas, before["replicas"]):
            replica.restore(values)
        self._ended_badly = [self.replicas[each] for each in before["ended_badly"]]
        self.restarts = [
            Restart([self.replicas[each] for each in numbers], due, cause)
            for numbers, due, cause in before["restarts"]
        ]

    # ----------------------------------------------------------------------------------------------------
    # budgets

    def count(self, kind: str, scope: str) -> int:
        """Return how many restarts of a kind were counted for a scope (see ``spent``)."""
        return self.spent.get((kind, scope), 0)

    def spend(self, kind: str, scope: str) -> None:
        """Count a restart."""
        self.spent[kind, scope] = self.count(kind, scope) + 1

    def _has_retries(self, replica: Replica) -> bool:
        """Tell whether a failed replica may be started again."""
        spent = self.count(RETRY, self._scope(replica))
        if self._policy(replica) != "REPLICA":
            spent += self.count(_REQUEUE, "")
        return spent < int(self.roles[replica.role]["max_retries"])

    def _interruptions_of(self, scope: str) -> int:
        """Return how many interruptions a scope has had, with those of the whole job."""
        spent = self.count(INTERRUPTION, "")
        if scope:
            spent += self.count(INTERRUPTION, scope)
        return spent

    def _policy(self, replica: Replica) -> str:
        policy: str = self.roles[replica.role]["retry_policy"]
        return policy

    def _scope(self, replica: Replica) -> str:
        """Return what a restart of a replica is counted for, and started again with it."""
        return replica.scopes[self._policy(replica)]

    def _all_of(self, scope: str) -> list[Replica]:
        return [replica for replica in self.replicas if scope in replica.scopes.values()]

    def _most_interruptions(self, role: int) -> int:
        return int(self.roles[role].get("max_interruptions") or 0)

    def _most_interruptions_of_all(self) -> int:
        return max(self._most_interruptions(role) for role in range(len(self.roles)))

    def why_not_again(self) -> str:
        """Return why a job that the engine started again does not go on, or "" if it does."""
        retries = self.count(RETRY, "") + self.count(_REQUEUE, "")
        if retries > max(int(role["max_retries"]) for role in self.roles):
            return "its retries are used up"
        most = self._most_interruptions_of_all()
        if self._interruptions_of("") > most:
            return f"its {most} interruptions are used up"
        return ""

    # ----------------------------------------------------------------------------------------------------
    # events

    def begin(self, now: float) -> None:
        """Note when the job began, and its segment, unless that is known already."""
        if self.began is None:
            self.began = now
        if self.segment_began is None:
            self.segment_began = now

    def skip(self, seconds: float) -> None:
        """Note that the job waited for these seconds. Its time limit does not count them."""
        if self.began is not None:
            self.began += seconds

    def starting(self, replica: Replica) -> None:
        """Note that a replica is being started."""
        if self.state not in TERMINAL:
            replica.attempt.alive = True
            replica.attempt.state = "PENDING"

    def started(self, replica: Replica, at: float, host: str = "") -> None:
        """Note that an attempt of a replica runs.

        Args:
            replica: which.
            at: since when, seconds since the epoch.
            host: the name of its machine.
        """
        if self.state not in TERMINAL:
            replica.attempt.alive = True
            replica.attempt.state = "RUNNING"
            replica.attempt.start = at
            replica.host = host

    def ended(
        self,
        replica: Replica,
        code: int | None,
        at: float,
        now: float | None = None,
        *,
        why: str = "",
        error: str = "",
        retry: bool = True,
        cause: str = "",
    ) -> None:
        """Note that an attempt has ended. `decide` decides what follows.

        Args:
            replica: which.
            code: its exit code, None if it is not known.
            at: when, seconds since the epoch.
            now: the same on the caller's clock, if that is another.
            why: what happened, where that says more than the exit code.
            error: the replica's own report of it, as `read_error` returns it.
            retry: False if it cannot be started again.
            cause: what interrupted it, where the engine knows. It is ``preempted``, ``node``,
                ``evicted``, ``drained`` or ``requested``. After a notice it need not be given.
        """
        attempt = replica.attempt
        if not attempt.alive:
            return
        attempt.alive = False
        code = code_of_processes(error, code)
        attempt.code = code
        attempt.end = at
        attempt.ended = at if now is None else now
        if attempt.stopping or self.interrupted:
            attempt.state = "CANCELLED"
            return
        if code == 0 and not why:
            attempt.state = "SUCCEEDED"
            return
        if self._most_interruptions(replica.role):
            attempt.cause = cause or self._cause_by_notice(replica) or "failed"
        attempt.state = "CANCELLED" if attempt.is_interrupted else "FAILED"
        attempt.error = error
        attempt.why = why or exit_text(code) + (_KILLED if code == -9 else "")
        attempt.may_retry = retry
        self._ended_badly.append(replica)

    def _cause_by_notice(self, replica: Replica) -> str:
        """Return what interrupted a replica that had a notice, by its exit code.

        Exit code 75 always means an interruption. A death by the notice's signal, or by KILL, means
        one if the engine was sure to end the replica.

        Returns:
            The cause, or "" for a failure.
        """
        noticed = replica.attempt.noticed
        if noticed in ("", "limit"):
            return ""
        if replica.attempt.code == ASKS_AGAIN:
            return noticed
        if self._obeyed(replica) and noticed != "requested":
            return noticed
        return ""

    def _obeyed(self, replica: Replica) -> bool:
        """Tell whether a replica ended as its notice asks, by exit code 75, its signal, or KILL."""
        ends = [ASKS_AGAIN]
        for number in (9, self.roles[replica.role].get("notice_signal", 15)):
            ends += [-number, 128 + number]
        return replica.attempt.code in ends

    def advanced(self, replica: Replica, step: float) -> None:
        """Note the step that a replica has reported last."""
        replica.step = step

    def notices(self, now: float) -> list[Replica]:
        """Return the replicas that are due a notice, since their time or segment is near its end.

        The caller sends the signal to their main processes, and calls `notified`.
        """
        end, _ = self._next_end()
        if end is None:
            return []
        return [
            replica
            for replica in self._without_notice()
            if now >= end - self.roles[replica.role]["notice"]
        ]

    def notified(self, replica: Replica, now: float, cause: str = "") -> None:
        """Note that a replica was sent its notice.

        No other signal is due to it then, except KILL at `Attempt.kill_at` if it is to end by then.

        Args:
            replica: which.
            now: the caller's clock.
            cause: the reason, such as ``preempted``, ``drained`` or ``requested``, or "" for the
                end of its time or segment.
        """
        end, near = self._next_end()
        kill_at = now + (self.roles[replica.role].get("notice") or 0.0)
        if not cause and end is not None:
            kill_at = min(kill_at, end)
        replica.attempt.kill_at = kill_at
        replica.attempt.noticed = cause or near or "requested"

    def _without_notice(self) -> list[Replica]:
        """Return the replicas that run, and have a notice still to come."""
        return [
            replica
            for replica in self.replicas
            if replica.attempt.alive
            and not replica.attempt.stopping
            and replica.attempt.kill_at is None
            and self.roles[replica.role].get("notice")
        ]

    def end(self, state: str, msg: str) -> bool:
        """Decide the end of the job. All that runs is to be ended, and nothing is started any more.

        Returns:
            False if another end was decided before, or the engine is ending the job.
        """
        if self.final is not None or self.interrupted:
            return False
        self.final = (state, msg)
        self.msg = msg
        self._stop_all()
        return True

    def interrupt(self) -> None:
        """Note that the engine is ending the job by itself.

        The engine decides whether that is its end, or starts it again.
        """
        self.interrupted = True
        self._stop_all()

    def _stop_all(self) -> None:
        self.restarts = []
        self._ended_badly = []
        for replica in self.replicas:
            replica.waiting = False
            replica.attempt.stopping = replica.attempt.alive

    # ----------------------------------------------------------------------------------------------------
    # the rules

    def decide(self, now: float | None = None) -> None:
        """Decide what follows from all that was noted.

        Args:
            now: the caller's clock. None means that limits of time are not looked at.
        """
        for replica in self._take_ended(now):
            if self.final is not None or replica.waiting:
                continue
            if replica.attempt.is_interrupted:
                self._judge_interruption(replica, replica.attempt.cause, replica.attempt.ended)
            else:
                self._judge_failure(replica)
        if self.final is not None or self.interrupted or self.began is None:
            return
        if self.is_idle:
            self._end_idle()
        elif now is None:
            return
        elif self.deadline is not None and now >= self.deadline:
            self.end("FAILED", self._timed_out())
        elif self.segment_end is not None and now >= self.segment_end:
            self._end_segment(now)

    def _take_ended(self, now: float | None) -> list[Replica]:
        """Return the replicas that are to be judged now.

        A failure that is about a lost replica waits a while for the failure of that one, which is
        the cause.

        Args:
            now: as of `decide`.
        """
        waiting = [each for each in self._ended_badly if _is_about_peer(each.attempt)]
        taken = [each for each in self._ended_badly if each not in waiting]
        goes_on = any(replica.attempt.alive for replica in self.replicas)
        due = self.failure_due()
        has_waited = now is not None and due is not None and now >= due
        if taken or has_waited or not goes_on:
            taken += waiting
            waiting = []
        self._ended_badly = waiting
        return taken

    def _end_idle(self) -> None:
        """End the job, since nothing of it runs or is to be started again."""
        if self.succeeded():
            self.end("SUCCEEDED", "")
        else:
            self.end("FAILED", "too few replicas ended well")

    def _timed_out(self) -> str:
        if self.timeout is None:
            return "its limit of time has run out"
        return f"timed out after {self.timeout:g} s"

    def _end_segment(self, now: float) -> None:
        """Have all that runs ended and started again, since its segment is over."""
        for replica in self.replicas:
            if replica.attempt.alive and not replica.waiting:
                self._judge_interruption(replica, "segment", now)
                return
        self.segment_began = None  # those that wait begin the next segment

    def _judge_interruption(self, replica: Replica, cause: str, now: float) -> None:
        """Decide what follows from an interruption."""
        scope = "" if cause == "segment" else self._scope(replica)
        what = f"{self.name(replica)} was interrupted ({cause}){self._how_far(replica, cause)}"
        most = self._most_interruptions(replica.role)
        self.spend(INTERRUPTION, scope)
        spent = self._interruptions_of(scope)
        if spent > most:
            self._fail(replica, f"{what}, and its {most} interruptions are used up")
            return
        if not replica.attempt.may_retry:
            self._fail(replica, what)
            return
        again = self._all_of(scope)
        if cause == "segment":
            again = [each for each in again if not self._is_done(each)]
        else:
            now += self._delay(replica, again)
        self.restart(again, now, cause)
        self.msg = f"{what}; started again, {_ordinal(spent)} of {most}"

    def _how_far(self, replica: Replica, cause: str) -> str:
        """Return for a message at which step, and after what time, an attempt ended."""
        text = ""
        if replica.step is not None:
            text = f" at step {replica.step:,}"
        start = replica.attempt.start
        end = replica.attempt.end
        if start is not None and end is not None:
            text += f" after {_time_text(end - start)}"
        elif cause == "segment" and self.segment is not None:
            text += f" after {_time_text(self.segment)}"
        return text

    def _is_done(self, replica: Replica) -> bool:
        """Tell whether a replica has ended for good, and is not started again with others."""
        if self._policy(replica) != "REPLICA":
            return False
        if replica.attempt.state == "FAILED":  # and the role can do without it
            return not replica.waiting and replica not in self._ended_badly
        return replica.attempt.state == "SUCCEEDED"

    def _judge_failure(self, replica: Replica) -> None:
        """Decide what follows from a failure."""
        attempt = replica.attempt
        at_limit = attempt.noticed == "limit"
        if at_limit and self._obeyed(replica):
            self.end("FAILED", self._timed_out())
            return
        reason = f"{self.name(replica)} failed ({attempt.why})"
        said = error_line(attempt.error)
        if said:
            reason += f": {said}"
        if attempt.may_retry and not at_limit and self._has_retries(replica):
            scope = self._scope(replica)
            again = self._all_of(scope)
            self.spend(RETRY, scope)
            self.restart(again, attempt.ended + self._delay(replica, again))
            self.msg = f"{reason}; started again"
            return
        if not self._first:
            self._first = reason
            self._error = attempt.error
            self._note_failed(replica)
        if self._can_succeed(replica.role):
            return
        if self._first != reason:
            reason += f"; before that {self._first}"
        self.end("FAILED", reason)

    def _fail(self, replica: Replica, msg: str) -> None:
        """End the job, since a replica was interrupted and is not started again."""
        self._note_failed(replica)
        self.end("FAILED", msg)

    def _note_failed(self, replica: Replica) -> None:
        if self.failed is None:
            self.failed = (self.roles[replica.role]["name"], replica.k)

    def _delay(self, ended: Replica, again: Iterable[Replica]) -> float:
        """Return the seconds before a restart, and count these replicas' failures in a row."""
        row = ended.row
        attempt = ended.attempt
        if attempt.start is not None and (attempt.end or 0.0) - attempt.start >= HEALTHY_S:
            row = 0
        for replica in again:
            replica.row = row + 1
        return retry_delay(row, self.roles[ended.role].get("retry_delay", DELAY_S))

    def restart(self, replicas: Iterable[Replica], due: float, cause: str = "") -> None:
        """Have replicas ended and started again. Restarts of some of them become part of this.

        Args:
            replicas: which.
            due: before when they are not started, on the caller's clock.
            cause: what interrupted them, or "" if one of them has failed.
        """
        scope = set(replicas)
        for narrow in [each for each in self.restarts if scope & set(each.replicas)]:
            self.restarts.remove(narrow)
            scope.update(narrow.replicas)
            due = max(due, narrow.due)
            if not narrow.cause:
                cause = ""
        for replica in scope:
            replica.waiting = True
            replica.attempt.stopping = replica.attempt.alive
        in_order = [replica for replica in self.replicas if replica in scope]
        self.restarts.append(Restart(in_order, due, cause))

    def renew(self, restart: Restart, now: float | None = None) -> list[Replica]:
        """Begin the next attempt of the replicas of a restart, and return them. All have ended.

        Args:
            restart: which.
            now: when the next segment begins, on the caller's clock. It is needed where there are
                segments.
        """
        self.restarts.remove(restart)
        for replica in restart.replicas:
            replica.begin_again(restart.cause)
        is_whole = len(restart.replicas) == len(self.replicas)
        if restart.cause == "segment" or is_whole or self.segment_began is None:
            self.segment_began = now
        return restart.replicas

    # ----------------------------------------------------------------------------------------------------
    # questions

    def _can_succeed(self, role: int) -> bool:
        """Tell whether enough replicas of a role may still succeed."""
        good = [
            replica
            for replica in self._of_role(role)
            if replica.waiting or replica.attempt.state not in ("FAILED", "CANCELLED")
        ]
        return len(good) >= needed_replicas(self.roles[role])

    def _of_role(self, role: int) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role == role]

    def succeeded(self) -> bool:
        """Tell whether enough replicas of every role have succeeded."""
        for number, role in enumerate(self.roles):
            good = [each for each in self._of_role(number) if each.attempt.state == "SUCCEEDED"]
            if len(good) < needed_replicas(role):
                return False
        return True

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing runs and nothing is to be started again."""
        return not self.restarts and not any(replica.attempt.alive for replica in self.replicas)

    @property
    def deadline(self) -> float | None:
        """Return when its time is over.

        Returns:
            The time, or None if it has no limit, has not begun, or its end is decided.
        """
        if self.timeout is None or self.began is None or self.final is not None or self.interrupted:
            return None
        return self.began + self.timeout

    @property
    def segment_end(self) -> float | None:
        """Return when its segment is over, or None if it has none or its end is decided."""
        if self.segment is None or self.segment_began is None:
            return None
        if self.final is not None or self.interrupted:
            return None
        return self.segment_began + self.segment

    def _next_end(self) -> tuple[float | None, str]:
        """Return the next end of the job's time or its segment, and its name.

        The name is ``limit`` or ``segment``, or "" if there is no such end.
        """
        limit = self.deadline
        segment = self.segment_end
        if self.engine_end is not None and (limit is None or self.engine_end < limit):
            limit = self.engine_end
        if segment is not None and (limit is None or segment < limit):
            return segment, "segment"
        if limit is None:
            return None, ""
        return limit, "limit"

    def next_end(self) -> float | None:
        """Return when its time or segment ends, or a notice of that is due, or None for never."""
        end, _ = self._next_end()
        if end is None:
            return None
        notices: list[float] = [
            end - self.roles[each.role]["notice"] for each in self._without_notice()
        ]
        if end == self.engine_end:  # what the engine ends is not ended here
            return min(notices, default=None)
        return min([end, *notices])

    def failure_due(self) -> float | None:
        """Return when a failure that is about a lost replica counts, or None if there is none."""
        return min((each.attempt.ended + PEER_S for each in self._ended_badly), default=None)

    def due(self) -> float | None:
        """Return when a limit, a notice or a restart is due, or None if only an event matters."""
        dues = [each.due for each in self.restarts if each.is_ended]
        dues += [due for due in (self.next_end(), self.failure_due()) if due is not None]
        return min(dues) if dues else None

    def name(self, replica: Replica) -> str:
        """Return ``role 'trainer', replica 2``."""
        return f"role {self.roles[replica.role]['name']!r}, replica {replica.k}"

    # ----------------------------------------------------------------------------------------------------
    # states

    def refresh(self) -> None:
        """Set the job's state from its replicas', as long as it goes on."""
        if self.state in TERMINAL:
            return
        if any(replica.attempt.state == "RUNNING" for replica in self.replicas):
            self.state = "RUNNING"
            return
        has_run = self.state == "RUNNING" or any(replica.restarts for replica in self.replicas)
        if self.final is None and has_run:
            self.state = "PENDING"

    def finish(self, at: float) -> bool:
        """Set the state that was decided, which never changes again.

        Replicas without an end get that state too.

        Args:
            at: the end of the replicas whose end is not known, seconds since the epoch.

        Returns:
            False if no end was decided, or the state was set before.
        """
        if self.final is None or self.state in TERMINAL:
            return False
        self.state, self.msg = self.final
        for replica in self.replicas:
            attempt = replica.attempt
            attempt.alive = False
            if attempt.state not in TERMINAL:
                attempt.state = "FAILED"
                if self.state == "CANCELLED" or attempt.start is None:
                    attempt.state = "CANCELLED"
            if attempt.end is None:
                attempt.end = at
        return True

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form of an `AppStatus`."""
        found: dict[str, Any] = {
            "schema": 1,
            "state": self.state,
            "num_restarts": sum(
                count for (kind, _), count in self.spent.items() if kind != INTERRUPTION
            ),
            "msg": self.msg,
        }
        if self.failed is not None:
            found["failed"] = list(self.failed)
        if self._error:
            found["structured_error_msg"] = self._error
        roles: list[dict[str, Any]] = [
            {"role": role["name"], "replicas": []} for role in self.roles
        ]
        for replica in self.replicas:
            role = roles[replica.role]
            role["replicas"].append(replica.as_json(role["role"]))
        found["roles"] = roles
        return found


def _scopes(role: str, k: int) -> dict[str, str]:
    """Return by the name of each retry policy what restarts of a replica are counted for."""
    return {"APPLICATION": "", "ROLE": role, "REPLICA": f"{role}/{k}"}


def _is_about_peer(attempt: Attempt) -> bool:
    return not attempt.is_interrupted and is_about_peer(attempt.error)
