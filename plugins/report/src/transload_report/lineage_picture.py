"""Draw a lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from transload.specs import masked_url
from transload.tracker import Lineage, LineageEdge

__all__ = ["lineage_svg"]

_BOX_WIDTH: Final = 230
_LINE: Final = 16
_TITLE: Final = 26
_GAP_X: Final = 110
_GAP_Y: Final = 22
_MARGIN: Final = 24
_MARGIN_X: Final = 44
_CHARACTERS: Final = 27
_MAX_ARTIFACTS: Final = 6
_LANE: Final = 18
_BEND: Final = 50

_STYLE: Final = (
    "text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2933}"
    ".id{font-weight:600}.small{font-size:11px;fill:#52606d}.what{font-size:11px;fill:#334e68}"
    ".box{fill:#fff;stroke:#829ab1;stroke-width:1.2}.self{fill:#e0f0ff;stroke:#0967d2;stroke-width:2.2}"
    ".link{fill:none;stroke:#829ab1;stroke-width:1.4}.tip{fill:#829ab1}.paper{fill:#f8fafc}"
    ".halo{stroke:#f8fafc;stroke-width:4;paint-order:stroke}"
)
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def lineage_svg(lineage: Lineage, *, style: str | None = None) -> str:
    """Draw a lineage as one self-contained SVG, with sources to the left of their children.

    Every run is a box with its artifacts, and the requested run is highlighted. A link has the name
    of the artifact that was used. Long texts are cut, and a tooltip shows them complete.

    Args:
        lineage: the lineage, for example from ``TrackerBase.lineage``.
        style: CSS in place of the built-in one. ``""`` is for a page whose own style sheet has the
            classes ``box``, ``self``, ``link``, ``tip``, ``paper``, ``halo``, ``id``, ``small`` and
            ``what``.

    Returns:
        The SVG text, in UTF-8 when written to a file.
    """
    columns = _columns(lineage)
    tallest = max(_column_height(lineage, column) for column in columns)
    boxes = _boxes(lineage, columns, tallest)
    links = _named_links(lineage.edges)
    lanes = sum(_is_long(boxes[source], boxes[child]) for source, child in links)
    width = 2 * _MARGIN_X + len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + tallest + lanes * _LANE
    size = f'width="{width:g}" height="{height:g}"'
    view = f'viewBox="0 0 {width:g} {height:g}"'
    if style is None:
        style = _STYLE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img">',
        f"<title>Lineage of {_text(lineage.run_id)}</title>",
    ]
    if style:
        parts.append(f"<style>{style}</style>")
    parts += [_ARROW, f'<rect class="paper" {size}/>']
    parts += _drawn_links(links, boxes, _MARGIN + tallest + _LANE)
    for column in columns:
        parts += [_drawn_box(lineage, run, boxes[run]) for run in column]
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Box:
    """The upper left corner and the height of a run's box, in px."""

    x: float
    y: float
    height: float


def _boxes(lineage: Lineage, columns: Sequence[Sequence[str]], tallest: float) -> dict[str, _Box]:
    """Return the box of each run. The columns are side by side, and each is centred vertically."""
    boxes = {}
    for index, column in enumerate(columns):
        x = _MARGIN_X + index * (_BOX_WIDTH + _GAP_X)
        y = _MARGIN + (tallest - _column_height(lineage, column)) / 2
        for run in column:
            box = _Box(x, y, _height(lineage, run))
            boxes[run] = box
            y += box.height + _GAP_Y
    return boxes


def _column_height(lineage: Lineage, column: Sequence[str]) -> float:
    heights = [_height(lineage, run) for run in column]
    return sum(heights) + _GAP_Y * (len(column) - 1)


def _columns(lineage: Lineage) -> list[list[str]]:
    """Return the runs in columns, each to the right of its sources, as far as cycles allow."""
    named = [*reversed(lineage.parents), lineage.run_id, *lineage.descendants]
    for edge in lineage.edges:
        named += [edge.source_run_id, edge.run_id]
    runs = list(dict.fromkeys(named))
    links = dict.fromkeys((edge.source_run_id, edge.run_id) for edge in lineage.edges)
    children: dict[str, list[str]] = {run: [] for run in runs}
    waiting = dict.fromkeys(runs, 0)  # run → the number of its sources without a column
    for source, child in links:
        if source != child:
            children[source].append(child)
            waiting[child] += 1
    level = dict.fromkeys(runs, 0)
    while waiting:
        # in a cycle every run waits for another, so the one with the fewest sources is first
        run = min(waiting, key=lambda name: waiting[name])
        del waiting[run]
        for child in children[run]:
            if child in waiting:
                waiting[child] -= 1
                level[child] = max(level[child], level[run] + 1)
    _pull_right(runs, children, level)
    columns: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for run in runs:
        columns[level[run]].append(run)
    return _untangled([column for column in columns if column], list(links))


def _pull_right(runs: list[str], children: dict[str, list[str]], level: dict[str, int]) -> None:
    """Move each run next to its nearest child, so that links stay short."""
    for run in sorted(runs, key=lambda name: -level[name]):
        later = [level[child] for child in children[run] if level[child] > level[run]]
        if later:
            level[run] = min(later) - 1


def _untangled(columns: list[list[str]], links: list[tuple[str, str]]) -> list[list[str]]:
    """Order each column by the places of its sources, so that fewer links cross."""
    place: dict[str, float] = {}
    for column in columns:
        middles = {run: _middle_of_sources(run, links, place) for run in column}
        column.sort(key=middles.__getitem__)
        for index, run in enumerate(column):
            place[run] = index - (len(column) - 1) / 2
    return columns


