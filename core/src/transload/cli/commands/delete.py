"""``transload delete``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from transload.cli._options import Duration, handle_argument, json_option, scheduler_option

if TYPE_CHECKING:
    from transload.runner import Runner


@click.command(short_help="Forget ended apps: by handle, age or size.")
@handle_argument(nargs=-1, metavar="[HANDLE]...")
@click.option("--force", is_flag=True, help="With handles: also apps that have not ended.")
@click.option("--older-than", type=Duration(), help="Those that ended this long ago (7d).")
@click.option("--larger-than", metavar="SIZE", help="The oldest, until the rest takes no more than this (10G).")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@scheduler_option("With --older-than, --larger-than: whose apps; default: the configured one, else local.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    handle: tuple[str, ...],
    force: bool,
    older_than: float | None,
    larger_than: str | None,
    dry_run: bool,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Forget apps: state, logs and results that lie in the app's own folder are gone afterwards.

    Give handles, or --older-than and --larger-than for all ended apps of a scheduler. An app that has not ended is
    refused, unless --force is given; then it is ended first. All handles are looked up before any app is touched.
    """
    from transload.cli._output import emit, emit_json, note
    from transload.cli._session import open_runner
    from transload.specs._text import parse_size

    by_rule = older_than is not None or larger_than is not None
    if by_rule == bool(handle):
        raise click.UsageError("give one or more HANDLEs, or --older-than, --larger-than or both", ctx)
    if by_rule and force:
        raise click.UsageError("--force goes with handles: the rules take ended apps only", ctx)
    if scheduler is not None and handle:
        raise click.UsageError("--scheduler goes with --older-than and --larger-than: a handle names its own", ctx)
    size = None if larger_than is None else parse_size(larger_than, "--larger-than")
    with open_runner() as runner:
        if by_rule:
            deleted = _prune(runner, scheduler, older_than, size, dry_run)
        else:
            deleted = _delete(runner, handle, force, dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, "deleted": deleted})
        return
    for each in deleted:
        emit(f"{each}\t{'would be ' if dry_run else ''}deleted")
    if by_rule:
        note(f"{len(deleted)} apps {'would be ' if dry_run else ''}deleted")


def _delete(runner: Runner, texts: tuple[str, ...], force: bool, dry_run: bool) -> list[str]:
    from transload.cli._session import find_target, status_of
    from transload.errors import SpecError

    handles = [find_target(runner, text).handle for text in texts]
    for each in handles:
        status = status_of(runner, each)
        if not status.is_terminal() and not force:
            raise SpecError(f"{each} is {status.state}: cancel it first, or give --force")
    for each in handles:
        if not dry_run:
            runner.delete(each)
    return handles


def _prune(
    runner: Runner, scheduler: str | None, older_than: float | None, size: int | None, dry_run: bool
) -> list[str]:
    backend = runner.scheduler(scheduler)
    handles = {row.app_id: row.app_handle for row in runner.list(backend.name)}
    found = list(backend.prune(older_than=older_than, max_size=size, dry_run=dry_run))
    return [handles.get(app_id, app_id) for app_id in found]
