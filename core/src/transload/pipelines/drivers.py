"""Define the driver, which looks after one job in a process.

It waits, blocking or asynchronously, and has the effects of the job's lifecycle carried out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from transload.errors import ConfigError, StateUnknown, TransloadTimeout
from transload.pipelines.attach import Attached
from transload.pipelines.chain import AskedAnew, json_values
from transload.pipelines.effects import Effects
from transload.pipelines.errors import AppLost, Detached, HandedBack
from transload.pipelines.identity import where
from transload.pipelines.lifecycle import (
    Answer,
    Effect,
    Lifecycle,
    LifecycleState,
    Moment,
    Note,
    Observe,
    Steps,
    Submit,
    WaitUntil,
)
from transload.runner.job import Job
from transload.schedulers.follower import emit, watch
from transload.schedulers.patience import unknown_since
from transload.schedulers.subscription import Observation, Subscription, observed
from transload.specs import AppStatus, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines.adapter_io import AdapterIO
    from transload.pipelines.identity import Identity
    from transload.pipelines.options import ExecutionOptions
    from transload.runner import AppResults, Launch, Plan, Runner

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The result of steps that have come to their end."""

    result: T


class Driver:
    """Submits one job or attaches to it in this process, follows, cancels and collects it.

    `Adapter.run`, `Adapter.start` and `Adapter.restore` make it. The lifecycle
    (`transload.pipelines.lifecycle`) decides the steps, and yields an effect for each. The driver
    carries out the waits itself, and leaves all other effects to `Effects`.

    Three methods end a job. `kill` only sets a flag, which whoever waits for the job acts on.
    `give_up` does the same without waiting. `cancel` ends the job whatever the options say.

    Args:
        launch: what to submit. None means that this process only follows and collects.
        state: the owner of the job, its options, and what is known of it.
        io: how to reach the stores, logs and displays of the orchestrator.
        asked: the orchestrator's words of this try (`Adapter.asked`).
        asked_anew: compares them with those of an earlier try (`Adapter.asked_anew`). None means
            that every try asks for the same job.

    Raises:
        SpecError: if ``asked`` holds something else than JSON values.
    """

    def __init__(
        self,
        launch: Launch | None,
        state: LifecycleState,
        io: AdapterIO,
        *,
        asked: Mapping[str, Any] | None = None,
        asked_anew: AskedAnew | None = None,
    ) -> None:
        self._killed = False
        self._lifecycle = Lifecycle(state, has_store=io.store is not None)
        self._io = io
        self._effects = Effects(launch, self._lifecycle, io, json_values(asked or {}), asked_anew)
        self._subscription: Subscription | None = None
        self._effects.restore(state)

    @property
    def _state(self) -> LifecycleState:
        return self._lifecycle.state

    def _moment(self) -> Moment:
        """Return the time, and whether something has ended the step."""
        return Moment.now(self._killed)

    @property
    def runner(self) -> Runner:
        """Return the runner, which knows the cluster of the job."""
        return self._effects.runner

    @property
    def log(self) -> Callable[[str], None]:
        """Return what takes one line for people."""
        return self._io.log

    @property
    def identity(self) -> Identity:
        """Return the orchestrator's unit of work whose job it is."""
        return self._state.identity

    @property
    def handle(self) -> str | None:
        """Return the job's handle, once it was submitted or attached to."""
        return self._state.handle

    @property
    def attempt(self) -> int | None:
        """Return the job's number in the chain of its step."""
        return self._state.attempt

    @property
    def status(self) -> AppStatus | None:
        """Return the status that was seen last."""
        return self._state.status

    @property
    def options(self) -> ExecutionOptions:
        """Return the options by which the job is run."""
        return self._state.options

    @options.setter
    def options(self, options: ExecutionOptions) -> None:
        self._state.options = options

    # -- the whole

    def run(self) -> AppResults:
        """Start or attach, wait for the end, return the results.

        Raises:
            AppFailed: if the job failed. The message has replica, exit code and last log lines.
            AppCancelled: if somebody cancelled it.
            AppLost: if it is gone without a trace.
            StateUnknown: if the unreachable timeout has passed. The job goes on.
            TransloadTimeout: if a limit passed. The job was cancelled.
            Detached: if `kill` was called, and nobody asked for the end, or with
                ``on_kill="detach"``.
            SubmitError: if it was not taken.
            SpecError: if the job is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        with self._giving_up_on_kill():
            self.start()
        return self.resume()

    def resume(self) -> AppResults:
        """Do what `run` does after the start."""
        with self._giving_up_on_kill():
            return self.collect(self.follow())

    async def run_async(self) -> AppResults:
        """Do what `run` does, without blocking the event loop. Cancelling the task is a kill."""
        import asyncio

        with self._giving_up_on_kill():
            await self.start_async()
            status = await self.follow_async()
        return await asyncio.to_thread(self.collect, status)

    @contextmanager
    def _giving_up_on_kill(self) -> Iterator[None]:
        """Give the job up if a BaseException other than Exception escapes, or after a kill."""
        try:
            yield
        except BaseException as exc:
            if self._killed or not isinstance(exc, Exception):
                self.give_up()
            raise

    # -- start

    def start(self) -> Attached:
        """Submit the job or attach to it, and return how, with the errors of `run`."""
        self._effects.need_launch()
        attached = self._carry_out(self._lifecycle.start(self._moment()))
        self._note_attached(attached)
        return attached

    async def start_async(self) -> Attached:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        self._effects.need_launch()
        steps = self._lifecycle.start(self._moment())
        try:
            attached = await self._carry_out_async(steps)
        except asyncio.CancelledError:
            self.kill()  # a submit under way in its thread is undone there
            raise
        self._note_attached(attached)
        return attached

    def _note_attached(self, attached: Attached) -> None:
        self.attach(attached.handle)
        if attached.status is not None:
            emit(attached.handle, attached.status)  # nobody may have seen it so far

    def attach(self, handle: str) -> None:
        """Look after the job with this handle, in place of `start`, without asking for it."""
        self._state.handle = handle
        self._state.cursor = None
        self._effects.attach()

    def dry_run(self) -> str:
        """Return the request that would be submitted, as text for a person.

        It touches nothing outside of this process.

        Raises:
            SpecError: if the job is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        return repr(self.plan())

    def plan(self) -> Plan[Any]:
        """Return the request that would be submitted first; errors and effects as of `dry_run`."""
        return self._effects.plan()

    # -- follow

    def follow(self) -> AppStatus:
        """Wait for the end of the job, pass on logs and changes, and return its final status.

        The errors are those of `run`.
        """
        return self._carry_out(self._lifecycle.follow(self._moment()))

    def follow_for(self, seconds: float) -> bool:
        """Do what `follow` does, for these seconds at most, and tell whether the job has ended."""
        end = time.monotonic() + seconds
        steps = self._lifecycle.follow(self._moment())
        return self._carry_out_until(steps, end) is not None

    async def follow_async(self) -> AppStatus:
        """Do what `follow` does, without blocking the event loop."""
        return await self._carry_out_async(self._lifecycle.follow(self._moment()))

    def poll(self, status: AppStatus | None = None, *, asked: bool = False) -> Observation:
        """Look once, pass on new log lines, and return what was seen.

        It never waits, and does not raise for a job that fails. A limit that has passed, or a kill,
        cancels the job. A later call shows how the job ended.

        Args:
            status: the scheduler's answer, where the orchestrator has asked for many jobs together
                (``Runner.status_many``).
            asked: ``status`` is that answer. None then means that the job is gone.
        """
        handle = self._need_handle()
        if not asked:
            status = self.runner.status(handle)
        since = None
        if status is not None:
            since = unknown_since(status.state, self._state.unknown_since)
            self._emit_change(handle, status)
        seen = observed(handle, status, self.options.patience, since)
        with suppress(AppLost, Detached, HandedBack, StateUnknown, TransloadTimeout):
            self._carry_out_now(self._lifecycle.look(self._moment(), seen))
        if seen.status is None:
            self._effects.stop_logs()  # the job is gone, and its log with it
        elif seen.final and not seen.exhausted:
            self._effects.logs.finish()
        else:
            self._effects.logs.pump()
        return seen

    def _emit_change(self, handle: str, status: AppStatus) -> None:
        """Report a new state to plugins, as the follower does for a job that is followed."""
        before = self.status
        if (
            before is None
            or status.state is not before.state
            or status.num_restarts != before.num_restarts
        ):
            emit(handle, status)

    def lost(self) -> AppLost:
        """Note in the orchestrator's store that the job is gone, and return the error that says so.

        A retry then begins the next attempt.
        """
        handle = self._need_handle()
        self._carry_out_now(self._lifecycle.lose(self._moment()))
        return AppLost(handle)

    # -- the end

    def collect(
        self, status: AppStatus | None = None, *, patience: float | None = None
    ) -> AppResults:
        """Return the results of a job that has succeeded. Its state decides that, not its results.

        Args:
            status: its final status. The default is the latest that was seen.
            patience: seconds for which a scheduler that is unreachable is asked again. The default
                is that of the options.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            TransloadTimeout: if it was cancelled because a limit had passed.
            SchedulerUnavailable: if the results cannot be asked for that long.
        """
        steps = self._lifecycle.collect(self._moment(), status, patience=patience)
        return self._carry_out_now(steps)

    @property
    def killed(self) -> bool:
        """Return whether `kill` was called."""
        return self._killed

    def kill(self, asked: bool | None = None) -> None:
        """End the step. The job is cancelled if somebody asked for that end, and else goes on.

        With ``on_kill="detach"`` it goes on in any case. This only sets a flag, and wakes the
        thread that starts, follows or polls the job. So a signal handler may call it, repeatedly.
        A `follow` that waits goes on until a cancelled job has ended. Where the job goes on, it
        raises `Detached`.

        Args:
            asked: whether somebody asked for that end. None means that the driver finds out (see
                `AdapterIO`).
        """
        if asked is not None:
            self._effects.was_asked = asked or bool(self._effects.was_asked)
        self._killed = True
        news = self._subscription
        if news is not None:
            news.wake()

    def give_up(self, asked: bool | None = None) -> bool:
        """Do what `kill` does, for an orchestrator that does not wait any more.

        It asks the scheduler, so it is not for a signal handler. After a limit that the
        orchestrator keeps (``deadline``), the job is cancelled in any case.

        Args:
            asked: as of `kill`.

        Returns:
            False if a job that is to end could not be cancelled yet. The caller repeats the call as
                long as it can.
        """
        self.kill(asked)
        if self._effects.submitting:
            return False  # the thread that submits cancels the job afterwards
        return self._carry_out_now(self._lifecycle.give_up(self._moment()))

    def cancel(self) -> bool:
        """Cancel the job if there is one, whatever ``on_kill`` says.

        This is for a limit that the orchestrator itself keeps.

        Returns:
            False if its scheduler could not be reached, or this process has trouble.
        """
        return self._carry_out_now(self._lifecycle.cancel(self._moment()))

    def link(self) -> str | None:
        """Return the full address of a page about the job, or None if there is none.

        A plugin's page goes before the scheduler's.
        """
        return Job(self._need_handle(), self.runner).page()

    # -- across processes

    def state(self) -> dict[str, Any]:
        """Return JSON values from which `Adapter.restore` goes on in another process.

        They hold no secrets.
        """
        state = self._state
        if state.handle is not None:
            scheduler = parse_app_handle(state.handle).scheduler_backend
            state = replace(
                state,
                cluster=self.runner.cluster(scheduler),
                cursor=self._effects.logs.cursor,
            )
        return state.to_dict()

    def can_defer(self, same_machine: bool | None = None) -> bool:
        """Tell whether another process than the submitting one may wait for the job.

        Args:
            same_machine: whether that process runs on the same machine. None means that it is this
                process.
        """
        reach = self._effects.locate(self._need_handle())[0].reach
        if same_machine is None:
            same_machine = self._state.place == where()
        return reach == "network" or (reach == "host" and same_machine)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another process's driver.

        Raises:
            SpecError: if it is not such a state, or a newer version wrote it.
        """
        before = self._state
        taken = LifecycleState.from_dict(state)
        taken.identity = before.identity
        taken.options = before.options
        taken.status = taken.status or before.status
        taken.passed = taken.passed or before.passed
        taken.cancelled = taken.cancelled or before.cancelled
        self._lifecycle.state = taken
        self._effects.restore(taken)

    def _need_handle(self) -> str:
        if self.handle is None:
            raise ConfigError("there is no job yet: call start() first")
        return self.handle

    # -- carrying out steps

    def _carry_out(self, steps: Steps[T]) -> T:
        """Carry steps out, and return their result."""
        finished = self._carry_out_until(steps, float("inf"))
        assert finished is not None
        return finished.result

    def _carry_out_now(self, steps: Steps[T]) -> T:
        """Carry out steps that do not wait. Another thread may be waiting for the job meanwhile."""
        finished = self._advance(steps)
        assert isinstance(finished, Finished)
        return finished.result

    def _carry_out_until(self, steps: Steps[T], end: float) -> Finished[T] | None:
        """Carry steps out until ``end`` on the steady clock, and return None if they go on then."""
        try:
            step = self._advance(steps)
            while not isinstance(step, Finished):
                left = end - time.monotonic()
                if left <= 0:
                    return None
                seen = self._wait(step, left)
                step = self._advance(steps, Answer(self._moment(), seen))
            return step
        finally:
            self._stop_watching()

    async def _carry_out_async(self, steps: Steps[T]) -> T:
        """Carry steps out, and return their result.

        Notes are carried out in the event loop's thread, all other effects in another one.
        """
        import asyncio

        try:
            step = await self._in_thread(steps, None)
            while not isinstance(step, Finished):
                seen = await self._wait_async(step)
                effect = _next(steps, Answer(self._moment(), seen))
                while isinstance(effect, Note):
                    effect = _next(steps, self._carry_out_note(effect))
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
        """Do what `_to_next_wait` does in a thread, which goes on if the task is cancelled."""
        import asyncio

        work = partial(self._to_next_wait, steps, effect)
        return await asyncio.shield(asyncio.to_thread(work))

    def _advance(
        self, steps: Steps[T], answer: Answer | None = None
    ) -> Finished[T] | Observe | WaitUntil:
        """Send an answer, and carry out the effects that follow, up to the next wait or the end."""
        return self._to_next_wait(steps, _next(steps, answer))

    def _to_next_wait(
        self, steps: Steps[T], effect: Effect[Any] | Finished[T] | None
    ) -> Finished[T] | Observe | WaitUntil:
        """Carry out an effect and those that follow, up to the next wait or the end.

        Args:
            steps: of the lifecycle.
            effect: the one to begin with. None means the first of the steps.
        """
        if effect is None:
            effect = _next(steps, None)
        while not isinstance(effect, (Finished, Observe, WaitUntil)):
            try:
                value = self._effects.carry_out(effect)
            except BaseException as exc:
                # the answer is sent inside of this block: the exception that is being handled says
                # whether a person's Ctrl-C ends this process
                if isinstance(effect, Submit) and not isinstance(exc, Exception):
                    self.kill()
                return self._advance(steps, Answer(self._moment(), error=exc))
            effect = _next(steps, Answer(self._moment(), value))
        return effect

    def _carry_out_note(self, effect: Note) -> Answer:
        try:
            return Answer(self._moment(), self._effects.carry_out(effect))
        except Exception as exc:
            return Answer(self._moment(), error=exc)

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
                self._follow_logs(news.wake, here=True)
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
                self._follow_logs(news.wake, here=False)
            if self._wait_is_over(seen, end):
                return seen

    def _follow_logs(self, wake: Callable[[], object], *, here: bool) -> None:
        """Pass on the lines that are due, and follow the logs from now on."""
        logs = self._effects.logs
        if logs.due:
            logs.pump()
        logs.follow(wake, here=here)

    def _next_wait(self, effect: Observe, end: float) -> float:
        """Return the seconds to wait for the next observation, or until logs are followed."""
        left = max(0.0, end - time.monotonic())
        if effect.logs:
            left = min(left, self._effects.logs.pause)
        return left

    def _wait_is_over(self, seen: Observation | None, end: float) -> bool:
        if seen is not None and seen.final:  # nothing comes after it
            self._stop_observing()
        return seen is not None or self._killed or time.monotonic() >= end

    def _watch(self, effect: Observe) -> Subscription:
        """Return the observations of a job, and stop those of another one."""
        if self._subscription is not None and self._subscription.handle == effect.handle:
            return self._subscription
        self._stop_observing()
        scheduler, _ = self._effects.locate(effect.handle)
        options = self._state.options
        news = watch(
            scheduler,
            effect.handle,
            patience=options.patience,
            unknown_for=effect.unknown_for,
            poll_interval=options.poll_interval,
        )
        self._subscription = news
        if self._killed:  # a signal came before there was a subscription to wake
            news.wake()
        return news

    def _stop_observing(self) -> None:
        news = self._subscription
        self._subscription = None
        if news is not None:
            news.close()

    def _stop_watching(self) -> None:
        self._stop_observing()
        self._effects.stop_logs()


def _next(steps: Steps[T], answer: Answer | None) -> Effect[Any] | Finished[T]:
    """Send an answer, None at first, and return the next effect, or the result.

    A StopIteration cannot cross a thread's future, so the result is wrapped.
    """
    try:
        if answer is None:
            return next(steps)
        return steps.send(answer)
    except StopIteration as stop:
        return Finished(stop.value)
