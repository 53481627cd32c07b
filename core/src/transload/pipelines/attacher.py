"""Carries out the attach policy: probes, submits, stores; says when to wait, and leaves the waiting
to its caller.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from transload.errors import (
    AppExists,
    AppNotFound,
    SchedulerUnavailable,
    StateUnknown,
    TransloadError,
)
from transload.pipelines.attach import Action, AttachRecord, decide, decide_earlier
from transload.pipelines.errors import AppLost, Detached
from transload.pipelines.identity import app_id_of
from transload.pipelines.told import reach
from transload.runner.job_env import unique_app_id
from transload.schedulers.follower import emit
from transload.schedulers.patience import backoff, patience_left, unknown_for, unknown_since
from transload.schedulers.subscription import Subscription, ended
from transload.specs import AppState, AppStatus, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines.attach import AttachStore
    from transload.pipelines.identity import Identity
    from transload.pipelines.options import ExecutionOptions, OnKill
    from transload.runner import Launch, Plan, Runner
    from transload.specs import AppDef

__all__ = ["Attached"]


FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0

_said: Final[set[tuple[str, tuple[str, ...]]]] = set()
"""Variables that were told not to reach an app: once for all of its runs in this process."""


@dataclass(frozen=True, slots=True)
class Attached:
    """How a host came by its app: ``submit``, ``attach`` or ``collect``.

    ``attempt`` is that of the generation, None where every run has an id of its own; ``status`` is
    what the app was seen to do, None right after a submit.
    """

    handle: str
    app_id: str
    attempt: int | None
    action: Action
    status: AppStatus | None = None


Following = Callable[[str], AbstractContextManager[Subscription]]
"""Gives the observations of the app of a handle."""

Wait = float | str
"""What to wait for before going on: so many seconds, or the end of the app of that handle."""


@dataclass
class Attacher:
    """One run of the attach policy for one unit of work of a host, of what `Execution` takes.

    ``runner`` is the one that knows the cluster of the app, ``submitting`` tells of a submit under
    way, and ``undone`` that what was submitted for a host that was stopped meanwhile has been
    cancelled.
    """

    given: Runner  # who submits
    launch: Launch
    identity: Identity
    options: ExecutionOptions
    store: AttachStore | None
    log: Callable[[str], None]
    context_args: Mapping[str, Any]
    host_retries: int | None
    stop: Callable[[], OnKill | None]  # what is to become of the app, if something ended the unit
    kill: Callable[[], None]  # notes that something ended the unit
    cancel: Callable[[], bool]  # cancels what is intended; False if that did not come through
    submitting = undone = False
    intended: str | None = None  # the app that is being submitted, or was found
    _stored: AttachRecord | None = None

    def __post_init__(self) -> None:
        self.runner = self.given
        self._scheduler_name = self.launch.scheduler or self.given.settings.scheduler
        self._ids: dict[int, str] = {}

    # -- the whole

    def start(self, following: Following) -> Attached:
        """Walk the attempts, with ``following`` to wait for the end of an app; errors as in
        `steps`.
        """
        steps = self.steps()
        while not isinstance(step := _advance(steps), Attached):
            if isinstance(step, float):
                time.sleep(step)
                continue
            with following(step) as news:
                while not self.stop() and not ((seen := news.next(self._left())) and ended(seen)):
                    pass
        return step

    async def start_async(self, following: Following) -> Attached:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        steps = self.steps()
        while not isinstance(
            step := await asyncio.shield(asyncio.to_thread(_advance, steps)), Attached
        ):
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            with following(step) as news:
                while not self.stop() and not (
                    (seen := await news.next_async(self._left())) and ended(seen)
                ):
                    pass
        return step

    # -- the walk over the attempts

    def steps(self) -> Generator[Wait, None, Attached]:
        """Yield what to wait for, and return the app.

        Raises:
            AppLost: if it was started and is gone.
            StateUnknown: if patience is exhausted.
            SubmitError: if it was not taken.
            Detached: if the host was asked to stop before anything was submitted.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        if not self.options.durable:
            return self._submit(None)
        data = self.store.get() if self.store is not None else None
        record = None if data is None else AttachRecord.from_dict(data)
        if record is not None and record.generation != self.identity.generation:
            self._go_where(record)
            handle = record.handle or make_app_handle(
                record.scheduler, self.runner.name(), record.app_id
            )
            yield from self._settled(handle, decide_earlier)
            record = None
        start = 0 if record is None else record.attempt + (1 if record.lost else 0)
        self._stored = record
        gone: int | None = None
        for attempt in count(start):
            stored = self._go_where(self._stored_of(attempt))
            known = stored is not None and stored.handle is not None and not stored.lost
            judge = partial(decide, resubmit_on=self.options.resubmit_on, handle_stored=known)
            action, status = yield from self._settled(self._handle(attempt), judge)
            if action is Action.LOST:
                self._lost(attempt)
            elif action is Action.GONE:
                gone = attempt
            elif action is Action.NEXT:
                gone = None
            elif action is Action.SUBMIT:
                if gone is not None and not self.options.loss_already_reported:
                    self._lost(gone)
                return self._submit(attempt)
            else:
                return self._found(attempt, action, status)
        raise AssertionError("attempts do not end")

    def _settled(
        self, handle: str, judge: Callable[..., Action]
    ) -> Generator[Wait, None, tuple[Action, AppStatus | None]]:
        """Return what to do about an app, once that can be said."""
        parsed = parse_app_handle(handle)
        since, pause, told, away = None, FIRST_PAUSE, False, False
        while True:
            status, existed = self._probe(parsed.app_id, parsed.scheduler_backend)
            action = judge(status, existed=existed)
            if away is not (action is Action.WAIT_KNOWN):
                away = not away
                self.log(reach(handle, away, status.msg if status is not None else ""))
            if self.stop() and action not in (
                Action.NEXT,
                Action.GONE,
            ):  # those have a later attempt, perhaps
                if judge is not decide_earlier and action is not Action.SUBMIT:
                    self.intended = handle
                    self._undo()
                raise self._stopped()
            since = unknown_since(
                AppState.UNKNOWN if action is Action.WAIT_KNOWN else AppState.RUNNING, since
            )
            left = patience_left(self.options.patience, since)
            if left <= 0:
                raise StateUnknown(
                    handle, unknown_for(since), status.msg if status is not None else ""
                )
            if action is Action.WAIT_END:
                why = "of an earlier run" if judge is decide_earlier else "which is being cancelled"
                if not told:
                    self.log(f"{handle}, {why}: waiting for its end")
                told = True
                if (
                    judge is decide_earlier and self.options.on_kill == "cancel"
                ):  # whoever asks again meant it to end
                    try:
                        self.runner.cancel(handle)
                    except AppNotFound:
                        pass  # that is seen next
                    except SchedulerUnavailable:
                        yield LONGEST_PAUSE
                        continue
                yield handle
            elif action is Action.WAIT_KNOWN:
                yield min(pause, left, float("inf") if (limit := self._left()) is None else limit)
                pause = backoff(pause, LONGEST_PAUSE)
            else:
                return action, status

    def _probe(self, app_id: str, scheduler: str) -> tuple[AppStatus | None, bool]:
        """Return the status of an app, and whether an absent one existed; UNKNOWN if that cannot be
        said.
        """
        backend = self.runner.scheduler(scheduler)
        try:
            description = backend.describe(app_id)
            if description is not None:
                return description.status, True
            return None, backend.existed(app_id)
        except SchedulerUnavailable as exc:
            return AppStatus(AppState.UNKNOWN, msg=str(exc)), False

    # -- what comes of it

    def _found(self, attempt: int, action: Action, status: AppStatus | None) -> Attached:
        handle = self.intended = self._handle(attempt)
        app_id = parse_app_handle(handle).app_id
        if action is Action.ATTACH:
            self.log(
                f"attached to {handle} ({status.state if status else 'unknown'}); nothing was "
                "submitted"
            )
        if self.runner is self.given and handle == self._intended_handle(attempt):
            self._compare(handle, app_id)
        else:
            self.log(f"{handle} was submitted to another place than the present settings name")
        self._put(attempt, handle)
        if status is not None:
            emit(handle, status)  # nobody may have seen it so far
        return Attached(handle, app_id, attempt, action, status)

    def _submit(self, attempt: int | None) -> Attached:
        if self.stop():
            raise self._stopped()
        # what was intended once, elsewhere perhaps, never came to be
        self._stored, self.runner = None, self.given
        app_id = unique_app_id(self.launch.name) if attempt is None else self._app_id(attempt)
        info = self._dryrun(app_id)
        missing = (*info.variables_not_passed(),)
        if missing and (self.launch.name, missing) not in _said:
            if len(_said) >= 1000:  # names of launches have no end
                _said.clear()
            _said.add((self.launch.name, missing))
            self.log(
                f"set here, and not passed to the app: {', '.join(missing)} (pass_env passes what "
                "it names)"
            )
        if attempt is not None:
            self._put(attempt, None)
        self.intended, self.submitting = (
            make_app_handle(self._scheduler_name, self.runner.name(), app_id),
            True,
        )
        try:
            handle = self.runner.schedule(info)
        except AppExists:
            # somebody submitted it between the question and the submit
            handle = self.intended
            self.log(
                f"{handle} is there already, with another definition; attached to it, nothing was "
                "submitted"
            )
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self.kill()
            self._undo()
            raise
        finally:
            self.submitting = False
        if attempt is not None:
            self._put(attempt, handle)
        self._undo()
        return Attached(handle, app_id, attempt, Action.SUBMIT)

    def _stopped(self) -> Detached:
        unasked = self.stop() == "detach" and self.options.on_kill == "cancel"
        return Detached(None, asked=not unasked)

    def _undo(self) -> None:
        """Cancel what may have been submitted, if the unit was to end in the middle of it."""
        if self.stop() == "cancel" and self.intended is not None:
            self.undone = self.cancel()

    def _lost(self, attempt: int) -> NoReturn:
        self._go_where(self._stored_of(attempt))
        handle = self._handle(attempt)
        self._put(attempt, handle, lost=True)
        raise AppLost(handle)

    # -- parts

    def _left(self) -> float | None:
        """Return the seconds until the host's time limit passes, 0 or more; None if it has none."""
        return (
            None if self.options.deadline is None else max(0.0, self.options.deadline - time.time())
        )

    def _app_id(self, attempt: int) -> str:
        if attempt not in self._ids:
            made = app_id_of(self.identity, attempt)
            self._ids[attempt] = self.given.qualified_id(
                made, self._scheduler_name, self.launch.cfg
            )
        return self._ids[attempt]

    def _stored_of(self, attempt: int) -> AttachRecord | None:
        stored = self._stored
        if stored is not None and (stored.generation, stored.attempt) == (
            self.identity.generation,
            attempt,
        ):
            return stored
        return None

    def _go_where(self, record: AttachRecord | None) -> AttachRecord | None:
        """Take the runner that knows the cluster of a record; return the record."""
        cluster = None if record is None else record.cluster
        self.runner = self.given if cluster is None else self.given.with_clusters(cluster)
        return record

    def _intended_handle(self, attempt: int) -> str:
        return make_app_handle(self._scheduler_name, self.given.name(), self._app_id(attempt))

    def _handle(self, attempt: int) -> str:
        """Return the handle of an attempt: where it was stored to be, whatever the settings say by
        now.
        """
        stored = self._stored_of(attempt)
        if stored is None:
            return self._intended_handle(attempt)
        return make_app_handle(stored.scheduler, self.given.name(), stored.app_id)

    def _dryrun(self, app_id: str) -> Plan[Any]:
        """Build the app and return its request."""
        launch = replace(self.launch, scheduler=self._scheduler_name)
        return launch.plan(self.given, app_id, context_args=self.context_args, change=self._retried)

    def _retried(self, app: AppDef) -> AppDef:
        """Return the app with the retries that the options leave to it."""
        note = retries_note(app, self.options, self.host_retries)
        if note:
            self.log(note)
        return without_retries(app) if self.options.retries_by == "host" else app

    def dry_run(self) -> Plan[Any]:
        """Return the request of the first attempt; nothing is submitted or stored."""
        return self._dryrun(self._app_id(0))

    def _compare(self, handle: str, app_id: str) -> None:
        """Log it if the running app differs from what would be submitted now."""
        try:
            description = self.runner.scheduler(self._scheduler_name).describe(app_id)
            known = None if description is None else description.digest
            if known and known != self._dryrun(app_id).digest:
                self.log(f"{handle} was submitted with another definition than the present one")
        except TransloadError:
            return

    def _put(self, attempt: int, handle: str | None, *, lost: bool = False) -> None:
        if self.store is None:
            return
        at = parse_app_handle(handle or self._handle(attempt))
        cluster = self.runner.cluster(at.scheduler_backend)
        who, cfg = self.identity.generation, dict(self.launch.cfg)
        record = AttachRecord(
            who, attempt, at.app_id, at.scheduler_backend, handle, cfg, lost, cluster
        ).to_dict()
        if self.store.get() != record:
            self.store.put(record)


def _advance(steps: Generator[Wait, None, Attached]) -> Wait | Attached:
    """Return what to wait for, or the app once it is there (a StopIteration cannot cross a thread's
    future).
    """
    try:
        return next(steps)
    except StopIteration as stop:
        return cast("Attached", stop.value)


def without_retries(app: AppDef) -> AppDef:
    """Return the app without retries of its own: a copy, if it has some."""
    if not any(role.max_retries for role in app.roles):
        return app
    app = copy.deepcopy(app)
    for role in app.roles:
        role.max_retries = 0
    return app


def retries_note(app: AppDef, options: ExecutionOptions, host_retries: int | None) -> str | None:
    """Return what to log once: how often the app may be started when retries multiply; None if they
    do not.
    """
    own = max((role.max_retries for role in app.roles), default=0)
    if options.retries_by != "nested" or not own or not host_retries:
        return None
    return (
        f"retries multiply: {1 + host_retries} attempts of the host × {1 + own} starts by the "
        "scheduler = "
        f"{(1 + own) * (1 + host_retries)} starts at most (retries_by='host' or 'scheduler' leaves "
        "them to one)"
    )
