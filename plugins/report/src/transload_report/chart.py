"""Small plots: a series of results, the trials of a search, one parameter against the objective."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from transload_report.axes import is_drawable, is_wide, log_ticks, tick_text, ticks
from transload_report.convert import Series
from transload_report.model import SearchData, TrialData
from transload_report.svg import element, number, picture, text_width
from transload_report.words import value_text

__all__ = ["Frame", "parameter_plot", "search_plot", "series_plot"]

MAX_POINTS: Final = 400
"""How many points a line has at most; of more, the least and the greatest of each stretch are
drawn."""

_TOP: Final = 26.0
_BOTTOM: Final = 38.0
_RIGHT: Final = 14.0
_DOTTED: Final = 50  # up to so many points of a line are marked


class Frame:
    """Axes, and where a point is between them.

    Args:
        width: of the whole, in px.
        height: of the whole, in px.
        xs: the values across.
        ys: the values upwards; spread logarithmically where they are far apart.
        x_name: what is across.
        y_name: what is upwards.
        whole: the values across are whole numbers.
        log_x: spread the values across logarithmically.
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
    ) -> None:
        self.width, self.height, self.x_name, self.y_name = width, height, x_name, y_name
        self.log_x, self.log_y = log_x, is_wide(ys)
        self.x_range = _widened(min(xs), max(xs), log_x, 0.03)
        self.y_range = _widened(min(ys), max(ys), self.log_y, 0.08)
        self.x_marks = self._marks(self.x_range, log_x, 6)
        if whole and not log_x:
            self.x_marks = [mark for mark in self.x_marks if mark == round(mark)]
        self.y_marks = self._marks(self.y_range, self.log_y, 5)
        texts = [tick_text(mark, [] if self.log_y else self.y_marks) for mark in self.y_marks]
        self.y_texts = texts
        self.left = max((text_width(text) for text in texts), default=20.0) + 14

    @staticmethod
    def _marks(span: tuple[float, float], log: bool, most: int) -> list[float]:
        if log:
            marks = log_ticks(*span)
            if len(marks) >= 2:
                return marks
        return ticks(*span, most)

    def x(self, value: float) -> float:
        """Return where a value is across."""
        share = _share(value, self.x_range, self.log_x)
        return self.left + share * (self.width - self.left - _RIGHT)

    def y(self, value: float) -> float:
        """Return where a value is upwards."""
        return (
            self.height
            - _BOTTOM
            - _share(value, self.y_range, self.log_y) * (self.height - _BOTTOM - _TOP)
        )

    def parts(self, x_texts: Mapping[float, str] | None = None) -> list[Markup]:
        """Return grid, marks and names.

        Args:
            x_texts: the marks across, where they are no numbers.
        """
        bottom = self.height - _BOTTOM
        drawn = []
        for mark, text in zip(self.y_marks, self.y_texts, strict=True):
            y = self.y(mark)
            line = f"M{number(self.left)} {number(y)}H{number(self.width - _RIGHT)}"
            drawn.append(element("path", d=line, cls="grid"))
            drawn.append(
                element("text", text, x=self.left - 8, y=y + 4, text_anchor="end", cls="axis")
            )
        marks = x_texts or {
            mark: tick_text(mark, [] if self.log_x else self.x_marks) for mark in self.x_marks
        }
        for mark, text in marks.items():
            drawn.append(
                element(
                    "text", text, x=self.x(mark), y=bottom + 16, text_anchor="middle", cls="axis"
                )
            )
        middle = (self.left + self.width - _RIGHT) / 2
        name = self.x_name + (", logarithmic" if self.log_x else "")
        drawn.append(
            element(
                "text", name, x=middle, y=self.height - 5, text_anchor="middle", cls="axis name"
            )
        )
        upwards = self.y_name + (", logarithmic" if self.log_y else "")
        drawn.append(element("text", upwards, x=4, y=12, cls="axis name"))
        return drawn


