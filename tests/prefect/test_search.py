"""A search is a flow on a real server, with a task run per trial and a lasting ledger."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import quadratic, stepping, two_results

from transload.errors import ConfigError, SpecError, TransloadError
from transload.pipelines import get_adapter, host_runner
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

    tune = search_flow(_search(), name="tune-subflow", tags=["trial"])

    @flow(name="tune-parent")
    def work() -> Any:
        offset = run_app("jobs:quadratic", component_args={"x": 2.0}).value("loss")
        return tune(tracker_base=str(tmp_path), constants={"offset": offset})

    summary = work()
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


def test_a_table_of_several_objectives(host: Any, tmp_path: Path, eventually: Any) -> None:
    """A search for two results has a table with a column for each, and names its best trials."""
    from transload_prefect import search_flow

    goals = [Objective("loss"), Objective("gain", minimize=False)]
    search = _search(component=two_results, objective=goals, trials=3)
    summary = search_flow(search, name="tune-two")(tracker_base=str(tmp_path))
    run = _flow_run(host, "tune-two")
    assert run is not None and len(summary["front"]) > 0

    def tables() -> Any:
        return [each for each in host.artifacts(run["id"]) if each["key"] == "tune-two-trials"]

    def rows() -> Any:
        return [row for table in tables() for row in json.loads(table["data"])]

    eventually(lambda: [row["state"] for row in rows()] == ["SUCCEEDED"] * 3, 60)
    values = [row["values"] for row in summary["trials"]]
    assert [{name: row[name] for name in ("loss", "gain")} for row in rows()] == values
    best = ", ".join(str(each["index"]) for each in summary["front"])
    assert tables()[0]["description"].endswith(f"best so far: {best}")


def test_failed_trials_do_not_end_a_search(host: Any, tmp_path: Path, eventually: Any) -> None:
    """A trial that fails counts as failed, after its retries, and the search goes on."""
    from transload_prefect import search_flow

    signs = [Parameter("x", "choice", values=(1.0, -1.0))]
    search = _search(parameters=signs, constants={"least": 0.0}, trials=4, parallelism=4, seed=1)
    summary = search_flow(search, name="tune-failing", retries=1)(tracker_base=str(tmp_path))
    states = Counter(row["state"] for row in summary["trials"])
    assert set(states) == {"SUCCEEDED", "FAILED"}
    assert all(
        ("exit code 5" in row["reason"]) == (row["state"] == "FAILED") for row in summary["trials"]
    )
    run = _flow_run(host, "tune-failing")
    assert run is not None
    eventually(
        lambda: (
            Counter(each["state_type"] for each in host.task_runs(run["id"]))["FAILED"]
            == states["FAILED"]
        ),
        30,
    )
    assert {
        each["run_count"] for each in host.task_runs(run["id"]) if each["state_type"] == "FAILED"
    } == {2}
    assert host.flow_run(run["id"])["state_type"] == "COMPLETED"


def test_an_outage_is_no_failed_trial(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent scheduler ends the flow, which later goes on with the open trial."""
    from transload_prefect import search_flow
    from transload_testing.scripted import ScriptedControl, scripted_app

    control = ScriptedControl(tmp_path / "scripted")
    for name, value in control.environment().items():
        monkeypatch.setenv(name, value)
    away = [
        {"state": "RUNNING", "seconds": 0.1},
        {"state": "UNKNOWN", "until": "back"},
        "SUCCEEDED",
    ]
    app = scripted_app("trial", {"steps": away, "results": {"final": {"loss": 0.5}}})
    file = tmp_path / "trial.py"
    file.write_text(
        "from transload.specs import AppDef\n"
        f"def trial(x: float) -> AppDef:\n    return AppDef.from_json({app.to_json()!r})\n"
    )
    search = _search(component=f"{file}:trial", trials=1, scheduler="scripted")
    base = str(tmp_path / "base")
    tune = search_flow(search, name="tune-away", tracker_base=base, patience=0.5, poll_interval=0.1)
    with pytest.raises(TransloadError, match="AppCrashed: .* is unknown for"):
        tune()
    assert [row["state"] for row in SearchLedger.open(base).summary()["trials"]] == [None]
    control.open("back")
    assert [row["state"] for row in tune()["trials"]] == ["SUCCEEDED"]
    assert len(control.started()) == 1


