"""``transload adapters``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from transload.cli._options import json_option

if TYPE_CHECKING:
    from transload.pipelines import AdapterInfo


@click.command(short_help="List adapters to workflow hosts and what each can express.")
@click.option("--states", is_flag=True, help="Show which state of the host each AppState becomes.")
@json_option
def command(states: bool, as_json: bool) -> None:
    """List the installed adapters to workflow hosts, and what each can express."""
    from transload.cli._output import emit_json, note
    from transload.pipelines import describe_adapters

    rows = describe_adapters()
    if as_json:
        emit_json({"adapters": [_json(row) for row in rows]})
        return
    if not rows:
        note("no adapter is installed: each workflow host's plugin brings one")
    elif states:
        _show_states(rows)
    else:
        _show(rows)


def _json(row: AdapterInfo) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(row)


def _show(rows: list[AdapterInfo]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.capabilities))
    cells = [[row.name, row.status, *(_cell(row, name) for name in names)] for row in rows]
    # on a terminal: a line for each capability, since there are more of them than adapters
    turned = [[head, *(row[index] for row in cells)] for index, head in enumerate(["status", *names], start=1)]
    _emit_columns("", rows, turned)
    for row in rows:
        _show_notes(row)


def _cell(row: AdapterInfo, name: str) -> str:
    mark = "*" if name in row.notes else ""
    return "" if name not in row.capabilities else f"{'yes' if row.capabilities[name] else 'no'}{mark}"


def _show_notes(row: AdapterInfo) -> None:
    from transload.cli._output import emit

    for name, text in row.notes.items():
        emit(f"* {row.name}, {name}: {text}")


def _show_states(rows: list[AdapterInfo]) -> None:
    from transload.specs import AppState

    _emit_columns(
        "STATE", rows, [[state.name, *(row.states.get(state.name, "") for row in rows)] for state in AppState]
    )


def _emit_columns(corner: str, rows: list[AdapterInfo], cells: list[list[str]]) -> None:
    """Write a table with a column for each adapter; in a pipe, which gets no headers, their names come first."""
    from transload.cli._output import emit_table, is_terminal

    names = [row.name for row in rows]
    emit_table([corner, *names], cells if is_terminal(sys.stdout) else [["adapter", *names], *cells])
