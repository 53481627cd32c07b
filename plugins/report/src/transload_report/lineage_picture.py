"""A lineage as a picture."""

from __future__ import annotations

from collections.abc import Iterable
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
    """Draw a lineage as one self-contained SVG: sources on the left, what came of them on the
    right.

    Every run is a box with its artifacts; the run that was asked for stands out; a link carries the
    name of the artifact that was used. Long texts are cut, and shown whole when pointed at.

    Args:
        lineage: as ``TrackerBase.lineage`` returns it.
        style: CSS in the place of the built-in one; ``""``: none, for a page whose own style sheet
            knows the classes ``box``, ``self``, ``link``, ``tip``, ``paper``, ``halo``, ``id``,
            ``small`` and ``what``.

    Returns:
        The SVG text, in UTF-8 when written to a file.
    """
    columns = _columns(lineage)
    boxes: dict[str, tuple[float, float, float]] = {}
    heights = {run: _height(lineage, run) for column in columns for run in column}
    tallest = max(sum(heights[run] + _GAP_Y for run in column) - _GAP_Y for column in columns)
    for index, column in enumerate(columns):
        x = _MARGIN_X + index * (_BOX_WIDTH + _GAP_X)
        y = _MARGIN + (tallest - (sum(heights[run] + _GAP_Y for run in column) - _GAP_Y)) / 2
        for run in column:
            boxes[run] = (x, y, heights[run])
            y += heights[run] + _GAP_Y
    width = 2 * _MARGIN_X + len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    links = {(edge.source_run_id, edge.run_id) for edge in lineage.edges}
    lanes = sum(_is_long(source, child, boxes) for source, child in links)
    height = 2 * _MARGIN + tallest + lanes * _LANE
    size = f'width="{width:g}" height="{height:g}"'
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height:g}" '
            'role="img">'
        ),
        f"<title>Lineage of {_text(lineage.run_id)}</title>",
        *([f"<style>{_STYLE if style is None else style}</style>"] if style != "" else []),
        _ARROW,
        f'<rect class="paper" {size}/>',
        *_links(lineage.edges, boxes, _MARGIN + tallest + _LANE),
        *(_box(lineage, run, *boxes[run]) for column in columns for run in column),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _columns(lineage: Lineage) -> list[list[str]]:
    """Return the runs in columns: each right of all its sources, as far as cycles allow."""
    runs = list(dict.fromkeys([*reversed(lineage.parents), lineage.run_id, *lineage.descendants]))
    runs += [
        run
        for edge in lineage.edges
        for run in (edge.source_run_id, edge.run_id)
        if run not in runs
    ]
    runs = list(dict.fromkeys(runs))
    links = dict.fromkeys((edge.source_run_id, edge.run_id) for edge in lineage.edges)
    level = dict.fromkeys(runs, 0)
    waiting = {run: sum(child == run and source != run for source, child in links) for run in runs}
    children: dict[str, list[str]] = {run: [] for run in runs}
    for source, child in links:
        if source != child:
            children[source].append(child)
    while waiting:
        # with a cycle nothing is free: the one that waits for least begins
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
    """Order each column by the places of its sources in the column before, so that fewer links
    cross.
    """
    place: dict[str, float] = {}
    for column in columns:
        sources = {
            run: [place[source] for source, child in links if child == run and source in place]
            for run in column
        }
        column.sort(key=lambda run: sum(sources[run]) / len(sources[run]) if sources[run] else 0.0)
        for index, run in enumerate(column):
            place[run] = index - (len(column) - 1) / 2
    return columns


def _height(lineage: Lineage, run: str) -> float:
    return (
        _TITLE
        + _LINE * len(_artifact_lines(lineage, run))
        + (6 if lineage.artifacts.get(run) else 0)
    )


