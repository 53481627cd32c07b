"""A picture of an experiment: its trials, the best so far, and which parameters matter."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ax.core.experiment import Experiment

from transload.errors import ConfigError
from transload_ax.experiment import objective_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#24303c"
GRID: Final = "#dfe5ea"
BLUE: Final = "#2a6fb0"
ORANGE: Final = "#d9702b"
COLORS: Final = {"FAILED": "#b3382c", "ABANDONED": "#8a5fb0", "STALE": "#b3382c", "EARLY_STOPPED": "#c9a227"}


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Args:
        name: of the experiment.
        metric: the objective.
        minimize: small is good.
        values: trial → value, of the completed ones.
        best: trial → best value so far.
        bad: trial → status, of those that did not complete.
        importance: parameter → share of the variance that it explains by itself, largest first.
        parameters: parameter → trial → value.
    """

    name: str
    metric: str
    minimize: bool
    values: dict[int, float]
    best: dict[int, float]
    bad: dict[int, str]
    importance: dict[str, float]
    parameters: dict[str, dict[int, Any]]


def plot_experiment(experiment: Experiment, path: str | os.PathLike[str]) -> list[Path]:
    """Write a picture of an experiment with one objective, as PNG and as an interactive HTML page.

    Args:
        experiment: the experiment, in any state.
        path: ``name.png`` or ``name.html`` for one of them; without either ending, both are written.

    Returns:
        The files.

    Raises:
        ConfigError: if no trial has completed, or there is no single objective.
    """
    target = Path(path)
    picture = look(experiment)
    wanted = {".png": _png, ".html": _html}
    chosen = (
        {target: wanted[target.suffix]}
        if target.suffix in wanted
        else {target.with_name(target.name + suffix): draw for suffix, draw in wanted.items()}
    )
    for file, draw in chosen.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        draw(picture, file)
    return list(chosen)


def look(experiment: Experiment) -> Picture:
    """Return what `plot_experiment` draws. Errors are the same."""
    config = experiment.optimization_config
    if config is None or len(config.objective.metric_names) != 1:
        raise ConfigError("this experiment cannot be drawn: it has no single objective")
    metric, minimize = config.objective.metric_names[0], bool(config.objective.minimize)
    values = objective_values(experiment, metric)
    if not values:
        raise ConfigError(f"this experiment cannot be drawn: none of its {len(experiment.trials)} trials has completed")
    best: dict[int, float] = {}
    for index in sorted(values):
        seen = [*list(best.values())[-1:], values[index]]
        best[index] = min(seen) if minimize else max(seen)
    bad = {
        trial.index: trial.status.name
        for trial in experiment.trials.values()
        if trial.status.is_terminal and trial.index not in values
    }
    parameters = {
        name: {index: experiment.trials[index].arms[0].parameters.get(name) for index in values}
        for name, parameter in experiment.search_space.parameters.items()
        if not hasattr(parameter, "value")
    }
    name = experiment.name if experiment.has_name else "experiment"
    return Picture(name, metric, minimize, values, best, bad, importance(parameters, values), parameters)


