"""Small plots of a series of results, of a search's trials, and of a parameter."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from transload.specs import AppState
from transload_report.axes import SMALLEST, is_drawable, is_wide, log_ticks, tick_text, ticks
from transload_report.convert import Series
from transload_report.model import SearchData, TrialData
from transload_report.svg import element, fitted, number, picture, text_width
from transload_report.words import value_text

__all__ = ["Frame", "against_plot", "parameter_plot", "search_plot", "series_plot"]

MAX_POINTS: Final = 400
"""The largest number of points in a line.

With more points, the least and the greatest of each stretch are drawn.
"""

_TOP: Final = 26.0
_BOTTOM: Final = 38.0
_RIGHT: Final = 14.0
_ACROSS: Final = 250.0  # room for all choices below an axis, in px
_DOTTED: Final = 50  # a line with at most this many points has marks


class Frame:
    """The axes of a plot, and the position of a point between them.

    Args:
        width: of the plot, in px.
        height: of the plot, in px.
        xs: the values on the x axis.
        ys: the values on the y axis, which is logarithmic if they are far apart.
        x_name: the name of the x axis.
        y_name: the name of the y axis.
        whole: whether the values on the x axis are whole numbers.
        log_x: make the x axis logarithmic.
        log_y: whether the y axis is logarithmic, or with None if its values are far apart.
        x_texts: the marks on the x axis and their texts, if they are not numbers.
        x_range: the ends of the x axis, if they do not follow from its values.
    """

    def __init__(
        self,
        width: float,
        height: float,
        xs: Sequence[float],
        ys: Sequence[float],
        x_name: str,
        y_name: str,
        whole: bool = True,
        log_x: bool = False,
        log_y: bool | None = None,
        x_texts: Mapping[float, str] | None = None,
        x_range: tuple[float, float] | None = None,
    ) -> None:
        self.width = width
        self.height = height
        self.x_name = x_name
        self.y_name = y_name
        self.log_x = log_x
        self.log_y = is_wide(ys) if log_y is None else log_y
        self.x_range = x_range or _widened(min(xs), max(xs), log_x, 0.03)
        self.y_range = _widened(min(ys), max(ys), self.log_y, 0.08)
        self.x_marks = self._marks(self.x_range, log_x, 6)
        if whole and not log_x:
            self.x_marks = [mark for mark in self.x_marks if mark == round(mark)]
        self.y_marks = self._marks(self.y_range, self.log_y, 5)
        self.y_texts = _mark_texts(self.y_marks, self.log_y)
        if not x_texts:
            x_texts = dict(zip(self.x_marks, _mark_texts(self.x_marks, log_x), strict=True))
        self.x_texts = x_texts
        # the first and the last text below the axis reach as far to the outside as to the inside
        half = 0.0
        if x_range is None:
            half = max((text_width(text) / 2 for text in x_texts.values()), default=0.0)
        widths = [text_width(text) for text in self.y_texts]
        self.left = max(max(widths, default=20.0) + 14, min(half, width / 4))
        self.right = max(_RIGHT, min(half, width / 4))

    @staticmethod
    def _marks(span: tuple[float, float], log: bool, most: int) -> list[float]:
        if log:
            marks = log_ticks(*span)
            if len(marks) >= 2:
                return marks
        return ticks(*span, most)

    def x(self, value: float) -> float:
        """Return the x coordinate of a value, in px."""
        share = _share(value, self.x_range, self.log_x)
        return self.left + share * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value, in px."""
        bottom = self.height - _BOTTOM
        share = _share(value, self.y_range, self.log_y)
        return bottom - share * (bottom - _TOP)

    def parts(self) -> list[Markup]:
        """Return the grid, the marks and the names of the axes."""
        return [*self._upward_parts(), *self._across_parts(), *self._names()]

    def _upward_parts(self) -> list[Markup]:
        drawn = []
        for mark, text in zip(self.y_marks, self.y_texts, strict=True):
            y = self.y(mark)
            line = f"M{number(self.left)} {number(y)}H{number(self.width - self.right)}"
            drawn.append(element("path", d=line, cls="grid"))
            drawn.append(
                element("text", text, x=self.left - 8, y=y + 4, text_anchor="end", cls="axis")
            )
        return drawn

    def _across_parts(self) -> list[Markup]:
        y = self.height - _BOTTOM + 16
        return [
            element("text", text, x=self.x(mark), y=y, text_anchor="middle", cls="axis")
            for mark, text in self.x_texts.items()
        ]

    def _names(self) -> list[Markup]:
        middle = (self.left + self.width - self.right) / 2
        room = 2 * min(middle, self.width - middle)
        across = _axis_name(self.x_name, self.log_x, room)
        upwards = _axis_name(self.y_name, self.log_y, self.width - 8)
        return [
            element(
                "text", across, x=middle, y=self.height - 5, text_anchor="middle", cls="axis name"
            ),
            element("text", upwards, x=4, y=12, cls="axis name"),
        ]