def series_plot(series: Series, key: str) -> Markup:
    """Draw one series of results.

    Args:
        series: what to draw; values without a place on the axis leave a gap.
        key: tells this picture from the others of the page.
    """
    finite = [(float(x), y) for x, y in series.points if is_drawable(y)]
    frame = Frame(
        460, 240, [x for x, _ in finite], [y for _, y in finite], series.across, series.name
    )
    parts = frame.parts()
    for piece in _pieces(series.points) if series.joined else ():
        shown = _thinned(piece)
        path = "M" + "L".join(f"{number(frame.x(x))} {number(frame.y(y))}" for x, y in shown)
        parts.append(element("path", d=path, cls="line"))
    if len(finite) <= _DOTTED or not series.joined:
        parts += [
            _dot(frame, x, y, f"{series.group}{x:g}: {value_text(y)}") for x, y in _thinned(finite)
        ]
    return picture(460, 240, f"{series.name} by {frame.x_name}", series_words(series), parts, key)


def series_words(series: Series) -> str:
    """Return what is to be seen in a series, in words."""
    finite = [(x, y) for x, y in series.points if is_drawable(y)]
    low, high = min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])
    text = (
        f"{len(series.points)} values, from {_at(finite[0])} to {_at(finite[-1])}; "
        f"least {_at(low)}, greatest {_at(high)}"
    )
    gaps = len(series.points) - len(finite)
    wide = is_wide([y for _, y in finite])
    return text + (f"; {gaps} not drawn" if gaps else "") + ("; logarithmic axis" if wide else "")


def _at(point: tuple[float, float]) -> str:
    return f"{point[1]:.4g} at {point[0]:g}"


def search_plot(data: SearchData, key: str = "search") -> Markup | None:
    """Draw the objective of each trial and the best so far; None if no trial has one."""
    good = measured(data)
    if not good:
        return None
    bad = [
        trial
        for trial in data.trials
        if trial.value is None and trial.app_state.name in ("FAILED", "CANCELLED")
    ]
    indices = [float(trial.index) for trial in [*good, *bad]]
    frame = Frame(
        1000,
        300,
        indices,
        [trial.value for trial in good if trial.value is not None],
        "trial",
        data.objective,
    )
    best = best_so_far(data)
    steps = "".join(f"H{number(frame.x(x))}V{number(frame.y(y))}" for x, y in best[1:])
    end = number(frame.x(max(indices)))
    start = f"M{number(frame.x(best[0][0]))} {number(frame.y(best[0][1]))}"
    parts = [*frame.parts(), element("path", d=f"{start}{steps}H{end}", cls="line best")]
    parts += [_trial_dot(frame, trial, float(trial.index), data.objective) for trial in good]
    parts += [_cross(frame, trial) for trial in bad]
    winner = best_trial(data)
    words = f"{len(good)} trials with a value, {len(bad)} without; "
    words += f"best {value_text(best[-1][1])} in trial {winner.index if winner else 0}"
    words += "; logarithmic axis" if frame.log_y else ""
    return picture(
        1000, 300, f"{data.objective} of each trial, and the best so far", words, parts, key
    )


def parameter_plot(data: SearchData, name: str, key: str) -> Markup:
    """Draw the objective of each trial against one parameter.

    Args:
        data: the search, with at least one trial that has a value.
        name: the parameter.
        key: tells this picture from the others of the page.
    """
    good = [trial for trial in measured(data) if name in trial.parameters]
    numeric = all(_is_number(trial.parameters[name]) for trial in good)
    values = [trial.parameters[name] for trial in good]
    names = (
        {}
        if numeric
        else {text: float(place) for place, text in enumerate(dict.fromkeys(map(str, values)))}
    )
    xs = [float(value) if numeric else names[str(value)] for value in values]
    whole = not numeric or all(isinstance(value, int) for value in values)
    ys = [trial.value for trial in good if trial.value is not None]
    frame = Frame(330, 220, xs, ys, name, data.objective, whole, numeric and is_wide(xs))
    if not numeric:
        frame.x_range = (-0.5, len(names) - 0.5)
    parts = frame.parts({place: text[:14] for text, place in names.items()} or None)
    parts += [
        _trial_dot(frame, trial, x, data.objective) for trial, x in zip(good, xs, strict=True)
    ]
    words = f"{len(good)} trials; {name} from {value_text(values[xs.index(min(xs))])} to "
    words += value_text(values[xs.index(max(xs))])
    return picture(330, 220, f"{data.objective} against {name}", words, parts, key)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and is_drawable(value)


