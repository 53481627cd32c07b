"""From an app to a step. Pure: nothing runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transload.pipelines import AdapterCapabilities, ExecutionOptions, Launch, dry_run
from transload_tinyflow.run import HOST, execution_of, run_app
from transload_tinyflow.states import STATES

if TYPE_CHECKING:
    from tinyflow import Context, Step

    from transload.runner import AppResults


def step_from_app(
    source: Any,
    *,
    name: str | None = None,
    retries: int = 0,
    launch: dict[str, Any] | None = None,
    inherit_env: bool = False,
    **options: Any,
) -> Step:
    """Return a step that runs an app.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        name: name of the step; default: the app's.
        retries: how often Tinyflow tries again.
        launch: arguments of `transload.pipelines.Launch` (``args``, ``scheduler``, ``cfg`` …).
        inherit_env: give the job the whole environment.
        options: see `transload.pipelines.ExecutionOptions`.

    Raises:
        SpecError: if it is none of these.
        ConfigError: for a wrong option.
    """
    from tinyflow import Step

    made, settings = Launch.of(source, **(launch or {})), ExecutionOptions(**options)

    def work(context: Context) -> AppResults:
        return run_app(
            execution_of(context, made, settings, inherit_env=inherit_env, host_retries=retries),
            context,
        )

    return Step(name or made.name, work, retries)


class TinyflowAdapter:
    """The adapter that ``transload.pipelines.get_adapter("tinyflow")`` returns."""

    name = HOST
    state_map = STATES
    capabilities = AdapterCapabilities(notes={"deferred": "a step holds the engine while it waits"})

    def convert(self, source: Any, **host_options: Any) -> Step:
        """Return a step; see `step_from_app`."""
        return step_from_app(source, **host_options)

    def dry_run(
        self,
        source: Any,
        *,
        launch: dict[str, Any] | None = None,
        inherit_env: bool = False,
        **options: Any,
    ) -> str:
        """Return what a step would submit; a wrong option is refused here as well."""
        own = {"name", "retries"}  # of the step, not of what it submits
        settings = ExecutionOptions(
            **{name: value for name, value in options.items() if name not in own}
        )
        return dry_run(HOST, Launch.of(source, **(launch or {})), settings, inherit_env=inherit_env)
