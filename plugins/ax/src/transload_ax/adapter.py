"""Run trials of Ax as jobs.

This holds what is Ax's own, while the core runs the job. It imports nothing of Ax.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import transload_ax
from transload.errors import TransloadError
from transload.pipelines import (
    AdapterIO,
    Again,
    Driver,
    Ending,
    Identity,
    LifecycleAdapter,
)
from transload_ax.states import ENDINGS, STATES
from transload_ax.units import HOST, PARAMETERS, JobView, TrialKey, TrialNotes, log_sink

if TYPE_CHECKING:
    from transload.pipelines import LaunchSettings
    from transload.runner import Runner
    from transload_ax.runner import TransloadRunner

WARNING: Final = "warning: "
"""How a line about a job begins that is a warning."""

logger = logging.getLogger("transload_ax")


@dataclass(frozen=True)
class TrialContext:
    """A trial, or an arm of a batch trial, whose job this process looks after.

    Args:
        key: which trial it is.
        namespace: tells this experiment from all others, a uuid by default.
        mark: a digest of the arm's parameters, or ``""`` if they are not known.
        runner: submits and asks.
        notes: what is kept of it.
        args: arguments that the component may declare.
    """

    key: TrialKey
    namespace: str
    mark: str
    runner: Runner
    notes: TrialNotes
    args: Mapping[str, Any] = field(default_factory=dict)


class JobEnded(Exception):
    """A trial's job did not end well, or cannot be seen any more.

    Args:
        view: what Ax learns of it.
    """

    def __init__(self, view: JobView) -> None:
        super().__init__(view.reason)
        self.view = view


class AxAdapter(LifecycleAdapter[TrialContext]):
    """The adapter that ``transload.pipelines.get_adapter("ax")`` returns."""

    name = HOST
    states = STATES
    endings: ClassVar[Mapping[Ending, str]] = ENDINGS

    def convert(
        self, source: Any, *, launch: LaunchSettings | None = None, **host_options: Any
    ) -> TransloadRunner:
        """Return a runner of trials, as `transload_ax.convert.trial_runner` does."""
        # by the package's own names, since runners import this module
        return transload_ax.trial_runner(source, launch=launch, **host_options)

    def dry_run(
        self, source: Any, *, launch: LaunchSettings | None = None, **host_options: Any
    ) -> str:
        """Return what a trial would submit. Arguments and errors are those of `convert`."""
        return transload_ax.dry_run_trial(source, launch=launch, **host_options)

    def identity(self, context: TrialContext) -> Identity:
        """Return whose job it is, by the experiment, the trial and the arm."""
        return identity_of(context.key, context.namespace)

    def asked(self, context: TrialContext) -> dict[str, Any]:
        """Return the digest of the arm's parameters, which is kept with the job."""
        return words_of(context.mark)

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether the arm has other parameters than those of its newest job.

        An optimiser that died after a submit and before it was saved may give the same number to
        another trial.
        """
        known = PARAMETERS in kept and PARAMETERS in now
        return Again.YES if known and kept[PARAMETERS] != now[PARAMETERS] else Again.NO

    def io(self, context: TrialContext) -> AdapterIO:
        """Return the trial's run metadata as the store, and its loggers."""
        return AdapterIO(
            runner=context.runner,
            store=context.notes.record(context.key),
            log_store=context.notes.log_cursor(context.key),
            sink=log_sink(context.key),
            log=_line_log(context.key),
            context_args=context.args,
        )

    def cancel_on_exit(
        self, context: TrialContext, driver: Driver
    ) -> AbstractContextManager[object]:
        """Return a context without effect, since `TrialJobs.close` ends trials together."""
        return nullcontext()

    def translate(self, error: TransloadError, context: TrialContext) -> JobEnded:
        """Return what Ax learns of a job that did not end well.

        A job that may still run is left alone.
        """
        ending = Ending.of(error)
        abandoned = ending is Ending.UNKNOWN
        return JobEnded(JobView("", self.endings[ending], str(error), abandoned=abandoned))


ADAPTER: Final = AxAdapter()


def identity_of(key: TrialKey, namespace: str) -> Identity:
    """Return whose job a trial's is. The arguments are those of `TrialContext`."""
    return Identity(HOST, (namespace,), key.parts)


def words_of(mark: str) -> dict[str, Any]:
    """Return what tells a try of a trial from others, by the digest of the arm's parameters."""
    return {PARAMETERS: mark} if mark else {}


def _line_log(key: TrialKey) -> Callable[[str], None]:
    """Return what takes lines about a trial's job.

    A job that cannot be cancelled is a warning, once for each reason. So are lines that say so
    themselves.
    """
    warned: set[str] = set()
    name = "/".join(key.parts)

    def log(line: str) -> None:
        level = logging.INFO
        if line.startswith(WARNING):
            level = logging.WARNING
            line = line.removeprefix(WARNING)
        if "could not be cancelled" in line and line not in warned:
            warned.add(line)
            level = logging.WARNING
        logger.log(level, "trial %s: %s", name, line)

    return log