def _artifact_lines(lineage: Lineage, run: str) -> list[tuple[str, str]]:
    """Return line and tooltip of each artifact shown."""
    artifacts = list(lineage.artifacts.get(run, {}).values())
    lines = [
        (f"▪ {artifact.name}", f"{artifact.name}: {masked_url(artifact.path)}")
        for artifact in artifacts[:_MAX_ARTIFACTS]
    ]
    more = artifacts[_MAX_ARTIFACTS:]
    if more:
        lines.append((f"… {len(more)} more", ", ".join(artifact.name for artifact in more)))
    return lines


def _box(lineage: Lineage, run: str, x: float, y: float, height: float) -> str:
    kind = "box self" if run == lineage.run_id else "box"
    drawn = (
        f"<g><title>{_text(run)}</title>"
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{_BOX_WIDTH}" height="{height:g}" '
        'rx="5"/>'
        f'<text class="id" x="{x + 9:g}" y="{y + 17:g}">{_text(_cut(run, tail=True))}</text></g>'
    )
    for index, (line, tooltip) in enumerate(_artifact_lines(lineage, run)):
        at = y + _TITLE + 10 + index * _LINE
        drawn += (
            f'<g><title>{_text(tooltip)}</title><text class="small" x="{x + 11:g}" y="{at:g}">'
            f"{_text(_cut(line))}</text></g>"
        )
    return drawn


def _links(
    edges: Iterable[LineageEdge], boxes: dict[str, tuple[float, float, float]], bottom: float
) -> list[str]:
    """Draw the links: straight to the next column, else through a lane of its own below all
    boxes.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        names.setdefault((edge.source_run_id, edge.run_id), []).extend(
            [edge.artifact_name] if edge.artifact_name else []
        )
    drawn = []
    for (source, child), used in names.items():
        x1, y1 = boxes[source][0] + _BOX_WIDTH, boxes[source][1] + _TITLE / 2
        x2, y2 = boxes[child][0], boxes[child][1] + _TITLE / 2
        if _is_long(source, child, boxes):
            drawn.append(_detour(x1, y1, x2, y2, bottom, ", ".join(used)))
            bottom += _LANE
        else:
            middle = (x1 + x2) / 2
            path = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
            drawn.append(_link(path, middle, (y1 + y2) / 2, ", ".join(used)))
    return drawn


def _is_long(source: str, child: str, boxes: dict[str, tuple[float, float, float]]) -> bool:
    return abs(boxes[child][0] - boxes[source][0] - _BOX_WIDTH - _GAP_X) > 1


def _detour(x1: float, y1: float, x2: float, y2: float, lane: float, label: str) -> str:
    out, into = (x1 + 2 * _BEND, x2 - 2 * _BEND) if x2 > x1 else (x1, x2)
    path = (
        f"M{x1:g} {y1:g}C{x1 + _BEND:g} {y1:g} {x1 + _BEND:g} {lane:g} {out:g} {lane:g}L{into:g} "
        f"{lane:g}"
        f"C{x2 - _BEND:g} {lane:g} {x2 - _BEND:g} {y2:g} {x2:g} {y2:g}"
    )
    return _link(path, (out + into) / 2, lane, label)


def _link(path: str, x: float, y: float, label: str) -> str:
    drawn = f'<path class="link" d="{path}" marker-end="url(#arrow)"/>'
    if label:
        drawn += (
            f'<g><title>{_text(label)}</title><text class="what halo" text-anchor="middle" '
            f'x="{x:g}" y="{y - 4:g}">'
            f"{_text(_cut(label, 17))}</text></g>"
        )
    return drawn


def _cut(text: str, limit: int = _CHARACTERS, tail: bool = False) -> str:
    """Shorten a text; of a run id both ends matter: the scheduler, and what tells it from the
    others.
    """
    if len(text) <= limit:
        return text
    return (
        text[: limit // 3] + "…" + text[-(limit - limit // 3 - 1) :]
        if tail
        else text[: limit - 1] + "…"
    )


def _text(text: str) -> str:
    """Escape for XML, which has no way to hold most control characters."""
    shown = "".join(c if c.isprintable() or c == " " else f"\\x{ord(c):02x}" for c in text)
    return escape(shown)
