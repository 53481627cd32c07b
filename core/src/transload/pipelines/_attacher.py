"""Carries out the attach policy: probes, submits, stores; says when to wait, and leaves the waiting to its caller."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable, StateUnknown, TransloadError
from transload.following.patience import Patience, longer
from transload.pipelines._attach import Action, AttachRecord, decide
from transload.pipelines._errors import AppLost, Detached
from transload.runner._ids import unique_app_id
from transload.runner._submit import build
from transload.runner._travel import not_passed
from transload.specs import AppState, AppStatus, is_terminal, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines._attach import AttachStore
    from transload.pipelines._identity import Identity
    from transload.pipelines._options import ExecutionOptions
    from transload.runner import Launch, Runner
    from transload.specs import AppDef, AppDryRunInfo

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Attached:
    """How a host came by its app.

    Args:
        handle: the app.
        app_id: its id.
        attempt: which attempt of the generation it is; None where every run has an id of its own.
        action: ``submit``, ``attach`` or ``collect``.
        status: what it was seen to do; None right after a submit.
    """

    handle: str
    app_id: str
    attempt: int | None
    action: Action
    status: AppStatus | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """What to wait for before going on.

    Args:
        seconds: how long.
        ending: an app whose end is waited for; then ``seconds`` does not matter.
    """

    seconds: float
    ending: str | None = None


class Attacher:
    """One run of the attach policy for one unit of work of a host.

    Args:
        runner: submits.
        launch: what to submit, built only if it is.
        identity: whose app it is.
        options: the host's settings.
        store: the host's store; None: it has none.
        log: takes one line for people.
        known: what the host knows of the component's arguments.
        host_retries: how often the host itself retries, for the note on the product.
        killed: tells whether the host was asked to stop.
    """

    def __init__(
        self,
        runner: Runner,
        launch: Launch,
        identity: Identity,
        options: ExecutionOptions,
        store: AttachStore | None,
        log: Callable[[str], None],
        known: Mapping[str, Any],
        host_retries: int | None,
        killed: Callable[[], bool],
    ) -> None:
        self.runner = self._given = runner
        self._launch = launch
        self._identity = identity
        self._options = options
        self._store = store
        self._log = log
        self._known = dict(known)
        self._host_retries = host_retries
        self._killed = killed
        self._scheduler_name = launch.scheduler or runner.settings.scheduler
        self._stored: AttachRecord | None = None
        self._ids: dict[int, str] = {}
        self.submitting = False
        self.intended: str | None = None
        self.undone = False
        """What was submitted for a host that was stopped meanwhile has been cancelled."""

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
        if not self._options.durable:
            return self._submit(None)
        record = self._record()
        if record is not None and record.generation != self._identity.generation:
            yield from self._end_of_earlier(record)
            record = None
        start = 0 if record is None else record.attempt + (1 if record.lost else 0)
        has_handle = record is not None and record.handle is not None and not record.lost
        self._stored = record
        gone: int | None = None
        for attempt in count(start):
            action, status = yield from self._decide(attempt, has_handle and attempt == start)
            if action is Action.LOST:
                self._lost(attempt)
            elif action is Action.GONE:
                gone = attempt
            elif action is Action.NEXT:
                gone = None
            elif action is Action.SUBMIT:
                if gone is not None and not self._options.answer_lost:
                    self._lost(gone)
                return self._submit(attempt)
            else:
                return self._found(attempt, action, status)
        raise AssertionError("attempts do not end")

    def _decide(self, attempt: int, has_handle: bool) -> Generator[Wait, None, tuple[Action, AppStatus | None]]:
        """Return what to do about an attempt, once that can be said."""
        self.runner = self._runner_of(self._stored_of(attempt))
        scheduler, app_id = self._place(attempt)
        handle = self._handle(attempt)
        patience = Patience(self._options.patience)
        pause = FIRST_PAUSE
        while True:
            status, existed = self._probe(app_id, scheduler)
            action = decide(status, self._options.next_after, existed=existed, handle_stored=has_handle)
            if self._killed() and action not in (Action.NEXT, Action.GONE):  # those have a later attempt, perhaps
                self.intended = handle
                self._undo()
                raise Detached(None)
            if patience.observe(AppState.UNKNOWN if action is Action.WAIT_KNOWN else AppState.RUNNING):
                message = status.msg if status is not None else ""
                raise StateUnknown(handle, patience.elapsed or 0.0, message)
            if action is Action.WAIT_END:
                self._log(f"{handle} is being cancelled: waiting for its end")
                yield Wait(0.0, handle)
            elif action is Action.WAIT_KNOWN:
                yield Wait(min(pause, patience.left or LONGEST_PAUSE))
                pause = longer(pause, LONGEST_PAUSE)
            else:
                return action, status

    def _end_of_earlier(self, record: AttachRecord) -> Generator[Wait, None, None]:
        """Wait for the end of what an earlier generation left running."""
        self.runner = self._runner_of(record)
        handle = record.handle or make_app_handle(record.scheduler, self.runner.name(), record.app_id)
        parsed = parse_app_handle(handle)
        patience = Patience(self._options.patience)
        pause = FIRST_PAUSE
        while True:
            status, _ = self._probe(parsed.app_id, parsed.scheduler_backend)
            if status is None or is_terminal(status.state):
                return
            if patience.observe(status.state):
                raise StateUnknown(handle, patience.elapsed or 0.0, status.msg)
            if status.state is AppState.UNKNOWN:
                yield Wait(min(pause, patience.left or LONGEST_PAUSE))
                pause = longer(pause, LONGEST_PAUSE)
            else:
                self._log(f"{handle}, of an earlier run, is {status.state}: waiting for its end")
                yield Wait(0.0, handle)
            if self._killed():
                raise Detached(None)

    def _probe(self, app_id: str, scheduler: str) -> tuple[AppStatus | None, bool]:
        """Return the status of an app, and whether an absent one existed; UNKNOWN if that cannot be said."""
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
        scheduler, app_id = self._place(attempt)
        if action is Action.ATTACH:
            self._log(f"attached to {handle} ({status.state if status else 'unknown'}); nothing was submitted")
            here = self.runner is self._given and scheduler == self._scheduler_name
            if here and app_id == self._app_id(attempt):
                self._compare(handle, app_id)
            else:
                self._log(f"{handle} was submitted to another place than the present settings name")
        self._put(attempt, handle)
        return Attached(handle, app_id, attempt, action, status)

    def _submit(self, attempt: int | None) -> Attached:
        if self._killed():
            raise Detached(None)
        # what was intended once, elsewhere perhaps, never came to be
        self._stored, self.runner = None, self._given
        app_id = unique_app_id(self._launch.name) if attempt is None else self._app_id(attempt)
        info = self._dryrun(app_id)
        if not self._given._inherit_env and (missing := not_passed(info._converted, os.environ)):
            self._log(f"set here, and not passed to the app: {', '.join(missing)} (pass_env passes what it names)")
        if attempt is not None:
            self._put(attempt, None)
        self.intended, self.submitting = make_app_handle(self._scheduler_name, self.runner.name(), app_id), True
        try:
            handle = self.runner.schedule(info)
        except AppExists:
            # somebody submitted it between the question and the submit
            handle = self.intended
            self._log(f"{handle} is there already, with another definition; attached to it, nothing was submitted")
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self._undo()
            raise
        finally:
            self.submitting = False
        if attempt is not None:
            self._put(attempt, handle)
        if self._killed():
            self._undo()
        return Attached(handle, app_id, attempt, Action.SUBMIT)

    def _undo(self) -> None:
        """Cancel what may have been submitted: the host was killed in the middle of it."""
        if self._options.on_kill == "cancel" and self.intended is not None:
            try:
                self.runner.cancel(self.intended)
                self.undone = True
            except AppNotFound:
                return
            except SchedulerUnavailable as exc:
                self._log(f"{self.intended} could not be cancelled: {exc}")

    def _lost(self, attempt: int) -> NoReturn:
        handle = self._handle(attempt)
        self._put(attempt, handle, lost=True)
        raise AppLost(handle)

    # -- parts

    def _app_id(self, attempt: int) -> str:
        if attempt not in self._ids:
            made = self._identity.app_id(attempt, self._given, self._scheduler_name, self._launch.cfg)
            self._ids[attempt] = made
        return self._ids[attempt]

    def _place(self, attempt: int) -> tuple[str, str]:
        """Return scheduler and id of an attempt: where it was stored to be, whatever the settings say by now."""
        stored = self._stored_of(attempt)
        if stored is not None:
            return stored.scheduler, stored.app_id
        return self._scheduler_name, self._app_id(attempt)

    def _stored_of(self, attempt: int) -> AttachRecord | None:
        stored = self._stored
        if stored is not None and (stored.generation, stored.attempt) == (self._identity.generation, attempt):
            return stored
        return None

    def _runner_of(self, record: AttachRecord | None) -> Runner:
        """Return the runner that knows the cluster of a record."""
        given = self._given
        return given if record is None or record.cluster is None else given.with_clusters(record.cluster)

    def _handle(self, attempt: int) -> str:
        scheduler, app_id = self._place(attempt)
        return make_app_handle(scheduler, self.runner.name(), app_id)

    def _dryrun(self, app_id: str) -> AppDryRunInfo[Any]:
        """Build the app and return its request."""
        launch = replace(self._launch, scheduler=self._scheduler_name)
        return build(self._given, launch, app_id, known=self._known, change=self._retried)

    def _retried(self, app: AppDef) -> AppDef:
        """Return the app with the retries that the options leave to it."""
        note = retries_note(app, self._options, self._host_retries)
        if note:
            self._log(note)
        return without_retries(app) if self._options.retries_by == "host" else app

    def dry_run(self) -> AppDryRunInfo[Any]:
        """Return the request of the first attempt; nothing is submitted or stored."""
        return self._dryrun(self._app_id(0))

    def _compare(self, handle: str, app_id: str) -> None:
        """Log that what runs is not what would be submitted now. Never more than a remark."""
        try:
            description = self.runner.scheduler(self._scheduler_name).describe(app_id)
            known = None if description is None else description.digest
            if known and known != self._dryrun(app_id)._submission.digest:
                self._log(f"{handle} was submitted with another definition than the present one")
        except TransloadError:
            return

    def _record(self) -> AttachRecord | None:
        data = self._store.get() if self._store is not None else None
        return None if data is None else AttachRecord.from_dict(data)

    def _put(self, attempt: int, handle: str | None, *, lost: bool = False) -> None:
        if self._store is None:
            return
        scheduler, app_id = self._place(attempt)
        cfg = dict(self._launch.cfg)
        cluster = self._runner_of(self._stored_of(attempt)).cluster(scheduler)
        record = AttachRecord(self._identity.generation, attempt, app_id, scheduler, handle, cfg, lost, cluster)
        if self._store.get() != record.to_dict():
            self._store.put(record.to_dict())


def without_retries(app: AppDef) -> AppDef:
    """Return the app without retries of its own: a copy, if it has some."""
    if not any(role.max_retries for role in app.roles):
        return app
    app = copy.deepcopy(app)
    for role in app.roles:
        role.max_retries = 0
    return app


def retries_note(app: AppDef, options: ExecutionOptions, host_retries: int | None) -> str | None:
    """Return what to log once: how often the app may be started when retries multiply; None if they do not."""
    own = max((role.max_retries for role in app.roles), default=0)
    if options.retries_by != "nested" or not own or not host_retries:
        return None
    return (
        f"retries multiply: {1 + host_retries} attempts of the host × {1 + own} starts by the scheduler = "
        f"{(1 + own) * (1 + host_retries)} starts at most (retries_by='host' or 'scheduler' leaves them to one)"
    )
