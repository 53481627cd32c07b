"""One app as one unit of work of a host: attach or submit, follow, collect, cancel; sync, async,
across processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppFailed, AppNotFound, ConfigError, TransloadError, TransloadTimeout
from transload.pipelines.attacher import Attached, Attacher
from transload.pipelines.end_requests import Asked, interrupted, somebody_asked
from transload.pipelines.errors import AppCancelled, AppLost, Detached
from transload.pipelines.identity import Identity, where
from transload.pipelines.logs import LogForwarder, LogSink
from transload.pipelines.options import ExecutionOptions, OnKill, next_limit, note_state
from transload.pipelines.told import end_line, failure_message, page_of, reach
from transload.runner.clusters import Cluster
from transload.runner.logs import tail
from transload.schedulers.follower import emit, watch
from transload.schedulers.patience import backoff, unknown_for, unknown_since
from transload.schedulers.subscription import Observation, Subscription, ended, observed
from transload.specs import AppState, AppStatus, parse_app_handle
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transload.pipelines.attach import AttachStore
    from transload.runner import AppResults, Launch, Runner
    from transload.schedulers.api import SchedulerBase

_AGAIN_S: Final = (1.0, 30.0)
"""Seconds after which a cancel that did not come through is tried again: at first, and at most."""


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
        self._runner = runner
        self.identity = identity
        self.options = options or ExecutionOptions()
        self.handle: str | None = None
        self.attempt: int | None = None
        self.status: AppStatus | None = None
        self._store, self._log_store, self._sink = store, log_store, sink
        self.log, self._on_change = log or _log, on_change
        self._killed = self._cancelled = False
        self._asked = asked
        self._was_asked: bool | None = None  # None: not known yet
        self._passed: str | None = None
        self._why_not = ""  # it could not be cancelled
        self._cancel_due, self._cancel_pause = 0.0, _AGAIN_S[0]
        self._news: Subscription | None = None
        self._forwarder: LogForwarder | None = None
        self._cursor: dict[str, Any] | None = None
        self._place = where()
        self._unknown_since: float | None = None
        self._first_seen: dict[str, float] = {}
        self._attacher: Attacher | None = None
        if launch is not None:
            self._attacher = Attacher(
                given=runner,
                launch=launch,
                identity=identity,
                options=self.options,
                store=store,
                log=self.log,
                context_args=context_args or {},
                host_retries=host_retries,
                stop=self._stop,
                kill=self.kill,
                cancel=self.cancel,
            )

    @property
    def runner(self) -> Runner:
        """The runner, which knows the cluster of the app."""
        return self._runner if self._attacher is None else self._attacher.runner

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
        """Make what is no ordinary error (a signal's exception, a cancelled task) a kill of the
        unit.
        """
        try:
            yield
        except BaseException as exc:
            if self._killed or not isinstance(exc, Exception):
                self.give_up()
            raise

    # -- start

    def start(self) -> Attached:
        """Submit the app or attach to it; return how. Errors as in `run`."""
        with self._within_limit():
            return self._started(self._need_attacher().start(self._following))

    async def start_async(self) -> Attached:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        try:
            with self._within_limit():
                return self._started(await self._need_attacher().start_async(self._following))
        except asyncio.CancelledError:
            self.kill()  # a submit under way in its thread is undone there
            raise

    @contextmanager
    def _within_limit(self) -> Iterator[None]:
        """Say so if it was a limit that passed before the app was there."""
        try:
            yield
        except Detached as exc:
            if self._passed is None:
                raise
            attacher, what = self._need_attacher(), "nothing was submitted"
            if attacher.intended is not None:
                what = (
                    f"{attacher.intended} {'was' if attacher.undone else 'could not be'} cancelled"
                )
            raise TransloadTimeout(f"{what}: {self._passed}") from exc

    def attach(self, handle: str) -> None:
        """Take an app that is known by its handle, in place of `start`; nothing is asked or
        submitted.
        """
        self.handle, self._cursor, self._forwarder = handle, None, None

    def dry_run(self) -> str:
        """Return what would be submitted, as text for a person; it touches nothing outside of this
        process.

        Raises SpecError and ConfigError, as `run` does.
        """
        return repr(self._need_attacher().dry_run())

    def _started(self, attached: Attached) -> Attached:
        self.attach(attached.handle)
        self.attempt = attached.attempt
        if attached.status is not None:
            self._note(attached.status)
        return attached

    # -- follow

    def follow(self) -> AppStatus:
        """Block until the app has ended, handing on logs and changes; return its final status.
        Errors as in `run`.
        """
        self.follow_for(float("inf"))
        assert self.status is not None
        return self.status

    def follow_for(self, seconds: float) -> bool:
        """Do what `follow` does for so many seconds; tell whether the app has ended. Errors as in
        `run`.
        """
        end = time.monotonic() + seconds
        if self.status is None or not self.status.is_terminal():
            with self._following(self._need_handle(), unknown_for(self._unknown_since)) as news:
                try:
                    while True:
                        left = end - time.monotonic()
                        if left <= 0:
                            return False
                        if self._take(news.next(min(left, self._tick()))):
                            break
                        if self._logs.due:
                            self._logs.pump()
                        self._logs.follow(news.wake, here=True)
                finally:
                    self._logs.stop()
        self._logs.finish()
        return True

    async def follow_async(self) -> AppStatus:
        """Do what `follow` does, without blocking the event loop and without a thread of its
        own.
        """
        import asyncio

        if self.status is None or not self.status.is_terminal():
            with self._following(self._need_handle(), unknown_for(self._unknown_since)) as news:
                try:
                    while True:
                        seen = await news.next_async(self._tick())
                        if self._killed:
                            await asyncio.to_thread(self._stop)  # it may have to ask
                        if self._take(seen):
                            break
                        if self._logs.due:
                            self._logs.pump()
                        self._logs.follow(news.wake, here=False)
                finally:
                    await asyncio.to_thread(self._logs.stop)
        await asyncio.to_thread(self._logs.finish)
        assert self.status is not None
        return self.status

    @contextmanager
    def _following(self, handle: str, waited: float = 0.0) -> Iterator[Subscription]:
        """Give the observations of an app; a kill wakes who waits for them."""
        scheduler, options = self._locate(handle)[0], self.options
        longest = options.poll_interval
        with watch(
            scheduler, handle, patience=options.patience, unknown_for=waited, poll_interval=longest
        ) as news:
            self._news = news
            try:
                if self._killed:
                    news.wake()
                yield news
            finally:
                self._news = None

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
        if status is not None:
            before = self.status
            if before is None or (before.state, before.num_restarts) != (
                status.state,
                status.num_restarts,
            ):
                emit(handle, status)
            self._note(status)
        if status is None or not status.is_terminal():
            self._obey()
        seen = observed(
            handle, status, self.options.patience, None if status is None else self._unknown_since
        )
        if status is None:
            self.lost()
        if seen.final and not seen.exhausted:
            self._logs.finish()
        else:
            self._logs.pump()
        return seen

    def _tick(self) -> float:
        """Return the seconds until there is something to do besides taking observations."""
        waits = (self._killed or self._passed) and not self._cancelled
        again = max(self._cancel_due - time.monotonic(), 0.01) if waits else float("inf")
        left = min(next_limit(self.options, self._first_seen)[0] - time.time(), self._logs.pause)
        return again if self._passed else max(0.0, min(again, left))

    def _take(self, observation: Observation | None) -> bool:
        """Act on what was seen; return True once the app has ended."""
        if self._stop() == "detach":
            raise Detached(self.handle, asked=self.options.on_kill == "detach")
        if observation is not None:
            over = ended(observation)
            if observation.status is None:
                raise self.lost()
            self._note(observation.status)
            if over:
                return True
        self._obey()
        if self._passed is not None and self._cancelled:
            raise TransloadTimeout(f"{self.handle} was cancelled: {self._passed}")
        return False

    def _stop(self) -> OnKill | None:
        """Return what is to become of the app, if something ended the unit or a limit has
        passed.
        """
        end, why = next_limit(self.options, self._first_seen)
        if self._passed is None and time.time() >= end:
            self._passed = why
        if self._passed is not None:
            return "cancel"
        if not self._killed:
            return None
        if self.options.on_kill == "detach" or not self._end_was_asked_for():
            return "detach"
        return "cancel"

    def _end_was_asked_for(self) -> bool:
        """Tell whether what ended the unit was somebody's wish; the host is asked once, if it did
        not say.
        """
        if self._was_asked is None:
            self._was_asked = somebody_asked(self.runner, self._asked)
            if not self._was_asked:
                self._say_that_it_goes_on()
        return self._was_asked

    def _say_that_it_goes_on(self) -> None:
        handle = self.handle or (self._attacher and self._attacher.intended)
        if handle is None:
            return
        self.log(f"nobody asked for the end of {handle}: it goes on, and the next try reattaches")

    def _done(self) -> bool:
        return self._cancelled or (self._attacher is not None and self._attacher.undone)

    def _obey(self) -> None:
        """Cancel the app if the host was told to end it, or a limit has passed; try again until
        that got through.
        """
        now = time.monotonic()
        if self._stop() == "cancel" and not self._done() and now >= self._cancel_due:
            self._cancelled = self.cancel()
            self._cancel_due, self._cancel_pause = (
                now + self._cancel_pause,
                backoff(self._cancel_pause, _AGAIN_S[1]),
            )

    def _note(self, status: AppStatus) -> None:
        changed = (
            self.status is None or status.state is not self.status.state or status != self.status
        )
        before, self._unknown_since = (
            self._unknown_since,
            unknown_since(status.state, self._unknown_since),
        )
        if (before is None) is not (self._unknown_since is None):
            self.log(reach(self._need_handle(), before is None, status.msg))
        if (waits := status.why_waiting()) and waits != (self.status and self.status.why_waiting()):
            self.log(f"{self.handle} is {status.state}: {waits}")
        self.status = status
        note_state(self._first_seen, status.state, time.time())
        if changed and self._on_change is not None:
            self._on_change(status)

    def lost(self) -> AppLost:
        """Note in the host's store that the app is gone, so that a retry answers with the next
        attempt.
        """
        record = None if self._store is None else self._store.get()
        if self._store is not None and record is not None and record.get("handle") == self.handle:
            self._store.put({**record, "lost": True})
        return AppLost(self._need_handle())

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
        status = status or self.status
        handle = self._need_handle()
        if status is None or not status.is_terminal():
            raise ConfigError(
                f"{handle} has not ended ({status.state if status else 'not seen yet'}): follow it "
                "first"
            )
        with suppress(TransloadError):
            found = self.runner.description(handle)
            self.log(end_line(handle, status, None if found is None else found.created))
            for line in status.short_of_memory(None if found is None else found.app):
                self.log(f"warning: {line}")
        if status.state is AppState.SUCCEEDED:
            try:
                results = self.runner.results(handle)
            except AppNotFound as exc:
                raise AppLost(handle, "it was deleted before its results were read") from exc
            for line in results.lines():
                self.log(line)
            for line in results.refusals():
                self.log(f"warning: not read: {line}")
            return results
        if status.state is AppState.CANCELLED and self._passed is not None:
            raise TransloadTimeout(f"{handle} was cancelled: {self._passed}")
        kept = self.options.tail_lines  # of all it wrote: this host may have handed on a part of it
        message = failure_message(
            status,
            lambda role, k: tail(*self._locate(handle), role, k, kept, status),
            handle=handle,
            lines=kept,
        )
        if status.state is AppState.CANCELLED:
            raise AppCancelled(status, message)
        raise AppFailed(status, message)

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
            self._was_asked = asked or bool(self._was_asked)
        self._killed = True
        news = self._news
        if news is not None:
            news.wake()

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
        self._cancel_due = 0.0
        if self._attacher is not None and self._attacher.submitting:
            return False  # undone by whoever submits, as soon as it is over
        self._obey()
        return self._done() or self._stop() != "cancel"

    def cancel(self) -> bool:
        """Cancel the app whatever ``on_kill`` says, if there is one: for a limit that the host
        itself keeps.

        Returns:
            False if that did not come through: its scheduler could not be reached, or this process
                has trouble.
        """
        # what was submitted a moment ago may not have been handed over yet
        handle = self.handle or (self._attacher.intended if self._attacher is not None else None)
        if handle is None:
            return True
        try:
            self.runner.cancel(handle)
        except AppNotFound:
            return True
        except Exception as exc:  # an error that nobody foresaw is no reason to forget it
            if str(exc) != self._why_not:
                self._why_not = str(exc)
                self.log(f"{handle} could not be cancelled: {exc}")
            return False
        return True

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
        identity, handle, cluster = self.identity, self.handle, None
        if handle is not None:
            cluster = self.runner.cluster(parse_app_handle(handle).scheduler_backend).to_dict()
        return {
            "schema": SCHEMA,
            "handle": handle,
            "cluster": cluster,
            "attempt": self.attempt,
            "identity": [
                identity.host,
                identity.namespace,
                list(identity.key),
                identity.generation,
            ],
            "options": self.options.to_dict(),
            "status": None if self.status is None else self.status.to_json(),
            "cursor": None if handle is None else self._logs.cursor,
            "counts": dict(self._first_seen),
            "unknown_for": unknown_for(self._unknown_since),
            "place": self._place,
        }

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
        with reading("state of an execution", state):
            host, namespace, key, generation = state["identity"]
            options = ExecutionOptions.from_dict(state["options"])
            identity = Identity(host, namespace, tuple(key), generation)
        execution = Execution(runner, None, identity, options, **traces)
        execution.restore(state)
        return execution

    def can_defer(self, same_machine: bool | None = None) -> bool:
        """Tell whether a process other than the submitting one may wait for the app.

        Args:
            same_machine: that process runs on the machine of the submitting one; None: it is this
                process.
        """
        reach = self._locate(self._need_handle())[0].capabilities.reachable_from
        here = self._place == where() if same_machine is None else same_machine
        return reach == "network" or (reach == "host" and here)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another execution.

        Raises:
            SpecError: if it is not such a state, or of a newer version.
        """
        with reading("state of an execution", state):
            self.handle, self.attempt = state["handle"], state["attempt"]
            if state.get("cluster"):
                self._runner = self.runner.with_clusters(Cluster.from_dict(state["cluster"]))
                if self._attacher is not None:
                    self._attacher.runner = self._runner
            self._cursor, self._forwarder = state.get("cursor"), None
            self._first_seen = dict(state.get("counts") or {})
            self._place = state.get("place") or self._place
            waited = state.get("unknown_for")
            self._unknown_since = time.monotonic() - waited if waited else None
            if state.get("status"):
                self.status = AppStatus.from_json(state["status"])

    # -- parts

    def _need_attacher(self) -> Attacher:
        if self._attacher is None:
            raise ConfigError(
                "this execution was made from a state: it can follow and collect, not start"
            )
        return self._attacher

    def _need_handle(self) -> str:
        if self.handle is None:
            raise ConfigError("this execution has no app yet: call start() first")
        return self.handle

    @property
    def _logs(self) -> LogForwarder:
        handle = self._need_handle()
        if self._forwarder is None:
            place, options, kept = (
                partial(self._locate, handle),
                self.options,
                (self._log_store, self._cursor),
            )
            self._forwarder = LogForwarder(handle, place, self._sink, options, *kept)
        return self._forwarder

    def _locate(self, handle: str) -> tuple[SchedulerBase, str]:
        parsed = parse_app_handle(handle)
        return self.runner.scheduler(parsed.scheduler_backend), parsed.app_id


def _log(message: str) -> None:
    import logging

    logging.getLogger("transload.pipelines").info("%s", message)
