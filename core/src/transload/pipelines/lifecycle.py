"""What happens to a job that an orchestrator looks after: attach or submit, follow, limits, kill,
lost, collect. It decides, and does no I/O.

Each method of `Lifecycle` is a generator. It yields effects, and is sent an `Answer` for each.
``drivers.py`` carries the effects out. All that must survive a process is in `LifecycleState`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from transload.errors import (
    AppExists,
    AppFailed,
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    StateUnknown,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines.attach import Action, Attached, AttachRecord, decide, decide_earlier
from transload.pipelines.errors import AppCancelled, AppLost, Detached
from transload.pipelines.identity import Identity, where
from transload.pipelines.log_lines import reach
from transload.pipelines.options import ExecutionOptions, OnKill, next_limit, note_state
from transload.runner.clusters import Cluster
from transload.schedulers.patience import backoff
from transload.schedulers.subscription import Observation, ended
from transload.specs import AppState, AppStatus, parse_app_handle
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.runner import AppResults

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""Seconds between two probes of a scheduler that cannot say: the first pause, and the longest."""

FIRST_CANCEL_PAUSE: Final = 1.0
LONGEST_CANCEL_PAUSE: Final = 30.0
"""Seconds until a cancel that did not come through is tried again: at first, and at most."""

FOREVER: Final = float("inf")


# -- effects, and what is sent back


@dataclass(frozen=True, slots=True)
class Moment:
    """When an answer came, and whether something had ended the orchestrator's step by then.

    ``epoch`` is ``time.time()``, by which limits count. ``steady`` is ``time.monotonic()``, by
    which pauses and patience count.
    """

    epoch: float
    steady: float
    killed: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an effect: its value, or the exception that it raised."""

    moment: Moment
    value: object = None
    error: BaseException | None = None


class Effect(Generic[T]):
    """What a lifecycle asks its driver to do; ``T`` is the type of the answer's value."""

    __slots__ = ()


Steps = Generator[Effect[Any], Answer, T]
"""Effects, one after the other, and a result."""


@dataclass(frozen=True)
class Load(Effect["AttachRecord | None"]):
    """Read what the orchestrator's store has about the job."""


@dataclass(frozen=True)
class Save(Effect[None]):
    """Keep a record in the orchestrator's store. The driver adds the options and the cluster."""

    record: AttachRecord


@dataclass(frozen=True, slots=True)
class Probed:
    """What a scheduler says of an attempt.

    Args:
        handle: where it was looked for.
        status: None if the job is provably absent.
        existed: an absent job was there once.
        digest: that of its definition; None: not known.
        here: the present settings name the same place.
    """

    handle: str
    status: AppStatus | None
    existed: bool = False
    digest: str | None = None
    here: bool = True


@dataclass(frozen=True)
class Probe(Effect[Probed]):
    """Ask a scheduler for an attempt, and use its cluster from now on.

    ``stored`` says where it was submitted; None: look where the present settings put it.
    """

    attempt: int
    stored: AttachRecord | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What would be submitted: the handle that it will have, and the digest of its definition."""

    handle: str
    digest: str


@dataclass(frozen=True)
class Prepare(Effect[Prepared]):
    """Build what an attempt submits, by the present settings; None: with a fresh id."""

    attempt: int | None


@dataclass(frozen=True)
class Submit(Effect[str]):
    """Submit what was prepared; the answer is its handle."""

    handle: str


@dataclass(frozen=True)
class Observe(Effect["Observation | None"]):
    """Wait for the next observation of a job, for so many seconds at most, or until a kill.

    ``unknown_for``: seconds of UNKNOWN that were waited through before. ``logs``: hand on its log
    lines meanwhile.
    """

    handle: str
    seconds: float
    unknown_for: float = 0.0
    logs: bool = False


@dataclass(frozen=True)
class WaitUntil(Effect[None]):
    """Wait until a moment of the steady clock."""

    steady: float


@dataclass(frozen=True)
class Ask(Effect[bool]):
    """Find out whether somebody asked for the end of the orchestrator's step."""

    handle: str | None


@dataclass(frozen=True)
class Cancel(Effect[None]):
    """Ask a scheduler to cancel a job."""

    handle: str