def _middle_of_sources(
    run: str, links: Sequence[tuple[str, str]], place: Mapping[str, float]
) -> float:
    """Return the mean place of the sources that have one, or 0 if none has."""
    places = [place[source] for source, child in links if child == run and source in place]
    if not places:
        return 0.0
    return sum(places) / len(places)


def _height(lineage: Lineage, run: str) -> float:
    lines = _artifact_lines(lineage, run)
    if not lines:
        return _TITLE
    return _TITLE + _LINE * len(lines) + 6


def _drawn_box(lineage: Lineage, run: str, box: _Box) -> str:
    kind = "box self" if run == lineage.run_id else "box"
    x = box.x
    y = box.y
    drawn = (
        f"<g><title>{_text(run)}</title>"
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{_BOX_WIDTH}" height="{box.height:g}" '
        'rx="5"/>'
        f'<text class="id" x="{x + 9:g}" y="{y + 17:g}">{_text(_cut_middle(run))}</text></g>'
    )
    for index, (line, tooltip) in enumerate(_artifact_lines(lineage, run)):
        at = y + _TITLE + 10 + index * _LINE
        drawn += (
            f'<g><title>{_text(tooltip)}</title><text class="small" x="{x + 11:g}" y="{at:g}">'
            f"{_text(_cut(line))}</text></g>"
        )
    return drawn


def _named_links(edges: Iterable[LineageEdge]) -> dict[tuple[str, str], str]:
    """Return ``(source, child)`` → the names of the artifacts that were used."""
    names: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        used = names.setdefault((edge.source_run_id, edge.run_id), [])
        if edge.artifact_name:
            used.append(edge.artifact_name)
    return {link: ", ".join(used) for link, used in names.items()}


def _drawn_links(
    links: Mapping[tuple[str, str], str], boxes: Mapping[str, _Box], bottom: float
) -> list[str]:
    """Draw direct links to the next column, and the others in lanes below all boxes.

    Args:
        links: the label of each ``(source, child)``.
        boxes: the box of each run.
        bottom: where the first lane is.
    """
    drawn = []
    lane = bottom
    for (source, child), label in links.items():
        x1 = boxes[source].x + _BOX_WIDTH
        y1 = boxes[source].y + _TITLE / 2
        x2 = boxes[child].x
        y2 = boxes[child].y + _TITLE / 2
        if _is_long(boxes[source], boxes[child]):
            drawn.append(_detour(x1, y1, x2, y2, lane=lane, label=label))
            lane += _LANE
        else:
            middle = (x1 + x2) / 2
            path = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
            drawn.append(_link(path, x=middle, y=(y1 + y2) / 2, label=label))
    return drawn


def _artifact_lines(lineage: Lineage, run: str) -> list[tuple[str, str]]:
    """Return the line and the tooltip of each artifact in the picture."""
    artifacts = list(lineage.artifacts.get(run, {}).values())
    lines = [
        (f"▪ {artifact.name}", f"{artifact.name}: {masked_url(artifact.path)}")
        for artifact in artifacts[:_MAX_ARTIFACTS]
    ]
    more = artifacts[_MAX_ARTIFACTS:]
    if more:
        lines.append((f"… {len(more)} more", ", ".join(artifact.name for artifact in more)))
    return lines


def _is_long(source: _Box, child: _Box) -> bool:
    """Tell whether a link does not lead to the next column to the right."""
    return abs(child.x - source.x - _BOX_WIDTH - _GAP_X) > 1


def _detour(x1: float, y1: float, x2: float, y2: float, *, lane: float, label: str) -> str:
    begin = x1
    end = x2
    if x2 > x1:
        begin += 2 * _BEND
        end -= 2 * _BEND
    right = x1 + _BEND
    left = x2 - _BEND
    path = (
        f"M{x1:g} {y1:g}"
        f"C{right:g} {y1:g} {right:g} {lane:g} {begin:g} {lane:g}"
        f"L{end:g} {lane:g}"
        f"C{left:g} {lane:g} {left:g} {y2:g} {x2:g} {y2:g}"
    )
    return _link(path, x=(begin + end) / 2, y=lane, label=label)


def _link(path: str, x: float, y: float, label: str) -> str:
    drawn = f'<path class="link" d="{path}" marker-end="url(#arrow)"/>'
    if label:
        drawn += (
            f'<g><title>{_text(label)}</title><text class="what halo" text-anchor="middle" '
            f'x="{x:g}" y="{y - 4:g}">'
            f"{_text(_cut(label, 17))}</text></g>"
        )
    return drawn


def _cut(text: str, limit: int = _CHARACTERS) -> str:
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def _cut_middle(run: str) -> str:
    """Shorten a run id in its middle, to keep the scheduler and the distinguishing end."""
    if len(run) <= _CHARACTERS:
        return run
    head = _CHARACTERS // 3
    tail = _CHARACTERS - head - 1
    return f"{run[:head]}…{run[-tail:]}"


def _text(text: str) -> str:
    """Escape a text for XML, and replace the control characters that XML does not allow."""
    return escape("".join(_printable(char) for char in text))


def _printable(char: str) -> str:
    if char.isprintable() or char == " ":
        return char
    return f"\\x{ord(char):02x}"
