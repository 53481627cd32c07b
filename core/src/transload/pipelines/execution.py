"""One app as one unit of work of a host: attach or submit, follow, collect, cancel; sync, async,
across processes.

What happens to the app is decided in ``lifecycle.py``, and done in ``drivers.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transload.errors import ConfigError, StateUnknown, TransloadTimeout
from transload.pipelines.attach import Attached
from transload.pipelines.drivers import Driver
from transload.pipelines.end_requests import Asked, interrupted
from transload.pipelines.errors import AppLost, Detached
from transload.pipelines.identity import Identity, where
from transload.pipelines.lifecycle import Lifecycle, LifecycleState
from transload.pipelines.logs import LogSink
from transload.pipelines.options import ExecutionOptions
from transload.pipelines.told import page_of
from transload.schedulers.follower import emit
from transload.schedulers.patience import unknown_since
from transload.schedulers.subscription import Observation, observed
from transload.specs import AppStatus, parse_app_handle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transload.pipelines.attach import AttachStore
    from transload.runner import AppResults, Launch, Runner


class Execution:
    """An app that a host runs as one unit of work.

    ``run`` is all that a blocking host needs, ``run_async`` all that an asynchronous one needs. A
    host that hands the waiting to another process calls `start`, gives `state` to the other, which
    gives `from_state` to `transload.pipelines.outcome`; the first (or a third) gives that to
    `settle`. A host that asks now and then calls `start` and `poll`. A host that knows the handle
    of its app calls `attach` in place of `start`.

    Args:
        runner: submits and asks; see `host_runner`.
        launch: what to run; None only for an execution that is given its app (`attach`,
            `from_state`).
        identity: whose app it is.
        options: the host's settings.
        store: the host's store for re-attaching; None: it has none.
        log_store: where to keep how far logs were handed on, so that a restart goes on there; None:
            nowhere.
        sink: gets the log lines; None: logs are not forwarded.
        log: takes one line for people; default: the logger ``transload.pipelines``.
        on_change: gets each new status, in the thread that waits.
        context_args: arguments that a component may declare (``trial_idx`` …).
        host_retries: how often the host itself retries, for the note on the product.
        asked: tells whether somebody asked the host for the end of this unit; None (its answer):
            the host cannot say now. It is asked when something ends the unit, and in no more than
            three seconds. Default: a person's Ctrl-C did. Inside a job, that job is asked as well.
    """

    def __init__(
        self,
        runner: Runner,
        launch: Launch | None,
        identity: Identity,
        options: ExecutionOptions | None = None,
        *,
        store: AttachStore | None = None,
        log_store: AttachStore | None = None,
        sink: LogSink | None = None,
        log: Callable[[str], None] | None = None,
        on_change: Callable[[AppStatus], None] | None = None,
        context_args: Mapping[str, Any] | None = None,
        host_retries: int | None = None,
        asked: Asked = interrupted,
    ) -> None:
        state = LifecycleState(identity, options or ExecutionOptions())
        self._lifecycle = Lifecycle(state)
        self._driver = Driver(
            runner,
            launch,
            self._lifecycle,
            store=store,
            log_store=log_store,
            sink=sink,
            log=log or _log,
            on_change=on_change,
            context_args=context_args or {},
            host_retries=host_retries,
            asked=asked,
        )

    @property
    def runner(self) -> Runner:
        """The runner, which knows the cluster of the app."""
        return self._driver.runner

    @property
    def identity(self) -> Identity:
        """Whose app it is."""
        return self._state.identity

    @property
    def handle(self) -> str | None:
        """The app, once it was submitted or attached to."""
        return self._state.handle

    @property
    def attempt(self) -> int | None:
        """Which attempt of its generation the app is."""
        return self._state.attempt

    @property
    def status(self) -> AppStatus | None:
        """What was seen last."""
        return self._state.status

    @property
    def options(self) -> ExecutionOptions:
        """The host's settings."""
        return self._state.options

    @options.setter
    def options(self, options: ExecutionOptions) -> None:
        self._state.options = options

    @property
    def log(self) -> Callable[[str], None]:
        """Takes one line for people."""
        return self._driver.log

    @log.setter
    def log(self, log: Callable[[str], None]) -> None:
        self._driver.log = log

    @property
    def _state(self) -> LifecycleState:
        return self._lifecycle.state

    # -- the whole

    def run(self) -> AppResults:
        """Start or attach, wait for the end, return the results.

        Raises:
            AppFailed: if the app failed; the message has replica, exit code and last log lines.
            AppCancelled: if somebody cancelled it.
            AppLost: if it is gone without a trace.
            StateUnknown: if patience is exhausted; the app goes on.
            TransloadTimeout: if a limit passed; the app was cancelled.
            Detached: if `kill` was called, and nobody asked for the end, or with
                ``on_kill="detach"``.
            SubmitError: if it was not taken.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        with self._ending_what_it_leaves():
            self.start()
        return self.resume()

    def resume(self) -> AppResults:
        """Do what `run` does after the start."""
        with self._ending_what_it_leaves():
            return self.collect(self.follow())

    async def run_async(self) -> AppResults:
        """Do what `run` does, without blocking the event loop. Cancelling the task is a kill."""
        import asyncio

        with self._ending_what_it_leaves():
            await self.start_async()
            status = await self.follow_async()
        return await asyncio.to_thread(self.collect, status)

    @contextmanager
    def _ending_what_it_leaves(self) -> Iterator[None]:
        """Give the app up if a BaseException other than Exception escapes, or after a kill."""
        try:
            yield
        except BaseException as exc:
            if self._driver.killed or not isinstance(exc, Exception):
                self.give_up()
            raise

    # -- start

    def start(self) -> Attached:
        """Submit the app or attach to it; return how. Errors as in `run`."""
        self._driver.need_launch()
        attached = self._driver.run(self._lifecycle.start(self._driver.moment()))
        self._take_up(attached)
        return attached

    async def start_async(self) -> Attached:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        self._driver.need_launch()
        steps = self._lifecycle.start(self._driver.moment())
        try:
            attached = await self._driver.run_async(steps)
        except asyncio.CancelledError:
            self.kill()  # a submit under way in its thread is undone there
            raise
        self._take_up(attached)
        return attached

    def _take_up(self, attached: Attached) -> None:
        self.attach(attached.handle)
        if attached.status is not None:
            emit(attached.handle, attached.status)  # nobody may have seen it so far

    def attach(self, handle: str) -> None:
        """Take an app that is known by its handle, in place of `start`; nothing is asked or
        submitted.
        """
        self._driver.attach(handle)

    def dry_run(self) -> str:
        """Return what would be submitted, as text for a person; it touches nothing outside of this
        process.

        Raises SpecError and ConfigError, as `run` does.
        """
        return repr(self._driver.dry_run())

    # -- follow

    def follow(self) -> AppStatus:
        """Block until the app has ended, handing on logs and changes; return its final status.
        Errors as in `run`.
        """
        return self._driver.run(self._lifecycle.follow(self._driver.moment()))

    def follow_for(self, seconds: float) -> bool:
        """Do what `follow` does for so many seconds; tell whether the app has ended. Errors as in
        `run`.
        """
        end = time.monotonic() + seconds
        steps = self._lifecycle.follow(self._driver.moment())
        return self._driver.run_until(steps, end) is not None

    async def follow_async(self) -> AppStatus:
        """Do what `follow` does, without blocking the event loop."""
        return await self._driver.run_async(self._lifecycle.follow(self._driver.moment()))

    def poll(self, status: AppStatus | None = None, *, asked: bool = False) -> Observation:
        """Look once, hand on new log lines, and return what was seen; never wait, never raise for
        an app that fails.

        A limit that has passed, or a kill, cancels the app; what became of it is seen later.

        Args:
            status: what the scheduler said, where the host has asked for many at once
                (``Runner.status_many``).
            asked: ``status`` is that answer (None then means: gone).
        """
        handle = self._need_handle()
        if not asked:
            status = self.runner.status(handle)
        since = None
        if status is not None:
            since = unknown_since(status.state, self._state.unknown_since)
            self._emit_change(handle, status)
        seen = observed(handle, status, self.options.patience, since)
        with suppress(AppLost, Detached, StateUnknown, TransloadTimeout):
            self._driver.run_now(self._lifecycle.look(self._driver.moment(), seen))
        if seen.final and not seen.exhausted:
            self._driver.logs().finish()
        else:
            self._driver.logs().pump()
        return seen

    def _emit_change(self, handle: str, status: AppStatus) -> None:
        """Report a new state to plugins; where the app is followed, the follower does it."""
        before = self.status
        if (
            before is None
            or status.state is not before.state
            or status.num_restarts != before.num_restarts
        ):
            emit(handle, status)

    def lost(self) -> AppLost:
        """Note in the host's store that the app is gone, so that a retry answers with the next
        attempt.
        """
        handle = self._need_handle()
        self._driver.run_now(self._lifecycle.lose(self._driver.moment()))
        return AppLost(handle)

    # -- the end

    def collect(self, status: AppStatus | None = None) -> AppResults:
        """Return the results of an app that has ended well; success is decided by its state, not by
        results.

        Args:
            status: its final status; default: the latest that was seen.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            TransloadTimeout: if it was cancelled because a limit had passed.
        """
        return self._driver.run_now(self._lifecycle.collect(self._driver.moment(), status))

    def kill(self, asked: bool | None = None) -> None:
        """End the unit of work: the app is cancelled if somebody asked for that end, and else goes
        on.

        With ``on_kill="detach"`` it goes on in any case. It only sets a flag and wakes whoever
        starts, follows or polls
        the app: it may be called from a signal handler, repeatedly. A blocked `follow` goes on
        until a cancelled app has ended; where the app goes on, it raises `Detached`.

        Args:
            asked: whether somebody asked for it; None: to be found out (see ``asked`` of the
                class).
        """
        if asked is not None:
            self._driver.was_asked = asked or bool(self._driver.was_asked)
        self._driver.kill()

    def give_up(self, asked: bool | None = None) -> bool:
        """Do what `kill` does, at once: for a host that does not wait any more. Not for a signal
        handler.

        After a limit that the host keeps (``deadline``) it is cancelled in any case.

        Args:
            asked: as of `kill`.

        Returns:
            False if an app that is to end could not be cancelled yet: to be called again as long as
                that can be done.
        """
        self.kill(asked)
        if self._driver.submitting:
            return False  # undone by whoever submits, as soon as it is over
        return self._driver.run_now(self._lifecycle.give_up(self._driver.moment()))

    def cancel(self) -> bool:
        """Cancel the app whatever ``on_kill`` says, if there is one: for a limit that the host
        itself keeps.

        Returns:
            False if that did not come through: its scheduler could not be reached, or this process
                has trouble.
        """
        return self._driver.run_now(self._lifecycle.cancel(self._driver.moment()))

    def link(self) -> str | None:
        """Return the full address of a page about the app: a plugin's, else its scheduler's; None
        if there is none.
        """
        return page_of(self.runner, self._need_handle())

    # -- across processes

    def state(self) -> dict[str, Any]:
        """Return JSON values from which `from_state` goes on in another process. No secrets are in
        them.
        """
        state = self._state
        if state.handle is not None:
            scheduler = parse_app_handle(state.handle).scheduler_backend
            state = replace(
                state,
                cluster=self.runner.cluster(scheduler),
                cursor=self._driver.logs().cursor,
            )
        return state.to_dict(time.monotonic())

    @staticmethod
    def from_state(state: Mapping[str, Any], runner: Runner, **traces: Any) -> Execution:
        """Return an execution that goes on where `state` was taken; it can follow, collect and
        kill, not start.

        Args:
            state: from `state`, after any trip through JSON.
            runner: of the same session name.
            traces: ``store``, ``log_store``, ``sink``, ``log``, ``on_change`` of `Execution`.

        Raises:
            SpecError: if it is not such a state, or of a newer version.
        """
        taken = LifecycleState.from_dict(state, time.monotonic())
        execution = Execution(runner, None, taken.identity, taken.options, **traces)
        execution._driver.restore(taken)
        return execution

    def can_defer(self, same_machine: bool | None = None) -> bool:
        """Tell whether a process other than the submitting one may wait for the app.

        Args:
            same_machine: that process runs on the machine of the submitting one; None: it is this
                process.
        """
        reach = self._driver.locate(self._need_handle())[0].capabilities.reachable_from
        if same_machine is None:
            same_machine = self._state.place == where()
        return reach == "network" or (reach == "host" and same_machine)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another execution.

        Raises:
            SpecError: if it is not such a state, or of a newer version.
        """
        before = self._state
        taken = LifecycleState.from_dict(state, time.monotonic())
        taken.identity = before.identity
        taken.options = before.options
        taken.status = taken.status or before.status
        taken.passed = taken.passed or before.passed
        taken.cancelled = taken.cancelled or before.cancelled
        self._driver.restore(taken)

    def _need_handle(self) -> str:
        if self.handle is None:
            raise ConfigError("this execution has no app yet: call start() first")
        return self.handle


def _log(message: str) -> None:
    import logging

    logging.getLogger("transload.pipelines").info("%s", message)
