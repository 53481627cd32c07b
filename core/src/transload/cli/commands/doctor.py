"""``transload doctor``."""

from __future__ import annotations

import sys

import click

from transload.cli._exit import ExitCode
from transload.cli._options import json_option

_COLOURS = {"ok": "green", "missing": "dim", "broken": "red"}
_MARKS = {"ok": "✓ ok", "missing": "– missing", "broken": "✗ broken"}


@click.command(short_help="Check what works here and what is missing.")
@click.option("--no-run", is_flag=True, help="Do not run a tiny app on the local scheduler.")
@json_option
def command(no_run: bool, as_json: bool) -> int:
    """Check what works here and what is missing: state folder, schedulers, plugins, hosts, versions.

    Exits with 0 if nothing is broken, else with 3. What is merely not installed is not broken.
    """
    from transload.cli._checks import BROKEN, Check, all_checks
    from transload.cli._output import emit_json, emit_table, is_terminal, paint

    checks: list[Check] = list(all_checks(run_app=not no_run))
    ok = all(check.status != BROKEN for check in checks)
    if as_json:
        rows = [{"area": c.area, "name": c.name, "status": c.status, "detail": c.detail} for c in checks]
        emit_json({"ok": ok, "checks": rows})
    else:
        marks = _MARKS if is_terminal(sys.stdout) else {status: status for status in _MARKS}
        cells = [(paint(marks[c.status], _COLOURS[c.status]), c.area, c.name, c.detail) for c in checks]
        emit_table(("STATUS", "AREA", "WHAT", "FOUND"), cells)
    return ExitCode.OK if ok else ExitCode.UNAVAILABLE
