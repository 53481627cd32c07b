"""Define searches, which run a component with different parameters for the best objective."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from transload.errors import ConfigError, SpecError, TransloadError
from transload.pipelines import Launch
from transload.plugins import get_plugins
from transload.specs import Environment
from transload.specs.checks import check_given, check_json_dict, check_number, shorten
from transload.specs.serialization import to_value
from transload.specs.text import parse_number

SCHEMA: Final = 1
_LARGEST: Final = 1e300
Kind = Literal["int", "float", "choice"]
Value = int | float | str | bool
Values = Mapping[str, float]
"""Name → value, for the results of a trial that matter to the search."""

DEFAULT_FAILURES: Final = 0.5
FEWEST_FAILURES: Final = 5
"""Fewer failed trials never end a search, even if their share is too large."""


class SearchFailed(TransloadError):
    """A search cannot continue, or has ended without a value."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One dimension of a search.

    Args:
        name: argument of the component.
        kind: ``int`` or ``float`` (with bounds, both included), or ``choice``.
        low: lower bound.
        high: upper bound.
        log: use a logarithmic scale.
        values: the values of a choice.

    Raises:
        SpecError: if the bounds or values are not allowed.
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    log: bool = False
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        where = f"parameter {self.name!r}"
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise SpecError(f"{where}: must be the name of an argument")
        if self.kind == "choice":
            self._check_choices(where)
        elif self.kind in ("int", "float"):
            self._check_bounds(where)
        else:
            raise SpecError(f"{where}: kind={self.kind!r}: must be 'int', 'float' or 'choice'")

    def _check_choices(self, where: str) -> None:
        has_bounds = self.low is not None or self.high is not None or self.log
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise SpecError(f"{where}: values={shorten(self.values)}: must be a list")
        if not self.values or has_bounds:
            raise SpecError(f"{where}: a choice must have one or more values, and no bounds")
        values = tuple(_choice(value, where) for value in self.values)
        object.__setattr__(self, "values", values)

    def _check_bounds(self, where: str) -> None:
        if self.values:
            raise SpecError(f"{where}: only a choice may have values; leave them out")
        low = plain_number(self.low)
        high = plain_number(self.high)
        bounds = f"bounds {shorten(low)}, {shorten(high)}"
        for bound in (low, high):
            if not _is_number(bound) or not -_LARGEST <= bound <= _LARGEST:
                raise SpecError(
                    f"{where}: {bounds}: must be finite numbers, of at most {_LARGEST:g}"
                )
            if self.kind == "int" and bound != int(bound):
                raise SpecError(f"{where}: bound {bound!r}: must be an int")
        if self.log and (low > high or low <= 0):
            raise SpecError(f"{where}: {bounds}: must be above 0, the low one first")
        if low > high:
            raise SpecError(f"{where}: {bounds}: must grow")
        object.__setattr__(self, "values", ())
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @staticmethod
    def parse(text: str) -> Parameter:
        """Parse ``lr:float:1e-4:1e-1:log``, ``layers:int:1:5`` or ``solver:choice:adam,sgd``.

        The choices may be a JSON list, for values with commas or for lists:
        ``hidden:choice:[[32, 16], [64]]``.

        Raises:
            SpecError: for any other text.
        """
        name, _, kind_and_rest = text.partition(":")
        kind, colon, rest = kind_and_rest.partition(":")
        if kind == "choice" and colon:
            return Parameter(name, "choice", values=_split_choices(rest))
        bounds = rest.split(":")
        log = len(bounds) == 3 and bounds[2] == "log"
        if len(bounds) == 2 or log:
            try:
                if kind == "int":
                    return Parameter(name, "int", *_bounds(bounds, int), log=log)
                if kind == "float":
                    return Parameter(name, "float", *_bounds(bounds, float), log=log)
            except SpecError:
                raise
            except ValueError:
                pass  # a bound is not a number
        raise SpecError(
            f"parameter {text!r}: must be NAME:int|float:LOW:HIGH[:log] or NAME:choice:A,B,…, such "
            f"as {name or 'lr'}:float:0.001:1"
        )

    def __str__(self) -> str:
        if self.kind == "choice":
            return f"{self.name}:choice:{self._choices_text()}"
        text = f"{self.name}:{self.kind}:{self.low:g}:{self.high:g}"
        if self.log:
            text += ":log"
        return text

    def _choices_text(self) -> str:
        texts = [str(value) for value in self.values]
        if any("," in text or text.startswith("[") for text in texts):
            return json.dumps(texts)
        return ",".join(texts)


