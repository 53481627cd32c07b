"""Running the apps of trials: the policy is core's, here it only meets Ax, of which nothing is imported.

Ax asks now and then about many trials at a time, so that what other hosts do in one call, `run_app`, is `TrialApps`
here: start, poll, stop, wait.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, StateUnknown, TransloadError
from transload.following import Observation, Patience, Subscription, longer, watch
from transload.pipelines import AppLost, Ending, Execution, ExecutionOptions, Identity, host_runner
from transload.runtime.tracking import FsspecResultTracker, TrackingError
from transload.specs import AppDef, AppState, AppStatus, is_terminal, make_app_handle, parse_app_handle
from transload_ax.states import ENDINGS, STATES
from transload_ax.units import MARK, Seen, TrialLaunch, Unit, log_sink

if TYPE_CHECKING:
    from transload.pipelines import AttachStore, Launch
    from transload.runner import Runner

HOST: Final = "ax"
"""Session name of all handles."""

CLOSE_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

logger = logging.getLogger("transload_ax")


def identity_of(unit: Unit, namespace: str, generation: int = 0) -> Identity:
    """Return whose app it is: equal whenever a trial is run again, another one for other parameters of its number."""
    return Identity(HOST, namespace, unit.key, str(generation))


def execution_of(
    unit: Unit, identity: Identity, launch: Launch | None, options: ExecutionOptions, runner: Runner, **more: Any
) -> Execution:
    """Return the execution of a trial's app; without a launch it can only be attached to.

    Args:
        unit: the trial, or an arm of it.
        identity: see `identity_of`.
        launch: what to submit.
        options: how apps are run.
        runner: submits and asks.
        more: other arguments of `transload.pipelines.Execution`.
    """
    return Execution(runner, launch, identity, options, **traces_of(unit), **more)


def traces_of(unit: Unit) -> dict[str, Any]:
    """Return where a trial leaves what it knows of its app: arguments of `transload.pipelines.Execution`."""
    return {
        "sink": log_sink(unit),
        "log": lambda line: logger.info("trial %s: %s", "/".join(unit.key), line),
    }


def ending_of(handle: str, error: TransloadError) -> Seen:
    """Return what Ax is told of an app that did not end well; one that may still run is left alone."""
    ending = Ending.of(error)
    return Seen(handle, ENDINGS[ending], str(error), left=ending is Ending.UNKNOWN)


@dataclass
class _Live:
    """An app that has not been seen to end."""

    execution: Execution
    subscription: Subscription | None = None
    owed: bool = False  # its end was asked for, and the scheduler could not be reached


class TrialApps:
    """The apps of an experiment's trials, as one process sees them.

    Args:
        namespace: tells this experiment from others of its name; see `transload.pipelines.Identity`.
        options: how apps are run.
        inherit_env: give jobs the whole environment of this process.
    """

    def __init__(self, namespace: str, options: ExecutionOptions, *, inherit_env: bool = False) -> None:
        self.namespace = namespace
        self.options = options
        self._inherit_env = inherit_env
        self._live: dict[Unit, _Live] = {}
        self._known: dict[Unit, tuple[str, str]] = {}
        self._news = threading.Event()
        self._watching = False
        self.moved = True

    @property
    def runner(self) -> Runner:
        """What submits and asks."""
        return host_runner(HOST, inherit_env=self._inherit_env)

    @property
    def live(self) -> dict[Unit, str]:
        """The apps that have not been seen to end: unit → handle."""
        return {unit: live.execution.handle or "" for unit, live in self._live.items()}

    # -- start

    def start(
        self,
        unit: Unit,
        launch: TrialLaunch,
        known: Mapping[str, Any],
        *,
        store: AttachStore | None = None,
        log_store: AttachStore | None = None,
    ) -> str:
        """Submit the app of a unit or attach to it; return its handle. A second call with equal values changes nothing.

        Args:
            unit: the unit.
            launch: what to submit; ``tracker_base`` is the unit's own.
            known: arguments that the component may declare.
            store: keeps what re-attaching needs.
            log_store: keeps how far logs were handed on.

        Raises:
            SubmitError: if it was not taken.
            SpecError: if the app is wrong.
            ConfigError: for an unknown scheduler or option.
            AppLost: if it was started before and is gone.
            StateUnknown: if the scheduler cannot say for longer than patience lasts.
        """
        before = self._known.get(unit)
        if before is not None and before[0] == launch.mark:
            return before[1]
        generation = self._generation(unit, launch, store)
        identity, more = identity_of(unit, self.namespace, generation), {"store": store, "log_store": log_store}
        execution = execution_of(unit, identity, launch, self.options, self.runner, known=known, **more)
        execution.start()
        return self._add(unit, execution, launch.mark)

    def attach(
        self, unit: Unit, handle: str, *, store: AttachStore | None = None, log_store: AttachStore | None = None
    ) -> None:
        """Follow an app that an earlier process started.

        Raises:
            TransloadError: if it is not a handle of a scheduler that is known here.
        """
        if unit in self._live:
            return
        identity, more = identity_of(unit, self.namespace), {"store": store, "log_store": log_store}
        execution = execution_of(unit, identity, None, self.options, self.runner, **more)
        execution.attach(handle)
        self.runner.status_many([handle])  # raises for what cannot be asked about
        self._add(unit, execution, self._known.get(unit, ("", ""))[0])

    def find(self, unit: Unit, scheduler: str, cfg: Mapping[str, Any]) -> str | None:
        """Return the handle of the unit's latest app, found by its id alone; None if there is none.

        Raises:
            SchedulerUnavailable: if that cannot be said.
        """
        found = None
        for generation in count():
            for attempt in count():
                app_id = self._app_id(unit, generation, attempt, scheduler, cfg)
                if self.runner.scheduler(scheduler).describe(app_id) is None:
                    break
                found = make_app_handle(scheduler, HOST, app_id)
            if attempt == 0:
                return found
        raise AssertionError("generations do not end")

    def _add(self, unit: Unit, execution: Execution, mark: str) -> str:
        assert execution.handle is not None
        self._live[unit] = live = _Live(execution)
        self._known[unit] = (mark, execution.handle)
        self.moved = True
        if self._watching:
            self._watch(live)
        return execution.handle

    def _generation(self, unit: Unit, launch: TrialLaunch, store: AttachStore | None) -> int:
        """Return the first generation that no app of other parameters has; such an app is ended first.

        An optimiser that died after a submit and before it was saved may give the same number to another trial.
        """
        record = store.get() if store is not None else None
        if record is not None:
            return int(record["generation"])
        scheduler = launch.scheduler or self.runner.settings.scheduler
        base = launch.tracker_base
        stray = False
        for generation in count():
            app_id = self._app_id(unit, generation, 0, scheduler, launch.cfg)
            app, status = self._ask(scheduler, app_id)
            if status is None and not stray:
                self._warn_of_results(unit, base)
            if status is None or not launch.mark or app is None or app.metadata.get(MARK, launch.mark) == launch.mark:
                return generation
            handle = make_app_handle(scheduler, HOST, app_id)
            logger.warning("%s has other parameters than trial %s now: it is ended", handle, unit.trial)
            self._end(handle, status)
            if base:
                FsspecResultTracker(base)[unit.trial] = {}
            stray = True
        raise AssertionError("generations do not end")

    def _app_id(self, unit: Unit, generation: int, attempt: int, scheduler: str, cfg: Mapping[str, Any]) -> str:
        return identity_of(unit, self.namespace, generation).app_id(attempt, self.runner, scheduler, cfg)

    def _ask(self, scheduler: str, app_id: str) -> tuple[AppDef | None, AppStatus | None]:
        patience, pause = Patience(self.options.patience), _FIRST_PAUSE
        while True:
            try:
                found = self.runner.scheduler(scheduler).describe(app_id)
            except SchedulerUnavailable as exc:
                if patience.observe(AppState.UNKNOWN):
                    handle = make_app_handle(scheduler, HOST, app_id)
                    raise StateUnknown(handle, patience.elapsed or 0.0, str(exc)) from exc
                time.sleep(min(pause, patience.left or pause))
                pause = longer(pause, _LONGEST_PAUSE)
                continue
            return (None, None) if found is None else (found.app, found.status)

    def _end(self, handle: str, status: AppStatus) -> None:
        if is_terminal(status.state):
            return
        self.runner.cancel(handle)
        self.runner.wait(handle, patience=self.options.patience)

    def _warn_of_results(self, unit: Unit, base: str | None) -> None:
        try:
            there = base is not None and unit.trial in FsspecResultTracker(base)
        except (TrackingError, OSError):
            return
        if there:
            warnings.warn(
                f"tracker base {base}: key {str(unit.trial)!r} is there before trial {unit.trial} is "
                "submitted: if the trial reports nothing, that old value is taken for its own",
                RuntimeWarning,
                stacklevel=2,
            )

    # -- look

    def poll(self, units: Iterable[Unit]) -> dict[Unit, Seen]:
        """Look at the apps of units once; one query per scheduler. Never raises; an ended app is looked at no more."""
        wanted = {unit: self._live[unit] for unit in units if unit in self._live}
        self._news.clear()
        handles = [live.execution.handle or "" for live in wanted.values()]
        try:
            found = self.runner.status_many(handles)
        except Exception as exc:
            logger.warning("apps could not be looked at, trying again: %s", exc)
            found = {handle: AppStatus(AppState.UNKNOWN, msg=f"{type(exc).__name__}: {exc}") for handle in handles}
        seen: dict[Unit, Seen] = {}
        for unit, live in wanted.items():
            handle = live.execution.handle or ""
            try:
                seen[unit] = self._look(unit, live, found.get(handle))
            except Exception:
                logger.exception("trial %s: %s could not be looked at", unit.trial, handle)
                seen[unit] = Seen(handle, None)
        self.moved = False
        return seen

    def _look(self, unit: Unit, live: _Live, status: AppStatus | None) -> Seen:
        seen = live.execution.poll(status, asked=True)
        if live.owed:
            self._cancel(live)
        if seen.exhausted:
            why = "" if status is None else status.msg
            return self._gone(unit, StateUnknown(seen.handle, seen.unknown_for, why))
        if status is None:
            return self._gone(unit, AppLost(seen.handle))
        if not is_terminal(status.state):
            return Seen(seen.handle, None if status.state is AppState.UNKNOWN else STATES[status.state])
        try:
            if status.state is not AppState.SUCCEEDED:
                live.execution.collect(status)
        except TransloadError as exc:
            return self._gone(unit, exc)
        self._drop(unit)
        return Seen(seen.handle, STATES[status.state])

    def _gone(self, unit: Unit, error: TransloadError) -> Seen:
        handle = self._live[unit].execution.handle or ""
        self._drop(unit)
        return ending_of(handle, error)

    def wait(self, seconds: float) -> bool:
        """Block until something changed with one of the live apps, or time ran out; return True for a change."""
        if not self._watching:
            self._watching = True
            for live in self._live.values():
                self._watch(live)
        return self._news.wait(seconds)

    def _watch(self, live: _Live) -> None:
        def tell(observation: Observation) -> None:
            self._news.set()

        handle, options = live.execution.handle or "", self.options
        scheduler = self.runner.scheduler(parse_app_handle(handle).scheduler_backend)
        live.subscription = watch(
            scheduler, handle, tell, patience=options.patience, poll_interval=options.poll_interval
        )

    def _drop(self, unit: Unit) -> None:
        live = self._live.pop(unit)
        self.moved = True
        if live.subscription is not None:
            live.subscription.close()

    # -- stop

    def stop(self, unit: Unit, handle: str) -> None:
        """Cancel the app of a unit; what has ended stays as it is. If it cannot be reached, it is tried again.

        Raises:
            TransloadError: if it is not a handle of a scheduler that is known here.
        """
        live = self._live.get(unit)
        if live is None:
            status = self.runner.status(handle)
            if status is None or is_terminal(status.state):
                return
            self.attach(unit, handle)
            live = self._live[unit]
        self._cancel(live)

    def _cancel(self, live: _Live) -> None:
        handle = live.execution.handle or ""
        live.owed = False
        try:
            self.runner.cancel(handle)
        except AppNotFound:
            return
        except SchedulerUnavailable as exc:
            live.owed = True
            logger.warning("%s could not be cancelled, trying again: %s", handle, exc)

    def close(self, *, cancel: bool | None = None, seconds: float = CLOSE_SECONDS) -> list[str]:
        """Let go of all apps; return the handles of those that were cancelled.

        Args:
            cancel: end those that run, and wait for their end; None: as ``on_kill`` says.
            seconds: how long to wait for their end.
        """
        if cancel is None:
            cancel = self.options.on_kill == "cancel"
        ended: list[str] = []
        if cancel:
            end = time.monotonic() + seconds
            ended = [live.execution.handle or "" for live in self._live.values()]
            self._cancel_all(end)
            self._await(ended, end)
        for unit in list(self._live):
            self._drop(unit)
        return ended

    def _cancel_all(self, end: float) -> None:
        """Cancel all apps; where that fails, again, as long as there is time."""
        pause, left = _FIRST_PAUSE, [*self._live.values()]
        while True:
            for live in left:
                try:
                    self._cancel(live)
                except Exception as exc:
                    live.owed = True
                    logger.warning("%s could not be cancelled, trying again: %s", live.execution.handle, exc)
            left = [live for live in left if live.owed]
            if not left or time.monotonic() >= end:
                return
            time.sleep(pause)
            pause = longer(pause, _LONGEST_PAUSE)

    def _await(self, handles: list[str], end: float) -> None:
        for handle in handles:
            left = max(0.01, end - time.monotonic())
            try:
                self.runner.wait(handle, timeout=left, patience=left)
            except TransloadError as exc:
                logger.warning("%s was cancelled; its end was not seen: %s", handle, exc)

    def __deepcopy__(self, memo: dict[int, Any]) -> TrialApps:
        return self  # processes cannot be copied
