"""Carry out the effects of a lifecycle, such as questions, submits, stores and log lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import (
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    TransloadError,
)
from transload.pipelines.attach import AttachRecord
from transload.pipelines.chain import (
    AskedAnew,
    Member,
    Newest,
    first_of_asking,
    newest_of,
)
from transload.pipelines.end_requests import somebody_asked
from transload.pipelines.errors import AppLost, HandedBack
from transload.pipelines.identity import app_id_of, chain_of, where
from transload.pipelines.lifecycle import (
    Allowed,
    Ask,
    Cancel,
    Collect,
    Effect,
    FinishLogs,
    Lifecycle,
    LifecycleState,
    Load,
    Look,
    Note,
    Prepare,
    Prepared,
    Probe,
    Save,
    Show,
    Submit,
)
from transload.pipelines.log_lines import end_line
from transload.pipelines.logs import LogForwarder
from transload.pipelines.options import retries_note, without_retries
from transload.runner.failures import failure_message
from transload.runner.logs import tail
from transload.schedulers.cancelling import cancelling_for
from transload.schedulers.patience import patiently
from transload.specs import AppState, AppStatus, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines.adapter_io import AdapterIO
    from transload.runner import AppResults, Launch, Plan, Runner
    from transload.schedulers.api import AppDescription, SchedulerBase
    from transload.specs import AppDef


_SAVING: Final = (Load, Save, Submit)
"""Effects that need the orchestrator's store, or a submit."""


@dataclass(frozen=True)
class _Place:
    """Where jobs of a step are: a scheduler, and what their ids begin with there.

    ``is_present`` tells whether the present settings submit there.
    """

    runner: Runner
    scheduler: str
    prefix: str
    is_present: bool = False

    def is_same(self, other: _Place) -> bool:
        """Tell whether both are the same scheduler of the same cluster, with the same ids."""
        same_ids = (self.scheduler, self.prefix) == (other.scheduler, other.prefix)
        return same_ids and self.runner is other.runner

    def handle_of(self, number: int) -> str:
        """Return the handle of a job of the chain."""
        return make_app_handle(self.scheduler, self.runner.name(), f"{self.prefix}-{number}")

    def members(self) -> list[_Member]:
        """Ask for all jobs of the chain, oldest first."""
        found = self.runner.scheduler(self.scheduler).chain(self.prefix)
        return [
            self.member(number, each, None if each is None else each.asked)
            for number, each in found
        ]

    def member(
        self, number: int, found: AppDescription | None, asked: Mapping[str, Any] | None
    ) -> _Member:
        """Return a job of the chain here."""
        handle = self.handle_of(number)
        return _Member(handle, number, found, asked, here=self.is_present, place=self)


@dataclass(frozen=True)
class _Member(Member):
    """A job of a chain, and the place where it is."""

    place: _Place | None = None


