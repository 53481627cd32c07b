"""The jobs of an experiment's trials, as one process sees them. Imports nothing of Ax.

Ax asks now and then about many trials at a time. So what other orchestrators do in one call is
`TrialJobs` here: start, poll, stop, wait.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from transload.errors import StateUnknown, TransloadError
from transload.pipelines import (
    LAST_LINES,
    AppCancelled,
    Detached,
    ExecutionOptions,
    chain_of,
    host_runner,
    interrupted,
    somebody_asked,
)
from transload.runner import Cluster
from transload.schedulers import backoff
from transload.specs import (
    AppState,
    AppStatus,
    CfgVal,
    make_app_handle,
    parse_app_handle,
)
from transload_ax.adapter import TrialStep, identity_of
from transload_ax.states import STATES
from transload_ax.units import (
    CLUSTER,
    HOST,
    PROGRESS,
    JobView,
    TrialKey,
    TrialLaunch,
    TrialNotes,
)

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.specs import Progress

CLOSE_SECONDS: Final = 30.0
MINIMUM_PAUSE: Final = 0.1
"""Seconds between two looks at jobs. A loop that does not pause must not ask all the time."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

logger = logging.getLogger("transload_ax")


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Have SIGTERM leave as an exit does, so that what runs is stored.

    A handler that somebody else has set stays.
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


@dataclass(frozen=True)
class _Live:
    """A job that has not been seen to end."""

    step: TrialStep
    notes: TrialNotes
    handle: str


