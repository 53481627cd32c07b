"""The options of a runner of trials, for the signatures of what makes one. Imports nothing of Ax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transload.pipelines import ExecutionSettings, JobSettings, OverrideOptions

if TYPE_CHECKING:
    from transload.specs import CfgVal, Environment, Workspace


class TrialSettings(JobSettings, ExecutionSettings, total=False):
    """What is set over the job of each trial, and how it is run."""


class TrialRunnerOptions(TrialSettings, total=False):
    """The arguments of `TransloadRunner` beside the component. `TransloadRunner` describes them.

    Of the options of every job, ``resubmit_on`` is refused. A trial has one job.
    """

    arms_as_apps: bool
    cfg: Mapping[str, CfgVal] | None
    component_const_params: Mapping[str, Any] | None
    environment: Environment | str | None
    folder: str | None
    inherit_env: bool
    max_running: int | None
    namespace: str | None
    orchestrator: str | None
    overrides: OverrideOptions | None
    parent_run_id: str | None
    pass_env: Sequence[str]
    scheduler: str
    tracker_base: str | None
    workspace: str | Workspace | None
