"""Running the apps of trials: the policy is core's, here it only meets Ax, of which nothing is
imported.

Ax asks now and then about many trials at a time, so that what other hosts do in one call,
`run_app`, is `TrialApps` here: start, poll, stop, wait.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable, StateUnknown, TransloadError
from transload.pipelines import (
    AppLost,
    Ending,
    Execution,
    ExecutionOptions,
    Identity,
    app_id_of,
    host_runner,
    interrupted,
    somebody_asked,
)
from transload.runner import Cluster
from transload.runtime.tracking import FsspecResultTracker, TrackingError
from transload.schedulers import (
    Observation,
    Subscription,
    backoff,
    patience_left,
    unknown_for,
    unknown_since,
    watch,
)
from transload.specs import (
    AppState,
    AppStatus,
    CfgVal,
    is_terminal,
    make_app_handle,
    parse_app_handle,
)
from transload_ax.states import ENDINGS, STATES
from transload_ax.units import (
    HOST,
    LOGS,
    MARK,
    RECORD,
    JobView,
    MetadataStore,
    TrialKey,
    TrialLaunch,
    log_sink,
)

if TYPE_CHECKING:
    from transload.pipelines import Launch
    from transload.runner import Runner
    from transload.schedulers import AppDescription

CLOSE_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

logger = logging.getLogger("transload_ax")


def identity_of(unit: TrialKey, namespace: str, generation: int = 0) -> Identity:
    """Return whose app it is: equal whenever a trial is run again, another one for other parameters
    of its number.
    """
    return Identity(HOST, namespace, unit.key, str(generation))


def execution_of(
    apps: TrialApps, unit: TrialKey, launch: Launch | None, generation: int = 0, **more: Any
) -> Execution:
    """Return the execution of a trial's app; without a launch it can only be attached to.

    Args:
        apps: the experiment's apps.
        unit: the trial, or an arm of it.
        launch: what to submit.
        generation: see `TrialApps.start`.
        more: other arguments of `transload.pipelines.Execution`; see `traces_of`.
    """
    return Execution(
        apps.runner, launch, identity_of(unit, apps.namespace, generation), apps.options, **more
    )


def traces_of(
    unit: TrialKey, metadata: MutableMapping[str, Any], changed: Callable[[], None]
) -> dict[str, Any]:
    """Return where a trial leaves what it knows of its app: arguments of
    `transload.pipelines.Execution`.
    """
    arm = f"/{unit.arm}" if unit.arm else ""
    return {
        "sink": log_sink(unit),
        "log": _log_of(unit),
        "store": MetadataStore(metadata, RECORD + arm, changed),
        "log_store": MetadataStore(metadata, LOGS + arm, changed),
    }


def _log_of(unit: TrialKey) -> Callable[[str], None]:
    """Return what takes lines about a unit's app; an app that cannot be ended is warned of, once
    for each reason.
    """
    told: set[str] = set()

    def log(line: str) -> None:
        loud = "could not be cancelled" in line and line not in told
        told.add(line)
        logger.log(
            logging.WARNING if loud else logging.INFO, "trial %s: %s", "/".join(unit.key), line
        )

    return log


@contextmanager
def cancel_on_exit() -> Iterator[None]:
    """Have SIGTERM leave as an exit does, so that what runs is stored; a handler of somebody else's
    stays.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def ending_of(handle: str, error: TransloadError) -> JobView:
    """Return what Ax is told of an app that did not end well; one that may still run is left
    alone.
    """
    ending = Ending.of(error)
    return JobView(handle, ENDINGS[ending], str(error), abandoned=ending is Ending.UNKNOWN)