def measured(data: SearchData) -> list[TrialData]:
    """Return the trials that have an objective that can be drawn, by number."""
    good = [trial for trial in data.trials if trial.value is not None and is_drawable(trial.value)]
    return sorted(good, key=lambda trial: trial.index)


def best_trial(data: SearchData) -> TrialData | None:
    """Return the best trial; the first of equal ones; None if none has an objective."""
    sign = 1 if data.minimize else -1
    return min(measured(data), key=lambda trial: sign * (trial.value or 0.0), default=None)


def best_so_far(data: SearchData) -> list[tuple[float, float]]:
    """Return ``(trial, objective)`` wherever the best became better."""
    steps: list[tuple[float, float]] = []
    for trial in measured(data):
        value = float(trial.value or 0.0)
        if not steps or (value < steps[-1][1] if data.minimize else value > steps[-1][1]):
            steps.append((float(trial.index), value))
    return steps


def _trial_dot(frame: Frame, trial: TrialData, x: float, objective: str) -> Markup:
    value = float(trial.value or 0.0)
    settings = "".join(f", {name} {value_text(each)}" for name, each in trial.parameters.items())
    return _dot(
        frame, x, value, f"trial {trial.index}: {objective} {value_text(value)}{settings}", 4.0
    )


def _dot(frame: Frame, x: float, y: float, title: str, size: float = 3.0) -> Markup:
    return element(
        "circle", element("title", title), cx=frame.x(x), cy=frame.y(y), r=size, cls="dot"
    )


def _cross(frame: Frame, trial: TrialData) -> Markup:
    x, y = frame.x(float(trial.index)), frame.height - _BOTTOM - 6
    path = f"M{number(x - 4)} {number(y - 4)}l8 8M{number(x + 4)} {number(y - 4)}l-8 8"
    title = element("title", f"trial {trial.index}: {trial.state}, no value")
    return element("path", title, d=path, cls=f"cross {trial.app_state.name}")


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Return the stretches between gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if is_drawable(y):
            pieces[-1].append((float(x), y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a line of fewer points that looks the same: of each stretch its least and its greatest
    value.
    """
    if len(points) <= MAX_POINTS:
        return list(points)
    stretches = MAX_POINTS // 2 - 1
    kept = {0, len(points) - 1}
    for k in range(stretches):
        part = range(k * len(points) // stretches, (k + 1) * len(points) // stretches)
        kept.add(min(part, key=lambda i: points[i][1]))
        kept.add(max(part, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def _widened(low: float, high: float, log: bool, share: float) -> tuple[float, float]:
    if log:
        room = (high / low) ** share if high > low else 2.0
        return low / room, high * room
    room = (high - low) * share if high > low else (abs(low) * 0.1 or 1.0)
    return low - room, high + room


def _share(value: float, span: tuple[float, float], log: bool) -> float:
    low, high = span
    if log:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low) if high > low else 0.5


def parameter_names(data: SearchData) -> list[str]:
    """Return the parameters that differ among the measured trials, in their order."""
    seen: dict[str, set[Any]] = {}
    for trial in measured(data):
        for name, value in trial.parameters.items():
            seen.setdefault(name, set()).add(str(value))
    return [name for name, values in seen.items() if len(values) > 1]
