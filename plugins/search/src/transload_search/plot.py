"""Draw the trials of a search, the best so far, and the importance of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError
from transload_search.progress import first_objective, trial_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#24303c"
GRID: Final = "#dfe5ea"
BLUE: Final = "#2a6fb0"
ORANGE: Final = "#d9702b"
COLORS: Final = {"failed": "#b3382c", "cancelled": "#8a5fb0", "stopped early": "#c9a227"}
ENDINGS: Final = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Picture:
    """The data of a picture.

    Args:
        name: the name of the search.
        metric: the name of the objective.
        minimize: whether small values are good.
        values: trial → value, for the trials that succeeded.
        best: trial → best value so far.
        bad: trial → its state, for the other trials that ended.
        importance: parameter → share of the variance that it alone explains, largest first.
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


def plot_search(summary: Mapping[str, Any], file: Path) -> None:
    """Write a picture of a search. Of several objectives, the first is drawn.

    Args:
        summary: the summary of the search, in any state, as of `SearchLedger.summary`.
        file: ``name.png``, ``name.svg`` or ``name.pdf``.

    Raises:
        ConfigError: if no trial has a value, the file has another ending, or matplotlib is missing.
    """
    if file.suffix not in ENDINGS:
        raise ConfigError(f"--output {file}: must end in {', '.join(ENDINGS)}")
    picture = look(summary)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("a picture needs matplotlib: pip install matplotlib") from None
    file.parent.mkdir(parents=True, exist_ok=True)
    _draw(picture, file)


def look(summary: Mapping[str, Any]) -> Picture:
    """Return the data of a picture.

    Raises:
        ConfigError: if no trial has a value.
    """
    objective = first_objective(summary)
    done = [row for row in summary["trials"] if trial_word(row) == "done"]
    values = {row["index"]: float(row["value"]) for row in done}
    if not values:
        raise ConfigError(
            f"this search cannot be drawn: none of its {len(summary['trials'])} trials has a value"
        )
    words = {row["index"]: trial_word(row) for row in summary["trials"]}
    names = [each["name"] for each in summary["search"]["parameters"]]
    parameters = {name: {row["index"]: row["parameters"][name] for row in done} for name in names}
    return Picture(
        name=Path(summary["tracker_base"]).name,
        metric=objective["name"],
        minimize=objective["minimize"],
        values=values,
        best=_best_so_far(values, objective["minimize"]),
        bad={index: word for index, word in words.items() if word in COLORS},
        importance=importance(parameters, values),
        parameters=parameters,
    )


def _best_so_far(values: Mapping[int, float], minimize: bool) -> dict[int, float]:
    """Return trial → the best value of all trials up to it."""
    better = min if minimize else max
    indices = sorted(values)
    best = values[indices[0]]
    found = {}
    for index in indices:
        best = better(best, values[index])
        found[index] = best
    return found


def importance(parameters: dict[str, dict[int, Any]], values: dict[int, float]) -> dict[str, float]:
    """Return the share of the objective's rank variance that each parameter alone explains.

    The largest is first. The share is the squared correlation ratio over up to five bins of equal
    counts, or over the values of a choice. It is corrected for their number, so that a parameter
    without influence has 0 on average.
    """
    order = sorted(values, key=lambda index: values[index])
    rank = {index: float(place) for place, index in enumerate(order)}
    shares = {}
    for name, column in parameters.items():
        shares[name] = _share([(column[index], rank[index]) for index in values])
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _share(pairs: Sequence[tuple[Any, float]]) -> float:
    """Return the corrected correlation ratio of ``(value, rank)`` pairs."""
    count = len(pairs)
    groups = _grouped_ranks(pairs)
    if count - len(groups) < 1 or len(groups) < 2:
        return 0.0
    total = _squared_distances([rank for _, rank in pairs])
    within = sum(_squared_distances(group) for group in groups)
    if total <= 0:
        return 0.0
    variance_within = within / (count - len(groups))
    variance = total / (count - 1)
    return max(0.0, 1.0 - variance_within / variance)


def _squared_distances(ranks: Sequence[float]) -> float:
    """Return the sum of the squared distances from the mean."""
    mean = sum(ranks) / len(ranks)
    return sum((rank - mean) ** 2 for rank in ranks)