def importance(parameters: dict[str, dict[int, Any]], values: dict[int, float]) -> dict[str, float]:
    """Return which share of the objective's rank variance each parameter explains by itself, largest first.

    Squared correlation ratio over up to five bins of equal counts (or the values of a choice), corrected for their
    number: 0 is what a parameter without influence has on average.
    """
    order = sorted(values, key=lambda index: values[index])
    rank = {index: float(place) for place, index in enumerate(order)}
    shares = {name: _share([(column[index], rank[index]) for index in values]) for name, column in parameters.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _share(pairs: Sequence[tuple[Any, float]]) -> float:
    count = len(pairs)
    groups: dict[Any, list[float]] = {}
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value, _ in pairs)
    distinct = len({value for value, _ in pairs})
    bins = min(5, distinct, max(2, count // 3))
    if numeric and distinct > bins:
        for place, (_, rank) in enumerate(sorted(pairs, key=lambda pair: pair[0])):
            groups.setdefault(place * bins // count, []).append(rank)
    else:
        for value, rank in pairs:
            groups.setdefault(value, []).append(rank)
    if count - len(groups) < 1 or len(groups) < 2:
        return 0.0
    mean = sum(rank for _, rank in pairs) / count
    total = sum((rank - mean) ** 2 for _, rank in pairs)
    within = sum(sum((rank - sum(group) / len(group)) ** 2 for rank in group) for group in groups.values())
    if total <= 0:
        return 0.0
    return max(0.0, 1.0 - (within / (count - len(groups))) / (total / (count - 1)))


def _png(picture: Picture, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(picture.importance)[:3]
    figure = Figure(figsize=(11, 7), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 6, height_ratios=[1.25, 1])
    _draw_trials(figure.add_subplot(grid[0, :4]), picture)
    _draw_importance(figure.add_subplot(grid[0, 4:]), picture)
    width = 6 // max(1, len(names))
    for place, name in enumerate(names):
        _draw_slice(figure.add_subplot(grid[1, place * width : (place + 1) * width]), picture, name, place == 0)
    figure.suptitle(_title(picture), color=INK, fontsize=13, x=0.01, ha="left")
    figure.savefig(file)


def _title(picture: Picture) -> str:
    chosen = min if picture.minimize else max
    best = chosen(picture.values, key=lambda index: picture.values[index])
    aim = "smallest" if picture.minimize else "largest"
    return f"{picture.name}: {aim} {picture.metric} {picture.values[best]:.5g}, trial {best} of {len(picture.values)}"


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=10)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)


def _is_log(numbers: Sequence[float]) -> bool:
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) > 50


def _draw_trials(axes: Axes, picture: Picture) -> None:
    from matplotlib.ticker import MaxNLocator

    _plain(axes, f"{picture.metric} of each trial, and the best so far")
    axes.plot(list(picture.values), list(picture.values.values()), "o", color=BLUE, ms=5, label="trial")
    axes.step(list(picture.best), list(picture.best.values()), where="post", color=ORANGE, lw=2, label="best so far")
    if _is_log(list(picture.values.values())):
        axes.set_yscale("log")
    for status in sorted(set(picture.bad.values())):
        places = [index for index, each in picture.bad.items() if each == status]
        low = axes.get_ylim()[0]
        color, label = COLORS.get(status, INK), status.lower().replace("_", " ")
        axes.plot(places, [low] * len(places), "x", color=color, ms=7, mew=2, clip_on=False, label=label)
    axes.set_xlabel("trial", color=INK, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _draw_importance(axes: Axes, picture: Picture) -> None:
    _plain(axes, "share explained by each parameter")
    names = list(picture.importance)[:8][::-1]
    axes.barh(names, [picture.importance[name] for name in names], color=BLUE, height=0.6)
    axes.set_xlim(0, 1)


def _draw_slice(axes: Axes, picture: Picture, name: str, first: bool) -> None:
    _plain(axes, f"{name} (lighter: later trial)")
    column = picture.parameters[name]
    places = [column[index] for index in picture.values]
    numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in places)
    shown = places if numeric else [str(value) for value in places]
    spread = list(range(len(shown)))
    axes.scatter(shown, list(picture.values.values()), c=spread, cmap="viridis", s=24)
    if numeric and _is_log([float(value) for value in places]):
        axes.set_xscale("log")
    if _is_log(list(picture.values.values())):
        axes.set_yscale("log")
    if first:
        axes.set_ylabel(picture.metric, color=INK, fontsize=9)


def _html(picture: Picture, file: Path) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = list(picture.importance)[:3]
    columns = max(1, len(names))
    specs: list[list[Any]] = [[{"colspan": columns}, *[None] * (columns - 1)], [{}] * columns]
    specs.append([{"colspan": columns}, *[None] * (columns - 1)])
    titles = [f"{picture.metric} of each trial, and the best so far", *names, "share explained by each parameter"]
    figure = make_subplots(rows=3, cols=columns, specs=specs, subplot_titles=titles, vertical_spacing=0.1)
    trials, values = list(picture.values), list(picture.values.values())
    texts = [_hover(picture, index) for index in trials]
    shared = {"mode": "markers", "hovertext": texts, "hoverinfo": "text", "showlegend": False}
    figure.add_trace(go.Scatter(x=trials, y=values, marker={"color": BLUE}, **shared), 1, 1)
    line = {"color": ORANGE, "shape": "hv"}
    best = go.Scatter(x=list(picture.best), y=list(picture.best.values()), line=line, mode="lines", showlegend=False)
    figure.add_trace(best, 1, 1)
    for status in sorted(set(picture.bad.values())):
        places = [index for index, each in picture.bad.items() if each == status]
        label, mark = status.lower().replace("_", " "), {"symbol": "x", "color": COLORS.get(status, INK), "size": 9}
        told = [f"trial {index}: {label}" for index in places]
        bad = {"mode": "markers", "marker": mark, "hovertext": told, "hoverinfo": "text", "showlegend": False}
        figure.add_trace(go.Scatter(x=places, y=[min(values)] * len(places), **bad), 1, 1)
    for place, name in enumerate(names):
        column = [picture.parameters[name][index] for index in trials]
        dots = {"color": trials, "colorscale": "Viridis"}
        figure.add_trace(go.Scatter(x=column, y=values, marker=dots, **shared), 2, place + 1)
        if all(isinstance(each, (int, float)) for each in column) and _is_log([float(each) for each in column]):
            figure.update_xaxes(type="log", row=2, col=place + 1)
    bars = go.Bar(x=list(picture.importance.values()), y=list(picture.importance), orientation="h", showlegend=False)
    figure.add_trace(bars.update(marker_color=BLUE), 3, 1)
    figure.update_xaxes(range=[0, 1], row=3, col=1)
    figure.update_yaxes(autorange="reversed", row=3, col=1)  # the most important one on top, as in the PNG
    figure.update_xaxes(title_text="trial", row=1, col=1)
    if _is_log(values):
        figure.update_yaxes(type="log", row=1)
        figure.update_yaxes(type="log", row=2)
    figure.update_layout(title=_title(picture), template="plotly_white", height=900, font_color=INK)
    figure.write_html(file, include_plotlyjs=True, full_html=True)


def _hover(picture: Picture, index: int) -> str:
    rows = [f"trial {index}", f"{picture.metric} = {picture.values[index]:.6g}"]
    for name, column in picture.parameters.items():
        value = column[index]
        shown = f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)
        rows.append(f"{name} = {shown}")
    return "<br>".join(rows)
