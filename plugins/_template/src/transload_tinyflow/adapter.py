"""Run jobs as steps of Tinyflow.

This holds what is Tinyflow's own, while the core runs the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from transload.errors import TransloadError
from transload.pipelines import (
    Adapter,
    AdapterCapabilities,
    AdapterIO,
    Again,
    Driver,
    Ending,
    ExecutionOptions,
    ExecutionSettings,
    Identity,
    JobSettings,
    Launch,
    LaunchSettings,
    OverrideOptions,
    dry_run,
    host_runner,
    split_options,
)
from transload_tinyflow.states import ENDINGS, STATES

if TYPE_CHECKING:
    import tinyflow

    from transload.runner import AppResults


@dataclass(frozen=True)
class StepContext:
    """What Tinyflow says of one step that runs, and what its user set."""

    tinyflow: tinyflow.Context
    options: ExecutionOptions
    retries: int = 0
    inherit_env: bool = False


class TinyflowAdapter(Adapter[StepContext]):
    """The adapter that ``transload.pipelines.get_adapter("tinyflow")`` returns."""

    name = "tinyflow"
    states = STATES
    endings: ClassVar[Mapping[Ending, str]] = ENDINGS
    capabilities = AdapterCapabilities(notes={"deferred": "a step holds the engine while it waits"})

    def convert(self, source: Any, **host_options: Any) -> tinyflow.Step:
        """Return a step, as `step_from_app` does."""
        return step_from_app(source, **host_options)

    def dry_run(
        self,
        source: Any,
        *,
        name: str | None = None,
        retries: int = 0,
        launch: LaunchSettings | None = None,
        inherit_env: bool = False,
        **options: Any,
    ) -> str:
        """Return what a step would submit. Arguments and errors as of `step_from_app`."""
        overrides, settings = split_options(options)
        made = Launch.of(source, **(launch or {})).with_overrides(overrides)
        return dry_run(self.name, made, settings, inherit_env=inherit_env)

    def identity(self, context: StepContext) -> Identity:
        """Return whose job it is, in words that stay the same as long as the step exists."""
        step = context.tinyflow
        return Identity(self.name, (step.flow_run,), (step.step,))

    def asked(self, context: StepContext) -> dict[str, Any]:
        """Return what tells this try from others, which is kept with the job that it submits."""
        return {"round": context.tinyflow.round, "began": context.tinyflow.began}

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether a person has run the step again since the try that submitted its job."""
        if now["round"] != kept["round"]:
            return Again.YES if now["round"] > kept["round"] else Again.LATER
        if now["began"] != kept["began"]:
            return Again.FOREIGN  # the same names in another Tinyflow
        return Again.NO

    def io(self, context: StepContext) -> AdapterIO:
        """Return the step's notes and its log, and who is asked at its end."""
        step = context.tinyflow
        return AdapterIO(
            runner=host_runner(self.name, inherit_env=context.inherit_env),
            store=step.notes,
            log_store=step.log_notes,
            sink=lambda role, replica, stream, line: step.log(f"{role}/{replica} {line}"),
            log=step.log,
            host_retries=context.retries,
            asked=step.stop_was_asked_for,
        )

    @contextmanager
    def cancel_on_exit(self, context: StepContext, driver: Driver) -> Iterator[None]:
        """Give a context in which Tinyflow's stop of the step reaches the driver."""
        context.tinyflow.on_stop(driver.kill)
        yield

    def translate(self, error: TransloadError, context: StepContext) -> BaseException:
        """Return the exception by which Tinyflow stops a step, fails it, or tries it again."""
        import tinyflow

        if self.endings[Ending.of(error)] == "Stopped":
            return tinyflow.Stopped(str(error))
        return tinyflow.Broken(str(error), again=context.options.host_may_retry(error))


class StepOptions(JobSettings, ExecutionSettings, total=False):
    """What is set over the job of a step, and how it is run."""

    overrides: OverrideOptions


ADAPTER = TinyflowAdapter()


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

    def work(step: tinyflow.Context) -> AppResults:
        context = StepContext(step, settings, retries, inherit_env)
        return ADAPTER.run(context, made, settings)

    return tinyflow.Step(name or made.name, work, retries)
