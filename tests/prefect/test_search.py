"""A search is a flow on a real server, with a task run per trial and a lasting ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import quadratic, stepping

from transload.errors import ConfigError, SpecError
from transload.pipelines import Launch, get_adapter, host_runner
from transload.specs import AppDef, Role
from transload_search import EarlyStopping, Objective, Parameter, Search, SearchLedger


def _search(**changes: Any) -> Search:
    values: dict[str, Any] = {
        "component": quadratic,
        "parameters": [Parameter("x", "float", -1.0, 1.0)],
        "objective": Objective("loss"),
        "trials": 5,
        "parallelism": 2,
        "scheduler": "local",
    }
    return Search(**{**values, **changes})


def _flow_run(host: Any, name: str) -> dict[str, Any] | None:
    runs = host.post(
        "/flow_runs/filter", flows={"name": {"any_": [name]}}, sort="START_TIME_DESC", limit=1
    )
    return runs[0] if runs else None


def _apps() -> Counter[str]:
    return Counter(each.state.name for each in host_runner("prefect").list("local"))


def test_each_trial_is_a_task_run_of_a_subflow(host: Any, tmp_path: Path, eventually: Any) -> None:
    """A search is a subflow with a task run for each trial, and its value is the best one.

    Constants come from upstream, and there is a table of trials.
    """
    from prefect import flow

    from transload_prefect import run_app, search_flow

    ended: list[str] = []

    def note(task: Any, run: Any, state: Any) -> None:
        ended.append(run.name)

    tune = search_flow(_search(), name="tune-subflow", tags=["trial"], on_completion=[note])

    @flow(name="tune-parent")
    def work() -> Any:
        offset = run_app("jobs:quadratic", component_args={"x": 2.0}).value("loss")
        return tune(tracker_base=str(tmp_path), constants={"offset": offset})

    summary = work()
    assert sorted(ended) == [f"tune-subflow-{n}" for n in range(5)]
    values = [row["value"] for row in summary["trials"]]
    assert len(values) == 5 and summary["best"]["value"] == min(values)
    assert values == pytest.approx([row["parameters"]["x"] ** 2 + 4.0 for row in summary["trials"]])
    assert (
        json.loads((tmp_path / "best.json").read_text())["results"]["loss"]
        == summary["best"]["value"]
    )
    run = _flow_run(host, "tune-subflow")
    assert run is not None and run["parent_task_run_id"] is not None
    eventually(
        lambda: (
            Counter(each["state_type"] for each in host.task_runs(run["id"])) == {"COMPLETED": 5}
        ),
        30,
    )
    found = host.task_runs(run["id"])
    assert {each["name"] for each in found} == {f"tune-subflow-{n}" for n in range(5)}
    assert all("trial" in each["tags"] for each in found)
    eventually(
        lambda: any(each["key"] == "tune-subflow-trials" for each in host.artifacts(run["id"])), 60
    )

    def rows() -> Any:
        table = next(
            each for each in host.artifacts(run["id"]) if each["key"] == "tune-subflow-trials"
        )
        return json.loads(table["data"])

    eventually(lambda: [row["loss"] for row in rows()] == values, 60)
    assert {row["state"] for row in rows()} == {"SUCCEEDED"}


ALONE = """
import sys
from jobs import quadratic
from transload_search import Objective, Parameter, Search
from transload_prefect import search_flow

gate, base = sys.argv[1:3]
search = Search(
    quadratic, [Parameter("x", "float", -1.0, 1.0)], Objective("loss"), trials=3, parallelism=2,
    constants={"gate": gate}, scheduler="local",
)
if __name__ == "__main__":
    search_flow(search, name="tune-cancelled")(tracker_base=base)
