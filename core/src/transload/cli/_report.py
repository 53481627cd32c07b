"""What is said when an app has ended: the state, who failed and how, their last words, the results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from transload.cli._exit import ExitCode
from transload.cli._output import paint, state_text, visible
from transload.cli._quantities import duration_text, usage_texts
from transload.cli._wait import KEPT_LINES, Outcome, Tails, timed_out_text
from transload.errors import TransloadError
from transload.following import last_words
from transload.specs import AppState, AppStatus, ReplicaStatus, exit_text

if TYPE_CHECKING:
    from transload.cli._session import Target
    from transload.runner import AppResults, Runner

_SHOWN_REPLICAS: Final = 3
_SHOWN_RESULTS: Final = 20


def report_end(runner: Runner, target: Target, outcome: Outcome) -> AppResults | None:
    """Write to stderr how waiting for an app ended; return its results, if the app has ended."""
    status = outcome.status
    if status is None or not status.is_terminal():
        _say(timed_out_text(outcome, target.handle))
        if status is not None:
            _say(f"`transload log -f {target.handle}` follows it, `transload cancel {target.handle}` ends it")
        return None
    took = app_seconds(runner, target, status)
    headline = (
        f"{state_text(status.state, sys.stderr)} after {duration_text(outcome.elapsed if took is None else took)}"
    )
    peak, seconds = usage_texts(status.usage())
    used = f" ({seconds} of CPU, {peak})" if peak and seconds else ""
    _say(f"{headline}{used}  {target.handle}{': ' + status.msg if status.msg else ''}")
    if peak:
        for line in status.short_of_memory(runner.describe(target.handle)):
            _say(f"warning: {line}")
    if status.state is AppState.FAILED:
        report_failures(target, status, outcome.tails)
    results = results_of(runner, target.handle)
    if results is not None:
        for line in result_lines(results):
            _say(line)
    return results


def app_seconds(runner: Runner, target: Target, status: AppStatus) -> float | None:
    """Return the seconds from an app's submit to the end of its last replica; None if that is not known."""
    ends = [replica.end_time for role in status.roles for replica in role.replicas if replica.end_time is not None]
    try:
        found = runner.description(target.handle)
    except TransloadError:
        return None
    if not ends or found is None or found.created is None:
        return None
    return max(0.0, max(ends) - found.created)


def report_failures(target: Target, status: AppStatus, tails: Tails) -> None:
    """Write which replicas failed, how, and their last log lines."""
    failed = failed_replicas(status)
    for replica in failed[:_SHOWN_REPLICAS]:
        _say(paint(f"{replica.role}/{replica.id} {exit_text(replica.exit_code)}", "red", stream=sys.stderr))
        known = tails.get((replica.role, replica.id))
        for line in known or last_words(target.scheduler, target.app_id, replica.role, replica.id, KEPT_LINES):
            sys.stderr.write(f"    {line.rstrip()}\n")
    if len(failed) > _SHOWN_REPLICAS:
        _say(f"and {len(failed) - _SHOWN_REPLICAS} more replicas failed: `transload status {target.handle}`")


def failed_replicas(status: AppStatus) -> list[ReplicaStatus]:
    """Return the replicas that failed: those that exited by themselves first, then those that were killed."""
    failed = [replica for role in status.roles for replica in role.replicas if replica.state is AppState.FAILED]
    return sorted(failed, key=lambda item: (item.exit_code is None or item.exit_code < 0, item.end_time or 0.0))


def results_of(runner: Runner, handle: str) -> AppResults | None:
    """Return the results of an app; None, with a note, if they cannot be read."""
    try:
        return runner.results(handle)
    except (TransloadError, OSError, ImportError) as exc:
        _say(f"the results cannot be read: {exc}")
        return None


def result_lines(results: AppResults) -> list[str]:
    """Return one line for each key that has results."""
    lines = []
    for key, values in list(results.results.items())[:_SHOWN_RESULTS]:
        shown = "  ".join(f"{visible(name)}={value_text(value)}" for name, value in values.items())
        lines.append(f"result {paint(visible(key), 'bold', stream=sys.stderr)}: {shown}")
    if len(results.results) > _SHOWN_RESULTS:
        lines.append(f"and {len(results.results) - _SHOWN_RESULTS} more: `transload results {results.handle}`")
    return lines


def value_text(value: Any) -> str:
    """Return a result for a person: floats to six digits, a text on one line."""
    return f"{value:.6g}" if isinstance(value, float) else visible(str(value))


def outcome_json(target: Target, outcome: Outcome, results: AppResults | None) -> dict[str, Any]:
    """Return the JSON form of what waiting for an app came to."""
    status = outcome.status
    return {
        **app_json(target.handle, status),
        "timed_out": outcome.code is ExitCode.TIMEOUT,
        "elapsed": round(outcome.elapsed, 3),
        "results": None if results is None else results.results,
        "looked_in": [] if results is None else results.looked_in,
    }


def app_json(handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return what every JSON form of one app begins with: handle, its parts, state, status."""
    import json

    from transload.specs import parse_app_handle

    parsed = parse_app_handle(handle)
    return {
        "handle": handle,
        "scheduler": parsed.scheduler_backend,
        "app_id": parsed.app_id,
        "state": None if status is None else status.state.name,
        "status": None if status is None else json.loads(status.to_json()),
    }


def _say(text: str) -> None:
    sys.stderr.write(f"transload: {text}\n")
    sys.stderr.flush()