def series_plot(series: Series, key: str) -> Markup:
    """Draw one series of results.

    Args:
        series: the series. Values without a place on the axis leave a gap.
        key: a text that no other picture of the page has.
    """
    points = _drawable_points(series)
    frame = Frame(
        width=460,
        height=240,
        xs=[x for x, _ in points],
        ys=[y for _, y in points],
        x_name=series.across,
        y_name=series.name,
    )
    parts = frame.parts()
    if series.joined:
        parts += [_line(frame, piece) for piece in _pieces(series.points)]
    if len(points) <= _DOTTED or not series.joined:
        for x, y in _thinned(points):
            parts.append(_dot(frame, x, y, f"{series.group}{x:g}: {value_text(y)}"))
    return picture(
        width=460,
        height=240,
        title=f"{series.name} by {frame.x_name}",
        description=series_words(series),
        parts=parts,
        key=key,
    )


def _line(frame: Frame, points: Sequence[tuple[float, float]]) -> Markup:
    corners = [f"{number(frame.x(x))} {number(frame.y(y))}" for x, y in _thinned(points)]
    return element("path", d="M" + "L".join(corners), cls="line")


def _drawable_points(series: Series) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in series.points if is_drawable(x) and is_drawable(y)]


def series_words(series: Series) -> str:
    """Return a description of a series in words."""
    points = _drawable_points(series)
    low = min(points, key=lambda point: point[1])
    high = max(points, key=lambda point: point[1])
    text = (
        f"{len(series.points)} values, from {_at(points[0])} to {_at(points[-1])}; "
        f"least {_at(low)}, greatest {_at(high)}"
    )
    gaps = len(series.points) - len(points)
    if gaps:
        text += f"; {gaps} not drawn"
    if is_wide([y for _, y in points]):
        text += "; logarithmic axis"
    return text


def _at(point: tuple[float, float]) -> str:
    return f"{point[1]:.4g} at {point[0]:g}"


def search_plot(data: SearchData, key: str = "search") -> Markup | None:
    """Draw the objective of each trial and the best so far, or return None if no trial has one."""
    good = measured(data)
    if not good:
        return None
    bad = [trial for trial in data.trials if _has_ended_without_value(trial)]
    indices = [float(trial.index) for trial in [*good, *bad]]
    frame = Frame(
        width=1000,
        height=300,
        xs=indices,
        ys=_objectives(good),
        x_name="trial",
        y_name=data.objective,
    )
    best = best_so_far(data)
    parts = frame.parts()
    parts.append(_best_line(frame, best, max(indices)))
    parts += [_trial_dot(frame, trial, float(trial.index), data.objective) for trial in good]
    parts += [_cross(frame, trial) for trial in bad]
    winner = best_trial(data)
    words = f"{len(good)} trials with a value, {len(bad)} without; "
    words += f"best {value_text(best[-1][1])} in trial {winner.index if winner else 0}"
    if frame.log_y:
        words += "; logarithmic axis"
    return picture(
        width=1000,
        height=300,
        title=f"{data.objective} of each trial, and the best so far",
        description=words,
        parts=parts,
        key=key,
    )


def _has_ended_without_value(trial: TrialData) -> bool:
    return trial.value is None and trial.app_state in (AppState.FAILED, AppState.CANCELLED)


def _objectives(trials: Sequence[TrialData]) -> list[float]:
    return [trial.value for trial in trials if trial.value is not None]


