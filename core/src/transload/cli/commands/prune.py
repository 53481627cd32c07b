"""``transload prune``."""

from __future__ import annotations

from typing import Any

import click

from transload.cli._options import Duration, json_option, scheduler_option


@click.command(short_help="Delete ended apps by age and size.")
@click.option("--older-than", type=Duration(), help="Those that ended this long ago (7d).")
@click.option("--max-size", metavar="SIZE", help="The oldest, until the rest takes no more than this (10G).")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@scheduler_option("Whose apps; default: the configured scheduler, else local.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    older_than: float | None,
    max_size: str | None,
    dry_run: bool,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Delete ended apps by age and size. Apps that have not ended are never touched."""
    from transload.cli._quantities import parse_size
    from transload.cli._session import open_runner

    if older_than is None and max_size is None:
        raise click.UsageError("give --older-than or --max-size, or both", ctx)
    limit = None if max_size is None else parse_size(max_size, "--max-size")
    with open_runner() as runner:
        backend = runner.scheduler(scheduler)
        pruned = list(backend.prune(older_than=older_than, max_size=limit, dry_run=dry_run))
    _show(pruned, dry_run, as_json)


def _show(pruned: list[Any], dry_run: bool, as_json: bool) -> None:
    from transload.cli._output import emit, emit_json, note

    if as_json:
        emit_json({"dry_run": dry_run, "pruned": pruned})
        return
    for app_id in pruned:
        emit(str(app_id))
    note(f"{len(pruned)} apps {'would be ' if dry_run else ''}deleted")
