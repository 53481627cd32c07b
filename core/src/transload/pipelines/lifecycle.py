"""Decide what happens to the job of an orchestrator's step, from its submit to its results.

This includes reattaching, time limits, kills and lost jobs. The decisions are made without I/O. Each
method of `Lifecycle` is a generator that yields effects and is sent an `Answer` for each of them.
``drivers.py`` carries the effects out. `LifecycleState` has everything that must survive a process.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from transload.pipelines.attach import Attached, AttachRecord, decide_earlier
from transload.pipelines.chain import Action, Again, Newest, decide, is_own, refuse
from transload.pipelines.errors import AppCancelled, AppLost, Detached, StillRunning
from transload.pipelines.identity import Identity, chain_of, where
from transload.pipelines.log_lines import reach
from transload.pipelines.options import ExecutionOptions, OnKill, next_limit, note_state
from transload.pipelines.status_lines import Reported, new_interruptions, status_lines
from transload.runner.schedulers import Cluster
from transload.schedulers.patience import backoff
from transload.schedulers.subscription import Observation, ended
from transload.specs import AppState, AppStatus, parse_app_handle
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.runner import AppResults

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""The first and the longest pause, in seconds, between two probes of an unreachable scheduler."""

FIRST_CANCEL_PAUSE: Final = 1.0
LONGEST_CANCEL_PAUSE: Final = 30.0
"""The first and the longest pause, in seconds, before a failed cancel is tried again."""

FIRST_SAVE_PAUSE: Final = 1.0
LONGEST_SAVE_PAUSE: Final = 30.0
"""The first and the longest pause, in seconds, before a refused record is saved again."""

SHORTEST_SHOW_PAUSE: Final = 1.0
"""The shortest pause, in seconds, between two changes of the orchestrator's display."""
SHOW_PAUSE_RATIO: Final = 9.0
"""A pause is at least so many times as long as the change of the display before it took."""

FOREVER: Final = float("inf")

_WHY_IT_ENDS: Final = {
    Action.WAIT_END: "which is being cancelled",
    Action.END: "of an earlier run",
}
"""Why the end of a job is waited for before the next one is submitted."""


# -- effects and their answers


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an answer, and whether the orchestrator's step had been killed by then.

    ``epoch`` is ``time.time()``, which limits use. ``steady`` is ``time.monotonic()``, which pauses
    and the unreachable timeout use.
    """

    epoch: float
    steady: float
    killed: bool = False

    @staticmethod
    def now(killed: bool = False) -> Moment:
        """Return the present moment."""
        return Moment(time.time(), time.monotonic(), killed)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an effect, which is a value or an exception."""

    moment: Moment
    value: object = None
    error: BaseException | None = None


class Effect(Generic[T]):
    """An instruction of a lifecycle to its driver. ``T`` is the type of the answer's value."""

    __slots__ = ()


Steps = Generator[Effect[Any], Answer, T]
"""A generator that yields effects one after the other, and returns a result."""


@dataclass(frozen=True)
class Load(Effect["AttachRecord | None"]):
    """Read the record of the job in the orchestrator's store."""


@dataclass(frozen=True)
class Save(Effect[None]):
    """Save a record in the orchestrator's store. The driver adds the options and the cluster."""

    record: AttachRecord


@dataclass(frozen=True)
class Look(Effect[Newest]):
    """Ask the scheduler for the newest job of the step, and use its cluster from now on.

    ``hint`` is what the orchestrator has stored. It may name another place, which is asked too.
    """

    hint: AttachRecord | None = None


@dataclass(frozen=True)
class Probe(Effect[Newest]):
    """Ask about the one job of a record, where it was submitted, and use its cluster from now on."""

    stored: AttachRecord


@dataclass(frozen=True, slots=True)
class Prepared:
    """The handle that a job will get, and the digest of its definition."""

    handle: str
    digest: str


@dataclass(frozen=True)
class Prepare(Effect[Prepared]):
    """Build the job of a number with the current settings.

    ``anew`` says that a person asks anew, so that it finds no checkpoints of the jobs before it.
    """

    attempt: int
    anew: bool = False


