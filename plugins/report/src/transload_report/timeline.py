"""Draw a timeline, with a row for each replica and a bar for each of its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from transload.specs import AppState
from transload_report.axes import duration_ticks
from transload_report.convert import Row, counts, thinned
from transload_report.states import SIGNS
from transload_report.svg import element, number, picture, text_width
from transload_report.words import duration_text

__all__ = ["MANY", "timeline"]

MANY: Final = 40
"""A timeline with at least this many rows is compact, with thin bars and few labels."""

_WIDTH: Final = 1000.0
_TOP: Final = 8.0
_BOTTOM: Final = 30.0
_ROW: Final = 28.0
_BAR: Final = 16.0
_COMPACT: Final = 720.0
_MAX_LABEL: Final = 24
_MAX_RIGHT: Final = 300.0
_NARROW: Final = 1.5  # smallest width of a bar, in px


def timeline(rows: Sequence[Row], what: str, key: str = "timeline") -> Markup | None:
    """Draw a timeline, or return None if no times are known.

    Args:
        rows: the rows. If there are too many, only some are drawn.
        what: the subject of the rows for the description, ``replicas`` or ``runs``.
        key: a text that no other picture of the page has.
    """
    bars = [bar for row in rows for bar in row.bars]
    if not bars:
        return None
    waits = [row.waited for row in rows if row.waited is not None]
    begin = min([bar.start for bar in bars] + waits)
    end = max([bar.end for bar in bars] + waits)
    drawn = thinned(rows)
    chart = _Chart(drawn, begin, end)
    return picture(
        width=_WIDTH,
        height=chart.height,
        title=f"Timeline of {len(rows)} {what}",
        description=_description(rows, len(drawn), end - begin, what),
        parts=chart.parts(),
        key=key,
        cls="plot timeline compact" if chart.compact else "plot timeline",
    )


def _description(rows: Sequence[Row], drawn: int, seconds: float, what: str) -> str:
    by_state = counts(row.state for row in rows)
    states = ", ".join(f"{count} {state}" for state, count in by_state.items())
    text = f"{states}, over {duration_text(seconds)}"
    again = sum(len(row.bars) > 1 or row.restarts > 0 for row in rows)
    if again:
        text += f"; {again} started again"
    if drawn < len(rows):
        text += f"; {drawn} of {len(rows)} {what} are drawn"
    return text


class _Chart:
    """Draws one timeline.

    Args:
        rows: the rows. Many rows make it compact, with thin bars.
        begin: the time at the left edge, in seconds since the epoch.
        end: the time at the right edge.
    """

    def __init__(self, rows: Sequence[Row], begin: float, end: float) -> None:
        self.rows = rows
        self.begin = begin
        self.seconds = max(end - begin, 1e-3)
        self.compact = len(rows) > MANY
        if self.compact:
            self.step = max(1.5, min(12.0, _COMPACT / len(rows)))
            self.right = 24.0
            labels = {row.group or row.label for row in rows}
            number_width = 5
        else:
            notes = [text_width(_note_text(row)) for row in rows if row.bars]
            self.step = _ROW
            self.right = min(_MAX_RIGHT, max(notes, default=0.0) + 12)
            labels = {row.label for row in rows}
            number_width = 0
        longest = max(min(len(label), _MAX_LABEL) for label in labels)
        self.left = text_width("m" * (longest + number_width)) + 14
        self.height = _TOP + len(rows) * self.step + _BOTTOM

    def x(self, moment: float) -> float:
        """Return the x coordinate of a point in time, in px."""
        return self.left + (moment - self.begin) / self.seconds * (_WIDTH - self.left - self.right)

    def parts(self) -> list[Markup]:
        """Return all parts of the picture, from back to front."""
        labels = self._compact_labels() if self.compact else self._labels()
        rows = [self._row(index, row) for index, row in enumerate(self.rows)]
        return [*self._grid(), *labels, *rows]

    def _grid(self) -> list[Markup]:
        bottom = self.height - _BOTTOM
        parts = []
        for at, text in duration_ticks(self.seconds):
            x = self.x(self.begin + at)
            parts.append(
                element("path", d=f"M{number(x)} {number(_TOP)}V{number(bottom)}", cls="grid")
            )
            parts.append(
                element("text", text, x=x, y=bottom + 18, text_anchor="middle", cls="axis")
            )
        return parts

    def _labels(self) -> list[Markup]:
        parts = []
        for index, row in enumerate(self.rows):
            middle = _TOP + index * self.step + self.step / 2
            parts.append(self._label(_short(row.label), row.label, middle + 4))
        return parts

    def _compact_labels(self) -> list[Markup]:
        """Return a line above each group, and as many labels as there is room for."""
        parts = []
        labelled = -100.0  # the position of the label above
        for index, row in enumerate(self.rows):
            y = _TOP + index * self.step
            is_first = index == 0 or row.group != self.rows[index - 1].group
            if is_first and index:
                line = f"M0 {number(y)}H{number(_WIDTH - self.right)}"
                parts.append(element("path", d=line, cls="divide"))
            mark = row.label.rpartition("/")[2]
            is_round = mark.endswith("0") or not mark.isdigit()
            room = 12 if is_first else 44
            if y - labelled >= room and (is_first or is_round):
                text = f"{_short(row.group)}/{mark}" if row.group else _short(row.label)
                parts.append(self._label(text, row.label, y + max(self.step / 2 + 4, 9)))
                labelled = y
        return parts

    def _label(self, text: str, whole: str, y: float) -> Markup:
        title = [element("title", whole)] if text != whole else []
        return element("text", *title, text, x=self.left - 10, y=y, text_anchor="end", cls="label")

    def _row(self, index: int, row: Row) -> Markup:
        top = _TOP + index * self.step
        size = _BAR
        if self.compact:
            size = self.step - min(1.0, self.step * 0.1)
        y = top + (self.step - size) / 2
        parts = []
        if row.waited is not None and row.bars:
            middle = number(top + self.step / 2)
            line = f"M{number(self.x(row.waited))} {middle}H{number(self.x(row.bars[0].start))}"
            parts.append(element("path", d=line, cls="wait"))
        for place in range(len(row.bars)):
            parts += self._bar(row, place, y, size)
        if row.bars and not self.compact:
            parts.append(self._note(row, self.x(row.bars[-1].end), top + self.step / 2 + 4))
        return element("g", *parts)

    def _bar(self, row: Row, place: int, y: float, size: float) -> list[Markup]:
        bar = row.bars[place]
        x = self.x(bar.start)
        width = max(_NARROW, self.x(bar.end) - x)
        radius = None if self.compact else min(3.0, width / 2)
        cls = f"bar {bar.state.name}"
        if bar.state is AppState.RUNNING:
            cls += " going"
        if bar.interrupted:
            cls = "bar interrupted"
        attempt = ""
        if len(row.bars) > 1:
            attempt = f", attempt {place + 1} of {len(row.bars)}"
        title = element("title", f"{row.label}{attempt}: {bar.says}")
        parts = [element("rect", title, x=x, y=y, width=width, height=size, rx=radius, cls=cls)]
        if bar.state is AppState.FAILED and not bar.interrupted:
            # besides its colour, the bar of a failure has a high line at its end
            over = 1.0 if self.compact else 4.0
            wall = f"M{number(x + width)} {number(y - over)}V{number(y + size + over)}"
            parts.append(element("path", d=wall, cls="wall FAILED"))
        return parts

    def _note(self, row: Row, x: float, y: float) -> Markup:
        return element("text", _note_text(row), x=x + 9, y=y, cls=f"note {row.state.name}")


def _note_text(row: Row) -> str:
    text = f"{SIGNS[row.state]} {row.note}"
    if row.restarts:
        text += f" ↻ {row.restarts}"
    return text.replace("  ", " ").strip()


def _short(text: str) -> str:
    """Return a label that fits. Of a long one, the beginning and the end are kept."""
    if len(text) <= _MAX_LABEL:
        return text
    return f"{text[: _MAX_LABEL - 12]}…{text[-11:]}"
