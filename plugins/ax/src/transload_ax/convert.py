"""From a component to a runner of trials. No import of Ax but in what returns its objects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack, get_args

from transload.components import ComponentArgumentError, read_argument
from transload.errors import SpecError, UnsupportedFeature
from transload.pipelines import Launch
from transload_ax.arguments import CONSTANTS
from transload_ax.options import TrialRunnerOptions
from transload_search.check import AUTOMATIC, check_names

if TYPE_CHECKING:
    from transload.pipelines import LaunchSettings
    from transload_ax.runner import TransloadRunner


def trial_runner(
    source: Any,
    *,
    launch: LaunchSettings | None = None,
    **host_options: Unpack[TrialRunnerOptions],
) -> TransloadRunner:
    """Return a runner of trials.

    Args:
        source: a component (name or function), or a `Launch` of one.
        launch: arguments of `transload.pipelines.Launch` (``args``, ``scheduler``, ``cfg`` …).
        host_options: more arguments of `TransloadRunner`.

    Raises:
        UnsupportedFeature: for a job without parameters.
        SpecError: if the source is wrong.
        ConfigError: for a wrong option.
    """
    from transload_ax.runner import TransloadRunner

    made = _component_launch(source, launch)
    assert made.component is not None
    if not isinstance(made.args, Mapping):
        raise SpecError(f"launch: args={made.args!r}: must be name → value")
    given: TrialRunnerOptions = {
        "tracker_base": made.tracker_base,
        "component_const_params": made.args,
        "scheduler": made.scheduler or "local",
        "cfg": made.cfg,
        "workspace": made.workspace,
        "parent_run_id": made.parent_run_id,
        "pass_env": made.pass_env,
        "folder": made.folder,
        "environment": made.environment,
        "overrides": made.overrides,
        **host_options,
    }
    return TransloadRunner(component=made.component, **given)


def dry_run_trial(
    source: Any,
    *,
    launch: LaunchSettings | None = None,
    **host_options: Unpack[TrialRunnerOptions],
) -> str:
    """Return what a trial would submit. Arguments and errors are those of `trial_runner`.

    Arguments that are left to the search have values for show.
    """
    made = trial_runner(source, launch=launch, **host_options)
    found = made.resolve_component()
    constants = made.component_const_params
    given = {*constants, *AUTOMATIC}
    shown = {
        each.name: _example(each)
        for each in found.parameters
        if each.required and each.name not in given
    }
    check_names(found, constants, shown, CONSTANTS)
    text = made.dry_run(shown)
    if not shown:
        return text
    values = ", ".join(f"{name}={value!r}" for name, value in shown.items())
    return f"searched, with a value for show: {values}\n{text}"


def _example(argument: Any) -> Any:
    for text in (f"<{argument.name}>", "1", *get_args(argument.annotation)):
        with suppress(ComponentArgumentError):
            return read_argument(text, argument.annotation, argument.name)
    return "1"


def _component_launch(source: Any, launch: LaunchSettings | None) -> Launch:
    made = Launch.of(source, **(launch or {}))
    if made.component is None:
        raise UnsupportedFeature(
            "source: an AppDef has no parameters to search: give the component that makes it",
            "source",
        )
    return made
