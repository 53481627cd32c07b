"""Searches as groups of tasks, on a real Airflow."""

from __future__ import annotations

import os
import signal
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

from transload.errors import SpecError, UnsupportedFeature
from transload.pipelines import get_adapter
from transload_airflow import operator_from_app, search_group
from transload_airflow.searches import SearchBestOperator, SearchRoundOperator, SearchTrialOperator
from transload_search import EarlyStopping, Objective, Parameter, Search
from transload_testing import ScriptedControl

TRIALS = [
    ("search.trials_0", 0),
    ("search.trials_0", 1),
    ("search.trials_1", 0),
]


def check(run: Run, summary: dict[str, Any]) -> None:
    """Check that a search has all trials, one of them failed, and the best of the others."""
    rows = summary["trials"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert [row["value"] is None for row in rows] == [False, True, False]
    best = min((row for row in rows if row["value"] is not None), key=lambda row: row["value"])
    assert summary["best"]["index"] == best["index"]
    assert summary["best"]["value"] == pytest.approx(abs(best["parameters"]["x"] - 3))
    assert run.xcom("best", "search.best") == summary["best"]
    assert summary["best"]["handle"] == best["handle"]


def test_search_runs_round_by_round(airflow: AirflowServer, stage: Stage) -> None:
    """Each trial is a mapped task, a failed one ends nothing, and the last task returns the best."""
    run = airflow.trigger("search_deferrable")
    run.wait("success", task_id="told", timeout=240)
    check(run, run.xcom(task_id="search.best"))
    assert run.xcom(task_id="told") == run.xcom("best", "search.best")["parameters"]
    assert [run.state(task, index) for task, index in TRIALS] == [
        "success",
        "failed",
        "success",
    ]
    assert run.task("search.trials_0", 0)["rendered_map_index"].startswith("0: x=")


def test_a_trial_whose_task_is_killed_is_one_job(airflow: AirflowServer, stage: Stage) -> None:
    """The retry of a killed trial takes its job up again, and the search counts it once."""
    gate = "task-was-killed"

    def jobs() -> list[str]:
        records = {each: stage.control.folder.record(each) for each in stage.control.started()}
        ours = {each: record["app"] for each, record in records.items() if record}
        # each trial is given the gate, and the steps of this one wait for it
        return [each for each, app in ours.items() if gate in app and "until" in app]

    run = airflow.trigger("search_in_place", {"gate": gate})
    (job,) = airflow.until(jobs, "the job of trial 0")
    airflow.until(lambda: run.xcom("handle", "search.trials_0", 0), "its handle")
    os.kill(stage.control.calls("submit", job)[0]["pid"], signal.SIGKILL)
    airflow.until(
        lambda: "attached to" in run.log("search.trials_0", index=0), "the retry reattaches"
    )
    stage.control.open(gate, job)
    run.wait("success", task_id="search.best", timeout=240)
    check(run, run.xcom(task_id="search.best"))
    assert jobs() == [job] and not stage.cancelled(job)


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
    import transload.runner.api as shared

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


def test_trial_whose_task_said_nothing(scripted: Search) -> None:
    """A search stops at a trial whose end nobody knows, and says what to do."""
    suggested(scripted)
    with pytest.raises(
        AirflowFailException, match="not known how trial 0, 1 ended: .*clear that task"
    ):
        best(scripted)


def test_round_that_was_not_run(scripted: Search) -> None:
    """The last task does not pass over a round whose first task has failed."""
    with pytest.raises(AirflowFailException, match="round 0 was not run"):
        best(scripted)


def test_a_trial_that_is_stopped_early_is_skipped(transload_home: Path) -> None:
    """A trial that does badly is ended by the search, and its task is skipped, not failed."""
    search = Search(
        f"{Path(__file__).parent}/dags/parts.py:stepping",
        [Parameter("x", "float", 0, 1)],
        Objective("loss"),
        5,
        5,
        scheduler="local",
        early_stopping=EarlyStopping(),
    )
    *good, bad = suggested(search)
    for trial in good:
        tried(search, trial, deferrable=False)
    with pytest.raises(AirflowSkipException, match="trial 4 was stopped early"):
        tried(search, bad, deferrable=False)
    summary, xcoms = best(search)
    assert [row["state"] for row in summary["trials"]] == [*["SUCCEEDED"] * 4, "STOPPED"]
    assert xcoms["best"]["index"] == 0


def test_names_of_mapped_trials() -> None:
    """A mapped trial is named by its number and parameters."""
    trial = {"index": 3, "parameters": {"lr": 0.012345678, "layers": 2, "solver": "adam"}}
    task = SearchTrialOperator(task_id="trial", search=SEARCH.to_dict(), place="s", trial=trial)
    assert task.label == "3: lr=0.01235, layers=2, solver=adam"
