"""``transload wait``."""

from __future__ import annotations

import sys
from queue import SimpleQueue
from typing import Any

import click

from transload.cli._options import Duration, handle_argument, json_option


@click.command(short_help="Wait until an app has ended.")
@handle_argument()
@click.option("--timeout", type=Duration(), help="Wait this long at most (10m); the app goes on.")
@click.option("--patience", type=Duration(), default=300.0, show_default="5m", help="Give up after that much UNKNOWN.")
@json_option
def command(handle: str, timeout: float | None, patience: float, as_json: bool) -> int:
    """Wait until an app has ended, and exit as `run` does: by its state.

    Ctrl-C leaves; the app goes on.
    """
    from transload.cli._output import emit_json
    from transload.cli._report import outcome_json, report_end
    from transload.cli._screen import Screen
    from transload.cli._session import find_target, open_runner, status_of
    from transload.cli._wait import AppWait

    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    with open_runner() as runner:
        target = find_target(runner, handle)
        status_of(runner, target.handle)
        outcome = AppWait(runner, target, Screen(sys.stdout, sys.stderr), events, timeout, patience).wait()
        results = report_end(runner, target, outcome)
        if as_json:
            emit_json(outcome_json(target, outcome, results))
        return outcome.code