class TrialApps:
    """The apps of an experiment's trials, as one process sees them.

    Args:
        namespace: tells this experiment from others of its name; see
            `transload.pipelines.Identity`.
        scheduler: where they run.
        cfg: its run options.
        options: how apps are run.
        inherit_env: give jobs the whole environment of this process.
    """

    def __init__(
        self,
        namespace: str,
        scheduler: str,
        cfg: Mapping[str, CfgVal],
        options: ExecutionOptions,
        *,
        inherit_env: bool = False,
    ) -> None:
        self.namespace = namespace
        self.scheduler = scheduler
        self.cfg = dict(cfg)
        self.options = options
        self._inherit_env = inherit_env
        self._clusters: dict[str, Cluster] = {}
        self._live: dict[TrialKey, Execution] = {}
        self._known: dict[TrialKey, tuple[str, str]] = {}
        self._watched: dict[TrialKey, Subscription] = {}
        self._watching = False
        self._news = threading.Event()
        self._away = False
        self.moved = True

    @property
    def runner(self) -> Runner:
        """What submits and asks."""
        return host_runner(HOST, inherit_env=self._inherit_env, clusters=self._clusters.values())

    @property
    def live(self) -> dict[TrialKey, str]:
        """The apps that have not been seen to end: unit → handle."""
        return {unit: str(execution.handle) for unit, execution in self._live.items()}

    # -- start

    def start(
        self,
        unit: TrialKey,
        launch: TrialLaunch,
        known: Mapping[str, Any],
        traces: Mapping[str, Any],
    ) -> str:
        """Submit the app of a unit or attach to it; return its handle. A second call with equal
        values changes nothing.

        Args:
            unit: the unit.
            launch: what to submit; ``tracker_base`` is the unit's own.
            known: arguments that the component may declare.
            traces: see `traces_of`.

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
        record = traces["store"].get()
        generation = (
            int(record["generation"]) if record is not None else self._generation(unit, launch)
        )
        execution = execution_of(self, unit, launch, generation, context_args=known, **traces)
        execution.start()
        return self._add(unit, execution, launch.mark)

    def attach(self, unit: TrialKey, handle: str, traces: Mapping[str, Any]) -> None:
        """Follow an app that an earlier process started, on the cluster that it knew.

        Raises:
            TransloadError: if it is not a handle of a scheduler that is known here.
        """
        if unit in self._live:
            return
        record = traces["store"].get()
        if record is not None and record.get("cluster"):
            cluster = Cluster.from_dict(record["cluster"])
            self._clusters[cluster.name] = cluster
        execution = execution_of(self, unit, None, **traces)
        execution.attach(handle)
        self.runner.status_many([handle])  # raises for what cannot be asked about
        self._add(unit, execution, self._known.get(unit, ("", ""))[0])

    def find(self, unit: TrialKey) -> str | None:
        """Return the handle of the unit's latest app, found by its id alone; None if there is none.

        Raises:
            SchedulerUnavailable: if that cannot be said.
        """
        found = None
        for generation in count():
            for attempt in count():
                app_id = self._app_id(unit, generation, attempt)
                if self.runner.scheduler(self.scheduler).describe(app_id) is None:
                    break
                found = make_app_handle(self.scheduler, HOST, app_id)
            if attempt == 0:
                return found
        raise AssertionError("generations do not end")

    def _add(self, unit: TrialKey, execution: Execution, mark: str) -> str:
        self._live[unit] = execution
        self._known[unit] = (mark, str(execution.handle))
        self.moved = True
        if self._watching:
            self._watch(unit)
        return str(execution.handle)

    def _generation(self, unit: TrialKey, launch: TrialLaunch) -> int:
        """Return the first generation that no app of other parameters has; such an app is ended
        first.

        An optimiser that died after a submit and before it was saved may give the same number to
        another trial.
        """
        base = launch.tracker_base
        for generation in count():
            app_id = self._app_id(unit, generation)
            found = self._describe(app_id)
            if found is None and generation == 0 and base is not None:
                self._warn_of_results(unit, base)
            mark = (
                launch.mark
                if found is None or found.app is None
                else found.app.metadata.get(MARK, launch.mark)
            )
            if not launch.mark or mark == launch.mark:
                return generation
            handle = make_app_handle(self.scheduler, HOST, app_id)
            logger.warning(
                "%s has other parameters than trial %s now: it is ended", handle, unit.trial
            )
            if found is not None and not is_terminal(found.status.state):
                self.runner.cancel(handle)
                self.runner.wait(handle, patience=self.options.patience)
            if base is not None:
                FsspecResultTracker(base)[unit.trial] = {}
        raise AssertionError("generations do not end")

    def _app_id(self, unit: TrialKey, generation: int, attempt: int = 0) -> str:
        made = app_id_of(identity_of(unit, self.namespace, generation), attempt)
        return self.runner.qualified_id(made, self.scheduler, self.cfg)

    def _describe(self, app_id: str) -> AppDescription | None:
        since, pause = None, _FIRST_PAUSE
        while True:
            try:
                found = self.runner.scheduler(self.scheduler).describe(app_id)
                if since is not None:
                    self._tell("")
                return found
            except SchedulerUnavailable as exc:
                self._tell(f"{self.scheduler} cannot be reached, waiting: {exc}")
                since = unknown_since(AppState.UNKNOWN, since)
                left = patience_left(self.options.patience, since)
                if left <= 0:
                    handle = make_app_handle(self.scheduler, HOST, app_id)
                    raise StateUnknown(handle, unknown_for(since), str(exc)) from exc
                time.sleep(min(pause, left))
                pause = backoff(pause, _LONGEST_PAUSE)

    def _tell(self, away: str) -> None:
        """Say once that apps are out of reach, and once that they are not any more (``""``)."""
        before, self._away = self._away, bool(away)
        if before is not self._away:
            logger.warning("%s", away or f"apps on {self.scheduler} can be reached again")

    @staticmethod
    def _warn_of_results(unit: TrialKey, base: str) -> None:
        try:
            there = unit.trial in FsspecResultTracker(base)
        except (TrackingError, OSError):
            return
        if there:
            warnings.warn(
                f"tracker base {base}: key {str(unit.trial)!r} is there before trial {unit.trial} "
                "is "
                "submitted: if the trial reports nothing, that old value is taken for its own",
                RuntimeWarning,
                stacklevel=2,
            )

    # -- look

    def poll(self, units: Iterable[TrialKey]) -> dict[TrialKey, JobView]:
        """Look at the apps of units once; one query per scheduler. Never raises; an ended app is
        looked at no more.
        """
        wanted = {unit: self._live[unit] for unit in units if unit in self._live}
        self._news.clear()
        handles = [str(execution.handle) for execution in wanted.values()]
        try:
            found = self.runner.status_many(handles)
        except Exception as exc:
            found = {
                handle: AppStatus(AppState.UNKNOWN, msg=f"{type(exc).__name__}: {exc}")
                for handle in handles
            }
        away = [
            status.msg
            for status in found.values()
            if status is not None and status.state is AppState.UNKNOWN
        ]
        if handles:
            self._tell(
                f"apps on {self.scheduler} out of reach, waiting: {len(away)} ({away[0]})"
                if away
                else ""
            )
        seen: dict[TrialKey, JobView] = {}
        for unit, execution in wanted.items():
            handle = str(execution.handle)
            try:
                observation = execution.poll(found.get(handle), asked=True)
            except Exception:
                logger.exception("trial %s: %s could not be looked at", unit.trial, handle)
                seen[unit] = JobView(handle, None)
                continue
            try:
                seen[unit] = JobView(handle, _status(execution, observation))
            except TransloadError as exc:
                seen[unit] = ending_of(handle, exc)
            if observation.final:
                self._drop(unit)
        self.moved = False
        return seen

    def wait(self, seconds: float) -> bool:
        """Block until something changed with one of the live apps, or time ran out; return True for
        a change.
        """
        if not self._watching:
            self._watching = True
            for unit in self._live:
                self._watch(unit)
        return self._news.wait(seconds)

    def _watch(self, unit: TrialKey) -> None:
        def tell(observation: Observation) -> None:
            self._news.set()

        handle, options = str(self._live[unit].handle), self.options
        scheduler = self.runner.scheduler(parse_app_handle(handle).scheduler_backend)
        self._watched[unit] = watch(
            scheduler, handle, tell, patience=options.patience, poll_interval=options.poll_interval
        )

    def _drop(self, unit: TrialKey) -> None:
        del self._live[unit]
        self.moved = True
        if unit in self._watched:
            self._watched.pop(unit).close()

    # -- stop

    def stop(self, unit: TrialKey) -> None:
        """Cancel the app of a unit that is followed; if it cannot be reached, `poll` tries
        again.
        """
        execution = self._live[unit]
        execution.options = replace(execution.options, on_kill="cancel")
        execution.give_up(asked=True)

    def end_was_asked_for(self) -> bool:
        """Tell whether what ends this process is its own doing (it is done, or failed) or
        somebody's wish (Ctrl-C).

        An exit that a signal brought about is neither: who sent the signal is not known.
        """
        ending = sys.exc_info()[1]
        if ending is None or isinstance(ending, Exception):
            return True
        return somebody_asked(self.runner, interrupted)

    def close(self, *, cancel: bool | None = None, seconds: float = CLOSE_SECONDS) -> None:
        """Let go of all apps.

        Args:
            cancel: end those that run, and wait for their end; None: with ``on_kill="cancel"``, if
                somebody asked for the end of this process, or it ends by itself.
            seconds: how long to try, and to wait for their end.
        """
        if cancel is None:
            cancel = self.options.on_kill == "cancel" and self.end_was_asked_for()
        end = time.monotonic() + seconds
        ending = [*self._live.values()] if cancel else []
        left, pause = ending, _FIRST_PAUSE
        while left := [execution for execution in left if not execution.cancel()]:
            if time.monotonic() >= end:
                break
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_PAUSE)
        for execution in ending:
            rest = max(0.01, end - time.monotonic())
            try:
                self.runner.wait(str(execution.handle), timeout=rest, patience=rest)
            except TransloadError as exc:
                logger.warning("%s may go on, its end was not seen: %s", execution.handle, exc)
        if not cancel:
            self.poll([*self._live])  # those that have ended do not go on
        if not cancel and (handles := self.live.values()):
            told = "apps that go on: %d; `transload list -s %s` shows them, `transload cancel %s` ends them"
            logger.warning(told, len(handles), self.scheduler, " ".join(handles))
        for unit in list(self._live):
            self._drop(unit)


def _status(execution: Execution, seen: Observation) -> str | None:
    """Return the name of what an app comes to; None: that cannot be said now.

    Raises:
        TransloadError: if it did not end well.
    """
    status = seen.status
    if seen.exhausted:
        raise StateUnknown(seen.handle, seen.unknown_for, "" if status is None else status.msg)
    if status is None:
        raise AppLost(seen.handle)
    if is_terminal(status.state) and status.state is not AppState.SUCCEEDED:
        execution.collect(status)
    return None if status.state is AppState.UNKNOWN else STATES[status.state]
