"""What a component and an experiment must have in common; pure, and no import of Ax but in what
returns its objects.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, get_args

from transload.components import Component as ComponentOf
from transload.components import ComponentArgumentError, decode_value
from transload.errors import SpecError, UnsupportedFeature
from transload.pipelines import AdapterCapabilities, Launch
from transload.specs import AppDef
from transload_ax.states import STATES
from transload_ax.units import HOST
from transload_search.check import AUTOMATIC, check_names

if TYPE_CHECKING:
    from transload_ax.runner import TransloadRunner

CONSTANTS: Final = "component_const_params"
"""What a runner calls the arguments that are the same in all trials."""

Component = ComponentOf | str | Callable[..., AppDef]


def component_path(component: Component) -> str:
    """Return the name by which a component is found again in another process.

    Raises:
        SpecError: for a function that cannot be imported again (a lambda, a closure, of a script).
    """
    path = Launch(component=component).to_dict()["component"]
    return str(path)


def check_space(
    found: ComponentOf, constants: Mapping[str, Any], parameters: Iterable[Any]
) -> None:
    """Check that parameters of a search space, and constants, are exactly what a component needs.

    Args:
        found: the component.
        constants: arguments that are the same in all trials.
        parameters: ``ax.core.parameter.Parameter`` objects.

    Raises:
        SpecError: for an unknown, missing or doubly given name, or a type that does not fit, by
            name.
    """
    searched = {parameter.name: parameter for parameter in parameters}
    check_names(found, constants, searched, CONSTANTS)
    declared = {parameter.name: parameter for parameter in found.parameters}
    for name, value in constants.items():
        if declared[name].kind != "varargs":
            decode_value(value, declared[name].annotation, f"{CONSTANTS}: {found.name}: {name}")
    for name, searched_parameter in searched.items():
        for value in _samples(searched_parameter):
            _check_fit(found, declared[name].annotation, name, value, searched_parameter)


def _check_fit(found: ComponentOf, annotation: Any, name: str, value: Any, parameter: Any) -> None:
    kind = getattr(getattr(parameter, "parameter_type", None), "name", type(value).__name__).lower()
    problem = f"search space: {name!r} is of type {kind}, argument {name!r} of {found.name} is not"
    is_bool = isinstance(value, bool)
    if (annotation is bool and not is_bool) or (annotation in (int, float) and is_bool):
        raise SpecError(f"{problem}: {annotation.__name__}")
    if isinstance(value, (int, float)) and annotation is str:
        raise SpecError(f"{problem}: str")
    try:
        decode_value(value, annotation, name)
    except ComponentArgumentError as exc:
        raise SpecError(f"{problem}: {exc}") from exc


def _samples(parameter: Any) -> list[Any]:
    """Return values that a parameter of a search space may take, enough to tell its type."""
    if hasattr(parameter, "values"):
        return list(parameter.values)
    if hasattr(parameter, "value"):
        return [parameter.value]
    kind = getattr(getattr(parameter, "parameter_type", None), "name", "")
    if hasattr(parameter, "lower"):
        return (
            [int(parameter.lower)]
            if kind == "INT"
            else [math.nextafter(float(parameter.lower), math.inf)]
        )
    by_kind: dict[str, list[Any]] = {
        "INT": [1],
        "FLOAT": [math.nextafter(1.0, 2.0)],
        "BOOL": [True],
    }
    return by_kind.get(kind, [])


def digest(parameters: Mapping[str, Any]) -> str:
    """Return a digest of an arm's parameters: 16 hexadecimal digits, equal for equal values on
    every machine.
    """
    canonical = json.dumps(dict(parameters), sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class AxAdapter:
    """The adapter that ``transload.pipelines.get_adapter("ax")`` returns."""

    name = HOST
    state_map = STATES
    capabilities = AdapterCapabilities(
        launch_parameters=False,
        deferred=True,
        searches=True,
        notes={
            "launch_parameters": "a trial has no upstream; what is searched may set image, replicas, resources",
            "deferred": "the optimiser may be ended and started again while jobs run",
            "results": "as metrics",
        },
    )

    def convert(
        self, source: Any, *, launch: Mapping[str, Any] | None = None, **host_options: Any
    ) -> TransloadRunner:
        """Return a runner of trials.

        Args:
            source: a component (name or function), or a `Launch` of one.
            launch: arguments of `transload.pipelines.Launch` (``args``, ``scheduler``, ``cfg`` …).
            host_options: more arguments of `TransloadRunner`.

        Raises:
            UnsupportedFeature: for an app without parameters.
            SpecError: if the source is wrong.
            ConfigError: for a wrong option.
        """
        from transload_ax.runner import TransloadRunner

        made = _component_launch(source, launch)
        assert made.component is not None
        if not isinstance(made.args, Mapping):
            raise SpecError(f"launch: args={made.args!r}: must be name → value")
        given: dict[str, Any] = {
            "tracker_base": made.tracker_base,
            "component_const_params": made.args,
            "scheduler": made.scheduler or "local",
            "cfg": made.cfg,
            "workspace": made.workspace,
            "parent_run_id": made.parent_run_id,
            "pass_env": made.pass_env,
            "folder": made.folder,
            **host_options,
        }
        return TransloadRunner(component=made.component, **given)

    def dry_run(
        self, source: Any, *, launch: Mapping[str, Any] | None = None, **host_options: Any
    ) -> str:
        """Return what a trial would submit; arguments and errors as of `convert`.

        Arguments that are left to the search have values for show.
        """
        made = self.convert(source, launch=launch, **host_options)
        found, constants = made.resolve_component(), made.component_const_params
        settled = {*constants, *AUTOMATIC}
        shown = {
            each.name: _example(each)
            for each in found.parameters
            if each.required and each.name not in settled
        }
        check_names(found, constants, shown, CONSTANTS)
        values = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return (f"searched, with a value for show: {values}\n" if shown else "") + made.dry_run(
            shown
        )


def _example(argument: Any) -> Any:
    for text in (f"<{argument.name}>", "1", *get_args(argument.annotation)):
        with suppress(ComponentArgumentError):
            return decode_value(text, argument.annotation, argument.name)
    return "1"


def _component_launch(source: Any, launch: Mapping[str, Any] | None) -> Launch:
    made = Launch.of(source, **(launch or {}))
    if made.component is None:
        raise UnsupportedFeature(
            "source: an AppDef has no parameters to search: give the component that makes it",
            "source",
        )
    return made
