"""The match of a component's arguments and an experiment's parameters, without importing Ax."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from transload.components import Component as ComponentOf
from transload.components import ComponentArgumentError, read_argument
from transload.errors import SpecError
from transload.pipelines import Launch
from transload.specs import AppDef
from transload_search.check import check_names

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
            read_argument(value, declared[name].annotation, f"{CONSTANTS}: {found.name}: {name}")
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
        read_argument(value, annotation, name)
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
    """Return a digest of an arm's parameters, which is 16 hexadecimal digits.

    It is equal for equal values on every machine.
    """
    canonical = json.dumps(dict(parameters), sort_keys=True, default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
