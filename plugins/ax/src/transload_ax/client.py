"""Run the same trials with Ax's newer API.

That is ``Client.configure_runner``, ``configure_metrics`` and ``run_trials``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ax.api.protocols.metric import IMetric
from ax.api.protocols.runner import IRunner
from ax.core.trial_status import TrialStatus

from transload_ax.arguments import CONSTANTS
from transload_ax.metric import read_curve, read_value, reported
from transload_ax.runner import TransloadRunner
from transload_ax.trials import TrialView
from transload_ax.units import BASE, HANDLE
from transload_search.check import check_missing


class TransloadClientRunner(TransloadRunner, IRunner):
    """Runs each trial as a job, for ``ax.api.client.Client``.

    Arguments and errors are those of `TransloadRunner`. ``Client.run_trials`` goes the way of
    `TransloadRunner`, where trials are known by their experiment, and stored with it. Called
    directly, `run_trial` knows an experiment only by this runner's namespace.
    """

    def run_trial(self, trial_index: int, parameterization: Mapping[str, Any]) -> dict[str, Any]:
        """Submit the trial's job, or reattach to it. Return its handle and tracker base.

        Raises:
            SpecError: if the parameters are not what the component needs.
            SubmitError: if the job was not taken.
        """
        check_missing(
            self.resolve_component(), {**self.component_const_params, **parameterization}, CONSTANTS
        )
        view = _view(trial_index, "CANDIDATE", {}, parameterization)
        return {
            HANDLE: self.trials.run(view, partial(self._launch, ttl=None)),
            BASE: self.tracker_base,
        }

    def poll_trial(self, trial_index: int, trial_metadata: Mapping[str, Any]) -> TrialStatus:
        """Return the status of a trial, and never raise.

        What is not known is RUNNING, for as long as ``patience`` says.
        """
        view = _view(trial_index, "RUNNING", trial_metadata)
        return TrialStatus[self.trials.poll([view])[trial_index]]

    def stop_trial(self, trial_index: int, trial_metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Cancel the trial's job. One that has ended stays."""
        self.trials.stop(_view(trial_index, "RUNNING", trial_metadata))
        return {}


def _view(
    index: int,
    status: str,
    metadata: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
) -> TrialView:
    return TrialView("client", index, status, dict(metadata), {"": parameters or {}})


class TransloadClientMetric(IMetric):
    """Reads the results that a trial reported, for ``ax.api.client.Client``.

    A curve (``name/<step>``) gives its latest point. Otherwise it is ``name``, or ``name/mean`` and
    ``name/sem``, at the step in the result ``step_name`` (0 without one).

    Args:
        name: name of the result.
        lower_is_better: True if small is good, which is kept when stored.
        step_name: name of the result that says how far a trial is.
    """

    def __init__(
        self, name: str, lower_is_better: bool | None = None, step_name: str = "step"
    ) -> None:
        super().__init__(name=name)
        self.lower_is_better = lower_is_better
        self.step_name = step_name

    def fetch(
        self, trial_index: int, trial_metadata: Mapping[str, Any]
    ) -> tuple[int, float | tuple[float, float]]:
        """Return how far the trial is, and the value there, a float or mean and standard error.

        Raises:
            MetricMissing: if there is no finite value.
        """
        results, place = reported(trial_index, dict(trial_metadata), self.name)
        if self.name not in results and f"{self.name}/mean" not in results:
            step, value = read_curve(results, place, self.name, self.step_name)[-1]
            return int(step), value
        mean, sem = read_value(results, place, self.name)
        said = results.get(self.step_name, 0)
        step = 0
        if isinstance(said, (int, float)):
            step = int(said)
        if math.isnan(sem):
            return step, mean
        return step, (mean, sem)