@dataclass(frozen=True)
class FinishLogs(Effect[None]):
    """Hand on what is left of the log lines of a job that has ended."""

    handle: str


@dataclass(frozen=True)
class Note(Effect[None]):
    """Tell people: a line for the log, or a new status for who listens to changes."""

    text: str = ""
    status: AppStatus | None = None


@dataclass(frozen=True)
class Collect(Effect["AppResults | str"]):
    """Log how a job has ended, and return its results.

    ``explain``: it did not end well; return the message that says why.
    """

    handle: str
    status: AppStatus
    explain: bool


# -- what survives a process


@dataclass
class LifecycleState:
    """All that is known of a job that an orchestrator looks after. No secrets are in it.

    Attributes:
        handle: the job, once it is attached to or submitted.
        intended: the job that is looked at or submitted while there is no ``handle`` yet.
        attempt: which attempt of the generation it is; None: every run has an id of its own.
        cluster: where it is, if another process said that.
        status: what was seen last.
        first_seen: when it was first seen in a state that has a limit; see `note_state`.
        unknown_since: since when its state is UNKNOWN, on the steady clock of this process.
        passed: which limit has passed, in words.
        cancelled: a cancel has come through.
        cursor: how far its logs were handed on.
        place: the machine of the process that submitted it; see `where`.
    """

    identity: Identity
    options: ExecutionOptions
    handle: str | None = None
    intended: str | None = None
    attempt: int | None = None
    cluster: Cluster | None = None
    status: AppStatus | None = None
    first_seen: dict[str, float] = field(default_factory=dict)
    unknown_since: float | None = None
    passed: str | None = None
    cancelled: bool = False
    cursor: dict[str, Any] | None = None
    place: str = field(default_factory=where)

    def to_dict(self, steady: float) -> dict[str, Any]:
        """Return the state as JSON values, at a moment of the steady clock."""
        who = self.identity
        values: dict[str, Any] = {
            "schema": SCHEMA,
            "handle": self.handle,
            "cluster": None,
            "attempt": self.attempt,
            "identity": [who.host, who.namespace, list(who.key), who.generation],
            "options": self.options.to_dict(),
            "status": None,
            "cursor": self.cursor,
            "counts": dict(self.first_seen),
            "unknown_for": _seconds_since(self.unknown_since, steady),
            "place": self.place,
        }
        if self.cluster is not None:
            values["cluster"] = self.cluster.to_dict()
        if self.status is not None:
            values["status"] = self.status.to_json()
        if self.passed is not None:
            values["passed"] = self.passed
        if self.cancelled:
            values["cancelled"] = True
        return values

    @staticmethod
    def from_dict(data: Mapping[str, Any], steady: float) -> LifecycleState:
        """Read what `to_dict` returned, in this version or an earlier one.

        Raises:
            SpecError: if it is not such a state, or of a newer version.
        """
        with reading("state of an execution", data) as values:
            host, namespace, key, generation = values["identity"]
            state = LifecycleState(
                Identity(host, namespace, tuple(key), generation),
                ExecutionOptions.from_dict(values["options"]),
                handle=values["handle"],
                attempt=values["attempt"],
                first_seen=dict(values.get("counts") or {}),
                passed=values.get("passed"),
                cancelled=bool(values.get("cancelled")),
                cursor=values.get("cursor"),
                place=values.get("place") or where(),
            )
            if values.get("cluster"):
                state.cluster = Cluster.from_dict(values["cluster"])
            if values.get("status"):
                state.status = AppStatus.from_json(values["status"])
            if values.get("unknown_for"):
                state.unknown_since = steady - values["unknown_for"]
            return state


# -- the decisions


