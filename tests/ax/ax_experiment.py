"""Experiments of Ax as a user makes them, in a line of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ax.core.experiment import Experiment
from ax.core.objective import Objective
from ax.core.optimization_config import OptimizationConfig
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace

from transload_ax import TransloadCurveMetric, TransloadMetric, TransloadRunner


def experiment(
    component: Any = "ax_components:square",
    parameters: Sequence[str] = ("x:float:-1:3",),
    tracker_base: str | None = None,
    *,
    name: str = "search",
    curve: bool = False,
    constants: Mapping[str, Any] | None = None,
    metrics: Sequence[Any] = (),
    **runner_options: Any,
) -> Experiment:
    """Return an experiment that makes ``loss`` small."""
    kind = TransloadCurveMetric if curve else TransloadMetric
    loss = kind("loss", lower_is_better=True)
    return Experiment(
        SearchSpace([parameter(each) for each in parameters]),
        name=name,
        metrics=[loss, *metrics],
        optimization_config=OptimizationConfig(Objective(metric=loss, minimize=True)),
        runner=TransloadRunner(tracker_base, component, constants, **runner_options),
    )


def parameter(text: str) -> RangeParameter | ChoiceParameter:
    """Return a parameter of a text such as ``x:float:0:1`` or ``x:choice:a,b``."""
    name, kind, *values = text.split(":")
    if kind == "choice":
        return ChoiceParameter(name, ParameterType.STRING, values[0].split(","))
    low, high = map(float, values)
    return RangeParameter(name, ParameterType[kind.upper()], low, high)


def sobol(seed: int = 1) -> Any:
    """Return a generation strategy that needs no model."""
    from ax.api.utils.generation_strategy_dispatch import choose_generation_strategy
    from ax.api.utils.structs import GenerationStrategyDispatchStruct

    return choose_generation_strategy(
        GenerationStrategyDispatchStruct(method="random_search", initialization_random_seed=seed)
    )
