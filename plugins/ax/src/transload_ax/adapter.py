"""Run trials of Ax as jobs.

This holds what is Ax's own, while the core runs the job. It imports nothing of Ax.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import transload_ax
from transload.pipelines import Adapter, Again, Identity, Step
from transload.runtime.tracking import FsspecResultTracker, TrackingError
from transload_ax.states import STATES
from transload_ax.units import HOST, PARAMETERS, TrialKey, log_of

if TYPE_CHECKING:
    from transload.pipelines import ExecutionOptions, Launch
    from transload.runner import Runner
    from transload.schedulers import Stream
    from transload_ax.runner import TransloadRunner

WARNING: Final = "warning: "
"""How a line about a job begins that is a warning."""

logger = logging.getLogger("transload_ax")


class TrialStep(Step):
    """The job of a trial, or of an arm of a batch trial.

    Args:
        key: which trial it is.
        namespace: tells this experiment from all others, a uuid by default.
        mark: a digest of the arm's parameters, or ``""`` if they are not known.
        launch: what to submit. None means a job that an earlier process has submitted.
        options: how the job is run.
        runner: submits and asks.
        arguments: that the component may declare.
        hint: the job that the trial had when it was run before.
    """

    host = HOST

    def __init__(
        self,
        key: TrialKey,
        namespace: str,
        mark: str,
        launch: Launch | None,
        options: ExecutionOptions,
        *,
        runner: Runner,
        arguments: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        # whoever runs a trial again has seen what became of the job that it had
        tried = 0 if hint is None else 1
        super().__init__(
            launch, options, runner=runner, arguments=arguments, tried=tried, hint=hint
        )
        self.key = key
        self.namespace = namespace
        self.mark = mark
        self._log = log_of(key)
        self._warned: set[str] = set()
        self.hands_on_lines = self._log.isEnabledFor(logging.INFO)

    def identity(self) -> Identity:
        """Return whose job it is, by the experiment, the trial and the arm."""
        return identity_of(self.key, self.namespace)

    def words(self) -> dict[str, Any]:
        """Return which trial it is, and the digest of the arm's parameters."""
        words = {**self.key._asdict(), PARAMETERS: self.mark}
        return {name: word for name, word in words.items() if word != ""}

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether the arm has other parameters than those of its newest job.

        An optimiser that died after a submit and before it was saved may give the same number to
        another trial.
        """
        known = PARAMETERS in kept and PARAMETERS in now
        return Again.YES if known and kept[PARAMETERS] != now[PARAMETERS] else Again.NO

    def before_submit(self, number: int, *, anew: bool) -> None:
        """Clear what a job with other parameters has reported under the trial's key.

        The base is the trial's own. So the results of the job would be mixed with these.
        """
        base = None if self.launch is None else self.launch.tracker_base
        if base is None:
            return
        if anew:
            FsspecResultTracker(base)[self.key.trial] = {}
        elif number == 0:
            self._warn_of_results(base)

    def _warn_of_results(self, base: str) -> None:
        trial = self.key.trial
        try:
            there = trial in FsspecResultTracker(base)
        except (TrackingError, OSError):
            return
        if there:
            warnings.warn(
                f"tracker base {base}: key {str(trial)!r} is there before trial {trial} is "
                "submitted: if the trial reports nothing, that old value is taken for its own",
                RuntimeWarning,
                stacklevel=2,
            )

    def say(self, text: str) -> None:
        """Log a line. A job that cannot be cancelled is a warning, once for each reason."""
        level = logging.INFO
        if text.startswith(WARNING):
            level = logging.WARNING
            text = text.removeprefix(WARNING)
        if "could not be cancelled" in text and text not in self._warned:
            self._warned.add(text)
            level = logging.WARNING
        logger.log(level, "trial %s: %s", "/".join(self.key.parts), text)

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Log a line of the job, with the trial's own logger."""
        text = line.rstrip("\n")
        self._log.info("%s/%d %s", role, replica, text)


def identity_of(key: TrialKey, namespace: str) -> Identity:
    """Return whose job a trial's is. The arguments are those of `TrialStep`."""
    return Identity(HOST, (namespace,), key.parts)


def _convert(source: Any, **host_options: Any) -> TransloadRunner:
    """Return a runner of trials, as `transload_ax.trial_runner` does, which imports Ax."""
    return transload_ax.trial_runner(source, **host_options)


def _dry_run(source: Any, **host_options: Any) -> str:
    """Return what a trial would submit, as `transload_ax.dry_run_trial` does."""
    return transload_ax.dry_run_trial(source, **host_options)


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=_convert, dry_run=_dry_run, states=STATES)
