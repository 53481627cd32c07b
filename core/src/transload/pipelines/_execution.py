"""One app as one unit of work of a host: attach or submit, follow, collect, cancel; sync, async, across processes."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppFailed, AppNotFound, ConfigError, SchedulerUnavailable, TransloadTimeout
from transload.pipelines._attacher import Attached, Attacher
from transload.pipelines._deadlines import Deadlines
from transload.pipelines._errors import AppCancelled, AppLost, Detached, StateUnknown
from transload.pipelines._failure import failure_message
from transload.pipelines._log_pump import LogPump
from transload.pipelines._logs import LogSink
from transload.pipelines._options import ExecutionOptions
from transload.pipelines._patience import Patience
from transload.pipelines._poller import Observation, Poller, get_poller
from transload.pipelines._reach import where
from transload.pipelines._waiting import LONGEST_TICK, KillOnExit, advance, next_of, wait_for_end
from transload.specs import AppState, AppStatus

if TYPE_CHECKING:
    from transload.pipelines._identity import Identity
    from transload.pipelines._launch import Launch
    from transload.pipelines._stores import Store
    from transload.runner import AppResults, Runner

SCHEMA: Final = 1


class Execution:
    """An app that a host runs as one unit of work.

    ``run`` is all that a blocking host needs, ``run_async`` all that an asynchronous one needs. A host that hands the
    waiting to another process calls `start`, gives `state` to the other, which calls `outcome_async` on
    `execution_from_state`, and the first (or a third) gives that to `settle`. A host that asks now and then calls
    `start` and `poll`.

    Args:
        runner: submits and asks; see `host_runner`.
        launch: what to run; None only for an execution made from a state.
        identity: whose app it is.
        options: the host's settings.
        store: the host's store for re-attaching; None: it has none.
        log_store: where to keep how far logs were handed on, so that a restart goes on there; None: nowhere.
        sink: gets the log lines; None: logs are not forwarded.
        log: takes one line for people; default: the logger ``transload.pipelines``.
        on_change: gets each new status, in the thread that waits.
        known: arguments that a component may declare (``trial_idx`` …).
        host_retries: how often the host itself retries, for the note on the product.
        poller: default: the one of this process.
    """

    def __init__(
        self,
        runner: Runner,
        launch: Launch | None,
        identity: Identity,
        options: ExecutionOptions | None = None,
        *,
        store: Store | None = None,
        log_store: Store | None = None,
        sink: LogSink | None = None,
        log: Callable[[str], None] | None = None,
        on_change: Callable[[AppStatus], None] | None = None,
        known: Mapping[str, Any] | None = None,
        host_retries: int | None = None,
        poller: Poller | None = None,
    ) -> None:
        self.runner = runner
        self.identity = identity
        self.options = options or ExecutionOptions()
        self.handle: str | None = None
        self.attempt: int | None = None
        self.status: AppStatus | None = None
        self._store = store
        self._log = log or _log
        self._on_change = on_change
        self._poller = poller
        self._killed = False
        self._away = False
        self._nudge: Callable[[], object] | None = None
        self._logs = LogPump(runner, self.options, sink, log_store)
        self._place = where()
        self._patience = Patience(self.options.patience)
        self._deadlines = Deadlines(self.options.schedule_timeout, self.options.startup_timeout, self.options.deadline)
        self._attacher: Attacher | None = None
        if launch is not None:
            given, killed = known or {}, lambda: self._killed
            self._attacher = Attacher(
                runner, launch, identity, self.options, store, self._log, given, host_retries, killed
            )

    # -- the whole

    def run(self) -> AppResults:
        """Start or attach, wait for the end, return the results.

        Raises:
            AppFailed: if the app failed; the message has replica, exit code and last log lines.
            AppCancelled: if somebody cancelled it.
            AppLost: if it is gone without a trace.
            StateUnknown: if patience is exhausted; the app goes on.
            TransloadTimeout: if a limit passed; the app was cancelled.
            Detached: if `kill` was called with ``on_kill="detach"``.
            SubmitError: if it was not taken.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        with KillOnExit(self):
            self.start()
            return self.collect(self.follow())

    async def run_async(self) -> AppResults:
        """Do what `run` does, without blocking the event loop. Cancelling the task is a kill."""
        import asyncio

        with KillOnExit(self):
            await self.start_async()
            status = await self.follow_async()
        return await asyncio.to_thread(self.collect, status)

    # -- start

    def start(self) -> Attached:
        """Submit the app or attach to it; return how. Errors as in `run`."""
        steps = self._need_attacher().steps()
        while True:
            step = advance(steps)
            if isinstance(step, Attached):
                return self._started(step)
            if step.ending is None:
                time.sleep(step.seconds)
            else:
                wait_for_end(self, step.ending)

    async def start_async(self) -> Attached:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        steps = self._need_attacher().steps()
        while True:
            try:
                step = await asyncio.shield(asyncio.to_thread(advance, steps))
            except asyncio.CancelledError:
                self.kill()  # a submit under way in its thread is undone there
                raise
            if isinstance(step, Attached):
                return self._started(step)
            if step.ending is None:
                await asyncio.sleep(step.seconds)
            else:
                await self._need_poller().wait_for_async(self.runner, step.ending, **self._polling())

    def dry_run(self) -> str:
        """Return what would be submitted, as text for a person; nothing outside of this process is touched.

        Raises:
            SpecError: if the app is wrong, or the scheduler cannot express it.
            ConfigError: for an unknown scheduler or option.
        """
        return repr(self._need_attacher().dry_run())

    def _started(self, attached: Attached) -> Attached:
        self.handle, self.attempt = attached.handle, attached.attempt
        self._logs.resume(attached.handle)
        if attached.status is not None:
            self._note(attached.status)
        return attached

    # -- follow

    def follow(self) -> AppStatus:
        """Block until the app has ended, handing on logs and changes; return its final status. Errors as in `run`."""
        self.follow_for(float("inf"))
        assert self.status is not None
        return self.status

    def follow_for(self, seconds: float) -> bool:
        """Do what `follow` does, for at most so many seconds; tell whether the app has ended. Errors as in `run`."""
        handle = self._need_handle()
        end = time.monotonic() + seconds
        if self.status is None or not self.status.is_terminal():
            seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
            with self._need_poller().watch(self.runner, handle, seen.put, **self._polling(self._patience)):
                while True:
                    left = end - time.monotonic()
                    if left <= 0:
                        return False
                    try:
                        observation: Observation | None = seen.get(timeout=min(LONGEST_TICK, self._tick(), left))
                    except queue.Empty:
                        observation = None
                    if self._take(observation):
                        break
                    if self._logs.due(observation is not None):
                        self._logs.pump()
        self._logs.finish()
        return True

    async def follow_async(self) -> AppStatus:
        """Do what `follow` does, without blocking the event loop and without a thread of its own."""
        import asyncio

        handle = self._need_handle()
        if self.status is None or not self.status.is_terminal():
            loop = asyncio.get_running_loop()
            seen: asyncio.Queue[Observation | None] = asyncio.Queue()

            def hand_over(observation: Observation | None) -> bool:
                try:
                    loop.call_soon_threadsafe(seen.put_nowait, observation)
                except RuntimeError:
                    return False  # the loop was closed meanwhile
                return True

            self._nudge = lambda: hand_over(None)
            try:
                with self._need_poller().watch(self.runner, handle, hand_over, **self._polling(self._patience)):
                    while True:
                        observation = await next_of(seen, self._tick())
                        if self._take(observation):
                            break
                        if self._logs.due(observation is not None):
                            await asyncio.to_thread(self._logs.pump)
            finally:
                self._nudge = None
        await asyncio.to_thread(self._logs.finish)
        assert self.status is not None
        return self.status

    def poll(self, status: AppStatus | None = None, *, asked: bool = False) -> Observation:
        """Look once, hand on new log lines, and return what was seen; never waits, never raises for the app's sake.

        Args:
            status: what the scheduler said, where the host has asked for many at once (``Runner.status_many``).
            asked: ``status`` is that answer (None then means: gone).
        """
        handle = self._need_handle()
        if not asked:
            status = self.runner.status(handle)
        if status is not None:
            self._note(status)
        exhausted = self._patience.observe(status.state if status is not None else AppState.RUNNING)
        seen = Observation(handle, status, exhausted, self._patience.elapsed or 0.0)
        if seen.final and not exhausted:
            self._logs.finish()
        else:
            self._logs.pump()
        return seen

    def _tick(self) -> float:
        """Return the seconds until there is something to do besides taking observations."""
        left = self._deadlines.left()
        return min(self._logs.left(), float("inf") if left is None else left)

    def _take(self, observation: Observation | None) -> bool:
        """Act on what was seen; return True once the app has ended."""
        if self._killed and self.options.on_kill == "detach":
            raise Detached(self.handle)
        if observation is not None:
            handle = observation.handle
            if observation.exhausted:
                raise StateUnknown(
                    handle, observation.unknown_for, observation.status.msg if observation.status else ""
                )
            if observation.status is None:
                if self._attacher is not None:
                    self._attacher.mark_lost(self.attempt)
                raise AppLost(handle)
            self._note(observation.status)
            if observation.final:
                return True
        passed = self._deadlines.passed()
        if passed is not None:
            self.cancel()
            raise TransloadTimeout(f"{self.handle} was cancelled: {passed}")
        return False

    def _note(self, status: AppStatus) -> None:
        changed = self.status is None or status.state is not self.status.state or status != self.status
        if (status.state is AppState.UNKNOWN) is not self._away:
            self._away = not self._away
            why = f" ({status.msg})" if status.msg else ""
            self._log(f"{self.handle} " + (f"cannot be reached, waiting{why}" if self._away else "is back"))
        self.status = status
        self._deadlines.observe(status)
        if changed and self._on_change is not None:
            self._on_change(status)

    # -- the end

    def collect(self, status: AppStatus | None = None) -> AppResults:
        """Return the results of an app that has ended well; success is decided by its state, not by results.

        Args:
            status: its final status; default: the latest that was seen.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
        """
        status = status or self.status
        handle = self._need_handle()
        if status is None or not status.is_terminal():
            raise ConfigError(f"{handle} has not ended ({status.state if status else 'not seen yet'}): follow it first")
        if status.state is AppState.SUCCEEDED:
            try:
                return self.runner.results(handle)
            except AppNotFound as exc:
                raise AppLost(handle, "it was deleted before its results were read") from exc
        message = failure_message(status, self._logs.tail, handle=handle, lines=self.options.tail_lines)
        if status.state is AppState.CANCELLED:
            raise AppCancelled(status, message)
        raise AppFailed(status, message)

    def kill(self) -> None:
        """Do what ``on_kill`` says: cancel the app, or leave it alone. May be called from a signal handler, repeatedly.

        A blocked `follow` goes on until the app has ended; with ``detach`` it raises `Detached` within a second.
        """
        self._killed = True
        if self._nudge is not None:
            self._nudge()
        # a submit under way is undone by whoever submits, as soon as it is over
        if self.options.on_kill == "cancel" and not (self._attacher is not None and self._attacher.submitting):
            self.cancel()

    def cancel(self) -> None:
        """Cancel the app whatever ``on_kill`` says, if there is one: for a limit that the host itself keeps."""
        # what was submitted a moment ago may not have been handed over yet
        handle = self.handle or (self._attacher.intended if self._attacher is not None else None)
        if handle is None:
            return
        try:
            self.runner.cancel(handle)
        except AppNotFound:
            return
        except SchedulerUnavailable as exc:
            self._log(f"{handle} could not be cancelled: {exc}")

    # -- across processes

    def state(self) -> dict[str, Any]:
        """Return JSON values from which `execution_from_state` goes on in another process. No secrets are in them."""
        from transload.pipelines._execution_state import state_of

        return state_of(self)

    async def outcome_async(self) -> dict[str, Any]:
        """Follow to the end and return what happened as JSON values, for `settle` in another process.

        It does not raise for the app's sake.

        ``kind`` is ``ended``, ``unknown``, ``lost``, ``timeout``, ``detached``, ``elsewhere`` (this process cannot see
        the app: wait where it was submitted) or ``error``.
        """
        from transload.pipelines._execution_state import outcome_of

        return await outcome_of(self)

    def settle(self, outcome: Mapping[str, Any]) -> AppResults:
        """Return the results, or raise, as `run` would have done, given an `outcome_async` from elsewhere.

        Raises:
            TransloadError: as in `run`.
        """
        from transload.pipelines._execution_state import settle

        return settle(self, outcome)

    # -- parts

    def _need_attacher(self) -> Attacher:
        if self._attacher is None:
            raise ConfigError("this execution was made from a state: it can follow and collect, not start")
        return self._attacher

    def _need_handle(self) -> str:
        if self.handle is None:
            raise ConfigError("this execution has no app yet: call start() first")
        return self.handle

    def _need_poller(self) -> Poller:
        if self._poller is None:
            self._poller = get_poller()
        return self._poller

    def _polling(self, patience: Patience | None = None) -> dict[str, Any]:
        return {"patience": patience or self.options.patience, "poll_interval": self.options.poll_interval}


def _log(message: str) -> None:
    import logging

    logging.getLogger("transload.pipelines").info("%s", message)