def _best_line(frame: Frame, best: Sequence[tuple[float, float]], last: float) -> Markup:
    """Draw the best objective so far as steps, up to the last trial."""
    first_x, first_y = best[0]
    start = f"M{number(frame.x(first_x))} {number(frame.y(first_y))}"
    steps = [f"H{number(frame.x(x))}V{number(frame.y(y))}" for x, y in best[1:]]
    end = f"H{number(frame.x(last))}"
    return element("path", d="".join([start, *steps, end]), cls="line best")


def parameter_plot(data: SearchData, name: str, key: str) -> Markup:
    """Draw the objective of each trial against one parameter.

    Args:
        data: the search, with at least one trial that has a value.
        name: the parameter.
        key: a text that no other picture of the page has.
    """
    good = [trial for trial in measured(data) if name in trial.parameters]
    return against_plot(
        x_name=name,
        y_name=data.objective,
        points=[
            (trial.parameters[name], float(trial.value or 0.0), _trial_words(trial, data.objective))
            for trial in good
        ],
        count=f"{len(good)} trials",
        is_log=name in data.log_parameters,
        key=key,
    )


def against_plot(
    *,
    x_name: str,
    y_name: str,
    points: Sequence[tuple[Any, float, str]],
    count: str,
    key: str,
    is_log: bool = False,
) -> Markup:
    """Draw numbers against the values that they come from.

    Args:
        x_name: what the values are.
        y_name: what the numbers are.
        points: a value, a number and a description of each. Values that are not all numbers are
            choices.
        count: how many there are of what, in words.
        key: a text that no other picture of the page has.
        is_log: the values have a logarithmic scale.
    """
    values = [value for value, _, _ in points]
    numeric = all(_is_number(value) for value in values)
    texts: dict[float, str] = {}
    ends = None
    if numeric:
        xs = [float(value) for value in values]
    else:
        choices = list(dict.fromkeys(map(str, values)))
        texts = _choice_texts(choices)
        xs = [float(choices.index(str(value))) for value in values]
        ends = (-0.5, len(choices) - 0.5)
    frame = Frame(
        width=330,
        height=220,
        xs=xs,
        ys=[y for _, y, _ in points],
        x_name=x_name,
        y_name=y_name,
        whole=not numeric or all(isinstance(value, int) for value in values),
        log_x=numeric and (is_wide(xs) or (is_log and min(xs) > SMALLEST)),
        x_texts=texts,
        x_range=ends,
    )
    parts = frame.parts()
    for x, (_, y, title) in zip(xs, points, strict=True):
        parts.append(_dot(frame, x, y, title, size=4.0))
    least = values[xs.index(min(xs))]
    greatest = values[xs.index(max(xs))]
    words = f"{count}; {x_name} from {value_text(least)} to {value_text(greatest)}"
    if frame.log_x:
        words += "; logarithmic axis"
    return picture(
        width=330,
        height=220,
        title=f"{y_name} against {x_name}",
        description=words,
        parts=parts,
        key=key,
    )


def _choice_texts(choices: Sequence[str]) -> dict[float, str]:
    """Return place → text of choices, by their ends where they are too long and begin alike."""
    room = _ACROSS / len(choices)
    shown = [fitted(choice, room) for choice in choices]
    if len(set(shown)) < len(choices):
        shown = [fitted(choice[::-1], room)[::-1] for choice in choices]
    return {float(place): text for place, text in enumerate(shown)}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and is_drawable(value)


def measured(data: SearchData) -> list[TrialData]:
    """Return the trials with an objective that can be drawn, by number."""
    good = [trial for trial in data.trials if trial.value is not None and is_drawable(trial.value)]
    return sorted(good, key=lambda trial: trial.index)


def best_trial(data: SearchData) -> TrialData | None:
    """Return the best trial, the first if several are equal, or None if none has an objective."""
    sign = 1 if data.minimize else -1
    return min(measured(data), key=lambda trial: sign * (trial.value or 0.0), default=None)


def best_so_far(data: SearchData) -> list[tuple[float, float]]:
    """Return ``(trial, objective)`` for each trial that improved the best objective."""
    is_better = operator.lt if data.minimize else operator.gt
    steps: list[tuple[float, float]] = []
    for trial in measured(data):
        value = float(trial.value or 0.0)
        if not steps or is_better(value, steps[-1][1]):
            steps.append((float(trial.index), value))
    return steps


