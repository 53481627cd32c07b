"""The page of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.schedulers.asked import asked_in_words
from transload.specs import (
    NONE,
    AppState,
    ReplicaStatus,
    Role,
    exit_text,
    masked_env,
    parse_app_handle,
)
from transload.specs.own_programs import shown_command
from transload.specs.text import usage_texts
from transload_report.chart import series_plot, series_words
from transload_report.convert import (
    Series,
    app_span,
    counts,
    earlier_counts,
    replica_rows,
    replicas_of,
    series_of,
    single_results,
)
from transload_report.model import AppData
from transload_report.page import graph_of, render
from transload_report.progress_picture import (
    ProgressShown,
    causes_text,
    interruption_lines,
    progress_shown,
)
from transload_report.timeline import timeline
from transload_report.words import duration_text, moment_text, shown

__all__ = ["app_report", "worth_filtering"]

MAX_REPLICAS: Final = 500
"""The largest number of replicas in the table."""
MAX_PLOTS: Final = 24
MAX_VALUES: Final = 200
"""The largest number of rows in a table of values."""
_MAX_LINKS: Final = 500
_MIN_FILTERED: Final = 12
_SHOWN_FAILURES: Final = 5


def app_report(data: AppData) -> str:
    """Return the page of a job as self-contained HTML text, which makes no network requests.

    Args:
        data: the data of the page, for instance from `collect_app`.
    """
    status = data.status
    replicas = replicas_of(status)
    span = app_span(status, data.written)
    rows = replica_rows(status, data.created, data.written)
    parsed = parse_app_handle(data.handle)
    problems = [each for each in replicas if each.state is not AppState.SUCCEEDED or each.restarts]
    shown_replicas = replicas
    if len(replicas) > MAX_REPLICAS:
        shown_replicas = _most_telling(replicas, problems)
    roles = data.app.roles if data.app else ()
    lineage = data.lineage
    progress = progress_shown(status, span, data.written)
    return render(
        template="app.html",
        kind="transload job",
        title=parsed.app_id,
        sections=_sections(data, progress),
        written=data.written,
        data=data,
        state=status.state,
        subtitle=shown(data.handle),
        scheduler=parsed.scheduler_backend,
        span=span,
        waited=_waited(data.created, span.start),
        reason=status.msg,
        failures=_failures(replicas, status.msg),
        replicas=replicas,
        shown_replicas=shown_replicas,
        states=counts(replica.state for replica in replicas),
        earlier=earlier_counts(status),
        progress=progress,
        causes=causes_text(status),
        interruptions=interruption_lines(status, data.app),
        again=sum(replica.restarts > 0 for replica in replicas),
        filtered=worth_filtering(len(problems), len(replicas)),
        has_earlier=any(replica.earlier for replica in replicas),
        by_name={(replica.role, replica.id): replica for replica in replicas},
        opened=_opened_logs(data),
        more=_more(data),
        timeline=timeline(rows, "replicas"),
        roles=[(role.name, _definition(role)) for role in roles],
        graph=graph_of(lineage) if lineage else None,
        links_left=max(0, len(lineage.edges) - _MAX_LINKS) if lineage else 0,
        **_results(data),
    )


def _sections(data: AppData, progress: ProgressShown | None) -> dict[str, str]:
    """Return id → name of each section."""
    sections = {"overview": "Overview"}
    if progress is not None or data.status.interruptions:
        sections["progress"] = "Progress"
    sections |= {
        "timeline": "Timeline",
        "replicas": "Replicas",
        "results": "Results",
        "logs": "Logs",
    }
    if data.lineage:
        sections["lineage"] = "Lineage"
    sections["definition"] = "Definition"
    return sections


def worth_filtering(problems: int, rows: int) -> int:
    """Return the number of rows that a filter for problems shows, or 0 if no filter is needed."""
    is_long = rows > _MIN_FILTERED
    return problems if is_long and 0 < problems < rows else 0


def _opened_logs(data: AppData) -> int:
    """Return how many logs are open when the page is first shown."""
    if data.status.state is AppState.FAILED or len(data.logs) <= 2:
        return 2
    return 1


def _waited(created: float | None, started: float | None) -> float | None:
    """Return the seconds from the submit to the first start, or None if they are unknown."""
    if created is None or started is None or started < created:
        return None
    return started - created


def _most_telling(
    replicas: Sequence[ReplicaStatus], problems: Sequence[ReplicaStatus]
) -> list[ReplicaStatus]:
    """Return the replicas for the table. Those with a problem take precedence."""
    marked = {id(each) for each in problems}
    others = [each for each in replicas if id(each) not in marked]
    return [*problems, *others][:MAX_REPLICAS]


def _failures(replicas: Sequence[ReplicaStatus], message: str) -> list[str]:
    """Return a line for each of the first replicas that failed by themselves."""
    failed = [each for each in replicas if each.state is AppState.FAILED and each.exit_code != 0]
    failed.sort(key=_failure_rank)
    if len(failed) == 1 and message and failed[0].structured_error_msg == NONE:
        return []  # the scheduler's message has it already
    lines = [_failure_line(each) for each in failed[:_SHOWN_FAILURES]]
    if len(failed) > _SHOWN_FAILURES:
        lines.append(f"and {len(failed) - _SHOWN_FAILURES} more replicas")
    return lines


def _failure_rank(replica: ReplicaStatus) -> tuple[bool, float]:
    """Return a sort key that puts replicas that ended by themselves before killed ones, by time."""
    was_killed = replica.exit_code is None or replica.exit_code < 0
    return was_killed, replica.end_time or 0.0


def _failure_line(replica: ReplicaStatus) -> str:
    line = f"{replica.role}/{replica.id} failed"
    if replica.exit_code is not None:
        line += f": {exit_text(replica.exit_code)}"
    if replica.structured_error_msg != NONE:
        line += f": {shown(replica.structured_error_msg)[:500]}"
    return line


def _more(data: AppData) -> list[tuple[str, str]]:
    """Return the other facts about the job."""
    peak, seconds = usage_texts(data.status.usage())
    name = arguments = metadata = timeout = ""
    if data.app is not None:
        name = data.app.name
        arguments = _pairs(data.app.arguments)
        metadata = _pairs(data.app.metadata)
        if data.app.timeout is not None:
            timeout = f"{data.app.timeout:g} s"
    limit = ""
    if data.status.time_limit is not None:
        limit = duration_text(data.status.time_limit)
        timeout = ""  # which is the same in other words
    if data.status.ends_by is not None and not data.status.is_terminal():
        limit += f", until {moment_text(data.status.ends_by)}"
    return [
        ("Name", name),
        ("Cancel", "requested" if data.status.cancel_requested else ""),
        ("Timeout", timeout),
        ("Time limit", limit),
        ("Options", _pairs(data.cfg)),
        ("Peak memory", peak),
        ("CPU time", seconds),
        ("Arguments", arguments),
        ("Metadata", metadata),
        ("Results in", data.tracker_base or ""),
        ("Logs in", data.log_url or ""),
        ("Page", data.status.ui_url or ""),
        *((name.capitalize(), text) for name, text in asked_in_words(data.asked).items()),
    ]


def _definition(role: Role) -> list[tuple[str, str]]:
    """Return the definition of a role with secrets masked, like ``transload describe``."""
    replicas = str(role.num_replicas)
    if role.min_replicas is not None:
        replicas += f", at least {role.min_replicas} must succeed"
    retries = ""
    if role.max_retries:
        retries = f"{role.max_retries} by {role.retry_policy.value}"
    amounts = {"cpu": role.resource.cpu, "gpu": role.resource.gpu, "memMB": role.resource.memMB}
    resource: dict[str, Any] = {name: value for name, value in amounts.items() if value > 0}
    resource |= role.resource.devices
    resource |= role.resource.capabilities
    return [
        ("replicas", replicas),
        ("command", shown_command(role.entrypoint, role.args)),
        ("image", role.image),
        ("retries", retries),
        ("resource", _pairs(resource)),
        ("ports", _pairs(role.port_map)),
        ("mounts", "; ".join(str(mount) for mount in role.mounts)),
        ("workspace", str(role.workspace or "")),
        ("env", _pairs(masked_env(role.env))),
        ("secrets", _pairs(role.secrets)),
        ("metadata", _pairs(role.metadata)),
    ]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _results(data: AppData) -> dict[str, Any]:
    """Return the values of the results section, by their names in the template."""
    series: Sequence[Series] = ()
    singles: Sequence[tuple[str, str, int | float | str]] = ()
    count = 0
    if data.results:
        series = series_of(data.results, data.steps)
        singles = single_results(data.results, series)
        count = sum(len(values) for values in data.results.results.values())
    drawn = series[:MAX_PLOTS]
    plots = [
        (each, series_plot(each, f"series-{k}"), series_words(each)) for k, each in enumerate(drawn)
    ]
    return {
        "result_count": count,
        "results_note": _results_note(data, len(series)),
        "plots": plots,
        "series_tables": _tables(drawn),
        "singles": singles[:MAX_VALUES],
        "singles_left": max(0, len(singles) - MAX_VALUES),
    }


def _results_note(data: AppData, series_count: int) -> str:
    """Return why results are missing or not all drawn, or ``""`` if there is nothing to say."""
    results = data.results
    if series_count > MAX_PLOTS:
        return f"{series_count} series were reported; the first {MAX_PLOTS} are drawn."
    if results and results.results and results.refused:
        return "; ".join(f"not read: {line}" for line in results.refusals())
    if data.results_problem:
        return data.results_problem
    if results and not results.results:
        return results.explain()
    return ""


def _tables(series: Sequence[Series]) -> list[tuple[list[str], list[list[Any]], int]]:
    """Return a table for each group of keys, as its head, its rows, and the number left out."""
    groups: dict[str, list[Series]] = {}
    for each in series:
        groups.setdefault(each.group, []).append(each)
    return [_table(group, members) for group, members in groups.items()]


def _table(group: str, series: Sequence[Series]) -> tuple[list[str], list[list[Any]], int]:
    columns = [dict(each.points) for each in series]
    places = sorted({place for column in columns for place in column})
    rows: list[list[Any]] = []
    for place in places[-MAX_VALUES:]:
        values = [column.get(place, "") for column in columns]
        rows.append([place, *values])
    head = [group or "key", *(each.name for each in series)]
    return head, rows, max(0, len(places) - MAX_VALUES)
