"""From an app to a step. Pure: nothing runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transload.pipelines import AdapterCapabilities, Execution, ExecutionOptions, Identity, Launch, host_runner
from transload_tinyflow.run import run_app
from transload_tinyflow.states import STATES

if TYPE_CHECKING:
    from tinyflow import Step


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
    return Step(name or made.name, lambda context: run_app(made, settings, context, retries, inherit_env), retries)


class TinyflowAdapter:
    """The adapter that ``transload.pipelines.get_adapter("tinyflow")`` returns."""

    name = "tinyflow"
    state_map = STATES
    capabilities = AdapterCapabilities(notes={"deferred": "a step holds the engine while it waits"})

    def convert(self, source: Any, **host_options: Any) -> Step:
        """Return a step; see `step_from_app`."""
        return step_from_app(source, **host_options)

    def dry_run(
        self, source: Any, *, launch: dict[str, Any] | None = None, inherit_env: bool = False, **options: Any
    ) -> str:
        """Return what a step would submit; a wrong option is refused here as well."""
        step = {name: options.pop(name) for name in ("name", "retries") if name in options}
        made, settings = Launch.of(source, **(launch or {})), ExecutionOptions(**options)
        identity = Identity("tinyflow", "dry-run", (step.get("name") or made.name,))
        return Execution(host_runner("tinyflow", inherit_env=inherit_env), made, identity, settings).dry_run()
