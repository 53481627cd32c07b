"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.runner import Runner
from transload_report import (
    AppData,
    LineageData,
    RunsData,
    SearchData,
    app_report,
    collect_app,
    collect_experiment,
    collect_lineage,
    collect_runs,
    experiment_data,
    ledger_data,
    lineage_report,
    runs_report,
    search_report,
)


def pages(runner: Runner, lineage: LineageData) -> None:
    """Return types of what reads and what renders."""
    assert_type(collect_app(runner, "local://session/app", lines=5), AppData)
    assert_type(lineage_report(lineage), str)
    assert_type(app_report(collect_app(runner, "local://session/app")), str)
    assert_type(collect_runs(runner, ["local://session/app"], title="Runs"), RunsData)
    assert_type(collect_lineage(runner, "run"), LineageData | None)
    assert_type(collect_experiment("name"), SearchData)
    assert_type(experiment_data({}, "name"), SearchData)
    assert_type(ledger_data({"search": {}, "trials": []}), SearchData)
    assert_type(
        search_report(collect_experiment("name")) + runs_report(collect_runs(runner, [])), str
    )
