"""What carries a lifecycle's effects out: all of its I/O, its clocks and its waiting, in a blocking
and an asynchronous form.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from transload.errors import AppNotFound, ConfigError, SchedulerUnavailable, TransloadError
from transload.pipelines.attach import AttachRecord
from transload.pipelines.end_requests import Asked, somebody_asked
from transload.pipelines.errors import AppLost
from transload.pipelines.identity import app_id_of
from transload.pipelines.lifecycle import (
    Answer,
    Ask,
    Cancel,
    Collect,
    Effect,
    FinishLogs,
    Lifecycle,
    LifecycleState,
    Load,
    Moment,
    Note,
    Observe,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Save,
    Steps,
    Submit,
    WaitUntil,
)
from transload.pipelines.logs import LogForwarder, LogSink
from transload.pipelines.options import retries_note, without_retries
from transload.pipelines.told import end_line
from transload.runner.failures import failure_message
from transload.runner.job_env import unique_app_id
from transload.runner.logs import tail
from transload.schedulers.follower import watch
from transload.schedulers.subscription import Observation, Subscription
from transload.specs import AppState, AppStatus, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines.attach import AttachStore
    from transload.runner import AppResults, Launch, Plan, Runner
    from transload.schedulers.api import SchedulerBase
    from transload.specs import AppDef

T = TypeVar("T")

_logged_variables: Final[set[tuple[str, tuple[str, ...]]]] = set()
"""Variables of which the log said that they do not reach a job: once for all runs in this
process."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The result of steps that have come to their end."""

    result: T


