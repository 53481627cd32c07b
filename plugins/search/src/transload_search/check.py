"""Check that the names and values of a search fit its component, before anything is started."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.components import ComponentNotFound, as_component, read_argument
from transload.errors import SpecError
from transload.specs import AppDef, nearest
from transload_search.search import get_suggester

if TYPE_CHECKING:
    from transload.components import Component
    from transload_search.search import Parameter, Search

AUTOMATIC: Final = ("trial_idx", "experiment_name", "tracker_base")
"""Arguments that a component gets automatically if its signature declares them."""


def check_search(search: Search) -> None:
    """Check that parameters and constants are exactly what the component needs.

    Raises:
        SpecError: if there is no such component, if a name is unknown, missing or given twice, or if
            a value does not fit its annotation or the suggester. The message has the name.
        ConfigError: if there is no such suggester.
    """
    suggester = get_suggester(search)
    check_names(search.component, search.constants, [each.name for each in search.parameters])
    component = as_component(search.component)
    for name, value in search.constants.items():
        _check_value(component, name, value, "constants")
    for parameter in search.parameters:
        for value in _samples(parameter):
            _check_value(component, parameter.name, value, "parameters")
    suggester.check()


def _check_value(component: Component, name: str, value: Any, place: str) -> None:
    """Check that a value fits the annotation of a component's argument."""
    argument = component.parameter(name)
    if argument is None or argument.kind == "varargs":
        return
    where = f"{place}: {component.name}: {name}"
    read_argument(value, argument.annotation, where, typed=isinstance(value, str))


def check_early(search: Search, *, more_constants: bool = False) -> None:
    """Check the names of a search before its first task runs, if its component is available here.

    Args:
        search: the search, whose constants may still have unknown values.
        more_constants: whether further constants may be given when it runs.

    Raises:
        SpecError: if a name is unknown, missing or given twice.
    """
    try:
        found = as_component(search.component)
    except ComponentNotFound:
        return  # it exists where the tasks run
    names = [each.name for each in search.parameters]
    if more_constants:
        for name in (*search.constants, *names):
            check_name(found, name, "search")
    else:
        check_names(search.component, search.constants, names)


def check_names(
    component: Component | str | Callable[..., AppDef],
    constants: Mapping[str, Any],
    searched: Iterable[str],
    constants_name: str = "constants",
) -> None:
    """Check that the search space and the constants have exactly the names a component needs.

    Args:
        component: the component.
        constants: arguments that are the same in all trials.
        searched: names of the search space.
        constants_name: the name of the constants in messages.

    Raises:
        SpecError: if a name is unknown, missing or given twice.
    """
    found = as_component(component)
    names = list(searched)
    check_unique(names)
    for place, given in ((constants_name, list(constants)), ("search space", names)):
        for name in given:
            check_name(found, name, place)
    for name in names:
        if name in constants:
            raise SpecError(
                f"search space: {name!r} is in {constants_name}, too; leave one of them out"
            )
    check_missing(found, {*names, *constants}, constants_name)


def check_name(found: Component, name: str, place: str) -> None:
    """Check that a component has an argument, and that it is not filled in automatically.

    Raises:
        SpecError: if there is no such argument, or it is filled in automatically.
    """
    if name in AUTOMATIC:  # otherwise results would be read from another place
        raise SpecError(f"{place}: each trial gets {name!r} automatically; leave it out")
    known = [parameter.name for parameter in found.parameters]
    if name not in known:
        raise SpecError(f"{place}: {found.name} has no argument {name!r}; {nearest(name, known)}")


def check_unique(names: Iterable[str]) -> None:
    """Check that no parameter is given twice.

    Raises:
        SpecError: if a parameter is given twice. The message has its name.
    """
    twice = [repr(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SpecError(f"search space: {', '.join(twice)} is given twice; leave one of them out")


def check_missing(
    found: Component, given: Iterable[str], constants_name: str = "constants"
) -> None:
    """Check that every required argument is given.

    Raises:
        SpecError: if an argument is missing. The message has its name.
    """
    have = {*given, *AUTOMATIC}
    missing = [each.name for each in found.parameters if each.required and each.name not in have]
    if missing:
        raise SpecError(
            f"{found.name}: nothing gives {', '.join(map(repr, missing))}: add to the search "
            f"space (--param {missing[0]}:float:LOW:HIGH), or to {constants_name} "
            f"(--const {missing[0]}=VALUE)"
        )


def _samples(parameter: Parameter) -> list[Any]:
    """Return enough possible values of a parameter to check their types."""
    if parameter.kind == "choice":
        return list(parameter.values)
    assert parameter.low is not None
    if parameter.kind == "int":
        return [int(parameter.low)]
    return [math.nextafter(float(parameter.low), math.inf)]
