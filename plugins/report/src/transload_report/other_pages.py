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
    against_plot,
    best_trial,
    is_objective_itself,
    is_same_number,
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
        names=_shown_parameters(data),
        slices=slices,
        progress=search_plot(data),
        words=Counter(trial.state for trial in data.trials),
        rows=sorted(data.trials, key=lambda trial: trial.index)[-MAX_ROWS:],
    )


def _shown_parameters(data: SearchData) -> list[str]:
    names = dict.fromkeys(name for trial in data.trials for name in trial.parameters)
    return [name for name in names if not is_objective_itself(data, name)]


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
    runs = data.runs[:MAX_ROWS]
    given = [run.app.arguments if run.app else {} for run in data.runs]
    arguments = _differing(given)[:_MAX_COLUMNS]
    columns = [
        name for name in values if name not in arguments or not _is_argument(name, values, given)
    ]
    columns = columns[:_MAX_COLUMNS]
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
    against = _against(columns, arguments, values, given, runs)
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
        against=against,
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


def _is_argument(
    name: str, values: Mapping[str, Mapping[int, Any]], given: Sequence[Mapping[str, Any]]
) -> bool:
    """Tell whether all that was reported by a name is the argument of that name."""
    return all(
        is_same_number(given[place].get(name), value) for place, value in values[name].items()
    )


def _against(
    columns: Sequence[str],
    arguments: Sequence[str],
    values: Mapping[str, Mapping[int, Any]],
    given: Sequence[Mapping[str, Any]],
    runs: Sequence[AppData],
) -> list[tuple[str, str, Markup]]:
    """Return result, argument and picture for the results against the arguments that differ."""
    found: list[tuple[str, str, Markup]] = []
    for name in columns:
        for argument in arguments:
            points = []
            for place, value in values[name].items():
                at = _number_or_text(given[place].get(argument))
                if place < len(runs) and at is not None and is_drawable(value):
                    words = f"{shown(runs[place].handle)}: {name} {value_text(value)}"
                    points.append((at, float(value), f"{words}, {argument} {value_text(at)}"))
            if len({at for at, _, _ in points}) < 2 or len(found) >= _MAX_SLICES:
                continue
            plot = against_plot(
                x_name=shown(argument),
                y_name=shown(name),
                points=points,
                count=f"{len(points)} runs",
                key=f"against-{len(found)}",
            )
            found.append((name, argument, plot))
    return found


def _number_or_text(value: Any) -> int | float | str | None:
    """Return an argument, of a command line too, as a number that can be drawn, else as a text."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value)
    for kind in (int, float):
        try:
            number = kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
        if isinstance(number, (int, float)) and is_drawable(number):
            return number
    return str(value)


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
