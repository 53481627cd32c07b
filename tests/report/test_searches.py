"""Pages of searches come from a stored Ax experiment, without Ax, or a tracker base."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_samples import EXPERIMENT, NOW, Page

from transload.errors import ConfigError, SpecError
from transload.runner import AppResults
from transload.specs import AppState
from transload_report import collect_experiment, experiment_data, ledger_data, search_report
from transload_search import Objective, Parameter, Search, SearchLedger

Parse = Callable[[str], Page]


def test_a_stored_experiment(tmp_path: Path, parse: Parse) -> None:
    """The page of a file that Ax stored has name, objective, and trials with states, values, jobs."""
    data = collect_experiment(str(EXPERIMENT))
    alone = tmp_path / "alone.json"  # as `save_experiment` writes it; the other is a client's
    alone.write_text(json.dumps(json.loads(EXPERIMENT.read_text())["experiment"]))
    assert collect_experiment(str(alone)).trials == data.trials
    assert (data.name, data.objective, data.minimize) == ("search", "loss", True)
    assert "".join(trial.state[0] for trial in data.trials) == "CCCCFFCFSS"
    assert [trial.value is not None for trial in data.trials] == [
        trial.state == "COMPLETED" for trial in data.trials
    ]
    first = data.trials[0]
    assert first.value == 0.69 and first.handle.startswith("local://ax/ax-0-")
    assert first.parameters == {"lr": pytest.approx(10**-2.5), "layers": 3, "solver": "sgd"}
    page = parse(search_report(data))
    assert "0.530585 trial 6" in page.text(".//section[@id='overview']")
    assert "6 ★ ✓ COMPLETED 0.530585" in page.lines(".//section[@id='trials']//tbody/tr")[6]


def test_a_logarithmic_parameter_has_a_logarithmic_axis(tmp_path: Path, parse: Parse) -> None:
    """It has one where its values are near each other, too, and only where the search says so.

    A parameter that is reported as the objective has one column, and no picture of itself.
    """
    rates = [Parameter("x1", "float", 0.01, 0.1, log=True), Parameter("x2", "float", 0.5, 0.6)]
    search = Search("utils.booth", rates, Objective("x2"), trials=6)
    ledger = SearchLedger(search, str(tmp_path))
    for trial in ledger.suggest(0) + [each for k in range(1, 6) for each in ledger.suggest(k)]:
        values = {str(trial.index): {"x2": trial.parameters["x2"]}}
        ledger.observe(trial.index, AppResults("local://t/a", AppState.SUCCEEDED, values))
    page = parse(search_report(collect_experiment(str(tmp_path))))
    texts = page.lines(".//section[@id='parameters']//{http://www.w3.org/2000/svg}text")
    assert "x1, logarithmic" in texts
    titles = page.lines(".//section[@id='parameters']//{http://www.w3.org/2000/svg}title")
    assert "x2 against x1" in titles and "x2 against x2" not in titles
    assert page.lines(".//section[@id='trials']//thead//th").count("x2") == 1


def test_a_search_of_the_command_line_by_name(transload_home: Path) -> None:
    """The name that ``transload search`` keeps a search under is enough."""
    search = Search(
        "utils.booth",
        [Parameter(name, "float", -5, 5) for name in ("x1", "x2")],
        Objective("booth"),
    )
    SearchLedger(search, str(transload_home / "searches" / "mine"))
    assert collect_experiment("mine").name == "mine"


def test_the_base_of_a_search(tmp_path: Path, parse: Parse) -> None:
    """The page of a search's ledger has what was suggested, seen, and is still open."""
    space = [Parameter("x1", "float", -5, 5), Parameter("x2", "choice", values=(1.0, 2.0))]
    search = Search(
        "utils.booth", space, Objective("booth", minimize=False), trials=6, parallelism=4
    )
    ledger = SearchLedger(search, str(tmp_path / "tuning"))
    ledger.suggest(0)
    for index, value in enumerate((1.5, 2.5)):
        ledger.observe(
            index, AppResults(f"local://t/{index}", AppState.SUCCEEDED, {"0": {"booth": value}})
        )
    ledger.observe(2, None, state=AppState.CANCELLED, handle="local://t/2")
    data = collect_experiment(str(tmp_path / "tuning"))
    assert (data.name, data.planned, data.minimize) == ("tuning", 6, False)
    assert [trial.state for trial in data.trials] == ["SUCCEEDED", "SUCCEEDED", "CANCELLED", "OPEN"]
    assert [trial.value for trial in data.trials] == [1.5, 2.5, None, None]
    page = parse(search_report(ledger_data(ledger.summary(), NOW)))
    assert "Greatest booth 2.5 trial 1" in page.text(".//section[@id='overview']")
    assert "4 of 6" in page.text(".//section[@id='overview']")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "must be an experiment of Ax"),
        ("[]", "must be an experiment of Ax"),
        ("{}", "must have exactly one objective"),
        ('{"experiment": []}', "must be an experiment of Ax"),
        ('{"experiment": {"trials": {}}}', "must have exactly one objective"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, body: str, says: str) -> None:
    """What is no experiment is refused with the file's name and the reason."""
    file = tmp_path / "it.json"
    file.write_text(body)
    with pytest.raises(SpecError, match=says) as caught:
        collect_experiment(str(file))
    assert str(file) in str(caught.value)


def test_no_such_search(transload_home: Path) -> None:
    """A name that leads nowhere says where was looked."""
    for name in ("nothing", str(transload_home), "memory://nothing/here", "\x00"):
        with pytest.raises((ConfigError, SpecError), match="search"):
            collect_experiment(name)


def test_objectives_of_other_forms() -> None:
    """An objective that is to be large, and one in the form of older releases of Ax."""
    body: dict[str, Any] = json.loads(EXPERIMENT.read_text())
    body["experiment"]["optimization_config"]["objective"] = {"expression": "loss"}
    assert not experiment_data(body, "x").minimize
    body["experiment"]["optimization_config"]["objective"] = {
        "metric": {"name": "loss"},
        "minimize": True,
    }
    assert experiment_data(body, "x").minimize