class TrialJobs:
    """The jobs of an experiment's trials, as one process sees them.

    Args:
        namespace: tells this experiment from all others, a uuid by default.
        scheduler: where they run.
        cfg: its run options.
        options: how jobs are run.
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
        self._live: dict[TrialKey, _Live] = {}
        self._known: dict[TrialKey, tuple[str, str]] = {}
        self._away = False
        self._next_look = 0.0

    @property
    def runner(self) -> Runner:
        """What submits and asks."""
        return host_runner(HOST, inherit_env=self._inherit_env, clusters=self._clusters.values())

    @property
    def live(self) -> dict[TrialKey, str]:
        """The handle of each trial's job that has not been seen to end."""
        return {key: live.handle for key, live in self._live.items()}

    # -- start

    def start(
        self, key: TrialKey, launch: TrialLaunch, notes: TrialNotes, args: Mapping[str, Any]
    ) -> str:
        """Submit the job of a trial or reattach to it, and return its handle.

        A second call with equal values changes nothing.

        Args:
            key: the trial, or an arm of it.
            launch: what to submit. Its ``tracker_base`` is the trial's own.
            notes: what is kept of it.
            args: arguments that the component may declare.

        Raises:
            SubmitError: if it was not taken.
            SpecError: if its definition is wrong.
            ConfigError: for an unknown scheduler or option.
            AppLost: if it was started before and is gone.
            StateUnknown: if the scheduler cannot say for longer than patience lasts.
        """
        before = self._known.get(key)
        if before is not None and before[0] == launch.mark:
            return before[1]
        step = self._step(key, launch.mark, launch, args, notes.handles().get(key.arm))
        step.start()
        return self._add(step, notes)

    def attach(self, key: TrialKey, handle: str, notes: TrialNotes) -> None:
        """Follow a job that an earlier process started, on the cluster that it knew.

        Raises:
            TransloadError: if it is not a handle of a scheduler that is known here.
        """
        if key in self._live:
            return
        kept = notes.get(CLUSTER, key.arm)
        if kept:
            cluster = Cluster.from_dict(kept)
            self._clusters[cluster.name] = cluster
        mark, _ = self._known.get(key, ("", ""))
        step = self._step(key, mark, None)
        step.attach(handle, last=LAST_LINES)
        self.runner.status_many([handle])  # raises for what cannot be asked about
        self._add(step, notes)

    def _step(
        self,
        key: TrialKey,
        mark: str,
        launch: TrialLaunch | None,
        args: Mapping[str, Any] = MappingProxyType({}),
        hint: str | None = None,
    ) -> TrialStep:
        runner = self.runner
        options = replace(self.options)  # a trial that is given up ends whatever they say
        return TrialStep(
            key,
            self.namespace,
            mark,
            launch,
            options,
            runner=runner,
            arguments=args,
            hint=hint,
        )

    def find(self, key: TrialKey) -> str | None:
        """Return the handle of the key's latest job, by its id alone, or None if there is none.

        Raises:
            SchedulerUnavailable: if that cannot be said.
        """
        prefix = self._prefix(key)
        there = self.runner.scheduler(self.scheduler).chain(prefix)
        numbers = [number for number, description in there if description is not None]
        if not numbers:
            return None
        return make_app_handle(self.scheduler, HOST, f"{prefix}-{numbers[-1]}")

    def _add(self, step: TrialStep, notes: TrialNotes) -> str:
        key = step.key
        handle = str(step.handle)
        self._live[key] = _Live(step, notes, handle)
        self._known[key] = (step.mark, handle)
        cluster = self.runner.cluster(parse_app_handle(handle).scheduler_backend)
        notes.put(CLUSTER, key.arm, cluster.to_dict())
        return handle

    def _prefix(self, key: TrialKey) -> str:
        """Return what the ids of all jobs of a trial begin with."""
        made = chain_of(identity_of(key, self.namespace))
        return self.runner.qualified_id(made, self.scheduler, self.cfg)

    def _note_reach(self, away: str) -> None:
        """Log once that jobs are out of reach, and once that they are reached again (``""``)."""
        was_away = self._away
        self._away = bool(away)
        if was_away is self._away:
            return
        logger.warning("%s", away or f"jobs on {self.scheduler} can be reached again")

    # -- look

    def poll(self, keys: Iterable[TrialKey]) -> dict[TrialKey, JobView]:
        """Look at the jobs of trials once, with one query per scheduler, and never raise.

        A job that has ended is looked at no more. Two looks are at least `MINIMUM_PAUSE` apart,
        whatever Ax's loop asks for.
        """
        wanted = [self._live[key] for key in keys if key in self._live]
        if wanted:
            time.sleep(max(0.0, self._next_look - time.monotonic()))
            self._next_look = time.monotonic() + MINIMUM_PAUSE
        found = self._ask([live.handle for live in wanted])
        seen: dict[TrialKey, JobView] = {}
        for live in wanted:
            key = live.step.key
            try:
                seen[key] = self._look(live, found.get(live.handle))
            except Exception:
                logger.exception("trial %s: %s could not be looked at", key.trial, live.handle)
                seen[key] = JobView(live.handle, None)
        return seen

    def _ask(self, handles: list[str]) -> dict[str, AppStatus | None]:
        """Return the status of each job, and note when jobs get out of reach, and back."""
        if not handles:
            return {}
        try:
            found = dict(self.runner.status_many(handles))
        except Exception as exc:
            unknown = AppStatus(AppState.UNKNOWN, msg=f"{type(exc).__name__}: {exc}")
            found = dict.fromkeys(handles, unknown)
        away = [
            status.msg
            for status in found.values()
            if status is not None and status.state is AppState.UNKNOWN
        ]
        if away:
            self._note_reach(
                f"jobs on {self.scheduler} out of reach, waiting: {len(away)} ({away[0]})"
            )
        else:
            self._note_reach("")
        return found

    def _look(self, live: _Live, status: AppStatus | None) -> JobView:
        """Return what is known of a job, by what its scheduler has answered."""
        step = live.step
        if status is not None and status.progress is not None:
            self._keep_progress(live, status.progress)
        try:
            seen = step.look(status, asked=True)
            if seen.is_terminal() and seen.state is not AppState.SUCCEEDED:
                step.collect()  # raises with the reason
        except TransloadError as exc:
            del self._live[step.key]
            return _view_of(live.handle, exc)
        if seen.is_terminal():
            del self._live[step.key]
        return JobView(live.handle, STATES[seen.state])

    @staticmethod
    def _keep_progress(live: _Live, progress: Progress) -> None:
        """Have the trial's run metadata say how far its job is."""
        said = asdict(progress.without_history())
        values = {name: value for name, value in said.items() if value not in (None, [])}
        live.notes.put(PROGRESS, live.step.key.arm, values)

    # -- stop

    def stop(self, key: TrialKey) -> None:
        """Cancel the job of a trial that is followed. If it is out of reach, `poll` tries again."""
        step = self._live[key].step
        step.options.on_kill = "cancel"
        step.give_up(asked=True)

    def end_was_asked_for(self) -> bool:
        """Tell whether somebody or this process itself wants this process to end.

        The process itself ends if it is done or has failed, and somebody may press Ctrl-C.

        An exit that a signal brought about is neither: who sent the signal is not known.
        """
        ending = sys.exc_info()[1]
        if ending is None or isinstance(ending, Exception):
            return True
        return somebody_asked(self.runner, interrupted)

    def close(self, *, cancel: bool | None = None, seconds: float = CLOSE_SECONDS) -> None:
        """Release all jobs.

        Args:
            cancel: end those that run, and wait for their end. With None this is done with
                ``on_kill="cancel"``, if somebody asked for the end of this process, or it ends by
                itself.
            seconds: how long to try, and to wait for their end.
        """
        if cancel is None:
            cancel = self.options.on_kill == "cancel" and self.end_was_asked_for()
        end = time.monotonic() + seconds
        if cancel:
            self._cancel_all(end)
        else:
            self._leave_all()
        self._live.clear()

    def _cancel_all(self, end: float) -> None:
        """Cancel the jobs and wait for their ends, until a moment of the steady clock."""
        ending = list(self._live.values())
        left = ending
        pause = _FIRST_PAUSE
        while left := [live for live in left if not live.step.cancel()]:
            if time.monotonic() >= end:
                break
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_PAUSE)
        for live in ending:
            rest = max(0.01, end - time.monotonic())
            try:
                self.runner.wait(live.handle, timeout=rest, patience=rest)
            except TransloadError as exc:
                logger.warning("%s may go on, its end was not seen: %s", live.handle, exc)

    def _leave_all(self) -> None:
        """Log which jobs go on, and how to end them."""
        self.poll(list(self._live))  # those that have ended do not go on
        handles = list(self.live.values())
        if handles:
            logger.warning(
                "jobs that go on: %d; `transload list -s %s` shows them, `transload cancel %s` ends "
                "them",
                len(handles),
                self.scheduler,
                " ".join(handles),
            )


def _view_of(handle: str, error: TransloadError) -> JobView:
    """Return what Ax learns of a job that did not end well, or cannot be seen any more.

    One that may still run is left alone.
    """
    status = STATES[AppState.FAILED]
    if isinstance(error, AppCancelled):
        status = STATES[AppState.CANCELLED]
    elif isinstance(error, Detached):
        status = STATES[AppState.RUNNING]
    return JobView(handle, status, str(error), abandoned=isinstance(error, StateUnknown))
