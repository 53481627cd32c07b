"""The pages of a search, of several runs, of a lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from transload.specs import AppState
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
from transload_report.svg import element, picture
from transload_report.timeline import timeline
from transload_report.words import shown, value_text

__all__ = ["lineage_report", "runs_report", "search_report"]

MAX_ROWS: Final = 500
_MAX_SLICES: Final = 12
_MAX_COLUMNS: Final = 6


def search_report(data: SearchData) -> str:
    """Return the page of a search as HTML text: progress, parameters, trials.

    Args:
        data: all that the page shows, for instance from `collect_experiment`.
    """
    best = best_trial(data)
    names = list(dict.fromkeys(name for trial in data.trials for name in trial.parameters))
    slices = [
        (name, parameter_plot(data, name, f"slice-{k}"))
        for k, name in enumerate(_drawn_parameters(data))
    ]
    sections = {"overview": "Overview", "progress": "Progress"}
    sections |= {**({"parameters": "Parameters"} if slices else {}), "trials": "Trials"}
    words = [trial.state for trial in data.trials]
    return render(
        "search.html",
        "transload search",
        data.name,
        sections,
        data.written,
        data=data,
        best=best,
        names=names,
        slices=slices,
        progress=search_plot(data),
        words={word: words.count(word) for word in dict.fromkeys(words)},
        rows=sorted(data.trials, key=lambda trial: trial.index)[-MAX_ROWS:],
    )


def _drawn_parameters(data: SearchData) -> list[str]:
    return parameter_names(data)[:_MAX_SLICES] if len(measured(data)) > 1 else []


def lineage_report(data: LineageData) -> str:
    """Return the page of a lineage as HTML text: its graph and its tables.

    Args:
        data: all that the page shows, for instance from `collect_lineage`.
    """
    return render(
        "lineage.html",
        "transload lineage",
        data.lineage.run_id,
        {"lineage": "Lineage"},
        data.written,
        data=data,
        graph=graph_of(data.lineage),
        links_left=max(0, len(data.lineage.edges) - MAX_ROWS),
        state=data.states.get(data.lineage.run_id),
    )


def runs_report(data: RunsData) -> str:
    """Return the page of several runs as HTML text: what became of each, and how their results
    compare.

    Args:
        data: all that the page shows, for instance from `collect_runs`.
    """
    values = _comparable(data.runs)
    columns = list(values)[:_MAX_COLUMNS]
    runs = data.runs[:MAX_ROWS]
    called = [run.app.arguments if run.app else {} for run in data.runs]
    arguments = _differing(called)[:_MAX_COLUMNS]
    rows = [
        (
            run,
            app_span(run.status, run.written),
            [called[place].get(name) for name in arguments],
            [values[name].get(place) for name in columns],
        )
        for place, run in enumerate(runs)
    ]
    plots = [
        (name, plot)
        for k, name in enumerate(columns)
        if (plot := _run_plot(name, values[name], runs, k))
    ]
    problems = sum(
        run.status.state is not AppState.SUCCEEDED or run.status.num_restarts > 0
        for run in data.runs
    )
    sections = {"overview": "Overview", "runs": "Runs", **({"results": "Results"} if plots else {})}
    return render(
        "runs.html",
        "transload runs",
        data.title,
        sections,
        data.written,
        data=data,
        states=counts(run.status.state for run in data.runs),
        timeline=timeline(run_rows(data.runs), "runs"),
        rows=rows,
        arguments=arguments,
        columns=columns,
        plots=plots,
        restarted=any(run.status.num_restarts for run in runs),
        filtered=problems if len(data.runs) > 12 and 0 < problems < len(data.runs) else 0,
    )


def _differing(called: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments that are not the same in all runs."""
    names = dict.fromkeys(name for arguments in called for name in arguments)
    return [name for name in names if any(each.get(name) != called[0].get(name) for each in called)]


def _comparable(runs: Sequence[AppData]) -> dict[str, dict[int, Any]]:
    """Return result → place of a run → number: those that most runs reported come first."""
    found: dict[str, dict[int, Any]] = {}
    for place, run in enumerate(runs):
        for name, value in last_values(run.results).items() if run.results else ():
            if not isinstance(value, str):
                found.setdefault(name, {})[place] = value
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _run_plot(
    name: str, values: Mapping[int, Any], runs: Sequence[AppData], k: int
) -> Markup | None:
    """Draw one result of all runs; None if fewer than two runs have a number for it."""
    points = {
        place: float(value)
        for place, value in values.items()
        if isinstance(value, (int, float)) and is_drawable(value) and place < len(runs)
    }
    if len(points) < 2:
        return None
    frame = Frame(
        460, 220, [float(place + 1) for place in points], list(points.values()), "run", name
    )
    parts = frame.parts()
    for place, value in points.items():
        title = element("title", f"{shown(runs[place].handle)}: {value_text(value)}")
        parts.append(
            element("circle", title, cx=frame.x(place + 1.0), cy=frame.y(value), r=4.0, cls="dot")
        )
    least, most = min(points.values()), max(points.values())
    words = f"{len(points)} runs, from {value_text(least)} to {value_text(most)}"
    return picture(460, 220, f"{name} of each run", words, parts, f"runs-{k}")
