"""The timeline: a row for each replica, a bar for each of its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from transload.specs import AppState
from transload_report.axes import duration_ticks
from transload_report.convert import Row, counts, thinned
from transload_report.states import SIGNS
from transload_report.svg import element, number, picture, text_width

__all__ = ["MANY", "timeline"]

MANY: Final = 40
"""From so many rows on a timeline is compact: thin bars, few labels."""

_WIDTH: Final = 1000.0
_TOP: Final = 8.0
_BOTTOM: Final = 30.0
_ROW: Final = 28.0
_BAR: Final = 16.0
_COMPACT: Final = 720.0
_MAX_LABEL: Final = 24
_MAX_RIGHT: Final = 300.0
_NARROW: Final = 1.5  # px: a bar that is shorter in time is drawn so wide


def timeline(rows: Sequence[Row], what: str, key: str = "timeline") -> Markup | None:
    """Draw rows; None if no times are known.

    Args:
        rows: what to draw; too many are thinned out.
        what: what a row is, for the description: ``replicas`` or ``runs``.
        key: tells this picture from the others of the page.
    """
    moments = [moment for row in rows for bar in row.bars for moment in (bar.start, bar.end)]
    moments += [row.waited for row in rows if row.waited is not None]
    if not any(row.bars for row in rows):
        return None
    drawn = thinned(rows)
    compact = len(drawn) > MANY
    step = max(1.5, min(12.0, _COMPACT / len(drawn))) if compact else _ROW
    chart = _Chart(drawn, min(moments), max(moments), compact, step)
    description = _description(rows, drawn, max(moments) - min(moments), what)
    cls = "plot timeline compact" if compact else "plot timeline"
    return picture(
        _WIDTH,
        chart.height,
        f"Timeline of {len(rows)} {what}",
        description,
        chart.parts(),
        key,
        cls,
    )


def _description(rows: Sequence[Row], drawn: Sequence[Row], seconds: float, what: str) -> str:
    from transload_report.words import duration_text

    states = ", ".join(
        f"{count} {state}" for state, count in counts(row.state for row in rows).items()
    )
    again = sum(len(row.bars) > 1 or row.restarts > 0 for row in rows)
    text = f"{states}, over {duration_text(seconds)}"
    text += f"; {again} started again" if again else ""
    return text + (
        f"; {len(drawn)} of {len(rows)} {what} are drawn" if len(drawn) < len(rows) else ""
    )


class _Chart:
    """Draws one timeline.

    Args:
        rows: what to draw.
        begin: left edge, seconds since the epoch.
        end: right edge.
        compact: thin bars.
        step: px from row to row.
    """

    def __init__(
        self, rows: Sequence[Row], begin: float, end: float, compact: bool, step: float
    ) -> None:
        self.rows, self.begin, self.compact, self.step = rows, begin, compact, step
        self.seconds = max(end - begin, 1e-3)
        labels = (
            {row.group or row.label for row in rows} if compact else {row.label for row in rows}
        )
        longest = max(min(len(label), _MAX_LABEL) for label in labels) + (5 if compact else 0)
        self.left = text_width("m" * longest) + 14
        notes = [text_width(_note_text(row)) for row in rows if row.bars]
        self.right = 24.0 if compact else min(_MAX_RIGHT, max(notes, default=0.0) + 12)
        self.height = _TOP + len(rows) * step + _BOTTOM

    def x(self, moment: float) -> float:
        """Return where a moment is."""
        return self.left + (moment - self.begin) / self.seconds * (_WIDTH - self.left - self.right)

    def parts(self) -> list[Markup]:
        """Return everything that is drawn, from back to front."""
        return [
            *self._grid(),
            *self._labels(),
            *(self._row(index, row) for index, row in enumerate(self.rows)),
        ]

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
        if not self.compact:
            return [
                self._label(
                    _short(row.label), row.label, _TOP + index * self.step + self.step / 2 + 4
                )
                for index, row in enumerate(self.rows)
            ]
        parts = []
        near = -100.0
        for index, row in enumerate(self.rows):
            first = index == 0 or row.group != self.rows[index - 1].group
            y = _TOP + index * self.step
            if first and index:
                line = f"M0 {number(y)}H{number(_WIDTH - self.right)}"
                parts.append(element("path", d=line, cls="divide"))
            mark = row.label.rpartition("/")[2]
            if y - near >= (12 if first else 44) and (
                first or mark.endswith("0") or not mark.isdigit()
            ):
                text = f"{_short(row.group)}/{mark}" if row.group else _short(row.label)
                parts.append(self._label(text, row.label, y + max(self.step / 2 + 4, 9)))
                near = y
        return parts

    def _label(self, text: str, whole: str, y: float) -> Markup:
        title = [element("title", whole)] if text != whole else []
        return element("text", *title, text, x=self.left - 10, y=y, text_anchor="end", cls="label")

    def _row(self, index: int, row: Row) -> Markup:
        top = _TOP + index * self.step
        size = self.step - min(1.0, self.step * 0.1) if self.compact else _BAR
        y = top + (self.step - size) / 2
        parts = []
        if row.waited is not None and row.bars:
            middle = number(top + self.step / 2)
            line = f"M{number(self.x(row.waited))} {middle}H{number(self.x(row.bars[0].start))}"
            parts.append(element("path", d=line, cls="wait"))
        for place, bar in enumerate(row.bars):
            parts += self._bar(row, place, y, size)
            if bar is row.bars[-1] and not self.compact:
                parts.append(self._note(row, self.x(bar.end), top + self.step / 2 + 4))
        return element("g", *parts)

    def _bar(self, row: Row, place: int, y: float, size: float) -> list[Markup]:
        bar = row.bars[place]
        x, width = self.x(bar.start), max(_NARROW, self.x(bar.end) - self.x(bar.start))
        attempt = f", attempt {place + 1} of {len(row.bars)}" if len(row.bars) > 1 else ""
        radius = None if self.compact else min(3.0, width / 2)
        cls = f"bar {bar.state.name}" + (" going" if bar.state is AppState.RUNNING else "")
        title = element("title", f"{row.label}{attempt}: {bar.says}")
        parts = [element("rect", title, x=x, y=y, width=width, height=size, rx=radius, cls=cls)]
        if bar.state is AppState.FAILED:
            # a mark besides the colour: the bar of a failure ends in a wall that stands out of the
            # row
            over = 1.0 if self.compact else 4.0
            end = number(x + width)
            parts.append(
                element(
                    "path",
                    d=f"M{end} {number(y - over)}V{number(y + size + over)}",
                    cls="wall FAILED",
                )
            )
        return parts

    def _note(self, row: Row, x: float, y: float) -> Markup:
        return element("text", _note_text(row), x=x + 9, y=y, cls=f"note {row.state.name}")


def _note_text(row: Row) -> str:
    again = f" ↻ {row.restarts}" if row.restarts else ""
    return f"{SIGNS[row.state]} {row.note}{again}".replace("  ", " ").strip()


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 12]}…{text[-11:]}"