def _grouped_ranks(pairs: Sequence[tuple[Any, float]]) -> list[list[float]]:
    """Return the ranks grouped by value, or by bins of equal counts if there are many numbers."""
    count = len(pairs)
    distinct = len({value for value, _ in pairs})
    bins = min(5, distinct, max(2, count // 3))
    groups: dict[Any, list[float]] = {}
    if distinct > bins and all(_is_number(value) for value, _ in pairs):
        by_value = sorted(pairs, key=lambda pair: pair[0])
        for place, (_, rank) in enumerate(by_value):
            groups.setdefault(place * bins // count, []).append(rank)
    else:
        for value, rank in pairs:
            groups.setdefault(value, []).append(rank)
    return list(groups.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _draw(picture: Picture, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(picture.importance)[:3]
    figure = Figure(figsize=(7, 6.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 6, height_ratios=[1.25, 1])
    if len(names) > 1:
        _draw_trials(figure.add_subplot(grid[0, :4]), picture)
        _draw_importance(figure.add_subplot(grid[0, 4:]), picture)
    else:  # a single parameter needs no plot of importance
        _draw_trials(figure.add_subplot(grid[0, :]), picture)
    width = 6 // max(1, len(names))
    for place, name in enumerate(names):
        columns = slice(place * width, (place + 1) * width)
        axes = figure.add_subplot(grid[1, columns])
        _draw_slice(axes, picture, name, first=place == 0)
    figure.suptitle(_title(picture), color=INK, fontsize=13, x=0.01, ha="left")
    figure.savefig(file)


def _title(picture: Picture) -> str:
    chosen = min if picture.minimize else max
    best = chosen(picture.values, key=lambda index: picture.values[index])
    aim = "smallest" if picture.minimize else "largest"
    found = f"{aim} {picture.metric} {picture.values[best]:.5g}"
    # numbered as on the axis
    return f"{picture.name}: {found} of {len(picture.values)} trials (trial {best})"


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=INK, fontsize=11)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)


def _is_log(numbers: Sequence[float]) -> bool:
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) > 50


def _draw_trials(axes: Axes, picture: Picture) -> None:
    from matplotlib.ticker import MaxNLocator

    _plain(axes, f"{picture.metric} of each trial")
    axes.set_ylabel(picture.metric, color=INK, fontsize=10)
    axes.plot(
        list(picture.values), list(picture.values.values()), "o", color=BLUE, ms=5, label="trial"
    )
    axes.step(
        list(picture.best),
        list(picture.best.values()),
        where="post",
        color=ORANGE,
        lw=2,
        label="best so far",
    )
    if _is_log(list(picture.values.values())):
        axes.set_yscale("log")
    for status in sorted(set(picture.bad.values())):
        places = [index for index, each in picture.bad.items() if each == status]
        low = axes.get_ylim()[0]
        axes.plot(
            places,
            [low] * len(places),
            "x",
            color=COLORS[status],
            ms=7,
            mew=2,
            clip_on=False,
            label=status,
        )
    axes.set_xlabel("trial", color=INK, fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)


def _draw_importance(axes: Axes, picture: Picture) -> None:
    _plain(axes, "share explained")
    names = list(picture.importance)[:8][::-1]
    axes.barh(names, [picture.importance[name] for name in names], color=BLUE, height=0.6)
    axes.set_xlim(0, 1)


def _draw_slice(axes: Axes, picture: Picture, name: str, *, first: bool) -> None:
    _plain(axes, f"by {name}")
    column = picture.parameters[name]
    places = [column[index] for index in picture.values]
    values = list(picture.values.values())
    numeric = all(_is_number(place) for place in places)
    shown = places if numeric else [str(place) for place in places]
    axes.scatter(shown, values, c=list(range(len(shown))), cmap="viridis", s=24)
    if numeric and _is_log([float(place) for place in places]):
        axes.set_xscale("log")
    if _is_log(values):
        axes.set_yscale("log")
    label = name
    if first:
        label = f"{name} (lighter: later)"
        axes.set_ylabel(picture.metric, color=INK, fontsize=10)
    axes.set_xlabel(label, color=INK, fontsize=10)