class Driver:
    """Carries out the effects of one job's lifecycle.

    Args:
        runner: submits and asks.
        launch: what to submit; None: this process only follows and collects.
        lifecycle: what decides.
        store: the orchestrator's store for reattaching; None: it has none.
        log_store: where to keep how far logs were handed on; None: nowhere.
        sink: gets the log lines; None: logs are not forwarded.
        log: takes one line for people.
        on_change: gets each new status.
        context_args: arguments that a component may declare.
        host_retries: how often the orchestrator itself retries.
        asked: tells whether somebody asked the orchestrator for the end of the step.

    Attributes:
        runner: the runner that knows the cluster of the job.
        killed: something has ended the step.
        was_asked: whether somebody asked for that end; None: not known yet.
        submitting: a submit is under way.
    """

    def __init__(
        self,
        runner: Runner,
        launch: Launch | None,
        lifecycle: Lifecycle,
        *,
        store: AttachStore | None,
        log_store: AttachStore | None,
        sink: LogSink | None,
        log: Callable[[str], None],
        on_change: Callable[[AppStatus], None] | None,
        context_args: Mapping[str, Any],
        host_retries: int | None,
        asked: Asked,
    ) -> None:
        self.runner = runner
        self.log = log
        self.killed = False
        self.was_asked: bool | None = None
        self.submitting = False
        self._lifecycle = lifecycle
        self._given = runner
        self._launch = launch
        self._store = store
        self._log_store = log_store
        self._sink = sink
        self._on_change = on_change
        self._context_args = context_args
        self._host_retries = host_retries
        self._asked = asked
        self._ids: dict[int, str] = {}
        self._prepared: Plan[Any] | None = None
        self._forwarder: LogForwarder | None = None
        self._news: Subscription | None = None
        self._methods: dict[type[Effect[Any]], Callable[[Any], object]] = {
            Load: self._load,
            Save: self._save,
            Probe: self._probe,
            Prepare: self._prepare,
            Submit: self._submit,
            Cancel: self._cancel,
            Ask: self._ask,
            Note: self._note,
            FinishLogs: self._finish_logs,
            Collect: self._collect,
        }

    @property
    def state(self) -> LifecycleState:
        """The state of the lifecycle."""
        return self._lifecycle.state

    def moment(self) -> Moment:
        """Return the time, and whether something has ended the step."""
        return Moment(time.time(), time.monotonic(), self.killed)

    def kill(self) -> None:
        """Note that something has ended the step, and wake who waits. A signal handler may do
        this.
        """
        self.killed = True
        news = self._news
        if news is not None:
            news.wake()

    def restore(self, state: LifecycleState) -> None:
        """Go on from a state that another process has handed over."""
        if state.cluster is not None:
            self.runner = self.runner.with_clusters(state.cluster)
            self._given = self.runner
        self._lifecycle.state = state
        self._forwarder = None

    def attach(self, handle: str) -> None:
        """Take a job that is known by its handle; its logs go on where the log store says."""
        self.state.handle = handle
        self.state.cursor = None
        self._forwarder = None

    def locate(self, handle: str) -> tuple[SchedulerBase, str]:
        """Return the scheduler of a job, and the job's id there."""
        parsed = parse_app_handle(handle)
        return self.runner.scheduler(parsed.scheduler_backend), parsed.app_id

    # -- running steps

    def run(self, steps: Steps[T]) -> T:
        """Carry steps out, and return their result."""
        finished = self.run_until(steps, float("inf"))
        assert finished is not None
        return finished.result

    def run_now(self, steps: Steps[T]) -> T:
        """Carry out steps that do not wait. Another thread may be waiting for the job meanwhile."""
        finished = self._advance(steps)
        assert isinstance(finished, Finished)
        return finished.result

    def run_until(self, steps: Steps[T], end: float) -> Finished[T] | None:
        """Carry steps out until a moment of the steady clock; None: they had not finished by
        then.
        """
        try:
            step = self._advance(steps)
            while not isinstance(step, Finished):
                left = end - time.monotonic()
                if left <= 0:
                    return None
                seen = self._wait(step, left)
                step = self._advance(steps, Answer(self.moment(), seen))
            return step
        finally:
            self._stop_watching()

    async def run_async(self, steps: Steps[T]) -> T:
        """Carry steps out, and return their result. Only notes are carried out in the event loop's
        thread.
        """
        import asyncio

        try:
            step = await self._in_thread(steps, None)
            while not isinstance(step, Finished):
                seen = await self._wait_async(step)
                effect = _next(steps, Answer(self.moment(), seen))
                while isinstance(effect, Note):
                    effect = _next(steps, self._answer(effect))
                if isinstance(effect, (Finished, Observe, WaitUntil)):
                    step = effect
                else:
                    step = await self._in_thread(steps, effect)
            return step.result
        finally:
            await asyncio.to_thread(self._stop_watching)

    async def _in_thread(
        self, steps: Steps[T], effect: Effect[Any] | None
    ) -> Finished[T] | Observe | WaitUntil:
        """Carry steps out in a thread up to the next wait. They go on if the task is cancelled."""
        import asyncio

        work = partial(self._carry_on, steps, effect)
        return await asyncio.shield(asyncio.to_thread(work))

    def _advance(
        self, steps: Steps[T], answer: Answer | None = None
    ) -> Finished[T] | Observe | WaitUntil:
        """Send an answer, and carry out the effects up to the next wait or the end."""
        return self._carry_on(steps, _next(steps, answer))

    def _carry_on(
        self, steps: Steps[T], effect: Effect[Any] | Finished[T] | None
    ) -> Finished[T] | Observe | WaitUntil:
        """Carry out an effect and those after it, up to the next wait or the end; None: begin."""
        if effect is None:
            effect = _next(steps, None)
        while not isinstance(effect, (Finished, Observe, WaitUntil)):
            try:
                value = self._perform(effect)
            except BaseException as exc:
                # still inside of this block: whether a person's Ctrl-C ends this process is told
                # by the exceptions that are being handled
                return self._advance(steps, Answer(self.moment(), error=exc))
            effect = _next(steps, Answer(self.moment(), value))
        return effect

    def _answer(self, effect: Effect[Any]) -> Answer:
        try:
            return Answer(self.moment(), self._perform(effect))
        except Exception as exc:
            return Answer(self.moment(), error=exc)

    # -- waiting, in two forms

    def _wait(self, effect: Observe | WaitUntil, longest: float) -> Observation | None:
        if isinstance(effect, WaitUntil):
            time.sleep(max(0.0, effect.steady - time.monotonic()))
            return None
        news = self._watch(effect)
        end = time.monotonic() + min(effect.seconds, longest)
        while True:
            seen = news.next(self._next_wait(effect, end))
            if effect.logs:
                if self._logs.due:
                    self._logs.pump()
                self._logs.follow(news.wake, here=True)
            if self._wait_is_over(seen, end):
                return seen

    async def _wait_async(self, effect: Observe | WaitUntil) -> Observation | None:
        import asyncio

        if isinstance(effect, WaitUntil):
            await asyncio.sleep(max(0.0, effect.steady - time.monotonic()))
            return None
        news = self._watch(effect)
        end = time.monotonic() + effect.seconds
        while True:
            seen = await news.next_async(self._next_wait(effect, end))
            if effect.logs:
                if self._logs.due:
                    self._logs.pump()
                self._logs.follow(news.wake, here=False)
            if self._wait_is_over(seen, end):
                return seen

    def _next_wait(self, effect: Observe, end: float) -> float:
        left = max(0.0, end - time.monotonic())
        if effect.logs:
            left = min(left, self._logs.pause)
        return left

    def _wait_is_over(self, seen: Observation | None, end: float) -> bool:
        if seen is not None and seen.final:  # nothing comes after it
            self._close_news()
        return seen is not None or self.killed or time.monotonic() >= end

    def _watch(self, effect: Observe) -> Subscription:
        """Return the observations of a job; those of another one end."""
        if self._news is not None and self._news.handle == effect.handle:
            return self._news
        self._close_news()
        scheduler, _ = self.locate(effect.handle)
        options = self.state.options
        news = watch(
            scheduler,
            effect.handle,
            patience=options.patience,
            unknown_for=effect.unknown_for,
            poll_interval=options.poll_interval,
        )
        self._news = news
        if self.killed:  # by a signal, before there was anybody to wake
            news.wake()
        return news

    def _close_news(self) -> None:
        news = self._news
        self._news = None
        if news is not None:
            news.close()

    def _stop_watching(self) -> None:
        self._close_news()
        if self._forwarder is not None:
            self._forwarder.stop()

    # -- effects

    def _perform(self, effect: Effect[Any]) -> object:
        return self._methods[type(effect)](effect)

    def _load(self, _: Load) -> AttachRecord | None:
        if self._store is None:
            return None
        data = self._store.get()
        if data is None:
            return None
        return AttachRecord.from_dict(data)

    def _save(self, effect: Save) -> None:
        if self._store is None:
            return
        record = effect.record
        if record.cluster is None:
            record = replace(record, cluster=self.runner.cluster(record.scheduler))
        if self._launch is not None:
            record = replace(record, cfg=dict(self._launch.cfg))
        data = record.to_dict()
        if self._store.get() != data:
            self._store.put(data)

    def _probe(self, effect: Probe) -> Probed:
        stored = effect.stored
        runner = self._given
        if stored is not None and stored.cluster is not None:
            runner = runner.with_clusters(stored.cluster)
        self.runner = runner
        if stored is None:
            handle = self._handle_of(effect.attempt)
            here = True
        else:
            place = make_app_handle(stored.scheduler, self._given.name(), stored.app_id)
            handle = stored.handle or place
            here = runner is self._given and handle == self._handle_of(effect.attempt)
        scheduler, app_id = self.locate(handle)
        try:
            description = scheduler.describe(app_id)
            if description is not None:
                digest = description.digest
                return Probed(handle, description.status, digest=digest, here=here)
            return Probed(handle, None, existed=scheduler.existed(app_id), here=here)
        except SchedulerUnavailable as exc:
            return Probed(handle, AppStatus(AppState.UNKNOWN, msg=str(exc)), here=here)

    def _prepare(self, effect: Prepare) -> Prepared:
        launch = self.need_launch()
        self.runner = self._given
        if effect.attempt is None:
            app_id = unique_app_id(launch.name)
        else:
            app_id = self._app_id(effect.attempt)
        self._prepared = self._build(app_id)
        handle = make_app_handle(self._scheduler_name, self._given.name(), app_id)
        return Prepared(handle, self._prepared.digest)

    def _submit(self, _: Submit) -> str:
        assert self._prepared is not None
        self.submitting = True
        try:
            self._note_missing_variables(self._prepared)
            return self.runner.schedule(self._prepared)
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self.kill()
            raise
        finally:
            self.submitting = False
            self._prepared = None

    def _cancel(self, effect: Cancel) -> None:
        self.runner.cancel(effect.handle)

    def _ask(self, effect: Ask) -> bool:
        if self.was_asked is None:
            self.was_asked = somebody_asked(self.runner, self._asked)
            if not self.was_asked and effect.handle is not None:
                self.log(
                    f"nobody asked for the end of {effect.handle}: it goes on, and the next try "
                    "reattaches"
                )
        return self.was_asked

    def _note(self, effect: Note) -> None:
        if effect.text:
            self.log(effect.text)
        if effect.status is not None and self._on_change is not None:
            self._on_change(effect.status)

    def _finish_logs(self, _: FinishLogs) -> None:
        self._logs.finish()

    def _collect(self, effect: Collect) -> AppResults | str:
        handle = effect.handle
        status = effect.status
        with suppress(TransloadError):
            self._note_end(handle, status)
        if effect.explain:
            return self._failure(handle, status)
        if status.state is not AppState.SUCCEEDED:
            return ""
        try:
            results = self.runner.results(handle)
        except AppNotFound as exc:
            raise AppLost(handle, "it was deleted before its results were read") from exc
        for line in results.lines():
            self.log(line)
        for line in results.refusals():
            self.log(f"warning: not read: {line}")
        return results

    def _note_end(self, handle: str, status: AppStatus) -> None:
        found = self.runner.description(handle)
        created = None
        app = None
        if found is not None:
            created = found.created
            app = found.app
        self.log(end_line(handle, status, created))
        for line in status.short_of_memory(app):
            self.log(f"warning: {line}")

    def _failure(self, handle: str, status: AppStatus) -> str:
        # of all that it wrote: this process may have handed on a part of it
        lines = self.state.options.tail_lines

        def last_lines(role: str, replica: int) -> Sequence[str]:
            scheduler, app_id = self.locate(handle)
            return tail(scheduler, app_id, role, replica, lines, status)

        return failure_message(status, last_lines, handle=handle, lines=lines)

    # -- logs

    @property
    def _logs(self) -> LogForwarder:
        return self.logs()

    def logs(self) -> LogForwarder:
        """Return what hands on the log lines of the job."""
        handle = self.state.handle
        assert handle is not None
        if self._forwarder is None or self._forwarder.handle != handle:
            self._forwarder = LogForwarder(
                handle,
                partial(self.locate, handle),
                self._sink,
                self.state.options,
                store=self._log_store,
                cursor=self.state.cursor,
            )
        return self._forwarder

    # -- what is submitted

    def need_launch(self) -> Launch:
        """Return what is to be submitted.

        Raises:
            ConfigError: if this process only follows and collects.
        """
        if self._launch is None:
            raise ConfigError(
                "this execution was made from a state: it can follow and collect, not start"
            )
        return self._launch

    @property
    def _scheduler_name(self) -> str:
        return self.need_launch().scheduler or self._given.settings.scheduler

    def _app_id(self, attempt: int) -> str:
        if attempt not in self._ids:
            made = app_id_of(self.state.identity, attempt)
            cfg = self.need_launch().cfg
            self._ids[attempt] = self._given.qualified_id(made, self._scheduler_name, cfg)
        return self._ids[attempt]

    def _handle_of(self, attempt: int) -> str:
        """Return the handle that an attempt has by the present settings."""
        return make_app_handle(self._scheduler_name, self._given.name(), self._app_id(attempt))

    def dry_run(self) -> Plan[Any]:
        """Return the request of the first attempt; nothing is submitted or stored."""
        return self._build(self._app_id(0))

    def _build(self, app_id: str) -> Plan[Any]:
        launch = replace(self.need_launch(), scheduler=self._scheduler_name)
        return launch.plan(
            self._given,
            app_id,
            context_args=self._context_args,
            change=self._with_retries,
            checkpoint_name=self._checkpoint_name(),
        )

    def _checkpoint_name(self) -> str | None:
        """Return the name of the checkpoints that all attempts share; None: each has its own."""
        if self.state.options.checkpoints == "new":
            return None
        return app_id_of(self.state.identity, 0)

    def _with_retries(self, app: AppDef) -> AppDef:
        """Return the app definition with the retries that the options leave to it."""
        options = self.state.options
        note = retries_note(app, options, self._host_retries)
        if note:
            self.log(note)
        if options.retries_by == "host":
            return without_retries(app)
        return app

    def _note_missing_variables(self, plan: Plan[Any]) -> None:
        """Log once which variables are set here and do not reach the job."""
        missing = tuple(plan.variables_not_passed())
        key = (self.need_launch().name, missing)
        if not missing or key in _logged_variables:
            return
        if len(_logged_variables) >= 1000:  # names of launches have no end
            _logged_variables.clear()
        _logged_variables.add(key)
        self.log(
            f"set here, and not passed to the app: {', '.join(missing)} (pass_env passes what it "
            "names)"
        )


def _next(steps: Steps[T], answer: Answer | None) -> Effect[Any] | Finished[T]:
    """Send an answer, None at first; return the next effect, or the result.

    A StopIteration cannot cross a thread's future, so the result is wrapped.
    """
    try:
        if answer is None:
            return next(steps)
        return steps.send(answer)
    except StopIteration as stop:
        return Finished(stop.value)
