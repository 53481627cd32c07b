"""``transload list --environments`` and ``transload delete --environments``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from transload.cli.output import emit, emit_json, emit_table, note
from transload.cli.quantities import duration_text, size_text
from transload.cli.session import open_runner

if TYPE_CHECKING:
    from transload.schedulers.environments import MadeEnvironment

__all__ = ["delete_environments", "emit_deleted", "environments_json", "list_environments"]


def list_environments(scheduler: str | None, limit: int | None, *, as_json: bool) -> None:
    """Show the environments of a scheduler, the one that was used last first."""
    with open_runner() as runner:
        found = list(runner.scheduler(scheduler).environments())
    found.sort(key=lambda each: each.last_used or 0.0, reverse=True)
    rows = found[:limit]
    if as_json:
        emit_json({"environments": environments_json(rows)})
        return
    heads = ["ENVIRONMENT", "DIGEST", "SIZE", "FILES", "LAST USED", "STATE"]
    emit_table(heads, map(_row, rows))


def environments_json(found: Sequence[MadeEnvironment]) -> list[dict[str, Any]]:
    """Return environments as JSON values."""
    return [asdict(each) for each in found]


def _row(each: MadeEnvironment) -> list[str]:
    """Return the cells of a table row, with an empty text for what is not known."""
    size = files = used = state = ""
    if each.size is not None:
        size = size_text(each.size)
    if each.files is not None:
        files = f"{each.files:,}"
    if each.last_used is not None:
        age = max(0.0, time.time() - each.last_used)
        used = f"{duration_text(age)} ago"
    if each.in_use:
        state = "in use"
    return [each.name, each.sha256[:16], size, files, used, state]


def delete_environments(
    scheduler: str | None, older_than: float | None, *, dry_run: bool, as_json: bool
) -> None:
    """Delete the environments of a scheduler that no job uses, and show which."""
    with open_runner() as runner:
        backend = runner.scheduler(scheduler)
        deleted = backend.delete_environments(older_than, dry_run=dry_run)
        left: Sequence[MadeEnvironment] = ()
        if older_than is None and not as_json:
            left = backend.environments()
    if as_json:
        emit_json({"dry_run": dry_run, "environments": environments_json(deleted)})
        return
    done = "deleted"
    if dry_run:
        done = "would be deleted"
    emit_deleted(deleted, done)
    count = f"{len(deleted)} environments {done}"
    gone = {each.sha256 for each in deleted}
    stay = sum(each.sha256 not in gone for each in left)
    if stay > 0:
        count = f"{count}; {stay} stay: in use, or used a moment ago"
    note(count)


def emit_deleted(found: Sequence[MadeEnvironment], done: str) -> None:
    """Write a line for each environment that was deleted, or would be."""
    for each in found:
        emit(f"environment {each.name} {each.sha256[:16]}\t{done}")
