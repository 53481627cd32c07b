"""Searches: a component run many times with other parameters, to make an objective small or large."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Protocol

from transload.errors import ConfigError, SpecError

SCHEMA: Final = 1
Kind = Literal["int", "float", "choice"]
Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One dimension of a search.

    Args:
        name: argument of the component.
        kind: ``int`` or ``float`` (with bounds, both included), or ``choice``.
        low: lower bound.
        high: upper bound.
        log: spread evenly in the logarithm.
        values: what a choice chooses from.

    Raises:
        SpecError: for bounds or values that make no sense.
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    log: bool = False
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        where = f"parameter {self.name!r}"
        if not self.name or not self.name.isidentifier():
            raise SpecError(f"{where}: must be the name of an argument")
        if self.kind == "choice":
            if not self.values or self.low is not None or self.high is not None or self.log:
                raise SpecError(f"{where}: a choice has values, one or more, and no bounds")
            object.__setattr__(self, "values", tuple(self.values))
            return
        if self.kind not in ("int", "float"):
            raise SpecError(f"{where}: kind={self.kind!r}: must be 'int', 'float' or 'choice'")
        if self.values:
            raise SpecError(f"{where}: only a choice has values")
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not math.isfinite(bound):
                raise SpecError(f"{where}: bounds {self.low!r}, {self.high!r}: must be finite numbers")
            if self.kind == "int" and bound != int(bound):
                raise SpecError(f"{where}: bound {bound!r}: must be an int")
        assert self.low is not None and self.high is not None
        if self.low > self.high or (self.log and self.low <= 0):
            raise SpecError(f"{where}: bounds {self.low!r}, {self.high!r}: must grow{', above 0' if self.log else ''}")

    @staticmethod
    def parse(text: str) -> Parameter:
        """Read ``lr:float:1e-4:1e-1:log``, ``layers:int:1:5`` or ``solver:choice:adam,sgd``.

        Raises:
            SpecError: for any other text.
        """
        parts = text.split(":")
        name, kind, rest = parts[0], parts[1] if len(parts) > 1 else "", parts[2:]
        try:
            if kind == "choice" and rest:
                return Parameter(name, "choice", values=tuple(":".join(rest).split(",")))
            if kind in ("int", "float") and len(rest) in (2, 3) and rest[2:] in ([], ["log"]):
                number: Callable[[str], float] = int if kind == "int" else float
                return Parameter(name, kind, number(rest[0]), number(rest[1]), log=len(rest) == 3)  # type: ignore[arg-type]
        except ValueError as exc:
            if isinstance(exc, SpecError):
                raise
        raise SpecError(f"parameter {text!r}: must be NAME:int|float:LOW:HIGH[:log] or NAME:choice:A,B,…")


@dataclass(frozen=True, slots=True)
class Objective:
    """What a search is after.

    Args:
        name: name of the result, as reported by the app.
        minimize: True to make it small, False to make it large.
        key: key that it is reported under; None: the trial's number, else the only key that has it.
    """

    name: str
    minimize: bool = True
    key: str | None = None


@dataclass(frozen=True)
class Search:
    """A component, the space of its arguments, and what to look for in it.

    Args:
        component: name (or function) of the component that one trial runs.
        parameters: the space.
        objective: what to make small or large.
        trials: how many trials in all.
        parallelism: how many at once.
        seed: of what is random; equal seeds give equal suggestions.
        suggester: name of a registered suggester.
        constants: the component's other arguments.
        scheduler: where trials run; None: the configured one.
        cfg: run options.

    Raises:
        SpecError: for numbers below 1, no parameters, two of one name, one that is also a constant, or what is neither
            Parameter nor Objective.
    """

    component: str | Callable[..., Any]
    parameters: Sequence[Parameter]
    objective: Objective
    trials: int = 10
    parallelism: int = 1
    seed: int = 0
    suggester: str = "random"
    constants: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str | None = None
    cfg: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parameters))
        for name in ("trials", "parallelism"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"search: {name}={value!r}: must be an int, 1 or more")
        if not isinstance(self.objective, Objective) or not self.objective.name:
            raise SpecError(f"search: objective={self.objective!r}: must be an Objective with the name of a result")
        wrong = next((each for each in self.parameters if not isinstance(each, Parameter)), None)
        if wrong is not None:
            raise SpecError(f"search: parameters: {wrong!r} is not a Parameter (Parameter.parse reads a text)")
        names = [parameter.name for parameter in self.parameters]
        if not names:
            raise SpecError("search: parameters: must hold at least one Parameter")
        twice = next((name for name in names if names.count(name) > 1 or name in self.constants), None)
        if twice is not None:
            raise SpecError(f"search: parameter {twice!r} is given twice")

    def to_dict(self) -> dict[str, Any]:
        """Return the search as JSON values.

        Raises:
            SpecError: for a component that is a function which cannot be imported again.
        """
        from transload.pipelines import Launch

        return {
            "schema": SCHEMA,
            "component": Launch(component=self.component).to_dict()["component"],
            "parameters": [{**asdict(each), "values": list(each.values)} for each in self.parameters],
            "objective": asdict(self.objective),
            "trials": self.trials,
            "parallelism": self.parallelism,
            "seed": self.seed,
            "suggester": self.suggester,
            "constants": dict(self.constants),
            "scheduler": self.scheduler,
            "cfg": dict(self.cfg),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Search:
        """Read what `to_dict` returned.

        Raises:
            SpecError: if it is not such a value, or of a newer schema.
        """
        values = dict(data)
        if values.pop("schema", SCHEMA) > SCHEMA:
            raise SpecError(f"search: schema {data['schema']!r} is newer than this version reads ({SCHEMA})")
        try:
            values["parameters"] = [
                Parameter(**{**each, "values": tuple(each.get("values", ()))}) for each in values["parameters"]
            ]
            values["objective"] = Objective(**values["objective"])
            return Search(**values)
        except (KeyError, TypeError) as exc:
            raise SpecError(f"search: not the JSON form of a search: {exc!r}") from exc


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """One point of a search.

    Args:
        index: its number, from 0.
        parameters: argument → value.
    """

    index: int
    parameters: dict[str, Value]


class Suggester(Protocol):
    """Proposes the next trials of a search. Made by a factory that is called with the search."""

    def suggest(self, count: int = 1) -> list[SearchTrial]:
        """Return up to ``count`` new trials; fewer, or none, if it wants to see results first or is done."""

    def observe(self, index: int, value: float | None) -> None:
        """Take the objective of a trial; None if it failed. NaN counts as failed. A second value replaces the first."""

    def best(self) -> tuple[SearchTrial, float] | None:
        """Return the best trial so far and its objective; None before any was observed."""

    def state(self) -> dict[str, Any]:
        """Return everything that it knows as JSON values."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, in this process or another.

        Raises:
            SpecError: if it is the state of something else.
        """


def get_suggester(search: Search) -> Suggester:
    """Return the suggester that a search names.

    Raises:
        ConfigError: if there is none of that name; the nearest is suggested.
        PluginError: if its plugin is broken.
    """
    from transload.plugins import get_plugins

    plugins = get_plugins()
    if search.suggester not in plugins.registry("suggesters"):
        raise ConfigError(
            f"suggester {search.suggester!r} does not exist: {plugins.hint('suggesters', search.suggester)}"
        )
    suggester: Suggester = plugins.get("suggesters", search.suggester)(search)
    return suggester
