"""Searches and the random suggester."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import ConfigError, SpecError
from transload_search import Constraint, EarlyStopping, Objective, Parameter, Search, get_suggester
from transload_search.progress import progress_line

SPACE = (
    Parameter("lr", "float", 1e-4, 1e-1, log=True),
    Parameter("depth", "int", 1, 5),
    Parameter("width", "int", 1, 1000, log=True),
    Parameter("momentum", "float", -1.0, 1.0),
    Parameter("solver", "choice", values=("adam", "sgd")),
)


def search(**more: object) -> Search:
    """Return a search over all kinds of parameters."""
    return Search("utils.booth", SPACE, Objective("loss"), **{"trials": 50, **more})  # type: ignore[arg-type]


@given(st.integers(), st.integers(1, 50))
def test_suggestions_are_in_bounds_and_depend_on_the_seed_alone(seed: int, count: int) -> None:
    """Whatever the order of asking, trial n of a seed is the same, and within its bounds."""
    trials = get_suggester(search(seed=seed)).suggest(count)
    again = get_suggester(search(seed=seed))
    one_by_one = [trial for _ in range(count) for trial in again.suggest()]
    assert trials == one_by_one
    for trial in trials:
        values = trial.parameters
        assert 1e-4 <= float(values["lr"]) <= 1e-1
        assert values["depth"] in range(1, 6)
        assert isinstance(values["width"], int)
        assert 1 <= values["width"] <= 1000
        assert -1 <= float(values["momentum"]) <= 1
        assert values["solver"] in ("adam", "sgd")


def test_seeds_and_parameters_differ() -> None:
    """Another seed gives other trials, and a trial's parameters come from several streams."""
    first, second = (get_suggester(search(seed=seed)).suggest(20) for seed in (0, 1))
    assert first != second
    logs = [math.log10(float(trial.parameters["lr"])) for trial in first]
    assert min(logs) < -3 < -2 < max(logs)


def test_state_goes_on_elsewhere() -> None:
    """The state is JSON, from which another process goes on as this one would have."""
    first = get_suggester(search())
    first.suggest(3)
    first.observe(0, {"loss": 2.0})
    first.observe(1, None)
    second = get_suggester(search())
    second.load(json.loads(json.dumps(first.state())))
    assert second.suggest(2) == first.suggest(2)
    with pytest.raises(SpecError):
        second.load({"suggester": "other"})
    with pytest.raises(SpecError, match="was not suggested"):
        second.observe(9, {"loss": 1.0})


def test_no_more_trials_than_asked_for() -> None:
    """A suggester stops at the search's number of trials."""
    suggester = get_suggester(search(trials=3))
    assert [trial.index for trial in suggester.suggest(10)] == [0, 1, 2]
    assert suggester.suggest(10) == []


def test_search_round_trip() -> None:
    """A search survives JSON."""
    one = search(
        constants={"x2": 1},
        cfg={"a": "b"},
        seed=3,
        parallelism=2,
        early_stopping=EarlyStopping(0.3),
    )
    two = replace(
        one,
        objective=(Objective("a"), Objective("b", False)),
        constraints=[Constraint.parse("m<=3")],
        environment="uv.lock --group train",
    )
    for each in (one, two):
        assert Search.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    with pytest.raises(SpecError, match="newer"):
        Search.from_dict({"schema": 99})


@pytest.mark.parametrize(
    "text", ["lr:float:1e-4:1e-1:log", "layers:int:1:5", "solver:choice:adam,sgd"]
)
def test_parameters_of_the_command_line(text: str) -> None:
    """Parameters are read from one text each, and say themselves in that form."""
    found = Parameter.parse(text)
    assert found.name == text.split(":")[0]
    assert found.log == text.endswith("log")
    assert Parameter.parse(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lr",
        "lr:float",
        "lr:float:1",
        "lr:float:2:1",
        "lr:float:0:1:log",
        "n:int:1:2.5",
        "a b:int:1:2",
        "x:bool:0:1",
    ],
)
def test_wrong_parameters_are_refused(text: str) -> None:
    """What is no parameter is refused with what is allowed."""
    with pytest.raises(SpecError, match="parameter"):
        Parameter.parse(text)


