"""From core's description of a search to Ax's objects."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ax.api.utils.generation_strategy_dispatch import choose_generation_strategy
from ax.api.utils.structs import GenerationStrategyDispatchStruct
from ax.core.metric import Metric
from ax.core.objective import MultiObjective
from ax.core.objective import Objective as AxObjective
from ax.core.optimization_config import MultiObjectiveOptimizationConfig, OptimizationConfig
from ax.core.outcome_constraint import OutcomeConstraint
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter import Parameter as AxParameter
from ax.core.search_space import SearchSpace
from ax.core.types import ComparisonOp
from ax.exceptions.core import AxError
from ax.generation_strategy.generation_strategy import GenerationStrategy

from transload.components import Component, as_component, read_argument
from transload.errors import SpecError
from transload.specs import AppDef
from transload_search import Constraint, Objective, Parameter

_TYPES = {
    bool: ParameterType.BOOL,
    int: ParameterType.INT,
    float: ParameterType.FLOAT,
    str: ParameterType.STRING,
}


def search_space(
    parameters: Iterable[Parameter],
    component: Component | str | Callable[..., AppDef],
) -> SearchSpace:
    """Return a search space.

    Args:
        parameters: what is searched, at least one.
        component: decides the type of choices that are given as texts.

    Raises:
        SpecError: for a wrong parameter.
    """
    return SearchSpace([_parameter(each, component) for each in parameters])


def _parameter(given: Parameter, component: Component | str | Callable[..., AppDef]) -> AxParameter:
    try:
        return _ax_parameter(given, component)
    except AxError as exc:
        raise SpecError(
            f"parameter {str(given)!r}: Ax refuses it: {' '.join(str(exc).split())}"
        ) from exc


def _ax_parameter(
    given: Parameter, component: Component | str | Callable[..., AppDef]
) -> AxParameter:
    if given.kind == "choice":
        values = [_choice(value, given.name, component) for value in given.values]
        kind = _kind_of(values, given.name)
        if kind is ParameterType.FLOAT:
            values = [float(value) for value in values]
        if len(set(values)) < len(values):
            raise SpecError(
                f"parameter {given.name!r}: {', '.join(map(str, values))}: each choice must be "
                "there once"
            )
        if len(values) == 1:
            return FixedParameter(given.name, kind, values[0])
        ordered = kind in (ParameterType.INT, ParameterType.FLOAT) or len(values) == 2
        return ChoiceParameter(
            given.name, kind, values, is_ordered=ordered, sort_values=kind.is_numeric
        )
    assert given.low is not None and given.high is not None
    kind = ParameterType.INT if given.kind == "int" else ParameterType.FLOAT
    low, high = (
        (int(given.low), int(given.high))
        if given.kind == "int"
        else (float(given.low), float(given.high))
    )
    if low == high:
        return FixedParameter(given.name, kind, low)
    return RangeParameter(given.name, kind, low, high, log_scale=given.log)


def _choice(value: Any, name: str, component: Component | str | Callable[..., AppDef]) -> Any:
    """Return a choice as the component's argument wants it.

    1 is 1.0 for a float, and a text is read.
    """
    parameter = as_component(component).parameter(name)
    if parameter is None:
        return value
    decoded = read_argument(value, parameter.annotation, name, typed=isinstance(value, str))
    return decoded if type(decoded) in _TYPES else value


def _kind_of(values: Sequence[Any], name: str) -> ParameterType:
    """Return the one type that all choices have. Whole numbers beside others are floats.

    Raises:
        SpecError: if they have several.
    """
    types = {type(value) for value in values}
    if types == {int, float}:
        return ParameterType.FLOAT
    if len(types) == 1:
        return _TYPES.get(types.pop(), ParameterType.STRING)
    listed = ", ".join(f"{value!r} ({type(value).__name__})" for value in values)
    raise SpecError(
        f"parameter {name!r}: choices {listed}: Ax wants all of one type; "
        "search these with the suggester random, or give the argument one type"
    )


def metrics_of(
    objectives: Iterable[Objective], constraints: Iterable[Constraint]
) -> dict[str, Metric]:
    """Return the metrics of objectives and constraints, by name."""
    wanted = {each.name: each.upper for each in constraints} | {
        each.name: each.minimize for each in objectives
    }
    return {name: Metric(name, lower_is_better=low) for name, low in wanted.items()}


def optimization(
    objectives: Sequence[Objective],
    constraints: Iterable[Constraint],
    metrics: Mapping[str, Metric],
) -> OptimizationConfig:
    """Return the aim of a search, with its objectives and the bounds that results must keep.

    Several objectives are traded off.

    Raises:
        SpecError: for a bound on an objective, which Ax does not take.
    """
    constraints = tuple(constraints)
    for bound in constraints:
        if bound.name in {each.name for each in objectives}:
            raise SpecError(
                f"constraint {bound}: {bound.name!r} is an objective: Ax takes bounds on other "
                "results"
            )
    with warnings.catch_warnings():
        # an expression cannot hold names with other signs than those of identifiers
        warnings.simplefilter("ignore", DeprecationWarning)
        goals = [
            AxObjective(metric=metrics[each.name], minimize=each.minimize) for each in objectives
        ]
        bounds = [
            OutcomeConstraint(
                metric=metrics[each.name],
                op=ComparisonOp.LEQ if each.upper else ComparisonOp.GEQ,
                bound=each.bound,
                relative=False,
            )
            for each in constraints
        ]
        if len(goals) == 1:
            return OptimizationConfig(goals[0], outcome_constraints=bounds)
        return MultiObjectiveOptimizationConfig(MultiObjective(goals), outcome_constraints=bounds)


def strategy(method: Literal["fast", "quality", "random_search"], seed: int) -> GenerationStrategy:
    """Return what proposes trials.

    Args:
        method: ``fast`` or ``quality`` (Bayesian optimisation after some quasi-random trials), or
            ``random_search``.
        seed: of what is random.
    """
    return choose_generation_strategy(
        GenerationStrategyDispatchStruct(method=method, initialization_random_seed=seed)
    )