class Lifecycle:
    """What happens to one job.

    `run` is the whole. An orchestrator that defers runs its parts in different processes: `start`,
    `follow` and `collect`. One that asks now and then calls `look` with what it was answered.
    """

    def __init__(self, state: LifecycleState) -> None:
        self.state = state
        self._moment = Moment(0.0, 0.0)
        self._cancel_due = 0.0
        self._cancel_pause = FIRST_CANCEL_PAUSE
        self._reason_not_cancelled = ""

    def _do(self, effect: Effect[T]) -> Steps[T]:
        """Have an effect carried out, and return its value or raise its exception."""
        answer = yield effect
        self._moment = answer.moment
        if answer.error is not None:
            raise answer.error
        return cast("T", answer.value)

    def run(self, moment: Moment) -> Steps[AppResults]:
        """Start or attach, wait for the end, return the results."""
        yield from self.start(moment)
        status = yield from self.follow(self._moment)
        return (yield from self.collect(self._moment, status))

    # -- attach or submit

    def start(self, moment: Moment) -> Steps[Attached]:
        """Submit the job or attach to it; return how.

        Raises:
            AppLost: if it was started and is gone.
            StateUnknown: if patience is exhausted.
            SubmitError: if it was not taken.
            Detached: if the step was ended before anything was submitted.
            TransloadTimeout: if a limit passed before the job was there.
            SpecError: if the app definition is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        self._moment = moment
        if not self.state.options.durable:
            return (yield from self._submit(None))
        record = yield from self._do(Load())
        if record is not None and record.generation != self.state.identity.generation:
            yield from self._wait_for_earlier_generation(record)
            record = None
        return (yield from self._find_attempt(record))

    def _wait_for_earlier_generation(self, record: AttachRecord) -> Steps[None]:
        """Wait for the end of what an earlier run left, and cancel it if runs end with their job."""
        outage = _Outage()
        noted = False
        while True:
            found = yield from self._do(Probe(record.attempt, record))
            action = decide_earlier(found.status, existed=found.existed)
            yield from self._note_reach(outage, found, action)
            if action is Action.NEXT:
                return
            stop = yield from self._stop()
            if stop is not None:
                raise self._stopped(stop)
            if action is Action.WAIT_KNOWN:
                yield from self._pause(outage, found)
                continue
            if not noted:
                noted = True
                yield from self._log(f"{found.handle}, of an earlier run: waiting for its end")
            try:
                if self.state.options.on_kill == "cancel":  # whoever asks again meant it to end
                    yield from self._do(Cancel(found.handle))
            except AppNotFound:
                pass  # that is seen next
            except SchedulerUnavailable:
                yield from self._do(WaitUntil(self._moment.steady + LONGEST_PAUSE))
                continue
            yield from self._wait_for_end(found.handle)

    def _find_attempt(self, record: AttachRecord | None) -> Steps[Attached]:
        """Walk the attempts, from the stored one on, to the first that is not answered yet."""
        first = 0
        if record is not None:
            first = record.attempt
        if record is not None and record.lost:
            first += 1
        gone: AttachRecord | None = None
        for attempt in count(first):
            stored = None
            if record is not None and record.attempt == attempt:
                stored = record
            action, found = yield from self._decision(attempt, stored)
            if action is Action.LOST:
                yield from self._lose(self._record(attempt, found.handle))
            elif action is Action.GONE:
                gone = self._record(attempt, found.handle)
                if stored is not None:
                    gone.cluster = stored.cluster
            elif action is Action.NEXT:
                gone = None
            elif action is Action.SUBMIT:
                if gone is not None and not self.state.options.loss_already_reported:
                    yield from self._lose(gone)
                return (yield from self._submit(attempt))
            else:
                return (yield from self._attach(attempt, action, found))
        raise AssertionError("attempts do not end")

    def _decision(self, attempt: int, stored: AttachRecord | None) -> Steps[tuple[Action, Probed]]:
        """Return what to do about an attempt, once that can be said."""
        options = self.state.options
        outage = _Outage()
        handle_stored = stored is not None and stored.handle is not None and not stored.lost
        noted = False
        while True:
            found = yield from self._do(Probe(attempt, stored))
            action = decide(
                found.status,
                options.resubmit_on,
                existed=found.existed,
                handle_stored=handle_stored,
            )
            yield from self._note_reach(outage, found, action)
            if action in (Action.NEXT, Action.GONE):  # a later attempt may be the one that runs
                return action, found
            stop = yield from self._stop()
            if stop is not None:
                if action is not Action.SUBMIT:
                    self.state.intended = found.handle
                    yield from self._undo()
                raise self._stopped(stop)
            if action is Action.WAIT_KNOWN:
                yield from self._pause(outage, found)
            elif action is Action.WAIT_END:
                if not noted:
                    noted = True
                    text = f"{found.handle}, which is being cancelled: waiting for its end"
                    yield from self._log(text)
                yield from self._wait_for_end(found.handle)
            else:
                return action, found

    def _attach(self, attempt: int, action: Action, found: Probed) -> Steps[Attached]:
        state = self.state
        state.intended = found.handle
        if action is Action.ATTACH:
            text = f"attached to {found.handle} ({_name(found.status)}); nothing was submitted"
            yield from self._log(text)
        if found.here:
            yield from self._compare(attempt, found)
        else:
            text = f"{found.handle} was submitted to another place than the present settings name"
            yield from self._log(text)
        yield from self._do(Save(self._record(attempt, found.handle)))
        return (yield from self._started(attempt, action, found.handle, found.status))

    def _compare(self, attempt: int, found: Probed) -> Steps[None]:
        """Log it if the running job differs from what would be submitted now."""
        if not found.digest:
            return
        with suppress(TransloadError):
            prepared = yield from self._do(Prepare(attempt))
            if prepared.digest != found.digest:
                text = f"{found.handle} was submitted with another definition than the present one"
                yield from self._log(text)

    def _submit(self, attempt: int | None) -> Steps[Attached]:
        stop = yield from self._stop()
        if stop is not None:
            raise self._stopped(stop)
        prepared = yield from self._do(Prepare(attempt))
        handle = prepared.handle
        if attempt is not None:
            intended = self._record(attempt, handle)
            yield from self._do(Save(replace(intended, handle=None)))
        self.state.intended = handle
        try:
            handle = yield from self._do(Submit(handle))
        except AppExists:  # somebody submitted it between the probe and the submit
            yield from self._log(
                f"{handle} is there already, with another definition; attached to it, nothing was "
                "submitted"
            )
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._undo()
            raise
        if attempt is not None:
            yield from self._do(Save(self._record(attempt, handle)))
        yield from self._undo()
        return (yield from self._started(attempt, Action.SUBMIT, handle, None))

    def _started(
        self, attempt: int | None, action: Action, handle: str, status: AppStatus | None
    ) -> Steps[Attached]:
        self.state.handle = handle
        self.state.attempt = attempt
        if status is not None:
            yield from self._note_status(status)
        app_id = parse_app_handle(handle).app_id
        return Attached(handle, app_id, attempt, action, status)

    def _record(self, attempt: int, handle: str) -> AttachRecord:
        app = parse_app_handle(handle)
        generation = self.state.identity.generation
        return AttachRecord(generation, attempt, app.app_id, app.scheduler_backend, handle)

    def _lose(self, record: AttachRecord) -> Steps[None]:
        """Store that an attempt is lost, and raise that."""
        yield from self._do(Save(replace(record, lost=True)))
        raise AppLost(str(record.handle))

    # -- waits of the start

    def _note_reach(self, outage: _Outage, found: Probed, action: Action) -> Steps[None]:
        """Log when a scheduler cannot be reached, and when it can again."""
        away = action is Action.WAIT_KNOWN
        was_away = outage.since is not None
        if not away:
            outage.since = None
        elif not was_away:
            outage.since = self._moment.steady
        if away is not was_away:
            yield from self._log(reach(found.handle, away, _message(found.status)))

    def _pause(self, outage: _Outage, found: Probed) -> Steps[None]:
        """Wait until the next probe.

        Raises:
            StateUnknown: if patience is exhausted.
        """
        now = self._moment.steady
        waited = _seconds_since(outage.since, now)
        left = self.state.options.patience - waited
        if left <= 0:
            raise StateUnknown(found.handle, waited, _message(found.status))
        seconds = min(outage.pause, left, self._seconds_to_deadline())
        outage.pause = backoff(outage.pause, LONGEST_PAUSE)
        yield from self._do(WaitUntil(now + seconds))

    def _wait_for_end(self, handle: str) -> Steps[None]:
        """Wait until a job has ended, or the step is to stop.

        Raises:
            StateUnknown: if patience is exhausted.
        """
        while True:
            seen = yield from self._do(Observe(handle, self._seconds_to_deadline()))
            if (yield from self._stop()):
                return
            if seen is not None and ended(seen):
                return

    def _seconds_to_deadline(self) -> float:
        deadline = self.state.options.deadline
        if deadline is None:
            return FOREVER
        return max(0.0, deadline - self._moment.epoch)

    # -- follow

    def follow(self, moment: Moment) -> Steps[AppStatus]:
        """Wait until the job has ended; return its final status.

        Raises:
            AppLost: if it is gone.
            StateUnknown: if patience is exhausted; the job goes on.
            TransloadTimeout: if a limit passed; the job was cancelled.
            Detached: if the step was ended, and the job is to go on.
        """
        self._moment = moment
        handle = self._need_handle()
        while not _has_ended(self.state.status):
            waited = _seconds_since(self.state.unknown_since, self._moment.steady)
            observe = Observe(handle, self._seconds_to_act(), waited, logs=True)
            seen = yield from self._do(observe)
            yield from self.look(self._moment, seen)
        yield from self._do(FinishLogs(handle))
        assert self.state.status is not None
        return self.state.status

    def look(self, moment: Moment, seen: Observation | None) -> Steps[None]:
        """Act on an observation, on a kill and on limits; None: nothing new was seen.

        Raises:
            TransloadError: as `follow` does.
        """
        self._moment = moment
        handle = self._need_handle()
        if seen is not None:
            if seen.status is None:
                yield from self.lose(moment)
                raise AppLost(handle)
            yield from self._note_status(seen.status)
            if seen.status.is_terminal():
                return
        stop = yield from self._stop()
        if stop == "detach":
            raise Detached(handle, asked=self.state.options.on_kill == "detach")
        if stop == "cancel":
            yield from self._cancel_when_due(handle)
        if seen is not None and seen.exhausted:
            raise StateUnknown(handle, seen.unknown_for, _message(seen.status))
        if self.state.passed is not None and self.state.cancelled:
            raise TransloadTimeout(f"{handle} was cancelled: {self.state.passed}")

    def lose(self, moment: Moment) -> Steps[None]:
        """Store that the job is gone, so that the next try answers with the next attempt."""
        self._moment = moment
        record = yield from self._do(Load())
        if record is not None and record.handle == self.state.handle:
            yield from self._do(Save(replace(record, lost=True)))

    def _seconds_to_act(self) -> float:
        """Return the seconds until there is something to do besides taking observations."""
        state = self.state
        seconds = FOREVER
        if state.passed is None:
            limit, _ = next_limit(state.options, state.first_seen)
            seconds = limit - self._moment.epoch
        ends = self._moment.killed or state.passed is not None
        if ends and not state.cancelled:
            again = max(self._cancel_due - self._moment.steady, 0.01)
            seconds = min(seconds, again)
        return max(0.0, seconds)

    def _note_status(self, status: AppStatus) -> Steps[None]:
        """Take over what was seen, and tell people what is new."""
        state = self.state
        before = state.status
        handle = self._need_handle()
        was_away = state.unknown_since is not None
        away = status.state is AppState.UNKNOWN
        if not away:
            state.unknown_since = None
        elif state.unknown_since is None:
            state.unknown_since = self._moment.steady
        if away is not was_away:
            yield from self._log(reach(handle, away, status.msg))
        reason = status.why_waiting()
        reason_before = None
        if before is not None:
            reason_before = before.why_waiting()
        if reason and reason != reason_before:
            yield from self._log(f"{handle} is {status.state}: {reason}")
        state.status = status
        note_state(state.first_seen, status.state, self._moment.epoch)
        if status != before:
            yield from self._do(Note(status=status))

    # -- ends that come from outside

    def give_up(self, moment: Moment) -> Steps[bool]:
        """Cancel the job now if it is to end with the step: nobody waits for it any more.

        Returns:
            False if it is to end, and the cancel did not come through.
        """
        self._moment = moment
        handle = self.state.handle or self.state.intended
        stop = yield from self._stop()
        if stop != "cancel" or self.state.cancelled or handle is None:
            return True
        self._cancel_due = 0.0
        yield from self._cancel_when_due(handle)
        return self.state.cancelled

    def cancel(self, moment: Moment) -> Steps[bool]:
        """Cancel the job, if there is one, whatever ``on_kill`` says.

        Returns:
            False if that did not come through.
        """
        self._moment = moment
        handle = self.state.handle or self.state.intended
        if handle is None:
            return True
        return (yield from self._cancel(handle))

    def _stop(self) -> Steps[OnKill | None]:
        """Return what is to become of the job; None: nothing has ended the step, and no limit has
        passed.
        """
        state = self.state
        if state.passed is None:
            limit, what = next_limit(state.options, state.first_seen)
            if self._moment.epoch >= limit:
                state.passed = what
        if state.passed is not None:
            return "cancel"
        if not self._moment.killed:
            return None
        if state.options.on_kill == "detach":
            return "detach"
        asked = yield from self._do(Ask(state.handle or state.intended))
        if asked:
            return "cancel"
        return "detach"

    def _stopped(self, stop: OnKill) -> TransloadError:
        """Return the error of a step that ended before its job was there."""
        state = self.state
        if state.passed is None:
            asked = stop == "cancel" or state.options.on_kill == "detach"
            return Detached(None, asked=asked)
        if state.intended is None:
            return TransloadTimeout(f"nothing was submitted: {state.passed}")
        if state.cancelled:
            return TransloadTimeout(f"{state.intended} was cancelled: {state.passed}")
        return TransloadTimeout(f"{state.intended} could not be cancelled: {state.passed}")

    def _undo(self) -> Steps[None]:
        """Cancel what may have been submitted, if the step was to end in the middle of it."""
        handle = self.state.intended
        if handle is None:
            return
        stop = yield from self._stop()
        if stop == "cancel":
            self.state.cancelled = yield from self._cancel(handle)

    def _cancel_when_due(self, handle: str) -> Steps[None]:
        """Cancel a job; try again, with growing pauses, until that came through."""
        now = self._moment.steady
        if self.state.cancelled or now < self._cancel_due:
            return
        self._cancel_due = now + self._cancel_pause
        self._cancel_pause = backoff(self._cancel_pause, LONGEST_CANCEL_PAUSE)
        self.state.cancelled = yield from self._cancel(handle)

    def _cancel(self, handle: str) -> Steps[bool]:
        """Cancel a job; return False, and log why once, if that did not come through."""
        try:
            yield from self._do(Cancel(handle))
        except AppNotFound:
            return True
        except Exception as exc:  # an error that nobody foresaw is no reason to forget it
            reason = str(exc)
            if reason != self._reason_not_cancelled:
                self._reason_not_cancelled = reason
                yield from self._log(f"{handle} could not be cancelled: {reason}")
            return False
        return True

    # -- the end

    def collect(self, moment: Moment, status: AppStatus | None = None) -> Steps[AppResults]:
        """Return the results of a job that has ended well; its state decides that.

        Args:
            moment: now.
            status: its final status; None: what was seen last.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            TransloadTimeout: if it was cancelled because a limit had passed.
            ConfigError: if it has not ended.
        """
        self._moment = moment
        handle = self._need_handle()
        status = status or self.state.status
        if status is None or not status.is_terminal():
            seen = _name(status, "not seen yet")
            raise ConfigError(f"{handle} has not ended ({seen}): follow it first")
        succeeded = status.state is AppState.SUCCEEDED
        cancelled = status.state is AppState.CANCELLED
        timed_out = cancelled and self.state.passed is not None
        explain = not succeeded and not timed_out
        found = yield from self._do(Collect(handle, status, explain))
        if timed_out:
            raise TransloadTimeout(f"{handle} was cancelled: {self.state.passed}")
        if cancelled:
            raise AppCancelled(status, cast("str", found))
        if not succeeded:
            raise AppFailed(status, cast("str", found))
        return cast("AppResults", found)

    # -- parts

    def _need_handle(self) -> str:
        if self.state.handle is None:
            raise ConfigError("there is no job yet: call start() first")
        return self.state.handle

    def _log(self, text: str) -> Steps[None]:
        yield from self._do(Note(text))


@dataclass
class _Outage:
    """Since when a scheduler cannot say what becomes of a job, and how long the next pause is."""

    since: float | None = None
    pause: float = FIRST_PAUSE


def _seconds_since(since: float | None, steady: float) -> float:
    if since is None:
        return 0.0
    return steady - since


def _has_ended(status: AppStatus | None) -> bool:
    return status is not None and status.is_terminal()


def _message(status: AppStatus | None) -> str:
    if status is None:
        return ""
    return status.msg


def _name(status: AppStatus | None, otherwise: str = "unknown") -> str:
    if status is None:
        return otherwise
    return str(status.state)