"""


def test_cancelled_and_gone_on_with(
    host: Any, gate: Path, script: Callable[[str], Any], tmp_path: Path, eventually: Any
) -> None:
    """A search cancelled in the interface has cancelled trials, which do not count.

    Another flow run with its base goes on.
    """
    from transload_prefect import search_flow

    process = script(ALONE).start(str(gate), str(tmp_path / "base"))
    eventually(lambda: _apps() == {"RUNNING": 2}, 60)
    run = eventually(lambda: _flow_run(host, "tune-cancelled"), 60)
    host.cancel(run["id"])
    eventually(lambda: _apps() == {"CANCELLED": 2}, 60)
    eventually(lambda: process.poll() is not None, 60)
    eventually(lambda: host.flow_run(run["id"])["state_type"] == "CANCELLED", 30)
    search = _search(trials=3, constants={"gate": str(gate)})
    assert [SearchLedger(search, str(tmp_path / "base")).ended(index) for index in range(2)] == [
        None,
        None,
    ]
    gate.touch()
    summary = search_flow(search, name="tune-gone-on", tracker_base=str(tmp_path / "base"))()
    assert [row["state"] for row in summary["trials"]] == ["SUCCEEDED"] * 3
    assert _apps() == {"CANCELLED": 2, "SUCCEEDED": 3}


def test_a_trial_is_stopped_early(host: Any, tmp_path: Path, eventually: Any) -> None:
    """A trial that does badly is ended by the search, whose other trials count."""
    from transload_prefect import search_flow

    search = _search(component=stepping, parallelism=5, early_stopping=EarlyStopping())
    summary = search_flow(search, name="tune-early", tracker_base=str(tmp_path))()
    assert [row["state"] for row in summary["trials"]] == [*["SUCCEEDED"] * 4, "STOPPED"]
    assert summary["best"]["index"] == 0
    run = _flow_run(host, "tune-early")
    assert run is not None
    states = {"COMPLETED": 4, "CANCELLED": 1}
    eventually(
        lambda: Counter(each["state_type"] for each in host.task_runs(run["id"])) == states, 30
    )


def test_convert_makes_a_flow_of_a_search() -> None:
    """The adapter's ``convert`` takes a search.

    A dry run shows what the first trial would submit.
    """
    from prefect import Flow

    adapter = get_adapter("prefect")
    made = adapter.convert(_search(), name="tune", retries=2, flow={"retries": 1})
    assert isinstance(made, Flow)
    assert (made.name, made.retries) == ("tune", 1)
    text = adapter.dry_run(_search(), name="tune", tags=["a"])
    assert "Prefect flow 'tune': 5 trials, 2 at once, as random suggests" in text
    assert "tune-trial" in text and "quadratic" in text


APP = AppDef("hello", [Role("main", "", entrypoint="echo", args=["hello"])])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (APP, "hello"),
        (APP.to_json(), "app"),
        (quadratic, "quadratic"),
        (Launch(component="utils.echo", args={"msg": "hello"}), "utils.echo"),
        (_search(), "search-quadratic"),
    ],
    ids=["AppDef", "JSON", "component", "Launch", "Search"],
)
def test_every_source(source: Any, name: str) -> None:
    """``convert`` takes whatever can be launched, and a search."""
    assert get_adapter("prefect").convert(source).name == name


def test_a_search_has_a_workspace(tmp_path: Path) -> None:
    """The folder that a search names travels with its trials. One that a setting names goes first."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (other / "file").touch()
    show = get_adapter("prefect").dry_run
    found = [show(_search(workspace=str(one))), show(_search(), workspace=str(other))]
    found.append(show(_search(workspace=str(one)), workspace=str(other)))
    copies = [text.partition("<copy of workspace ")[2].partition(">")[0] for text in found]
    assert copies[0] and copies[1] not in ("", copies[0])
    assert copies[2] == copies[1]


@pytest.mark.parametrize(
    ("changes", "settings", "error", "message"),
    [
        ({"parameters": [Parameter("y", "int", 0, 1)]}, {}, SpecError, "no argument 'y'"),
        ({"constants": {"offse": 1}}, {}, SpecError, "no argument 'offse'"),
        ({"component": "jobs:absent"}, {}, SpecError, "absent"),
        ({"suggester": "rndom"}, {}, ConfigError, "random"),
        ({}, {"patiance": 3}, ConfigError, "patience"),
        ({}, {"flow": {"retrys": 3}}, ConfigError, "retrys"),
        ({}, {"flow": {"name": "x"}}, ConfigError, "multiple values for keyword argument 'name'"),
    ],
)
def test_wrong_searches_are_refused(
    changes: Any, settings: Any, error: type[Exception], message: str
) -> None:
    """What cannot work is refused when the flow is made, in one line."""
    from transload_prefect import search_flow

    with pytest.raises(error, match=message) as caught:
        search_flow(_search(**changes), **settings)
    assert "\n" not in str(caught.value).strip()