def _trial_dot(frame: Frame, trial: TrialData, x: float, objective: str) -> Markup:
    value = float(trial.value or 0.0)
    return _dot(frame, x, value, _trial_words(trial, objective), size=4.0)


def _trial_words(trial: TrialData, objective: str) -> str:
    settings = [f", {name} {value_text(each)}" for name, each in trial.parameters.items()]
    return f"trial {trial.index}: {objective} {value_text(float(trial.value or 0.0))}{''.join(settings)}"


def _dot(frame: Frame, x: float, y: float, title: str, size: float = 3.0) -> Markup:
    return element(
        "circle", element("title", title), cx=frame.x(x), cy=frame.y(y), r=size, cls="dot"
    )


def _cross(frame: Frame, trial: TrialData) -> Markup:
    x = frame.x(float(trial.index))
    y = frame.height - _BOTTOM - 6
    path = f"M{number(x - 4)} {number(y - 4)}l8 8M{number(x + 4)} {number(y - 4)}l-8 8"
    title = element("title", f"trial {trial.index}: {trial.state}, no value")
    return element("path", title, d=path, cls=f"cross {trial.app_state.name}")


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Return the stretches between gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if is_drawable(x) and is_drawable(y):
            pieces[-1].append((float(x), y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a line with fewer points that looks the same.

    The least and the greatest value of each stretch are kept.
    """
    if len(points) <= MAX_POINTS:
        return list(points)
    stretches = MAX_POINTS // 2 - 1
    kept = {0, len(points) - 1}
    for k in range(stretches):
        begin = k * len(points) // stretches
        end = (k + 1) * len(points) // stretches
        part = range(begin, end)
        kept.add(min(part, key=lambda i: points[i][1]))
        kept.add(max(part, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def _mark_texts(marks: Sequence[float], log: bool) -> list[str]:
    """Return the text at each mark. All texts of a linear axis have the same decimals."""
    neighbours: Sequence[float] = () if log else marks
    return [tick_text(mark, neighbours) for mark in marks]


def _axis_name(name: str, log: bool, room: float) -> str:
    """Return the name of an axis, which is cut if it is longer than the room for it, in px."""
    note = ", logarithmic" if log else ""
    return f"{fitted(name, room - text_width(note))}{note}"


def _widened(low: float, high: float, log: bool, share: float) -> tuple[float, float]:
    """Return the range of an axis, which is that of the values with a margin on both sides."""
    if log:
        factor = (high / low) ** share if high > low else 2.0
        return low / factor, high * factor
    room = (high - low) * share
    if room < SMALLEST:
        room = abs(low) * 0.1
    if room < SMALLEST:  # of numbers that are nearly 0, which marks could not tell apart
        room = 1.0
    return low - room, high + room


def _share(value: float, span: tuple[float, float], log: bool) -> float:
    """Return the position of a value on an axis, from 0 to 1."""
    low, high = span
    if log:
        return math.log(value / low) / math.log(high / low)
    if high <= low:
        return 0.5
    return (value - low) / (high - low)


def parameter_names(data: SearchData) -> list[str]:
    """Return the parameters that differ among the measured trials, in their order."""
    seen: dict[str, set[Any]] = {}
    for trial in measured(data):
        for name, value in trial.parameters.items():
            seen.setdefault(name, set()).add(str(value))
    return [
        name
        for name, values in seen.items()
        if len(values) > 1 and not is_objective_itself(data, name)
    ]


def is_objective_itself(data: SearchData, name: str) -> bool:
    """Tell whether a parameter is reported as the objective, so that both have one column."""
    if name != data.objective:
        return False
    given = [(trial.parameters.get(name), trial.value) for trial in measured(data)]
    return all(is_same_number(value, reported) for value, reported in given)


def is_same_number(given: Any, reported: Any) -> bool:
    """Tell whether an argument, which may be a text, is the number that was reported."""
    try:
        return not isinstance(given, bool) and float(given) == float(reported)
    except (TypeError, ValueError, OverflowError):
        return False