def test_wrong_searches_are_refused() -> None:
    """Numbers below 1, no parameters, the same one twice, an unknown suggester."""
    for values in ({"trials": 0}, {"parallelism": True}, {"constants": {"lr": 1}}):
        with pytest.raises(SpecError, match="search"):
            search(**values)
    with pytest.raises(SpecError, match="at least one"):
        Search("c", (), Objective("x"))
    with pytest.raises(ConfigError, match="random"):
        get_suggester(search(suggester="randon"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"objective": "loss"}, "objective='loss': must be an Objective"),
        ({"objective": 5}, "objective=5: must be an Objective"),
        ({"objective": [5]}, r"objective=\(5,\): must be an Objective"),
        ({"objective": ()}, "must be an Objective"),
        ({"parameters": 5}, "parameters=5: must be a list of Parameters"),
        ({"parameters": "lr:float:0:1"}, "parameters='lr.*must be a list of Parameters"),
        ({"constraints": 5}, "constraints=5: must be a list of Constraints"),
        ({"constraints": ["a<=1"]}, "'a<=1' is not a Constraint"),
        ({"constants": 5}, "constants=5: must be name → value"),
        ({"constants": {"data": Path("/d")}}, r"constants\['data'\]=.*must be a JSON value"),
        ({"constants": {"data": {1, 2}}}, r"constants\['data'\]=.*must be a JSON value"),
        ({"constants": {1: 2}}, "constants key=1: must be a str"),
        ({"cfg": {"log_dir": Path("/d")}}, r"cfg\['log_dir'\]=.*must be a JSON value"),
        ({"cfg": {"a": {"b": [{3}]}}}, r"cfg\['a'\]\['b'\]\[0\]=.*must be a JSON value"),
        ({"early_stopping": 0.5}, "early_stopping=0.5: must be an EarlyStopping"),
        ({"failures": "a"}, "failures='a': must be a share"),
        ({"seed": "a"}, "seed='a': must be an int"),
        ({"scheduler": ""}, "scheduler='': must not be empty"),
        ({"workspace": ""}, "workspace='': must not be empty"),
        ({"parameters": ["lr:float:0:1"]}, "'lr:float:0:1' is not a Parameter"),
    ],
)
def test_texts_in_the_place_of_parts_are_refused(more: dict[str, object], says: str) -> None:
    """A text where an Objective or a Parameter is due is named when the search is made, not when it
    runs.
    """
    with pytest.raises(SpecError, match=says):
        Search(
            **{
                "component": "utils.booth",
                "parameters": SPACE,
                "objective": Objective("loss"),
                **more,
            }
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Objective(""), "name='': must be the name of a result"),
        (lambda: Objective(5), "name=5: must be the name of a result"),
        (lambda: Objective("loss", "min"), "minimize='min': must be a bool"),
        (lambda: Objective("loss", key=1), "key=1: must be a str"),
        (lambda: EarlyStopping(worst="a"), "worst='a': must be a number"),
        (lambda: EarlyStopping(least_steps=None), "least_steps=None: must be a number"),
        (lambda: EarlyStopping(least_trials=[3]), r"least_trials=\[3\]: must be a number"),
        (lambda: Constraint(5, 1), "constraint 5, 1: must be the name"),
        (lambda: Constraint("a", "b"), "constraint 'a', 'b': must be the name"),
        (lambda: Parameter(5, "int", 1, 2), "parameter 5: must be the name"),
        (lambda: Parameter("a", "choice", values=5), "values=5: must be a list"),
        (lambda: Parameter("a", "choice", values="xy"), "values='xy': must be a list"),
        (lambda: Parameter("a", "int", "1", 2), "must be finite numbers"),
    ],
)
def test_parts_of_a_search_refuse_other_types(make: Callable[[], object], says: str) -> None:
    """A value of another type is named with what is allowed, when the part is made."""
    with pytest.raises(SpecError, match=says):
        make()


@pytest.mark.parametrize(
    "text", ["", "latency", "latency<20", "<=20", "latency<=fast", "latency>=inf"]
)
def test_wrong_constraints_are_refused(text: str) -> None:
    """What is no bound on a result is refused with what is allowed."""
    with pytest.raises(SpecError, match="constraint"):
        Constraint.parse(text)


@pytest.mark.parametrize(
    ("curve", "ends"),
    [
        ({1: 5.0, 2: 4.0}, True),  # three of four were better at step 2
        ({1: 5.0, 2: 2.5}, False),  # two were
        ({1: 5.0, 3: 9.0}, False),  # too few others have come as far
        ({}, False),
    ],
)
def test_early_stopping(curve: dict[float, float], ends: bool) -> None:
    """A trial is ended when its latest value is in the worse half of those that have come as
    far.
    """
    others = [{1: 3.0, 2: float(value)} for value in (1, 2, 3, 8)]
    assert EarlyStopping().ends(curve, others, minimize=True) is ends
    upside_down = [{step: -value for step, value in each.items()} for each in (curve, *others)]
    assert EarlyStopping().ends(upside_down[0], upside_down[1:], minimize=False) is ends


def test_line_of_a_search() -> None:
    """The line says how many trials have ended, how far the running ones are, and what is best."""
    rows = [
        {"index": 0, "state": "SUCCEEDED", "values": [0.25]},
        {"index": 1, "state": None, "values": None},
        {"index": 2, "state": None, "values": None},
    ]
    best = {"index": 0, "value": 0.25}
    summary = {
        "trials": rows,
        "best": best,
        "search": {"trials": 4, "objective": {"name": "loss"}},
    }
    bar = "s [######..................] 1/4"
    end = "best loss 0.25 (trial 0)"
    assert progress_line("s", summary) == f"{bar}, 2 running, {end}"
    assert progress_line("s", summary, {0: 1.0, 1: 0.29}) == f"{bar}, 2 running (29 %), {end}"
    both = progress_line("s", summary, {1: 0.29, 2: 0.7})
    assert both == f"{bar}, 2 running (29 to 70 %), {end}"
