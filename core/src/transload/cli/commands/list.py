"""``transload list``."""

from __future__ import annotations

import time
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import click

from transload.cli._options import json_option, scheduler_option

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers import ListAppResponse

    Called = dict[str, dict[str, object]] | None

_STATES = ["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]


@click.command(short_help="List apps.")
@scheduler_option("Whose apps; default: the configured scheduler, else local.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False), help="Only apps in it."
)
@click.option("--name", metavar="PATTERN", help="Only apps of this name; * and ? stand for any text ('train*').")
@click.option(
    "--sort", type=click.Choice(["age", "name", "state"]), default="age", help="Newest first; or by name, state."
)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@click.option("--arguments", is_flag=True, help="Also what each was called with.")
@json_option
def command(
    scheduler: str | None,
    states: tuple[str, ...],
    name: str | None,
    sort: str,
    limit: int | None,
    arguments: bool,
    as_json: bool,
) -> None:
    """List apps, newest first: handle, state, age, scheduler, name. The handle can be given to every other command."""
    from transload.cli._output import emit_json
    from transload.cli._session import open_runner

    with open_runner() as runner:
        found = [
            row
            for row in runner.list(scheduler)
            if (not states or row.state.name in states) and (name is None or fnmatch(row.name, name))
        ]
        if sort != "age":  # as the scheduler lists them: equal ones stay newest first
            found.sort(key=lambda row: row.name if sort == "name" else row.state.name)
        rows = found[:limit]
        called = {row.app_handle: _arguments(runner, row.app_handle) for row in rows} if arguments else None
    if as_json:
        emit_json({"apps": [_json(row, called) for row in rows]})
    else:
        _show(rows, called)


def _arguments(runner: Runner, handle: str) -> dict[str, object]:
    app = runner.describe(handle)
    return app.arguments if app is not None else {}


def _json(row: ListAppResponse, called: Called) -> dict[str, object]:
    return {
        "handle": row.app_handle,
        "app_id": row.app_id,
        "name": row.name,
        "state": row.state.name,
        "created": row.created,
        **({} if called is None else {"arguments": called[row.app_handle]}),
    }


def _show(rows: list[ListAppResponse], called: Called) -> None:
    from transload.cli._output import emit_table, state_text
    from transload.cli._quantities import duration_text
    from transload.specs import parse_app_handle

    now = time.time()
    cells = []
    for row in rows:
        age = "" if row.created is None else duration_text(max(0.0, now - row.created))
        scheduler = parse_app_handle(row.app_handle).scheduler_backend
        given = () if called is None else (" ".join(f"{key}={value}" for key, value in called[row.app_handle].items()),)
        cells.append((row.app_handle, state_text(row.state), age, scheduler, row.name, *given))
    emit_table(("HANDLE", "STATE", "AGE", "SCHEDULER", "NAME", *(() if called is None else ("ARGUMENTS",))), cells)
