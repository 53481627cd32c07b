"""Show a job in Prefect's interface, with tables of replicas and results, progress, and logs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transload.specs import AppState, AppStatus, exit_text, is_terminal

if TYPE_CHECKING:
    from transload.runner import AppResults


def artifact_key(name: str, what: str) -> str:
    """Return a key as Prefect allows them, of lower-case letters, digits and dashes."""
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:180] or 'app'}-{what}"


def replica_rows(status: AppStatus) -> list[dict[str, Any]]:
    """Return a row for each replica, with role, number, state, exit, seconds, host, restarts."""
    return [
        {
            "role": replica.role,
            "replica": replica.id,
            "state": replica.state.name,
            "exit": "" if replica.exit_code is None else exit_text(replica.exit_code),
            "seconds": _seconds(replica.start_time, replica.end_time),
            "host": replica.hostname,
            "restarts": replica.restarts,
        }
        for role in status.roles
        for replica in role.replicas
    ]


def _seconds(start: float | None, end: float | None) -> float | None:
    return round(end - start, 3) if start is not None and end is not None else None


def result_rows(results: AppResults) -> list[dict[str, Any]]:
    """Return a row for each result, with key, name, value."""
    return [
        {"key": key, "name": name, "value": value}
        for key, values in results.results.items()
        for name, value in values.items()
    ]


def file_rows(results: AppResults) -> list[dict[str, Any]]:
    """Return a row for each artifact of a job, with name and path.

    The files in its output folder are among them.
    """
    return [{"name": name, "path": found.get("path")} for name, found in results.artifacts.items()]


def trial_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each trial of a search's summary.

    It has the number, state, objectives, parameters, handle and reason.
    """
    given = summary["search"]["objective"]
    names = [each["name"] for each in (given if isinstance(given, list) else [given])]
    return [
        {
            "trial": row["index"],
            "state": row["state"] or "",
            **row["parameters"],
            **{name: (row["values"] or {}).get(name) for name in names},
            "app": row["handle"],
            "reason": row["reason"],
        }
        for row in summary["trials"]
    ]


@dataclass(frozen=True)
class Bar:
    """A bar of progress.

    Args:
        percent: how much of it is full, a whole number.
        description: what it shows.
    """

    percent: int
    description: str


def bar_of(handle: str, status: AppStatus, now: float) -> Bar:
    """Return how far a job is by its own account, else how many of its replicas have ended.

    Args:
        handle: the job.
        status: what was seen of it.
        now: seconds since the epoch.
    """
    progress = status.progress
    if progress is None or progress.fraction is None:
        return Bar(_percent_ended(status), f"replicas of {handle} that have ended")
    if status.state is AppState.SUCCEEDED:
        return Bar(100, f"{handle}: {status.state}")
    if is_terminal(status.state):
        return Bar(progress.percent(), f"{handle}: {status.state}, {progress.in_words()}")
    return Bar(progress.percent(), f"{handle}: {progress.in_words(now)}")


def _percent_ended(status: AppStatus) -> int:
    if is_terminal(status.state):
        return 100
    replicas = [replica for role in status.roles for replica in role.replicas]
    ended = sum(is_terminal(each.state) for each in replicas)
    return 100 * ended // max(1, len(replicas))


def log_note(handle: str, link: str | None) -> str:
    """Return Markdown that says where all of a job's logs are."""
    lines = [f"`{handle}`", "", f"All of its logs: `transload log {handle}`"]
    return "\n".join([*lines, f"\nIts page: [{link}]({link})"] if link else lines)


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as the data of a table artifact."""
    return json.dumps([{name: _shown(value) for name, value in row.items()} for row in rows])


def _shown(value: Any) -> Any:
    return (
        str(value) if isinstance(value, float) and not math.isfinite(value) else value
    )  # else it is no JSON
