"""The pages of a search, of several runs, of a lineage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from transload.specs import AppState, AppStatus
from transload_report.app_page import worth_filtering
from transload_report.axes import is_drawable
from transload_report.chart import (
    Frame,
    best_trial,
    measured,
    parameter_names,
    parameter_plot,
    search_plot,
)
from transload_report.convert import app_span, counts, last_values, run_rows
from transload_report.model import AppData, LineageData, RunsData, SearchData
from transload_report.page import graph_of, render
from transload_report.progress_picture import short_progress
from transload_report.svg import element, picture
from transload_report.timeline import timeline
from transload_report.words import shown, value_text

__all__ = ["lineage_report", "runs_report", "search_report"]

MAX_ROWS: Final = 500
_MAX_SLICES: Final = 12
_MAX_COLUMNS: Final = 6


def search_report(data: SearchData) -> str:
    """Return the page of a search as HTML text, with its progress, parameters and trials.

    Args:
        data: the data of the page, for instance from `collect_experiment`.
    """
    slices = []
    for k, name in enumerate(_drawn_parameters(data)):
        slices.append((name, parameter_plot(data, name, f"slice-{k}")))
    sections = {"overview": "Overview", "progress": "Progress"}
    if slices:
        sections["parameters"] = "Parameters"
    sections["trials"] = "Trials"
    return render(
        template="search.html",
        kind="transload search",
        title=data.name,
        sections=sections,
        written=data.written,
        data=data,
        best=best_trial(data),
        names=list(dict.fromkeys(name for trial in data.trials for name in trial.parameters)),
        slices=slices,
        progress=search_plot(data),
        words=Counter(trial.state for trial in data.trials),
        rows=sorted(data.trials, key=lambda trial: trial.index)[-MAX_ROWS:],
    )


def _drawn_parameters(data: SearchData) -> list[str]:
    if len(measured(data)) < 2:
        return []
    return parameter_names(data)[:_MAX_SLICES]


def lineage_report(data: LineageData) -> str:
    """Return the page of a lineage as HTML text, with its graph and its tables.

    Args:
        data: the data of the page, for instance from `collect_lineage`.
    """
    return render(
        template="lineage.html",
        kind="transload lineage",
        title=data.lineage.run_id,
        sections={"lineage": "Lineage"},
        written=data.written,
        data=data,
        graph=graph_of(data.lineage),
        links_left=max(0, len(data.lineage.edges) - MAX_ROWS),
        state=data.states.get(data.lineage.run_id),
    )


def runs_report(data: RunsData) -> str:
    """Return the page of several runs as HTML text, with their states and results compared.

    Args:
        data: the data of the page, for instance from `collect_runs`.
    """
    values = _comparable(data.runs)
    columns = list(values)[:_MAX_COLUMNS]
    runs = data.runs[:MAX_ROWS]
    given = [run.app.arguments if run.app else {} for run in data.runs]
    arguments = _differing(given)[:_MAX_COLUMNS]
    rows = []
    for place, run in enumerate(runs):
        span = app_span(run.status, run.written)
        argument_cells = [given[place].get(name) for name in arguments]
        result_cells = [values[name].get(place) for name in columns]
        progress = short_progress(run.status, run.written)
        rows.append((run, span, progress, argument_cells, result_cells))
    plots = []
    for k, name in enumerate(columns):
        plot = _run_plot(name, values[name], runs, k)
        if plot is not None:
            plots.append((name, plot))
    problems = sum(_had_problems(run.status) for run in data.runs)
    sections = {"overview": "Overview", "runs": "Runs"}
    if plots:
        sections["results"] = "Results"
    return render(
        template="runs.html",
        kind="transload runs",
        title=data.title,
        sections=sections,
        written=data.written,
        data=data,
        states=counts(run.status.state for run in data.runs),
        timeline=timeline(run_rows(data.runs), "runs"),
        rows=rows,
        arguments=arguments,
        columns=columns,
        plots=plots,
        restarted=any(run.status.num_restarts for run in runs),
        interrupted=any(run.status.interruptions for run in runs),
        progressed=any(run.status.progress is not None for run in runs),
        filtered=worth_filtering(problems, len(data.runs)),
    )


def _had_problems(status: AppStatus) -> bool:
    return status.state is not AppState.SUCCEEDED or status.num_restarts > 0


def _differing(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments that differ between the runs."""
    names = dict.fromkeys(name for arguments in given for name in arguments)
    differing = []
    for name in names:
        first = given[0].get(name)
        if any(arguments.get(name) != first for arguments in given):
            differing.append(name)
    return differing


def _comparable(runs: Sequence[AppData]) -> dict[str, dict[int, Any]]:
    """Return the numbers of each result by the run's place. Results of most runs come first."""
    found: dict[str, dict[int, Any]] = {}
    for place, run in enumerate(runs):
        if run.results is None:
            continue
        for name, value in last_values(run.results).items():
            if not isinstance(value, str):
                found.setdefault(name, {})[place] = value
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _run_plot(
    name: str, values: Mapping[int, Any], runs: Sequence[AppData], k: int
) -> Markup | None:
    """Draw one result of all runs, or return None if fewer than two runs have a number for it."""
    points = {
        place: float(value)
        for place, value in values.items()
        if isinstance(value, (int, float)) and is_drawable(value) and place < len(runs)
    }
    if len(points) < 2:
        return None
    frame = Frame(
        width=460,
        height=220,
        xs=[float(place + 1) for place in points],
        ys=list(points.values()),
        x_name="run",
        y_name=name,
    )
    parts = frame.parts()
    for place, value in points.items():
        title = element("title", f"{shown(runs[place].handle)}: {value_text(value)}")
        x = frame.x(place + 1.0)
        parts.append(element("circle", title, cx=x, cy=frame.y(value), r=4.0, cls="dot"))
    least = value_text(min(points.values()))
    greatest = value_text(max(points.values()))
    return picture(
        width=460,
        height=220,
        title=f"{name} of each run",
        description=f"{len(points)} runs, from {least} to {greatest}",
        parts=parts,
        key=f"runs-{k}",
    )