class Effects:
    """Carries out the effects of one job's lifecycle, but those that wait.

    Args:
        launch: what to submit. None means that this process only follows and collects.
        lifecycle: what decides.
        io: whom to ask, where to keep, where to show.
        asked: the orchestrator's words of this try.
        asked_anew: compares them with those of an earlier try.

    Attributes:
        runner: the runner that knows the cluster of the job.
        was_asked: whether somebody asked for the end of the step, or None if not known yet.
        submitting: a submit is under way.
    """

    def __init__(
        self,
        launch: Launch | None,
        lifecycle: Lifecycle,
        io: AdapterIO,
        asked: Mapping[str, Any],
        asked_anew: AskedAnew | None,
    ) -> None:
        self.runner = io.runner
        self.was_asked: bool | None = None
        self.submitting = False
        self._lifecycle = lifecycle
        self._given = io.runner
        self._launch = launch
        self._io = io
        self._asked = asked
        self._asked_anew = asked_anew
        self._chain: list[_Member] = []
        self._prepared: Plan[Any] | None = None
        self._forwarder: LogForwarder | None = None
        self._display_error = ""
        self._methods: dict[type[Effect[Any]], Callable[[Any], object]] = {
            Load: self._load,
            Save: self._save,
            Look: self._look,
            Probe: self._probe,
            Prepare: self._prepare,
            Submit: self._submit,
            Cancel: self._cancel,
            Ask: self._ask,
            Note: self._note,
            Allowed: self._allowed,
            Show: self._show,
            FinishLogs: self._finish_logs,
            Collect: self._collect,
        }

    @property
    def _state(self) -> LifecycleState:
        return self._lifecycle.state

    def restore(self, state: LifecycleState) -> None:
        """Go on from a state that another process has handed over."""
        if state.cluster is not None:
            self.runner = self.runner.with_clusters(state.cluster)
            self._given = self.runner
        self._forwarder = None

    def attach(self) -> None:
        """Take a job that is known by its handle. Its logs go on where the log store says."""
        self._forwarder = None

    def stop_logs(self) -> None:
        """End the thread that passes on log lines, if there is one."""
        if self._forwarder is not None:
            self._forwarder.stop()

    def locate(self, handle: str) -> tuple[SchedulerBase, str]:
        """Return the scheduler of a job, and the job's id there."""
        parsed = parse_app_handle(handle)
        return self.runner.scheduler(parsed.scheduler_backend), parsed.app_id

    def carry_out(self, effect: Effect[Any]) -> object:
        """Carry out an effect, and return the value of its answer, or raise.

        Raises:
            HandedBack: if this process may not do that.
        """
        if not self._io.may_save and isinstance(effect, _SAVING):
            kind = type(effect).__name__
            raise HandedBack(f"{kind}: this process may neither submit nor save")
        return self._methods[type(effect)](effect)

    def _load(self, _: Load) -> AttachRecord | None:
        if self._io.store is None:
            return None
        data = self._io.store.get()
        if data is None:
            return None
        return AttachRecord.from_dict(data)

    def _save(self, effect: Save) -> None:
        if self._io.store is None:
            return
        record = effect.record
        if record.cluster is None:
            record = replace(record, cluster=self.runner.cluster(record.scheduler))
        if self._launch is not None:
            record = replace(record, cfg=dict(self._launch.cfg))
        if record.asked is None:
            record = replace(record, asked=self._asked_of(record.attempt))
        if not record.place:
            record = replace(record, place=where())
        data = record.to_dict()
        if self._io.store.get() != data:
            self._io.store.put(data)

    def _asked_of(self, number: int) -> dict[str, Any]:
        """Return the words of the try that submitted a job, which is this one for a new job."""
        for each in self._chain:
            if each.number == number and each.asked is not None:
                return dict(each.asked)
        return dict(self._asked)

    def _look(self, effect: Look) -> Newest:
        hint = effect.hint
        places = self._places(hint)
        members: list[_Member] = []
        for place in places:
            try:
                members += place.members()
            except SchedulerUnavailable as exc:
                self.runner = place.runner
                handle = None if hint is None else hint.handle
                return Newest(handle, status=AppStatus(AppState.UNKNOWN, msg=str(exc)))
        elsewhere = hint is not None and _is_out_of_sight(hint, places[0])
        if hint is not None and (hint.handle is not None or elsewhere):
            members.append(places[0].member(hint.attempt, None, hint.asked))
        self._chain = [each for each in members if each.here]
        if members:
            newest = self._newest(members)
            return replace(newest, elsewhere=elsewhere and newest.status is None)
        self.runner = places[-1].runner
        return Newest(places[-1].handle_of(0))

    def _newest(self, members: Sequence[_Member]) -> Newest:
        """Return the newest of the jobs that were found."""
        newest = newest_of(members, self._asked, self._asked_anew)
        wanted = (newest.handle, newest.here)
        place = next(each.place for each in members if (each.handle, each.here) == wanted)
        assert place is not None
        self.runner = place.runner
        return newest

    def _places(self, hint: AttachRecord | None) -> list[_Place]:
        """Return where jobs of the step may be, the present place last."""
        if hint is None:
            return [self._present_place()]
        stored = self._place_of(hint)
        try:
            present = self._present_place()
        except ConfigError:  # a submit says so; until then, the job may be where it was stored
            return [stored]
        if stored.is_same(present):
            return [present]
        return [stored, present]

    def _present_place(self) -> _Place:
        """Return where the present settings submit to."""
        name = self._scheduler_name
        made = chain_of(self._state.identity)
        prefix = self._given.qualified_id(made, name, self.need_launch().cfg)
        return _Place(self._given, name, prefix, is_present=True)

    def _place_of(self, stored: AttachRecord) -> _Place:
        """Return where a job was submitted that the orchestrator has stored."""
        runner = self._given
        if stored.cluster is not None:
            runner = runner.with_clusters(stored.cluster)
        prefix = stored.app_id.removesuffix(f"-{stored.attempt}")
        return _Place(runner, stored.scheduler, prefix)

    def _probe(self, effect: Probe) -> Newest:
        stored = effect.stored
        place = self._place_of(stored)
        self.runner = place.runner
        handle = stored.handle or place.handle_of(stored.attempt)
        scheduler, app_id = self.locate(handle)
        try:
            found = scheduler.describe([app_id])[app_id]
        except SchedulerUnavailable as exc:
            unknown = AppStatus(AppState.UNKNOWN, msg=str(exc))
            return Newest(handle, stored.attempt, unknown)
        return Newest(handle, stored.attempt, None if found is None else found.status)

    def _prepare(self, effect: Prepare) -> Prepared:
        first = effect.attempt
        if not effect.anew:
            first = first_of_asking(self._chain, self._asked_anew)
        self._prepared = self._build(self._app_id(effect.attempt), first)
        self.runner = self._given
        return Prepared(self._prepared.handle, self._prepared.digest)

    def _submit(self, _: Submit) -> bool:
        plan = self._prepared
        assert plan is not None
        self.submitting = True
        try:
            self._note_missing_variables(plan)
            # only a process that submits needs it, and no file that defines a workflow
            from transload.runtime.progress_lines import lines_to

            # a submit may take long, since packages are installed, images are pulled, code is sent
            with lines_to(self._io.log):
                self.runner.schedule(plan)
            return not plan.reattached
        finally:
            self.submitting = False
            self._prepared = None

    def _cancel(self, effect: Cancel) -> None:
        identity = self._state.identity
        step = "/".join((*identity.run, *identity.path))
        with cancelling_for(f"{identity.host}: {step}"):
            self.runner.cancel(effect.handle)

    def _ask(self, effect: Ask) -> bool:
        if self.was_asked is None:
            self.was_asked = somebody_asked(self.runner, self._io.asked)
            if not self.was_asked and effect.handle is not None:
                self._io.log(
                    f"the end of {effect.handle} was not asked for, so it goes on, and the next "
                    "try reattaches"
                )
        return self.was_asked

    def _note(self, effect: Note) -> None:
        if effect.text:
            self._io.log(effect.text)
        if effect.status is not None and self._io.on_change is not None:
            assert self._state.handle is not None
            self._io.on_change(self._state.handle, effect.status)

    def _allowed(self, effect: Allowed) -> int | None:
        try:
            found = self.runner.job(effect.handle).description()
        except TransloadError:
            return None
        if found is None or found.app is None:
            return None
        allowed = {role.name: role.interruptions_allowed for role in found.app.roles}
        return allowed.get(effect.role)

    def _show(self, effect: Show) -> None:
        if self._io.show_progress is None:
            return
        try:
            self._io.show_progress(effect.handle, effect.status)
        except Exception as exc:  # whatever is wrong with the display, the job goes on
            text = f"warning: progress cannot be displayed: {type(exc).__name__}: {exc}"
            if text != self._display_error:
                self._io.log(text)
            self._display_error = text

    def _finish_logs(self, effect: FinishLogs) -> None:
        self.logs.finish(patience=effect.patience)

    def _collect(self, effect: Collect) -> AppResults | str:
        handle = effect.handle
        status = effect.status
        with suppress(TransloadError):
            self._note_end(handle, status)
        if effect.explain:
            return self._failure(handle, status, effect.patience)
        if status.state is not AppState.SUCCEEDED:
            return ""
        try:
            results = patiently(partial(self.runner.results, handle), effect.patience)
        except AppNotFound as exc:
            raise AppLost(handle, "it was deleted before its results were read") from exc
        for line in results.lines():
            self._io.log(line)
        for line in results.refusals():
            self._io.log(f"warning: not read: {line}")
        return results

    def _note_end(self, handle: str, status: AppStatus) -> None:
        found = self.runner.job(handle).description()
        created = None
        app = None
        if found is not None:
            created = found.created
            app = found.app
        self._io.log(end_line(handle, status, created))
        for line in status.short_of_memory(app):
            self._io.log(f"warning: {line}")

    def _failure(self, handle: str, status: AppStatus, patience: float) -> str:
        # of all that it wrote, since this process may have passed on only a part of it
        lines = self._state.options.tail_lines

        def last_lines(role: str, replica: int) -> Sequence[str]:
            scheduler, app_id = self.locate(handle)
            return tail(scheduler, app_id, role, replica, lines, status, patience=patience)

        return failure_message(status, last_lines, handle=handle, lines=lines)

    # -- logs

    @property
    def logs(self) -> LogForwarder:
        """Return what passes on the log lines of the job."""
        handle = self._state.handle
        assert handle is not None
        if self._forwarder is None or self._forwarder.handle != handle:
            self._forwarder = LogForwarder(
                handle,
                partial(self.locate, handle),
                self._io.sink,
                self._state.options,
                store=self._io.log_store,
                cursor=self._state.cursor,
            )
        return self._forwarder

    # -- what is submitted

    def need_launch(self) -> Launch:
        """Return what is to be submitted.

        Raises:
            ConfigError: if this process only follows and collects.
        """
        if self._launch is None:
            raise ConfigError("no launch was given: this process can follow and collect, not start")
        return self._launch

    @property
    def _scheduler_name(self) -> str:
        return self.need_launch().scheduler_name(self._given.settings)

    def _app_id(self, number: int) -> str:
        app_id = app_id_of(self._state.identity, number)
        return self._given.qualified_id(app_id, self._scheduler_name, self.need_launch().cfg)

    def plan(self) -> Plan[Any]:
        """Return the request of the first job. Nothing is submitted or stored."""
        return self._build(self._app_id(0), 0)

    def _build(self, app_id: str, first: int) -> Plan[Any]:
        """Return what would be submitted under an id.

        Args:
            app_id: the id.
            first: the number of the first job of this asking, whose checkpoints it finds.
        """
        checkpoint_name = None
        if self._state.options.checkpoints == "keep":
            checkpoint_name = app_id_of(self._state.identity, first)
        launch = replace(self.need_launch(), scheduler=self._scheduler_name)
        return launch.plan(
            self._given,
            app_id,
            context_args=self._io.context_args,
            change=self._with_retries,
            checkpoint_name=checkpoint_name,
            asked=self._asked,
        )

    def _with_retries(self, app: AppDef) -> AppDef:
        """Return the app definition with the retries that the options leave to it."""
        options = self._state.options
        note = retries_note(app, options, self._io.host_retries)
        if note:
            self._io.log(note)
        if options.retries_by == "host":
            return without_retries(app)
        return app

    def _note_missing_variables(self, plan: Plan[Any]) -> None:
        """Log once a machine which variables are set here and do not reach jobs."""
        missing = plan.variables_to_name()
        if missing:
            self._io.log(
                f"set here, and not passed to jobs: {', '.join(missing)} (what a job needs of "
                "these must be named in pass_env; this is not said again)"
            )


def _is_out_of_sight(stored: AttachRecord, place: _Place) -> bool:
    """Tell whether a stored job may run on another machine, of which this one sees no jobs."""
    if stored.place in ("", where()):
        return False
    reach = place.runner.scheduler(place.scheduler).reach
    return reach != "network"