def _bounds(texts: Sequence[str], kind: type[int] | type[float]) -> tuple[float, float]:
    """Return the bounds that two texts spell.

    Raises:
        ValueError: if one of them is no number.
    """
    return parse_number(texts[0], kind), parse_number(texts[1], kind)


def plain_number(value: Any) -> Any:
    """Convert a number of numpy or torch to Python's own type. Return other values unchanged."""
    if isinstance(value, (int, float, str)) and type(value).__module__ == "builtins":
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _choice(value: Any, where: str) -> Value:
    """Return one choice as a number or text. A list or dict becomes JSON text.

    Raises:
        SpecError: for a value of another type.
    """
    value = plain_number(value)
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple, dict)):
        try:
            return json.dumps(value)
        except (TypeError, ValueError) as exc:
            raise SpecError(f"{where}: choice {value!r}: cannot be written as JSON: {exc}") from exc
    raise SpecError(
        f"{where}: choice {value!r}: must be a number, a text, a bool, or a list of these"
    )


def _split_choices(text: str) -> tuple[Value, ...]:
    """Split a text into choices, from a JSON list, or at its commas."""
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            return tuple(found)
    return tuple(text.split(","))


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a search.

    Args:
        name: name of the result that the job reports.
        minimize: True to minimize it, False to maximize it.
        key: key under which it is reported. None means the trial's number, else ``final``, else the
            only key that has it.

    Raises:
        SpecError: for a value of another type, or an empty name.
    """

    name: str
    minimize: bool = True
    key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"objective: name={self.name!r}: must be the name of a result")
        if not isinstance(self.minimize, bool):
            raise SpecError(f"objective {self.name!r}: minimize={self.minimize!r}: must be a bool")
        if self.key is not None and not isinstance(self.key, str):
            raise SpecError(f"objective {self.name!r}: key={self.key!r}: must be a str, or None")

    def __str__(self) -> str:
        aim = "minimize" if self.minimize else "maximize"
        text = f"{aim} {self.name}"
        if self.key:
            text += f" of key {self.key}"
        return text


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on another result that the best trial must satisfy.

    Args:
        name: name of the result.
        bound: the bound.
        upper: True if the result must be at most the bound, False if at least.

    Raises:
        SpecError: if the name is empty, or the bound is not a finite number.
    """

    name: str
    bound: float
    upper: bool = True

    def __post_init__(self) -> None:
        is_name = isinstance(self.name, str) and self.name != ""
        is_right = is_name and _is_number(self.bound) and -_LARGEST <= self.bound <= _LARGEST
        if not is_right:
            raise SpecError(
                f"constraint {self.name!r}, {shorten(self.bound)}: must be the name of a result "
                f"and a number of at most {_LARGEST:g}"
            )

    @staticmethod
    def parse(text: str) -> Constraint:
        """Parse ``latency<=20`` or ``accuracy>=0.9``.

        Raises:
            SpecError: for any other text.
        """
        for sign in ("<=", ">="):
            name, found, bound = text.partition(sign)
            try:
                if found:
                    return Constraint(name.strip(), parse_number(bound, float), sign == "<=")
            except ValueError:
                break
        raise SpecError(f"constraint {text!r}: must be RESULT<=NUMBER or RESULT>=NUMBER")

    def holds(self, value: float) -> bool:
        """Tell whether a value satisfies the bound."""
        if self.upper:
            return value <= self.bound
        return value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.upper else ">="
        return f"{self.name}{sign}{self.bound:g}"


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Rule to end a trial early, by comparing its steps with those of other trials.

    A trial is ended if its latest value is among the worst of all trials at that step.

    Args:
        worst: share of the trials that are ended, above 0 and at most 1, where 0.5 is the worse
            half.
        least_steps: smallest step that a trial must have reached before it may be ended.
        least_trials: smallest number of other trials that must have reached the same step.

    Raises:
        SpecError: if a share or a number is not allowed.
    """

    worst: float = 0.5
    least_steps: float = 1
    least_trials: int = 3

    def __post_init__(self) -> None:
        for name in ("worst", "least_steps", "least_trials"):
            check_number(getattr(self, name), f"EarlyStopping.{name}")
        if not 0 < self.worst <= 1 or self.least_trials < 1 or self.least_steps < 0:
            raise SpecError(
                f"{self}: worst must be above 0 and at most 1, least_trials 1 or more, least_steps "
                "0 or more"
            )

    def ends(
        self,
        curve: Mapping[float, float],
        others: Sequence[Mapping[float, float]],
        *,
        minimize: bool,
    ) -> bool:
        """Tell whether to end a trial.

        Args:
            curve: step → value of the objective, for the trial.
            others: the same for the other trials, in any state.
            minimize: whether small values are good.
        """
        if not curve:
            return False
        step = max(curve)
        reached = [other for other in others if other and max(other) >= step]
        if step < self.least_steps or len(reached) < self.least_trials:
            return False
        theirs = [_value_at(other, step) for other in reached if min(other) <= step]
        is_better = operator.lt if minimize else operator.gt
        better = sum(1 for value in theirs if is_better(value, curve[step]))
        return better > (1 - self.worst) * len(theirs)


def _value_at(curve: Mapping[float, float], step: float) -> float:
    """Return the value of a curve at a step, or at the last step before it."""
    return curve[max(each for each in curve if each <= step)]


@dataclass(frozen=True)
class Search:
    """A component, the search space of its arguments, and the objective.

    Args:
        component: name (or function) of the component that one trial runs.
        parameters: the search space.
        objective: the result to optimize. Several objectives are traded off against one another.
        trials: number of trials in all, even if the search is interrupted.
        parallelism: number of trials at the same time.
        seed: seed of the random numbers. Equal seeds give equal suggestions.
        suggester: name of a registered suggester.
        constants: the component's other arguments.
        scheduler: scheduler of the trials, or None for the configured one.
        cfg: run options.
        constraints: bounds on other results.
        failures: share of the trials that may fail. The search ends if more fail, and at least
            five.
        early_stopping: rule to end trials that do badly, or None for no early stopping.
        workspace: local folder to copy to the trials.
        parent_run_id: run from which all trials derive, by default the job that runs the search,
            else a separate run, ``search/NAME/ID``.
        environment: packages that each trial needs: a file (``requirements.txt``, ``uv.lock --group
            NAME``, a script with a header), or ``none``. By default it is what the component says.

    Raises:
        SpecError: if a number is below 1, there are no parameters, two have the same name, one is
            also a constant, a value is neither Parameter nor Objective, or the environment is not
            one of these.
    """

    component: str | Callable[..., Any]
    parameters: Sequence[Parameter]
    objective: Objective | Sequence[Objective]
    trials: int = 10
    parallelism: int = 1
    seed: int = 0
    suggester: str = "random"
    constants: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str | None = None
    cfg: Mapping[str, Any] = field(default_factory=dict)
    constraints: Sequence[Constraint] = ()
    failures: float = DEFAULT_FAILURES
    early_stopping: EarlyStopping | None = None
    workspace: str | None = None
    parent_run_id: str | None = None
    environment: str | None = None

    def __post_init__(self) -> None:
        self._check_values()
        object.__setattr__(self, "parameters", tuple(self.parameters))
        object.__setattr__(self, "constraints", tuple(self.constraints))
        if isinstance(self.objective, Sequence) and not isinstance(self.objective, str):
            object.__setattr__(self, "objective", tuple(self.objective))
        for name in ("trials", "parallelism"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"search: {name}={value!r}: must be an int, 1 or more")
        self._check_objectives()
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise SpecError(f"search: seed={shorten(self.seed)}: must be an int")
        if not _is_number(self.failures) or not 0 <= self.failures <= 1:
            raise SpecError(
                f"search: failures={self.failures!r}: must be a share of the trials, from 0 to 1"
            )
        self._check_parameters()
        if self.environment is not None:
            Environment.from_str(self.environment, "search: environment")

    def _check_values(self) -> None:
        """Refuse what cannot be kept as JSON, and what is not of the type that it must have."""
        for name in ("constants", "cfg"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise SpecError(f"search: {name}={shorten(given)}: must be name → value")
            values = {key: plain_number(each) for key, each in given.items()}
            check_json_dict(values, f"search: {name}")
            object.__setattr__(self, name, values)
        for name, kind in (("parameters", Parameter), ("constraints", Constraint)):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence):
                allowed = f"must be a list of {kind.__name__}s ({kind.__name__}.parse reads a text)"
                raise SpecError(f"search: {name}={shorten(given)}: {allowed}")
        for each in self.constraints:
            if not isinstance(each, Constraint):
                raise SpecError(
                    f"search: constraints: {each!r} is not a Constraint (Constraint.parse reads a "
                    "text)"
                )
        stopping = self.early_stopping
        if stopping is not None and not isinstance(stopping, EarlyStopping):
            raise SpecError(
                f"search: early_stopping={shorten(stopping)}: must be an EarlyStopping, or None"
            )
        check_given(
            suggester=self.suggester,
            scheduler=self.scheduler,
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            environment=self.environment,
        )

    def _check_objectives(self) -> None:
        where = f"search: objective={self.objective!r}"
        objectives = self.objectives
        named = [each for each in objectives if isinstance(each, Objective)]
        if not objectives or len(named) < len(objectives):
            raise SpecError(f"{where}: must be an Objective with the name of a result")
        if len({each.name for each in objectives}) < len(objectives):
            raise SpecError(f"{where}: the same result is given twice; leave one out")

    def _check_parameters(self) -> None:
        for each in self.parameters:
            if not isinstance(each, Parameter):
                raise SpecError(
                    f"search: parameters: {each!r} is not a Parameter (Parameter.parse reads a "
                    "text)"
                )
        if not self.parameters:
            raise SpecError("search: parameters: must hold at least one Parameter")
        taken = set(self.constants)
        for parameter in self.parameters:
            if parameter.name in taken:
                raise SpecError(f"search: parameter {parameter.name!r} is given twice")
            taken.add(parameter.name)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives, one or more."""
        if isinstance(self.objective, Sequence):
            return tuple(self.objective)
        return (self.objective,)

    @property
    def rounds(self) -> int:
        """The number of planned rounds, which is trials by parallelism, rounded up."""
        return math.ceil(self.trials / self.parallelism)

    @property
    def results(self) -> dict[str, str | None]:
        """The key of each result that a trial must report, or None as `Objective` explains."""
        keys: dict[str, str | None] = {each.name: None for each in self.constraints}
        keys.update({each.name: each.key for each in self.objectives})
        return keys

    def launch(self, trial: SearchTrial, task: Launch | None = None) -> Launch:
        """Return the launch of a trial, with the component, the constants and the parameters.

        Args:
            trial: the trial.
            task: what an orchestrator says of the trial's task. Its ``workspace``,
                ``parent_run_id`` and ``environment`` go before those of the search. Its
                ``scheduler`` and ``cfg`` are defaults.
        """
        given = task or Launch(component=self.component)
        return replace(
            given,
            component=self.component,
            args={**self.constants, **trial.parameters},
            scheduler=self.scheduler or given.scheduler,
            cfg={**given.cfg, **self.cfg},
            workspace=given.workspace or self.workspace,
            parent_run_id=given.parent_run_id or self.parent_run_id,
            environment=given.environment or self.environment,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the search as JSON values.

        Raises:
            SpecError: for a component that is a function which cannot be imported again.
        """
        component = Launch(component=self.component).to_dict()["component"]
        return {"schema": SCHEMA, **to_value(self), "component": component}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Search:
        """Read what `to_dict` returned.

        Raises:
            SpecError: if it is not such a value, or of a newer schema.
        """
        values = dict(data)
        schema = values.pop("schema", SCHEMA)
        if schema > SCHEMA:
            raise SpecError(
                f"search: schema {schema!r} is newer than this version reads ({SCHEMA})"
            )
        try:
            values["parameters"] = [Parameter(**each) for each in values["parameters"]]
            values["objective"] = _objective(values["objective"])
            values["constraints"] = [Constraint(**each) for each in values.get("constraints", ())]
            if values.get("early_stopping") is not None:
                values["early_stopping"] = EarlyStopping(**values["early_stopping"])
            return Search(**values)
        except (KeyError, TypeError) as exc:
            raise SpecError(f"search: not the JSON form of a search: {exc!r}") from exc


def _objective(data: Any) -> Objective | tuple[Objective, ...]:
    if isinstance(data, Mapping):
        return Objective(**data)
    return tuple(Objective(**each) for each in data)


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

    def check(self) -> None:
        """Refuse a search that this suggester cannot do, before anything of it is kept or started.

        Raises:
            SpecError: naming the parameter, its values and what is allowed.
        """

    def suggest(self, count: int = 1) -> list[SearchTrial]:
        """Return up to ``count`` new trials.

        They are fewer, or none, if it wants to see results first or is done.
        """

    def observe(self, index: int, values: Values | None) -> None:
        """Take what a trial came to. A second call replaces the first.

        Args:
            index: the trial.
            values: each objective and each constrained result, finite numbers, or None if the trial
                failed.
        """

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
        ConfigError: if there is none of that name. The nearest is suggested.
        PluginError: if its plugin is broken.
    """
    plugins = get_plugins()
    if search.suggester not in plugins.registry("suggesters"):
        raise ConfigError(
            f"suggester {search.suggester!r} does not exist: "
            f"{plugins.hint('suggesters', search.suggester)}"
        )
    suggester: Suggester = plugins.get("suggesters", search.suggester)(search)
    return suggester


def next_round(
    search: Search,
    state: Mapping[str, Any] | None,
    observed: Mapping[int, Values | None],
    count: int | None = None,
) -> tuple[list[SearchTrial], dict[str, Any]]:
    """Return the trials of the next round, and the suggester's state after it.

    Nothing is read or written.

    Args:
        search: the search.
        state: the state after the round before, or None if this is the first.
        observed: trial → what it came to (None: it failed), as far as the state does not know them.
        count: how many trials, or None for the search's parallelism.

    Raises:
        SpecError: if the state is of another suggester, or a trial was never suggested.
        ConfigError: if there is no such suggester.
    """
    suggester = get_suggester(search)
    if state is not None:
        suggester.load(state)
    if count is None:
        count = search.parallelism
    trials = ask(suggester, observed, count)
    return trials, suggester.state()


def ask(
    suggester: Suggester, observed: Mapping[int, Values | None], count: int
) -> list[SearchTrial]:
    """Tell a suggester what trials came to, in their order, and return its next ones."""
    for index, values in sorted(observed.items()):
        suggester.observe(index, values)
    return suggester.suggest(count)