@dataclass(frozen=True)
class Submit(Effect[bool]):
    """Submit the prepared job. The answer tells whether this has started it."""

    handle: str


@dataclass(frozen=True)
class Observe(Effect["Observation | None"]):
    """Wait for the next observation of a job, for at most ``seconds``, or until a kill.

    ``unknown_for`` is the number of seconds of UNKNOWN that have passed already. With ``logs``, the
    driver passes on log lines meanwhile.
    """

    handle: str
    seconds: float
    unknown_for: float = 0.0
    logs: bool = False


@dataclass(frozen=True)
class WaitUntil(Effect[None]):
    """Wait until a time of the monotonic clock."""

    steady: float


@dataclass(frozen=True)
class Ask(Effect[bool]):
    """Ask the orchestrator whether the end of the step was requested."""

    handle: str | None


@dataclass(frozen=True)
class Cancel(Effect[None]):
    """Ask a scheduler to cancel a job."""

    handle: str


@dataclass(frozen=True)
class FinishLogs(Effect[None]):
    """Pass on the remaining log lines of a job that has ended, as far as ``patience`` lasts."""

    handle: str
    patience: float


@dataclass(frozen=True)
class Note(Effect[None]):
    """Write a line to the log, or report a new status to listeners."""

    text: str = ""
    status: AppStatus | None = None


@dataclass(frozen=True)
class Allowed(Effect["int | None"]):
    """Return how many interruptions a role of a job may have, or None if that is not known."""

    handle: str
    role: str


@dataclass(frozen=True)
class Show(Effect[None]):
    """Show how far a job is in the orchestrator's own way. It never fails."""

    handle: str
    status: AppStatus


@dataclass(frozen=True)
class Collect(Effect["AppResults | str"]):
    """Log how a job has ended, and return its results.

    With ``explain``, the job did not succeed, and the answer is the message that says why. A
    scheduler that is unreachable is asked again, for ``patience`` seconds.
    """

    handle: str
    status: AppStatus
    explain: bool
    patience: float


# -- the state that survives a process


