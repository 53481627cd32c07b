"""Run jobs as steps of Tinyflow.

This holds what is Tinyflow's own, while the core runs the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from transload.errors import TransloadError
from transload.pipelines import (
    Adapter,
    Again,
    AppCancelled,
    ExecutionOptions,
    ExecutionSettings,
    Identity,
    JobSettings,
    Launch,
    LaunchSettings,
    OverrideOptions,
    Step,
    dry_run,
    host_runner,
    split_options,
)
from transload_tinyflow.states import STATES

if TYPE_CHECKING:
    import tinyflow

    from transload.runner import AppResults


class TinyflowStep(Step):
    """The job of a step of Tinyflow."""

    host = "tinyflow"

    def __init__(
        self,
        context: tinyflow.Context,
        launch: Launch,
        options: ExecutionOptions,
        *,
        retries: int = 0,
        inherit_env: bool = False,
    ) -> None:
        runner = host_runner(self.host, inherit_env=inherit_env)
        tried = context.round + context.failures
        super().__init__(launch, options, runner=runner, tried=tried, host_retries=retries)
        self._context = context

    def identity(self) -> Identity:
        """Return whose job it is, in words that stay the same as long as the step exists."""
        return Identity(self.host, (self._context.flow_run,), (self._context.step,))

    def words(self) -> dict[str, Any]:
        """Return what tells this try from others, which is kept with the job that it submits."""
        return {"round": self._context.round, "began": self._context.began}

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether a person has run the step again since the try that submitted its job."""
        if now["round"] != kept["round"]:
            return Again.YES if now["round"] > kept["round"] else Again.LATER
        if now["began"] != kept["began"]:
            return Again.FOREIGN  # the same names in another Tinyflow
        return Again.NO

    def say(self, text: str) -> None:
        """Write a line into the log of the step."""
        self._context.log(text)

    def asked(self) -> bool:
        """Tell whether a person has stopped the step, and not the end of its machine."""
        return self._context.stop_was_asked_for()


class StepOptions(JobSettings, ExecutionSettings, total=False):
    """What is set over the job of a step, and how it is run."""

    overrides: OverrideOptions


def step_from_app(
    source: Any,
    *,
    name: str | None = None,
    retries: int = 0,
    launch: LaunchSettings | None = None,
    inherit_env: bool = False,
    **options: Unpack[StepOptions],
) -> tinyflow.Step:
    """Return a step that runs a job.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        name: name of the step, by default the job's.
        retries: how often Tinyflow tries again.
        launch: arguments of `transload.pipelines.Launch` (``args``, ``scheduler``, ``cfg`` …).
        inherit_env: give the job the whole environment.
        options: what is set over what the job says (``image``, ``gpu`` …, see
            `transload.pipelines.JobSettings`, of which ``overrides`` takes all), and how it is run,
            see `transload.pipelines.ExecutionOptions`.

    Raises:
        SpecError: if it is none of these, or for a setting that cannot be read.
        ConfigError: for a wrong option.
    """
    import tinyflow

    overrides, settings = split_options(options)
    made = Launch.of(source, **(launch or {})).with_overrides(overrides)

    def work(context: tinyflow.Context) -> AppResults:
        step = TinyflowStep(context, made, settings, retries=retries, inherit_env=inherit_env)
        context.on_stop(step.kill)
        try:
            return step.run()
        except AppCancelled as exc:
            raise tinyflow.Stopped(str(exc)) from exc
        except TransloadError as exc:
            raise tinyflow.Broken(str(exc), again=settings.host_may_retry(exc)) from exc

    return tinyflow.Step(name or made.name, work, retries)


def show_step(
    source: Any,
    *,
    name: str | None = None,
    retries: int = 0,
    launch: LaunchSettings | None = None,
    inherit_env: bool = False,
    **options: Unpack[StepOptions],
) -> str:
    """Return what a step would submit. Arguments and errors as of `step_from_app`."""
    overrides, settings = split_options(options)
    made = Launch.of(source, **(launch or {})).with_overrides(overrides)
    return dry_run(TinyflowStep.host, made, settings, inherit_env=inherit_env)


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(TinyflowStep.host, convert=step_from_app, dry_run=show_step, states=STATES)
