"""Draw how far a job is, with a bar that has its interruptions, and a curve over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from markupsafe import Markup

from transload.pipelines import interruptions_of
from transload.specs import AppDef, AppStatus, Progress, ReplicaAttempt
from transload_report.axes import duration_ticks, is_drawable
from transload_report.chart import Frame
from transload_report.convert import Span, is_interrupted, replicas_of
from transload_report.svg import element, number, picture
from transload_report.words import duration_text, shown

__all__ = [
    "ProgressShown",
    "causes_text",
    "interruption_lines",
    "progress_shown",
    "short_progress",
]

_WIDTH: Final = 1000.0
_BAR_HEIGHT: Final = 44.0
_BAR_TOP: Final = 12.0
_BAR_SIZE: Final = 20.0
_CURVE_HEIGHT: Final = 260.0
_MAX_MARKS: Final = 200
"""The largest number of interruptions in a picture."""
_MAX_LINES: Final = 50
"""The largest number of interruptions in a list, which has the last ones."""
_LONGEST: Final = 10.0
"""The expected end is drawn if it is at most so many times as far away as the start."""


@dataclass(frozen=True, slots=True)
class ProgressShown:
    """What a page shows of a job's progress.

    Args:
        words: how far it is, in one line.
        bar: a bar, or None if the job does not say which part of its work is done.
        curve: progress over time, or None if too little of it is known.
        notes: what a reader should know, such as that it will not end within its limit.
    """

    words: str
    bar: Markup | None
    curve: Markup | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Point:
    """A moment at which it is known how far a job was.

    Args:
        after: seconds since the job's first start.
        done: percent of the work, or steps.
        says: a description in one line, or ``""`` if it has no mark of its own.
        interrupted: whether the job was interrupted there.
    """

    after: float
    done: float
    says: str = ""
    interrupted: bool = False


def progress_shown(status: AppStatus, span: Span, written: float) -> ProgressShown | None:
    """Return what a page shows of a job's progress, or None if the job reports none.

    Args:
        status: the status of the job.
        span: from its first start to its end.
        written: when the status was read, in seconds since the epoch.
    """
    if status.progress is None:
        return None
    progress = _drawable(status.progress)
    status = replace(status, progress=progress)
    notes = [status.late_for_limit(written)]
    if status.is_stalled:
        notes.insert(0, "It has stalled.")
    points = _points(status, progress, span, written)
    return ProgressShown(
        words=_words(status, progress, written),
        bar=_bar(status, progress, points, written),
        curve=_curve(status, progress, points, span, written),
        notes=[f"{note[0].upper()}{note[1:]}" for note in notes if note],
    )


def _drawable(progress: Progress) -> Progress:
    """Return the progress without numbers that have no place in a picture."""
    kept: dict[str, float | None] = {}
    for name in ("fraction", "step", "total", "eta_seconds", "at"):
        value = getattr(progress, name)
        kept[name] = value if value is not None and is_drawable(value) else None
    if kept["total"] is not None and kept["total"] <= 0:
        kept["total"] = None
    history = [(at, done) for at, done in progress.history if is_drawable(done)]
    return Progress(**kept, text=progress.text, history=history)


def short_progress(status: AppStatus, written: float) -> str:
    """Return ``83 %, 1 h 53 min left``, or the step, or ``""`` if the job reports neither."""
    if status.progress is None:
        return ""
    progress = _drawable(status.progress)
    parts = [progress.percent_text() or _step_text(progress)]
    if not status.is_terminal():
        parts.append(progress.left_text(written))
    return ", ".join(part for part in parts if part)


def causes_text(status: AppStatus) -> str:
    """Return ``2 preempted, 1 segment``, for as many interruptions as their scheduler keeps."""
    causes = Counter(each.cause for each in interruptions_of(status) if each.cause)
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def interruption_lines(status: AppStatus, app: AppDef | None) -> list[str]:
    """Return a description of each of the last interruptions, oldest first.

    Args:
        status: the status of the job.
        app: its definition, which says how many are allowed, or None if that is not known.
    """
    allowed = {}
    if app is not None:
        allowed = {role.name: role.interruptions_allowed for role in app.roles}
    found = interruptions_of(status)[-_MAX_LINES:]
    return [each.in_words(allowed.get(each.role)) for each in found]


# -- words


def _words(status: AppStatus, progress: Progress, written: float) -> str:
    parts = [progress.percent_text(), _step_text(progress)]
    if not status.is_terminal():
        parts.append(progress.left_text(written))
    parts.append(shown(progress.text or ""))
    return " · ".join(part for part in parts if part)


def _step_text(progress: Progress) -> str:
    if progress.step is None:
        return ""
    if progress.total is None:
        return f"step {progress.step:,g}"
    return f"step {progress.step:,g} of {progress.total:,g}"


# -- what is known


def _done(progress: Progress) -> float | None:
    """Return the part of the work that is done, 0 to 1, or None if that is not known."""
    if progress.fraction is not None:
        return min(1.0, max(0.0, progress.fraction))
    if progress.step is None or not progress.total:
        return None
    return min(1.0, max(0.0, progress.step / progress.total))


def _scale(progress: Progress) -> float | None:
    """Return what a step is on the axis, or None if it has no place.

    It is percent, or 1 without a total.
    """
    if progress.step is None:
        return None
    if progress.total:
        return 100.0 / progress.total
    if progress.fraction is None:
        return 1.0
    return None


def _points(status: AppStatus, progress: Progress, span: Span, written: float) -> list[_Point]:
    """Return all that is known of the progress, by time."""
    if span.start is None:
        return []
    scale = _scale(progress)
    points = _history(progress, span.start)
    for attempt in _reported_attempts(status):
        if scale is None or attempt.step is None or attempt.end_time is None:
            continue
        points.append(
            _Point(
                after=attempt.end_time - span.start,
                done=attempt.step * scale,
                says=_attempt_text(attempt),
                interrupted=is_interrupted(attempt),
            )
        )
    part = _done(progress)
    done = None
    if part is not None:
        done = part * 100.0
    elif progress.step is not None:
        done = progress.step
    if done is not None:
        at = progress.at or written
        points.append(_Point(at - span.start, done, _words(status, progress, at)))
    points.sort(key=lambda point: point.after)
    return [
        point
        for point in points
        if point.after >= 0 and is_drawable(point.after) and is_drawable(point.done)
    ]


def _history(progress: Progress, start: float) -> list[_Point]:
    """Return what the job said earlier of its progress."""
    if progress.fraction is None and progress.step is None:
        return []
    scale = 1.0
    if progress.fraction is not None:
        scale = 100.0
    return [_Point(at - start, done * scale) for at, done in progress.history]


def _reported_attempts(status: AppStatus) -> list[ReplicaAttempt]:
    """Return the earlier attempts of the replica that reported most steps, oldest first."""
    by_replica = [
        [attempt for attempt in replica.earlier if attempt.step is not None]
        for replica in replicas_of(status)
    ]
    return max(by_replica, key=len, default=[])[-_MAX_MARKS:]


def _attempt_text(attempt: ReplicaAttempt) -> str:
    cause = "failed"
    if is_interrupted(attempt):
        cause = f"interrupted ({attempt.cause})"
    return f"{cause} at step {attempt.step:,g}"


# -- the bar


def _bar(
    status: AppStatus, progress: Progress, points: Sequence[_Point], written: float
) -> Markup | None:
    part = _done(progress)
    if part is None:
        return None
    filled = part * _WIDTH
    radius = _BAR_SIZE / 2
    box = {"y": _BAR_TOP, "height": _BAR_SIZE, "rx": radius}
    parts = [element("rect", x=0.0, width=_WIDTH, cls="track", **box)]
    if filled > 0:
        width = max(filled, _BAR_SIZE)
        parts.append(element("rect", x=0.0, width=width, cls=f"bar {status.state.name}", **box))
    for point in points:
        if point.interrupted and _scale(progress) is not None:
            parts.append(_bar_mark(point))
    return picture(
        width=_WIDTH,
        height=_BAR_HEIGHT,
        title="Progress",
        description=_words(status, progress, written),
        parts=parts,
        key="progress-bar",
        cls="plot across",
    )


def _bar_mark(point: _Point) -> Markup:
    """Mark on the bar how far the job was at an interruption."""
    x = min(100.0, point.done) / 100.0 * _WIDTH
    path = f"M{number(x)} {number(_BAR_TOP - 6)}v{number(_BAR_SIZE + 12)}"
    return element("path", element("title", point.says), d=path, cls="interruption")


# -- the curve


def _curve(
    status: AppStatus, progress: Progress, points: Sequence[_Point], span: Span, written: float
) -> Markup | None:
    """Draw the known points, joined, or return None if the start and the end are all there is."""
    end = _expected_end(status, progress, points, written)
    if len(points) + (end is not None) < 2 or span.start is None:
        return None
    drawn = [*points]
    if end is not None:
        drawn.append(end)
    is_part = _done(progress) is not None
    ys = [0.0, *(point.done for point in drawn)]
    if is_part:
        ys.append(100.0)
    limit = _limit_after(status, span, drawn[-1].after)
    last = max(drawn[-1].after, limit or 0.0)
    frame = Frame(
        width=_WIDTH,
        height=_CURVE_HEIGHT,
        xs=[0.0, last],
        ys=ys,
        x_name="time since the first start",
        y_name="percent of the work" if is_part else "step",
        log_y=False,
        x_texts=dict(duration_ticks(last)),
    )
    parts = frame.parts()
    parts.append(_joined(frame, points, "line"))
    if end is not None:
        parts.append(_joined(frame, [points[-1], end], "line ahead"))
    if limit is not None:
        parts.append(_limit_line(frame, limit))
    parts += [_point_mark(frame, point) for point in points if point.says]
    return picture(
        width=_WIDTH,
        height=_CURVE_HEIGHT,
        title="Progress over time",
        description=_curve_words(points, end),
        parts=parts,
        key="progress-curve",
    )


def _expected_end(
    status: AppStatus, progress: Progress, points: Sequence[_Point], written: float
) -> _Point | None:
    """Return when all of the work will be done at the present rate, or None if that is unknown."""
    left = progress.left(written)
    if status.is_terminal() or left is None or not points or _done(progress) is None:
        return None
    now = points[-1]
    after = now.after + max(0.0, written - (progress.at or written)) + left
    if after > _LONGEST * max(now.after, 1.0):
        return None
    return _Point(after, 100.0, f"expected end, in {duration_text(max(1.0, left))}")


def _limit_after(status: AppStatus, span: Span, last: float) -> float | None:
    """Return when the time limit passes, in seconds since the start, or None if it is far away."""
    if status.ends_by is None or span.start is None or status.is_terminal():
        return None
    after = status.ends_by - span.start
    return after if 0 < after <= 2 * last else None


def _joined(frame: Frame, points: Sequence[_Point], cls: str) -> Markup:
    corners = [f"{number(frame.x(each.after))} {number(frame.y(each.done))}" for each in points]
    return element("path", d="M" + "L".join(corners), cls=cls)


def _point_mark(frame: Frame, point: _Point) -> Markup:
    x = frame.x(point.after)
    y = frame.y(point.done)
    title = element("title", point.says)
    if not point.interrupted:
        return element("circle", title, cx=x, cy=y, r=4.0, cls="dot")
    # besides its colour, an interruption has another shape
    path = f"M{number(x)} {number(y - 6)}l6 6l-6 6l-6 -6z"
    return element("path", title, d=path, cls="diamond")


def _limit_line(frame: Frame, after: float) -> Markup:
    x = frame.x(after)
    title = element("title", f"limit of time, {duration_text(after)} after the start")
    path = f"M{number(x)} {number(frame.y(frame.y_range[0]))}V{number(frame.y(frame.y_range[1]))}"
    return element("path", title, d=path, cls="limit FAILED")


def _curve_words(points: Sequence[_Point], end: _Point | None) -> str:
    words = []
    interruptions = sum(point.interrupted for point in points)
    if interruptions:
        words.append(f"{interruptions} interruption{'s' * (interruptions > 1)}")
    words.append(
        f"last report {points[-1].says}, {duration_text(points[-1].after)} after the start"
    )
    if end is not None:
        words.append(end.says)
    return "; ".join(words)