@dataclass
class LifecycleState:
    """The state of a lifecycle, without secrets.

    Attributes:
        identity: the identity of the orchestrator's step.
        options: the options of the step.
        handle: the job, once it was submitted or reattached.
        intended: the job that is probed or submitted while there is no ``handle`` yet.
        attempt: the number of the job in its chain, once it was submitted or reattached.
        cluster: the cluster of the job, if another process has chosen it.
        status: the last status that was seen.
        first_seen: when the job was first seen in a state with a time limit (see `note_state`).
        unknown_since: when its state became UNKNOWN, on the monotonic clock of this process.
        passed: the limit that has passed, in words.
        cancelled: whether the scheduler has accepted a cancel.
        cursor: the place in its logs up to which lines were passed on.
        place: the machine of the process that submitted it (see `where`).
        reported: what the orchestrator's log and display have of the running job.
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
    reported: Reported = field(default_factory=Reported)

    def to_dict(self, now: Moment | None = None) -> dict[str, Any]:
        """Return the state as JSON values.

        All times become seconds from now, since another machine may have another clock.
        """
        now = now or Moment.now()
        identity = self.identity
        options = self.options
        values: dict[str, Any] = {
            "schema": SCHEMA,
            "handle": self.handle,
            "cluster": None,
            "attempt": self.attempt,
            "identity": [identity.host, list(identity.run), list(identity.path)],
            "options": replace(options, deadline=None).to_dict(),
            "status": None,
            "cursor": self.cursor,
            "counts": {state: now.epoch - since for state, since in self.first_seen.items()},
            "unknown_for": _seconds_since(self.unknown_since, now.steady),
            "place": self.place,
            "written": [where(), now.epoch],
        }
        if options.deadline is not None:
            values["seconds_left"] = options.deadline - now.epoch
        if self.cluster is not None:
            values["cluster"] = self.cluster.to_dict()
        if self.status is not None:
            values["status"] = self.status.to_json()
        if self.passed is not None:
            values["passed"] = self.passed
        if self.cancelled:
            values["cancelled"] = True
        reported = self.reported.to_dict()
        if reported:
            values["reported"] = reported
        return values

    @staticmethod
    def from_dict(data: Mapping[str, Any], now: Moment | None = None) -> LifecycleState:
        """Create a state from the values of `to_dict`.

        How long they were under way is known only on the machine that wrote them. Elsewhere its
        limits go on where they stood.

        Raises:
            SpecError: if it is not such a state, or has a newer version.
        """
        with reading("state of an execution", data) as values:
            now = now or Moment.now()
            host, run, path = values["identity"]
            writer, written = values["written"]
            under_way = max(0.0, now.epoch - written) if writer == where() else 0.0
            state = LifecycleState(
                Identity(host, tuple(run), tuple(path)),
                ExecutionOptions.from_dict(values["options"]),
                handle=values["handle"],
                attempt=values["attempt"],
                first_seen={
                    state: now.epoch - under_way - ago for state, ago in values["counts"].items()
                },
                passed=values.get("passed"),
                cancelled=bool(values.get("cancelled")),
                cursor=values.get("cursor"),
                place=values.get("place") or where(),
                reported=Reported.from_dict(values.get("reported") or {}),
            )
            if values.get("cluster"):
                state.cluster = Cluster.from_dict(values["cluster"])
            if values.get("status"):
                state.status = AppStatus.from_json(values["status"])
            if values.get("unknown_for"):
                state.unknown_since = now.steady - under_way - values["unknown_for"]
            if "seconds_left" in values:
                state.options.deadline = now.epoch - under_way + values["seconds_left"]
            return state


# -- the decisions


class Lifecycle:
    """Decides what happens to one job.

    `run` does everything. An orchestrator that defers runs the parts `start`, `follow` and `collect`
    in different processes. An orchestrator that polls calls `look` with each observation.

    Args:
        state: what is known of the job.
        has_store: the orchestrator has a store, which says whether a loss was reported.
    """

    def __init__(self, state: LifecycleState, *, has_store: bool = True) -> None:
        self.state = state
        self._has_store = has_store
        self._hint: AttachRecord | None = None
        self._is_hidden = False
        self._moment = Moment(0.0, 0.0)
        self._cancel_due = 0.0
        self._cancel_pause = FIRST_CANCEL_PAUSE
        self._reason_not_cancelled = ""
        self._unsaved: AttachRecord | None = None
        self._save_due = 0.0
        self._save_pause = FIRST_SAVE_PAUSE
        self._reason_not_saved = ""
        self._show_due = 0.0

    def _do(self, effect: Effect[T]) -> Steps[T]:
        """Yield an effect to the driver, and return its value or raise its exception."""
        answer = yield effect
        self._moment = answer.moment
        if answer.error is not None:
            raise answer.error
        return cast("T", answer.value)

    def run(self, moment: Moment) -> Steps[AppResults]:
        """Submit the job or reattach to it, wait for its end, and return the results."""
        yield from self.start(moment)
        status = yield from self.follow(self._moment)
        return (yield from self.collect(self._moment, status))

    # -- attach or submit

    def start(self, moment: Moment) -> Steps[Attached]:
        """Submit the job or reattach to it. The result says which of them was done.

        Raises:
            AppLost: if it was started and is gone.
            StateUnknown: if the unreachable timeout has passed, or a job that is to end first still
                runs after that time.
            SubmitError: if the scheduler did not accept it.
            Detached: if the step was killed before anything was submitted, or a later try of the
                step has submitted a job.
            TransloadTimeout: if a limit passed before the job was submitted.
            SpecError: if the app definition is wrong.
            ConfigError: if the scheduler or an option is unknown, or a job that may be another
                installation's runs under the step's name.
        """
        self._moment = moment
        hint = yield from self._do(Load())
        if hint is not None and hint.chain != chain_of(self.state.identity):
            yield from self._wait_for_earlier_identity(hint)
            hint = None
        return (yield from self._go_on(hint))

    def _wait_for_earlier_identity(self, record: AttachRecord) -> Steps[None]:
        """Wait for the end of the job that the step had under an earlier identity.

        It is cancelled first, unless ``on_kill`` is ``detach``.
        """
        outage = _Outage()
        ending = _Outage()
        wait_is_logged = False
        while True:
            found = yield from self._do(Probe(record))
            action = decide_earlier(found)
            yield from self._note_reach(outage, found, action)
            if action is Action.NEXT:
                return
            stop = yield from self._stop()
            if stop is not None:
                raise self._stopped(stop)
            if action is Action.WAIT_KNOWN:
                yield from self._pause(outage, found)
                continue
            if not wait_is_logged:
                wait_is_logged = True
                yield from self._log(f"{found.handle}, of an earlier run: waiting for its end")
            yield from self._wait_for_end_in_time(str(found.handle), ending)

    def _end_of_another(self, handle: str) -> Steps[bool]:
        """Cancel a job that is to end before the step runs again, unless ``on_kill`` is ``detach``.

        Returns:
            False if its scheduler could not be asked.
        """
        if self.state.options.on_kill == "detach":
            return True
        try:
            yield from self._do(Cancel(handle))
        except AppNotFound:
            pass  # the next look reports it
        except SchedulerUnavailable:
            yield from self._do(WaitUntil(self._moment.steady + LONGEST_PAUSE))
            return False
        return True

    def _go_on(self, hint: AttachRecord | None) -> Steps[Attached]:
        """Attach to the newest job of the chain, or submit the next one.

        Whoever submits for the step competes for one id. Who loses looks again.
        """
        clash = _Outage()
        while True:
            action, newest = yield from self._decision(hint)
            if action in (Action.ATTACH, Action.COLLECT):
                return (yield from self._attach(action, newest))
            if action is Action.GONE:
                yield from self._report_loss(newest, hint)
            number = 0 if newest.number is None else newest.number + 1
            prepared = yield from self._prepare(number, anew=not newest.again.is_same)
            try:
                attached = yield from self._submit(prepared, number)
            except AppExists:
                if not (yield from self._pause_after_clash(clash)):
                    raise
                continue
            if attached is not None:
                return attached
            if not (yield from self._pause_after_clash(clash)):
                why = "another process has submitted it, and its scheduler does not list it"
                raise StateUnknown(prepared.handle, self.state.options.patience, why)

    def _decision(self, hint: AttachRecord | None) -> Steps[tuple[Action, Newest]]:
        """Look at the newest job until it is clear what to do, and return that and the job."""
        outage = _Outage()
        ending = _Outage()
        wait_is_logged = False
        while True:
            newest = yield from self._look_at_newest(hint)
            action = decide(newest, self.state.options.resubmit_on)
            yield from self._note_reach(outage, newest, action)
            refuse(action, newest)
            yield from self._stop_before_start(action, newest)
            if action is Action.WAIT_KNOWN:
                yield from self._pause(outage, newest)
                continue
            if action not in (Action.WAIT_END, Action.END):
                return action, newest
            handle = str(newest.handle)
            if not wait_is_logged:
                wait_is_logged = True
                yield from self._log(f"{handle}, {_WHY_IT_ENDS[action]}: waiting for its end")
            if action is Action.WAIT_END:
                yield from self._wait_for_end(handle)
            else:
                yield from self._wait_for_end_in_time(handle, ending)

    def _look_at_newest(self, hint: AttachRecord | None) -> Steps[Newest]:
        self._hint = hint
        newest = yield from self._do(Look(hint))
        self._is_hidden = newest.handle is None
        return newest

    def _stop_before_start(self, action: Action, newest: Newest) -> Steps[None]:
        """Raise if the step was killed, or a limit has passed, and end the job if it is the step's."""
        stop = yield from self._stop()
        if stop is None:
            return
        if is_own(action, newest):
            self.state.intended = newest.handle
            yield from self._undo()
        raise self._stopped(stop)

    def _wait_for_end_in_time(self, handle: str, ending: _Outage) -> Steps[None]:
        """Have a job end, and wait for that, for as long as the patience lasts.

        Raises:
            StillRunning: if it has not ended by then.
        """
        if ending.since is None:
            ending.since = self._moment.steady
            if not (yield from self._end_of_another(handle)):
                ending.since = None
                return
        waited = _seconds_since(ending.since, self._moment.steady)
        left = self.state.options.patience - waited
        if left <= 0:
            raise StillRunning(handle, waited)
        yield from self._wait_for_end(handle, left)

    def _report_loss(self, newest: Newest, hint: AttachRecord | None) -> Steps[None]:
        """Raise if the newest job is gone, unless that was reported already.

        The store says so. One that does not know of the job was emptied since then.
        """
        handle = str(newest.handle)
        number = cast("int", newest.number)
        stored = None
        if hint is not None and hint.attempt == number:
            stored = hint
        was_reported = self.state.options.loss_already_reported or newest.again is not Again.NO
        if stored is not None:
            was_reported = was_reported or stored.lost
        elif self._has_store:
            was_reported = True
        if was_reported:
            yield from self._log(f"{handle} is gone: the next job is submitted")
            return
        why = ""
        if newest.elsewhere:
            why = (
                "it was submitted on another machine, and may run there: this scheduler's jobs are "
                "seen from their own machine only"
            )
        record = stored or self._record(number, handle)
        yield from self._save_if_possible(replace(record, lost=True))
        raise AppLost(handle, why)

    def _pause_after_clash(self, clash: _Outage) -> Steps[bool]:
        """Wait a moment, since an id was taken meanwhile. False: it has been so for too long."""
        now = self._moment.steady
        if clash.since is None:
            clash.since = now
        if now - clash.since >= self.state.options.patience:
            return False
        pause = clash.pause
        clash.pause = backoff(pause, LONGEST_PAUSE)
        yield from self._do(WaitUntil(now + pause))
        return True

    def _attach(self, action: Action, newest: Newest) -> Steps[Attached]:
        state = self.state
        handle = str(newest.handle)
        number = cast("int", newest.number)
        state.intended = handle
        if action is Action.ATTACH:
            text = f"attached to {handle} ({_name(newest.status)}); nothing was submitted"
            yield from self._log(text)
        if newest.here:
            yield from self._compare(newest, number)
        else:
            text = f"{handle} was submitted to another place than the present settings name"
            yield from self._log(text)
        yield from self._save_or_later(self._record(number, handle))
        return (yield from self._started(number, action, handle, newest.status))

    def _compare(self, newest: Newest, number: int) -> Steps[None]:
        """Log if the running job has another definition than a submit would have now."""
        if not newest.digest:
            return
        with suppress(TransloadError):
            prepared = yield from self._do(Prepare(number))
            if prepared.digest != newest.digest:
                text = f"{newest.handle} was submitted with another definition than the present one"
                yield from self._log(text)

    def _prepare(self, number: int, *, anew: bool = False) -> Steps[Prepared]:
        """Build the job that is to be submitted."""
        stop = yield from self._stop()
        if stop is not None:
            raise self._stopped(stop)
        return (yield from self._do(Prepare(number, anew)))

    def _submit(self, prepared: Prepared, number: int) -> Steps[Attached | None]:
        """Submit the prepared job. The result is None if another process has submitted one.

        Raises:
            AppExists: if the id has another job.
        """
        handle = prepared.handle
        intended = self._record(number, handle)
        yield from self._do(Save(replace(intended, handle=None)))
        self.state.intended = handle
        try:
            is_own = yield from self._do(Submit(handle))
        except AppExists:
            self.state.intended = None
            raise
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._undo()
            raise
        if not is_own:
            self.state.intended = None
            return None
        yield from self._save_or_later(self._record(number, handle))
        yield from self._undo()
        return (yield from self._started(number, Action.SUBMIT, handle, None))

    def _started(
        self, attempt: int, action: Action, handle: str, status: AppStatus | None
    ) -> Steps[Attached]:
        self.state.handle = handle
        self.state.attempt = attempt
        if status is not None:
            yield from self._note_status(status)
        app_id = parse_app_handle(handle).app_id
        return Attached(handle, app_id, attempt, action, status)

    def _record(self, attempt: int, handle: str) -> AttachRecord:
        parsed = parse_app_handle(handle)
        chain = chain_of(self.state.identity)
        return AttachRecord(chain, attempt, parsed.app_id, parsed.scheduler_backend, handle)

    # -- records that the next try can do without

    def _save_or_later(self, record: AttachRecord) -> Steps[None]:
        """Save the record of a job that is there, now or later.

        If the store refuses it, `look` saves it later. A refusal is no failure of the step, since
        the next try finds the job by its id.
        """
        self._unsaved = record
        self._save_due = self._moment.steady
        yield from self._save_when_due()

    def _save_when_due(self) -> Steps[None]:
        """Save the record that the store has refused, unless the last try is too recent."""
        now = self._moment.steady
        if self._unsaved is None or now < self._save_due:
            return
        if (yield from self._save_if_possible(self._unsaved)):
            self._unsaved = None
            return
        self._save_due = self._moment.steady + self._save_pause
        self._save_pause = backoff(self._save_pause, LONGEST_SAVE_PAUSE)

    def _save_if_possible(self, record: AttachRecord) -> Steps[bool]:
        """Save a record. If the orchestrator's store refuses it, log why, and return False."""
        try:
            yield from self._do(Save(record))
        except TransloadError:
            raise
        except Exception as exc:
            yield from self._log_refusal(exc)
            return False
        return True

    def _log_refusal(self, error: Exception) -> Steps[None]:
        """Log a new reason for a refusal once."""
        reason = f"{type(error).__name__}: {error}"
        if reason == self._reason_not_saved:
            return
        self._reason_not_saved = reason
        yield from self._log(f"warning: the orchestrator did not store the job's record: {reason}")

    # -- waits of the start

    def _note_reach(self, outage: _Outage, found: Newest, action: Action) -> Steps[None]:
        """Log when a scheduler becomes unreachable, and when it is reachable again."""
        unreachable = action is Action.WAIT_KNOWN
        was_unreachable = outage.since is not None
        if not unreachable:
            outage.since = None
        elif not was_unreachable:
            outage.since = self._moment.steady
        if unreachable is not was_unreachable:
            what = found.handle or chain_of(self.state.identity)
            yield from self._log(reach(what, unreachable, _message(found.status)))

    def _pause(self, outage: _Outage, found: Newest) -> Steps[None]:
        """Wait until the next probe.

        Raises:
            StateUnknown: if the unreachable timeout has passed.
        """
        now = self._moment.steady
        waited = _seconds_since(outage.since, now)
        left = self.state.options.patience - waited
        if left <= 0:
            what = found.handle or chain_of(self.state.identity)
            raise StateUnknown(what, waited, _message(found.status))
        seconds = min(outage.pause, left, self._seconds_to_deadline())
        outage.pause = backoff(outage.pause, LONGEST_PAUSE)
        yield from self._do(WaitUntil(now + seconds))

    def _wait_for_end(self, handle: str, longest: float = FOREVER) -> Steps[None]:
        """Wait until a job has ended, the step was killed, or a limit has passed.

        Args:
            handle: the job.
            longest: the longest wait in seconds.

        Raises:
            StateUnknown: if the unreachable timeout has passed.
        """
        end = self._moment.steady + longest
        while True:
            seconds = min(self._seconds_to_deadline(), end - self._moment.steady)
            seen = yield from self._do(Observe(handle, seconds))
            if (yield from self._stop()):
                return
            if seen is not None and ended(seen):
                return
            if self._moment.steady >= end:
                return

    def _seconds_to_deadline(self) -> float:
        deadline = self.state.options.deadline
        if deadline is None:
            return FOREVER
        return max(0.0, deadline - self._moment.epoch)

    # -- follow

    def follow(self, moment: Moment) -> Steps[AppStatus]:
        """Wait until the job has ended, and return its final status.

        Raises:
            AppLost: if it is gone.
            StateUnknown: if the unreachable timeout has passed. The job goes on.
            TransloadTimeout: if a limit has passed. The job was cancelled.
            Detached: if the step was killed, but the job goes on.
        """
        self._moment = moment
        handle = self._need_handle()
        while not _has_ended(self.state.status):
            waited = _seconds_since(self.state.unknown_since, self._moment.steady)
            observe = Observe(handle, self._seconds_to_act(), waited, logs=True)
            seen = yield from self._do(observe)
            yield from self.look(self._moment, seen)
        yield from self._do(FinishLogs(handle, self.state.options.patience))
        assert self.state.status is not None
        return self.state.status

    def look(self, moment: Moment, seen: Observation | None) -> Steps[None]:
        """Handle an observation (None if there is no new one), a kill, and limits that have passed.

        Raises:
            TransloadError: any error of `follow`.
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
        yield from self._save_when_due()
        yield from self._show()

    def lose(self, moment: Moment) -> Steps[None]:
        """Save that the job is lost, so that the next try of the step starts the next attempt."""
        self._moment = moment
        try:
            record = yield from self._do(Load())
        except TransloadError:
            raise
        except Exception as exc:
            yield from self._log_refusal(exc)
            return
        if record is not None and record.handle == self.state.handle:
            yield from self._save_if_possible(replace(record, lost=True))

    def _seconds_to_act(self) -> float:
        """Return the seconds until the next limit, try of a cancel, or change of the display."""
        state = self.state
        seconds = FOREVER
        if state.passed is None:
            limit, _ = next_limit(state.options, state.first_seen)
            seconds = limit - self._moment.epoch
        must_end = self._moment.killed or state.passed is not None
        if must_end and not state.cancelled:
            seconds_to_cancel = max(self._cancel_due - self._moment.steady, 0.01)
            seconds = min(seconds, seconds_to_cancel)
        if self._unsaved is not None:
            seconds = min(seconds, max(self._save_due - self._moment.steady, 0.01))
        if state.status is not None and self._is_to_be_shown(state.status):
            seconds = min(seconds, max(self._show_due - self._moment.steady, 0.01))
        return max(0.0, seconds)

    def _note_status(self, status: AppStatus) -> Steps[None]:
        """Store a new status, and log or report the changes in it."""
        state = self.state
        before = state.status
        handle = self._need_handle()
        was_unknown = state.unknown_since is not None
        is_unknown = status.state is AppState.UNKNOWN
        if not is_unknown:
            state.unknown_since = None
        elif state.unknown_since is None:
            state.unknown_since = self._moment.steady
        if is_unknown is not was_unknown:
            yield from self._log(reach(handle, is_unknown, status.msg))
        state.status = status
        note_state(state.first_seen, status.state, self._moment.epoch)
        yield from self._report(handle, status)
        if status != before:
            yield from self._do(Note(status=status))

    def _report(self, handle: str, status: AppStatus) -> Steps[None]:
        """Log the new interruptions, progress, reasons and warnings of a running job."""
        state = self.state
        for each in new_interruptions(status, state.reported):
            allowed = yield from self._do(Allowed(handle, each.role))
            yield from self._log(f"{handle} was {each.in_words(allowed)}")
        if status.roles:
            state.reported.interruptions = status.interruptions
        now = self._moment.epoch
        deadline = state.options.deadline
        for line in status_lines(handle, status, state.reported, now, deadline):
            yield from self._log(line)

    def _show(self) -> Steps[None]:
        """Show another whole percent, at most once a second, and for a tenth of the time."""
        status = self.state.status
        if status is None or not self._is_to_be_shown(status):
            return
        began = self._moment.steady
        if began < self._show_due:
            return
        assert status.progress is not None
        self.state.reported.percent = status.progress.percent()
        yield from self._do(Show(self._need_handle(), status))
        took = self._moment.steady - began
        self._show_due = self._moment.steady + max(SHORTEST_SHOW_PAUSE, SHOW_PAUSE_RATIO * took)

    def _is_to_be_shown(self, status: AppStatus) -> bool:
        """Tell whether the progress of a running job differs from the one that is displayed."""
        if status.progress is None or status.is_terminal():
            return False
        return status.progress.percent() != self.state.reported.percent

    # -- kills and limits

    def give_up(self, moment: Moment) -> Steps[bool]:
        """Cancel the job if it must end together with the step, which no longer waits for it.

        Returns:
            False if the job must end, but the cancel failed.
        """
        self._moment = moment
        stop = yield from self._stop()
        if stop != "cancel" or self.state.cancelled:
            return True
        if not (yield from self._find_hidden()):
            return False
        handle = self.state.handle or self.state.intended
        if handle is None:
            return True
        self._cancel_due = 0.0
        yield from self._cancel_when_due(handle)
        return self.state.cancelled

    def cancel(self, moment: Moment) -> Steps[bool]:
        """Cancel the job, if there is one, for any ``on_kill``.

        Returns:
            False if the cancel failed.
        """
        self._moment = moment
        if not (yield from self._find_hidden()):
            return False
        handle = self.state.handle or self.state.intended
        if handle is None:
            return True
        return (yield from self._cancel(handle))

    def _find_hidden(self) -> Steps[bool]:
        """Look which job is to be cancelled, if the scheduler could not say so far.

        Returns:
            False if it still cannot.
        """
        if not self._is_hidden or self.state.handle is not None:
            return True
        newest = yield from self._look_at_newest(self._hint)
        if self._is_hidden:
            chain = chain_of(self.state.identity)
            yield from self._log_not_cancelled(chain, _message(newest.status))
        if is_own(decide(newest, self.state.options.resubmit_on), newest):
            self.state.intended = newest.handle
        return not self._is_hidden

    def _stop(self) -> Steps[OnKill | None]:
        """Return whether to cancel the job or to detach from it, or None to go on.

        A passed limit always means ``cancel``. After a kill of the step, ``on_kill`` decides, and
        ``cancel`` also needs a request for the end.
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
        """Return the error of a step that stops before it has a job."""
        state = self.state
        if state.passed is None:
            asked = stop == "cancel" or state.options.on_kill == "detach"
            return Detached(None, asked=asked)
        if self._is_hidden:
            return TransloadTimeout(f"its job could not be cancelled: {state.passed}")
        if state.intended is None:
            return TransloadTimeout(f"nothing was submitted: {state.passed}")
        if state.cancelled:
            return TransloadTimeout(f"{state.intended} was cancelled: {state.passed}")
        return TransloadTimeout(f"{state.intended} could not be cancelled: {state.passed}")

    def _undo(self) -> Steps[None]:
        """Cancel the job of a submit if the step was killed, or a limit passed, meanwhile."""
        stop = yield from self._stop()
        if stop != "cancel" or not (yield from self._find_hidden()):
            return
        if self.state.intended is not None:
            self.state.cancelled = yield from self._cancel(self.state.intended)

    def _cancel_when_due(self, handle: str) -> Steps[None]:
        """Cancel a job, unless the last failed try is too recent. The pauses grow."""
        now = self._moment.steady
        if self.state.cancelled or now < self._cancel_due:
            return
        self._cancel_due = now + self._cancel_pause
        self._cancel_pause = backoff(self._cancel_pause, LONGEST_CANCEL_PAUSE)
        self.state.cancelled = yield from self._cancel(handle)

    def _cancel(self, handle: str) -> Steps[bool]:
        """Cancel a job. If that fails, return False, and log a new reason once."""
        try:
            yield from self._do(Cancel(handle))
        except AppNotFound:
            return True
        except Exception as exc:  # the cancel is tried again after any error
            yield from self._log_not_cancelled(handle, str(exc))
            return False
        return True

    def _log_not_cancelled(self, what: str, reason: str) -> Steps[None]:
        """Log a new reason for a failed cancel once."""
        if reason == self._reason_not_cancelled:
            return
        self._reason_not_cancelled = reason
        yield from self._log(f"{what} could not be cancelled: {reason}")

    # -- the end

    def collect(
        self, moment: Moment, status: AppStatus | None = None, *, patience: float | None = None
    ) -> Steps[AppResults]:
        """Return the results of a job that has succeeded. Only its state decides that.

        Args:
            moment: the time now.
            status: its final status. None means the last one that was seen.
            patience: seconds for which a scheduler that is unreachable is asked again. None means
                those of the options.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            SchedulerUnavailable: if the results cannot be asked for that long.
            TransloadTimeout: if it was cancelled because a limit had passed.
            ConfigError: if it has not ended yet.
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
        if status.progress is not None:
            yield from self._do(Show(handle, status))
        if patience is None:
            patience = self.state.options.patience
        found = yield from self._do(Collect(handle, status, explain, patience))
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
    """Since when a wait goes on (None if there is none), and its next pause."""

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
