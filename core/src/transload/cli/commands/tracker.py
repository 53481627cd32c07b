"""The command ``transload tracker``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from transload.cli.options import json_option
from transload.cli.output import emit, emit_json, emit_table, pairs_text, value_text, visible
from transload.errors import ConfigError, SpecError
from transload.runner import load_settings
from transload.runtime.tracking.format import told_as_tracking_error
from transload.specs import nearest
from transload.specs.checks import closest
from transload.tracker import FsspecTracker, TrackerBase, build_trackers

T = TypeVar("T")


@click.group()
@click.option(
    "--tracker",
    "name",
    metavar="NAME",
    help="Name of a configured tracker; default: the first.",
)
@click.option(
    "--base",
    metavar="URL",
    help="Folder or URL of an fsspec tracker, in place of a configured one.",
)
@click.pass_context
def tracker(ctx: click.Context, name: str | None, base: str | None) -> None:
    """Show runs in the configured trackers. The id of a run is usually the handle of a job."""
    if name and base:
        raise click.UsageError("--tracker and --base exclude each other", ctx)
    ctx.obj = (name, base)


def _open(ctx: click.Context) -> TrackerBase:
    """Return the chosen tracker."""
    name, base = ctx.obj
    if base:
        with told_as_tracking_error(f"--base={base!r}:"):
            return FsspecTracker(None, base)
    configured = load_settings().trackers()
    if not configured:
        raise ConfigError(
            "no tracker is configured: set [tracker.NAME] in transload.toml, or give --base URL"
        )
    if name and name not in configured:
        raise ConfigError(f"tracker {name!r} is not configured: {nearest(name, list(configured))}")
    chosen = name or next(iter(configured))
    (tracker,) = build_trackers({chosen: configured[chosen]})
    return tracker


def _ask(ctx: click.Context, question: Callable[[TrackerBase], T]) -> T:
    """Return the answer of the chosen tracker."""
    tracker = _open(ctx)
    with told_as_tracking_error(_which(*ctx.obj)):
        return question(tracker)


def _which(name: str | None, base: str | None) -> str:
    """Return the name of the tracker for an error."""
    if base:
        return f"--base={base!r}:"
    if name:
        return f"tracker {name!r}:"
    return "the tracker"


@tracker.command("runs")
@click.option("--parent", metavar="RUN", help="Only runs that came from this one.")
@json_option
@click.pass_context
def runs(ctx: click.Context, parent: str | None, as_json: bool) -> None:
    """List the ids of runs."""
    wanted = {"parent_run_id": parent} if parent else {}
    found = _ask(ctx, lambda tracker: list(tracker.run_ids(**wanted)))
    if as_json:
        emit_json({"runs": found})
    else:
        for run_id in found:
            emit(visible(run_id))


@tracker.command("metadata")
@click.argument("run_id")
@json_option
@click.pass_context
def metadata(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show the metadata of a run."""
    found = _ask(ctx, lambda tracker: dict(_known(tracker, run_id).metadata(run_id)))
    if as_json:
        emit_json({"run_id": run_id, "metadata": found})
    else:
        _emit_visible(
            ("NAME", "VALUE"), [(name, value_text(value)) for name, value in found.items()]
        )


@tracker.command("artifacts")
@click.argument("run_id")
@json_option
@click.pass_context
def artifacts(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show the names, paths and metadata of the artifacts of a run."""
    found = _ask(ctx, lambda tracker: dict(_known(tracker, run_id).artifacts(run_id)))
    if as_json:
        shown = {
            name: {"path": item.path, "metadata": dict(item.metadata or {})}
            for name, item in found.items()
        }
        emit_json({"run_id": run_id, "artifacts": shown})
    else:
        rows = [(name, item.path, pairs_text(item.metadata)) for name, item in found.items()]
        _emit_visible(("NAME", "PATH", "METADATA"), rows)


@tracker.command("lineage")
@click.argument("run_id")
@json_option
@click.pass_context
def lineage(ctx: click.Context, run_id: str, as_json: bool) -> None:
    """Show all direct and indirect sources and descendants of a run."""
    found = _ask(ctx, lambda tracker: _known(tracker, run_id).lineage(run_id))
    if as_json:
        emit_json(found.to_dict())
        return
    rows = [("source", each) for each in found.parents]
    rows += [("run", found.run_id), *(("descendant", each) for each in found.descendants)]
    _emit_visible(("RELATION", "RUN"), rows)
    edges = [(edge.run_id, edge.source_run_id, edge.artifact_name or "") for edge in found.edges]
    _emit_visible(("RUN", "CAME FROM", "BY"), edges)


def _emit_visible(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    emit_table(headers, [[visible(cell) for cell in row] for row in rows])


def _known(tracker: TrackerBase, run_id: str) -> TrackerBase:
    """Return the tracker.

    Raises:
        SpecError: if it does not have the run.
    """
    if tracker.metadata(run_id) or tracker.artifacts(run_id) or list(tracker.sources(run_id)):
        return tracker
    known = list(tracker.run_ids())
    if run_id in known or any(True for _ in tracker.run_ids(parent_run_id=run_id)):
        return tracker
    hint = "`transload tracker runs` lists them"
    close = closest(run_id, known)
    if close is not None:
        hint = f"did you mean {close!r}?"
    raise SpecError(f"the tracker has no run {run_id!r}; {hint}")
