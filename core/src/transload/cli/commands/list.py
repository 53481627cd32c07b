"""``transload list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from transload.cli._options import json_option, scheduler_option

if TYPE_CHECKING:
    from transload.schedulers import ListAppResponse

_STATES = ["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]


@click.command(short_help="List apps.")
@scheduler_option("Whose apps; default: the configured scheduler, else local.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False), help="Only apps in it."
)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@json_option
def command(scheduler: str | None, states: tuple[str, ...], limit: int | None, as_json: bool) -> None:
    """List apps, newest first: handle, state, name, when it was submitted."""
    from transload.cli._output import emit_json
    from transload.cli._session import open_runner

    with open_runner() as runner:
        rows = [row for row in runner.list(scheduler) if not states or row.state.name in states][:limit]
        if as_json:
            emit_json({"apps": [_json(row) for row in rows]})
        else:
            _show(rows)


def _json(row: ListAppResponse) -> dict[str, object]:
    return {
        "handle": row.app_handle,
        "app_id": row.app_id,
        "name": row.name,
        "state": row.state.name,
        "created": row.created,
    }


def _show(rows: list[ListAppResponse]) -> None:
    from transload.cli._output import emit_table, state_text
    from transload.cli._quantities import time_text

    emit_table(
        ("HANDLE", "STATE", "NAME", "SUBMITTED"),
        [(row.app_handle, state_text(row.state), row.name, time_text(row.created)) for row in rows],
    )
