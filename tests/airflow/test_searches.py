"""Searches as groups of tasks, on a real Airflow."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)
from airflow_server import AirflowServer, Run
from contexts import execute, make_context
from scripts import Stage

from transload.errors import SpecError, StateUnknown, UnsupportedFeature
from transload.pipelines import Driver, get_adapter, host_runner
from transload_airflow import operator_from_app, search_group
from transload_airflow.searches import SearchBestOperator, SearchRoundOperator, SearchTrialOperator
from transload_search import EarlyStopping, Objective, Parameter, Search
from transload_testing import ScriptedControl

TRIALS = [
    ("search.trials_0", 0),
    ("search.trials_0", 1),
    ("search.trials_1", 0),
    ("search.trials_1", 1),
    ("search.trials_2", 0),
]


def check(run: Run, summary: dict[str, Any]) -> None:
    """Check that a search has all trials, one of them failed, and the best of the others."""
    rows = summary["trials"]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["value"] is None for row in rows] == [False, True, False, False, False]
    best = min((row for row in rows if row["value"] is not None), key=lambda row: row["value"])
    assert summary["best"]["index"] == best["index"]
    assert summary["best"]["value"] == pytest.approx(abs(best["parameters"]["x"] - 3))
    assert run.xcom("best", "search.best") == summary["best"]
    assert summary["best"]["handle"] == best["handle"]


def test_search_runs_round_by_round(airflow: AirflowServer, stage: Stage) -> None:
    """Each trial is a mapped task, a failed one ends nothing, and the last task returns the best.

    Clearing continues the search.
    """
    run = airflow.trigger("search_deferrable")
    run.wait("success", task_id="told", timeout=240)
    check(run, run.xcom(task_id="search.best"))
    assert run.xcom(task_id="told") == run.xcom("best", "search.best")["parameters"]
    assert [run.state(task, index) for task, index in TRIALS] == [
        "success",
        "failed",
        "success",
        "success",
        "success",
    ]
    assert run.task("search.trials_0", 0)["rendered_map_index"].startswith("0: x=")
    suggested = run.xcom(task_id="search.suggest_1")
    run.accounted("search.suggest_1", 1)
    run.clear("search.suggest_1")
    airflow.until(
        lambda: run.task("search.suggest_1")["try_number"] == 2, "the round is asked for again"
    )
    run.wait("success", task_id="search.suggest_1")
    assert run.xcom(task_id="search.suggest_1") == suggested, (
        "a round that was suggested stays as it is"
    )


@pytest.mark.slow  # a killed task of an operator attaches, and a trial's ledger is tested by itself
def test_killed_trial_is_attached_to(airflow: AirflowServer, stage: Stage) -> None:
    """The retry of a killed trial's task reattaches to its one job, and the search ends."""
    run = airflow.trigger("search_sync", {"gate": "first"})
    handle = airflow.until(
        lambda: run.xcom("handle", "search.trials_0", 0), "the first trial's app"
    )
    app_id = handle.rpartition("/")[2]
    os.kill(stage.control.calls("submit", app_id)[0]["pid"], signal.SIGKILL)
    airflow.until(
        lambda: (
            run.task("search.trials_0", 0)["try_number"] == 2
            and "attached to" in run.log("search.trials_0", index=0)
        ),
        "the retry attaches",
    )
    stage.control.open("first", app_id)
    run.wait("success", task_id="told", timeout=240)
    check(run, run.xcom(task_id="search.best"))
    assert run.xcom("handle", "search.trials_0", 0) == handle
    assert len(stage.control.calls("submit", app_id)) == 1


@pytest.mark.slow
def test_example(airflow: AirflowServer) -> None:
    """The example searches for a learning rate and a width, and trains with the best."""
    run = airflow.trigger("search")
    run.wait("success", task_id="train", timeout=270)
    summary = run.xcom(task_id="tune.best")
    values = [row["value"] for row in summary["trials"]]
    assert len(values) == 4 and summary["best"]["value"] == max(values)
    assert run.xcom(task_id="train")["results"]["final"]["accuracy"] > 0.8
    assert summary["search"]["suggester"] == ("ax" if find_spec("transload_ax") else "random")