def test_a_search_without_any_objective_fails(host: Any, tmp_path: Path) -> None:
    """If no trial reports the objective the flow fails, and says why in one line."""
    from transload_prefect import search_flow

    search = _search(objective=Objective("accuracy"), trials=2)
    with pytest.raises(
        TransloadError, match="trials has a value of 'accuracy': trial 0: no result"
    ):
        search_flow(search, name="tune-nothing")(tracker_base=str(tmp_path))


def test_a_search_goes_on(host: Any, tmp_path: Path) -> None:
    """A search called again with the same base runs only what is missing or was added."""
    from transload_prefect import search_flow

    tune = search_flow(_search(trials=2), name="tune-more", tracker_base=str(tmp_path))
    first = tune()
    assert tune()["trials"] == first["trials"]
    assert sum(_apps().values()) == 2
    more = tune(trials=4)
    assert more["trials"][:2] == first["trials"] and len(more["trials"]) == 4
    assert sum(_apps().values()) == 4


def test_a_retry_of_the_flow_goes_on(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's retry of the flow after the second round runs no trial again.

    Its base is a default one.
    """
    from transload_prefect import search_flow

    suggest, once = SearchLedger.suggest, iter([True])

    def failing(self: SearchLedger, number: int) -> Any:
        if number == 2 and next(once, False):
            raise RuntimeError("once")
        return suggest(self, number)

    monkeypatch.setattr(SearchLedger, "suggest", failing)
    summary = search_flow(_search(), name="tune-retried", flow={"retries": 1})()
    assert [row["state"] for row in summary["trials"]] == ["SUCCEEDED"] * 5
    assert sum(_apps().values()) == 5
    run = _flow_run(host, "tune-retried")
    assert run is not None and run["run_count"] == 2
    assert run["id"] in summary["tracker_base"]


FLOW = """
import sys
from uuid import UUID
from jobs import quadratic, stepping
from prefect import flow
from prefect.client.orchestration import get_client
from transload_search import EarlyStopping, Objective, Parameter, Search
from transload_prefect import search_flow

gate, flow_run_id, out = sys.argv[1:4]
search = Search(
    quadratic, [Parameter("x", "float", -1.0, 1.0)], Objective("loss"), trials=4, parallelism=2,
    constants={"gate": gate}, scheduler="local",
)
tune = search_flow(search, name="tune-killed")

@flow(name="tune-killed-parent")
def work():
    summary = tune()
    with open(out, "w") as file:
        file.write(" ".join(row["handle"] for row in summary["trials"]))

if __name__ == "__main__":
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        if flow_run_id == "new":
            flow_run = client.create_flow_run(work, state=Pending())
        else:
            flow_run = client.read_flow_run(UUID(flow_run_id))
    run_flow(work, flow_run=flow_run)
"""


@pytest.mark.slow
def test_killed_and_run_again(
    host: Any, gate: Path, script: Callable[[str], Any], tmp_path: Path, eventually: Any
) -> None:
    """A search run again after SIGKILL has the same trials, and reattaches to those that ran."""
    out = tmp_path / "out"
    made = script(FLOW)
    first = made.start(str(gate), "new", str(out))
    eventually(lambda: _apps() == {"RUNNING": 2}, 60, "two trials run")
    before = {each.app_handle for each in host_runner("prefect").list("local")}
    first.kill()
    first.wait(timeout=10)
    assert _apps() == {"RUNNING": 2}
    run = _flow_run(host, "tune-killed-parent")
    assert run is not None
    second = made.start(str(gate), run["id"], str(out))

    def attached() -> bool:
        runs = host.post("/flow_runs/filter", flows={"name": {"any_": ["tune-killed"]}})
        lines = [line for each in runs for line in host.logs(each["id"])]
        return sum("attached to" in line["message"] for line in lines) >= 2

    eventually(attached, 60)
    gate.touch()
    eventually(lambda: second.poll() is not None, 90)
    assert second.returncode == 0, made.log.read_text()[-3000:]
    handles = out.read_text().split()
    assert len(handles) == 4 and set(handles[:2]) == before
    assert _apps() == {"SUCCEEDED": 4}


def test_in_an_async_flow(host: Any, tmp_path: Path) -> None:
    """Called in a thread, a search is a subflow of an async flow, whose event loop goes on."""
    from prefect import flow

    from transload_prefect import search_flow

    tune = search_flow(_search(trials=2), name="tune-async")

    @flow
    async def work() -> Any:
        return await asyncio.to_thread(tune, tracker_base=str(tmp_path))

    assert len(asyncio.run(work())["trials"]) == 2
    run = _flow_run(host, "tune-async")
    assert run is not None and run["parent_task_run_id"] is not None


ALONE = """
import sys
from jobs import quadratic, stepping
from transload_search import EarlyStopping, Objective, Parameter, Search
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ax's own, and torch's about Ax
def test_ax_proposes_the_trials(host: Any, tmp_path: Path) -> None:
    """With Ax's suggester its state is in the ledger. Without Ax there is nothing to test."""
    pytest.importorskip("transload_ax")
    from transload_prefect import search_flow

    search = _search(suggester="ax", trials=8, parallelism=2)
    summary = search_flow(search, name="tune-ax")(tracker_base=str(tmp_path))
    assert len(summary["trials"]) == 8
    assert summary["best"]["value"] < 0.2
    record = json.loads(next((tmp_path / "search" / "rounds").glob("*.json")).read_text())
    assert record["state"]["suggester"] == "ax"


def test_convert_makes_a_flow_of_a_search() -> None:
    """The adapter's ``convert`` takes a search.

    A dry run shows what the first trial would submit.
    """
    from prefect import Flow

    adapter = get_adapter("prefect")
    assert adapter.capabilities.searches
    made = adapter.convert(_search(), name="tune", retries=2, flow={"retries": 1})
    assert isinstance(made, Flow)
    assert (made.name, made.retries) == ("tune", 1)
    text = adapter.dry_run(_search(), name="tune", tags=["a"])
    assert "Prefect flow 'tune': 5 trials, 2 at once, as random suggests" in text
    assert "tune-trial" in text and "quadratic" in text


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


def test_a_base_of_another_search_is_refused(host: Any, tmp_path: Path) -> None:
    """A base that holds another search is not written over."""
    from transload_prefect import search_flow

    search_flow(_search(trials=1), name="tune-one")(tracker_base=str(tmp_path))
    with pytest.raises(SpecError, match="has another search"):
        search_flow(_search(objective=Objective("other")), name="tune-two")(
            tracker_base=str(tmp_path)
        )


def test_a_trial_is_stopped_early(host: Any, tmp_path: Path) -> None:
    """A trial whose steps are worse than the others' is ended. The flow ends well, and names it."""
    from transload_prefect import search_flow

    search = _search(
        component=stepping,
        parameters=[Parameter("x", "choice", values=(1.0,))],
        constants={"gate": str(tmp_path / "never")},
        trials=5,
        parallelism=5,
        early_stopping=EarlyStopping(),
    )
    summary = search_flow(search, name="tune-stopped")(tracker_base=str(tmp_path / "base"))
    assert [row["state"] for row in summary["trials"]] == [*["SUCCEEDED"] * 4, "STOPPED"]
    assert _apps()["CANCELLED"] == 1
