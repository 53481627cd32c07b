"""What is said when an app has ended: the state, who failed and how, their last words, the results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from transload.cli._exit import ExitCode
from transload.cli._output import emit_json, paint, state_text, value_text, visible
from transload.cli._quantities import duration_text, usage_texts
from transload.cli._session import app_json
from transload.cli._wait import KEPT_LINES, Outcome, Tails
from transload.errors import TransloadError
from transload.following import last_words
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text

if TYPE_CHECKING:
    from transload.cli._session import Target
    from transload.runner import AppResults, Runner

_SHOWN_REPLICAS: Final = 3
_SHOWN_RESULTS: Final = 20


def report_end(runner: Runner, target: Target, outcome: Outcome, as_json: bool = False) -> None:
    """Write to stderr how waiting for an app ended, and, if asked for, all of it as JSON to stdout."""
    status = outcome.status
    if status is None or not status.is_terminal():
        _say(_unended_text(outcome, target.handle))
        if status is not None:
            _say(f"`transload log -f {target.handle}` follows it, `transload cancel {target.handle}` ends it")
        results = None
    else:
        results = _report(runner, target, outcome, status)
    if as_json:
        emit_json(
            {
                **app_json(target.handle, status),
                "timed_out": outcome.code is ExitCode.TIMEOUT,
                "elapsed": round(outcome.elapsed, 3),
                "results": None if results is None else results.results,
                "looked_in": [] if results is None else results.looked_in,
            }
        )


def _unended_text(outcome: Outcome, handle: str) -> str:
    if outcome.status is None:
        return f"{handle} has vanished: somebody deleted it"
    if outcome.code is ExitCode.UNKNOWN:
        return f"the state of {handle} has been UNKNOWN for too long ({outcome.status.msg}); the app may go on"
    return f"waiting timed out after {duration_text(outcome.elapsed)}; {handle} goes on ({outcome.status.state})"


def _report(runner: Runner, target: Target, outcome: Outcome, status: AppStatus) -> AppResults | None:
    took = _app_seconds(runner, target, status)
    after = duration_text(outcome.elapsed if took is None else took)
    because = f": {status.msg}" if status.msg else ""
    peak, seconds = usage_texts(status.usage())
    used = f" ({seconds} of CPU, {peak})" if peak and seconds else ""
    _say(f"{state_text(status.state, sys.stderr)} after {after}{used}  {target.handle}{because}")
    for line in status.short_of_memory(runner.describe(target.handle)) if peak else ():
        _say(f"warning: {line}")
    if status.state is AppState.FAILED:
        _report_failures(target, status, outcome.tails)
    try:
        results = runner.results(target.handle)
    except (TransloadError, OSError, ImportError) as exc:
        _say(f"the results cannot be read: {exc}")
        return None
    for line in _result_lines(results):
        _say(line)
    return results


def _app_seconds(runner: Runner, target: Target, status: AppStatus) -> float | None:
    """Return the seconds from an app's submit to the end of its last replica; None if that is not known."""
    ends = [replica.end_time for role in status.roles for replica in role.replicas if replica.end_time is not None]
    try:
        found = runner.description(target.handle)
    except TransloadError:
        return None
    if not ends or found is None or found.created is None:
        return None
    return max(0.0, max(ends) - found.created)


def _report_failures(target: Target, status: AppStatus, tails: Tails) -> None:
    """Write which replicas failed, how, and their last log lines."""
    failed = _failed_replicas(status)
    for replica in failed[:_SHOWN_REPLICAS]:
        _say(paint(f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}", "red", stream=sys.stderr))
        known = tails.get((replica.role, replica.id))
        for line in known or last_words(target.scheduler, target.app_id, replica.role, replica.id, KEPT_LINES):
            sys.stderr.write(f"    {line.rstrip()}\n")
    if len(failed) > _SHOWN_REPLICAS:
        _say(f"and {len(failed) - _SHOWN_REPLICAS} more replicas failed: `transload status {target.handle}`")


def _failed_replicas(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas that failed: those that exited by themselves first, then those that were killed."""
    failed = [replica for role in status.roles for replica in role.replicas if replica.state is AppState.FAILED]
    return sorted(failed, key=lambda item: (item.exit_code is None or item.exit_code < 0, item.end_time or 0.0))


def _result_lines(results: AppResults) -> list[str]:
    """Return one line for each key that has results."""
    lines = []
    for key, values in list(results.results.items())[:_SHOWN_RESULTS]:
        shown = "  ".join(f"{visible(name)}={value_text(value)}" for name, value in values.items())
        lines.append(f"result {paint(visible(key), 'bold', stream=sys.stderr)}: {shown}")
    if len(results.results) > _SHOWN_RESULTS:
        lines.append(f"and {len(results.results) - _SHOWN_RESULTS} more: `transload results {results.handle}`")
    return lines


def _say(text: str) -> None:
    sys.stderr.write(f"transload: {text}\n")
    sys.stderr.flush()