def test_unknown_suggester_is_one_clear_line(airflow: AirflowServer) -> None:
    """A suggester that does not exist fails the first task without a retry, and nothing is
    started.
    """
    run = airflow.trigger("search_wrong")
    run.wait("failed", task_id="search.suggest_0")
    assert run.task("search.suggest_0")["try_number"] == 1
    assert "suggester 'randon' does not exist" in run.log("search.suggest_0")
    run.wait("failed", task_id="search.best")
    assert run.state("search.trials_1", -1) in ("upstream_failed", "skipped")


SEARCH = Search(
    "utils.booth",
    [Parameter("x1", "float", -5, 5)],
    Objective("booth_eval"),
    5,
    2,
    constants={"x2": 1.0},
)


def test_converting_a_search_makes_a_group() -> None:
    """``convert`` makes the group that users write.

    An operator is refused by name, as are a Search's own options.
    """
    from airflow.sdk import DAG

    with DAG("d", schedule=None) as dag:
        group = get_adapter("airflow").convert(SEARCH, task_id="tune", retries=2, deferrable=True)
    assert group.group_id == "tune"
    assert [task for task in dag.task_ids if "trials" in task] == [
        f"tune.trials_{k}" for k in range(3)
    ]
    assert dag.get_task("tune.trials_0").partial_kwargs["retries"] == 2
    assert dag.get_task("tune.best").upstream_task_ids == {"tune.trials_2"}
    assert dag.get_task("tune.suggest_1").trigger_rule == "all_done"
    with pytest.raises(UnsupportedFeature, match="search_group") as refusal:
        operator_from_app(SEARCH)
    assert refusal.value.field == "source"
    with DAG("e", schedule=None), pytest.raises(SpecError, match="scheduler: a Search has its own"):
        search_group(SEARCH, scheduler="local")


def test_dry_run_of_a_search_shows_its_first_round() -> None:
    """A dry run of a Search is that of its first trials, each with its number."""
    text = get_adapter("airflow").dry_run(SEARCH)
    assert text.count("--x1") == 2


# -- the tasks by themselves


@pytest.fixture
def scripted(tmp_path: Path, transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A search on scripted apps of a test's own."""
    for name, value in ScriptedControl(tmp_path / "scripted").environment().items():
        monkeypatch.setenv(name, value)
    import transload.runner.factory as shared

    monkeypatch.setattr(shared, "_runners", {})
    component = f"{Path(__file__).parent}/dags/parts.py:scored"
    return Search(
        component,
        [Parameter("x", "float", 0, 10)],
        Objective("far"),
        2,
        2,
        constants={"gate": ""},
        scheduler="scripted",
    )


def suggested(search: Search, number: int = 0) -> list[dict[str, Any]]:
    """Run the task that suggests a round."""
    task = SearchRoundOperator(
        task_id=f"suggest_{number}", search=search.to_dict(), place="s", number=number
    )
    found: list[dict[str, Any]] = execute(task, make_context(task))
    return found


def tried(search: Search, trial: dict[str, Any], **options: Any) -> Any:
    """Run the task of a trial."""
    task = SearchTrialOperator(
        task_id="trial", search=search.to_dict(), place="s", trial=trial, **options
    )
    return execute(task, make_context(task, map_index=trial["index"]))


def best(search: Search) -> tuple[Any, dict[str, Any]]:
    """Run the last task, and return its value and its XComs."""
    task = SearchBestOperator(task_id="best", search=search.to_dict(), place="s")
    context = make_context(task)
    return execute(task, context), context["ti"].xcoms


def test_tasks_of_a_search(scripted: Search) -> None:
    """Tasks suggest, run and sum up. A failed trial has its reason, and the best is returned."""
    trials = suggested(scripted)
    assert suggested(scripted) == trials, "asked again, the same"
    assert tried(scripted, trials[0])["results"] == {
        "0": {"far": abs(trials[0]["parameters"]["x"] - 3)}
    }
    with pytest.raises(AirflowException, match="FAILED"):
        tried(scripted, trials[1])
    summary, xcoms = best(scripted)
    assert [row["state"] for row in summary["trials"]] == ["SUCCEEDED", "FAILED"]
    assert "FAILED" in summary["trials"][1]["reason"]
    assert summary["trials"][1]["handle"].startswith("scripted://airflow/")
    assert xcoms["best"]["parameters"] == trials[0]["parameters"]
    assert xcoms["best"]["handle"].startswith("scripted://airflow/")


def test_a_trial_is_stopped_early(scripted: Search) -> None:
    """A trial whose steps are worse than the others' is ended, and its waiting task is skipped."""
    component = str(Path(__file__).parent / "dags/parts.py:stepping")
    early = replace(
        scripted,
        component=component,
        trials=4,
        parallelism=4,
        objective=Objective("far"),
        constants={},
        scheduler="local",
        early_stopping=EarlyStopping(),
    )
    trials = suggested(early)
    for trial in trials[:3]:
        assert tried(early, trial)["state"] == "SUCCEEDED"
    with pytest.raises(AirflowSkipException, match="trial 3 was stopped early"):
        tried(early, trials[3], deferrable=True)
    summary, _ = best(early)
    assert [row["state"] for row in summary["trials"]] == [
        "SUCCEEDED",
        "SUCCEEDED",
        "SUCCEEDED",
        "STOPPED",
    ]
    host_runner("airflow").close()


def test_trial_whose_task_said_nothing(scripted: Search) -> None:
    """A search stops at a trial whose end nobody knows, and says what to do."""
    suggested(scripted)
    with pytest.raises(
        AirflowFailException, match="not known how trial 0, 1 ended: .*clear that task"
    ):
        best(scripted)


def test_an_outage_is_no_failed_trial(scripted: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waiting for an app raises while its scheduler is out of reach is not written down as the
    trial's end.
    """
    trials = suggested(scripted)

    def lost_sight(self: Driver) -> None:
        raise StateUnknown(self.handle or "", 300.0)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "follow", lost_sight)
        with pytest.raises(AirflowException, match="is unknown"):
            tried(scripted, trials[0], deferrable=False)
    with pytest.raises(AirflowException, match="FAILED"):
        tried(scripted, trials[1])
    with pytest.raises(AirflowFailException, match="not known how trial 0 ended"):
        best(scripted)


def test_a_search_that_does_not_fit_its_component() -> None:
    """A parameter that is missing is refused when the group is made, before any trial."""
    with pytest.raises(SpecError, match="nothing gives 'x2'"):
        search_group(
            Search("utils.booth", [Parameter("x1", "float", 0, 1)], Objective("booth_eval"))
        )


def test_round_that_was_not_run(scripted: Search) -> None:
    """The last task does not pass over a round whose first task has failed."""
    with pytest.raises(AirflowFailException, match="round 0 was not run"):
        best(scripted)


def test_trial_without_the_objective(scripted: Search, caplog: pytest.LogCaptureFixture) -> None:
    """An app that ends well without the objective is a good task, and a failed trial."""
    search = replace(scripted, objective=Objective("near"))
    trials = suggested(search)
    assert tried(search, trials[0])["state"] == "SUCCEEDED"
    with pytest.raises(AirflowException, match="FAILED"):
        tried(search, trials[1])
    with pytest.raises(
        AirflowFailException, match="trials has a value of 'near': trial 0: .* reported 0: far"
    ):
        best(search)


def test_base_of_another_search(scripted: Search, tmp_path: Path) -> None:
    """A tracker base that holds another search is refused in one line, without a retry."""
    for search in (scripted, replace(scripted, seed=7)):
        task = SearchRoundOperator(
            task_id="suggest",
            search=search.to_dict(),
            place="s",
            number=0,
            tracker_base=str(tmp_path / "base"),
        )
        if search is scripted:
            execute(task, make_context(task))
            continue
        with pytest.raises(
            AirflowFailException, match="has another search: seed is 0 there, 7 here"
        ):
            execute(task, make_context(task))


def test_names_of_mapped_trials() -> None:
    """A mapped trial is named by its number and parameters."""
    trial = {"index": 3, "parameters": {"lr": 0.012345678, "layers": 2, "solver": "adam"}}
    task = SearchTrialOperator(task_id="trial", search=SEARCH.to_dict(), place="s", trial=trial)
    assert task.label == "3: lr=0.01235, layers=2, solver=adam"
