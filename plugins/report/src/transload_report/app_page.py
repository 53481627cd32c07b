"""The page of one app."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transload.cli.quantities import usage_texts
from transload.specs import (
    NONE,
    AppState,
    ReplicaStatus,
    Role,
    exit_text,
    masked_env,
    parse_app_handle,
)
from transload_report.chart import series_plot, series_words
from transload_report.convert import (
    Series,
    app_span,
    counts,
    earlier_counts,
    replica_rows,
    series_of,
    single_results,
)
from transload_report.model import AppData
from transload_report.page import graph_of, render
from transload_report.timeline import timeline
from transload_report.words import shown

__all__ = ["app_report"]

MAX_REPLICAS: Final = 500
"""How many replicas the table has at most."""
MAX_PLOTS: Final = 24
MAX_VALUES: Final = 200
"""How many rows a table of values has at most."""
_SHOWN_FAILURES: Final = 5


def app_report(data: AppData) -> str:
    """Return the page of an app as HTML text: self-contained, without any request to the network.

    Args:
        data: all that the page shows, for instance from `collect_app`.
    """
    status = data.status
    replicas = [
        replica
        for role in status.roles
        for replica in sorted(role.replicas, key=lambda each: each.id)
    ]
    span = app_span(status, data.written)
    rows = replica_rows(status, data.created, data.written)
    parsed = parse_app_handle(data.handle)
    sections = {
        "overview": "Overview",
        "timeline": "Timeline",
        "replicas": "Replicas",
        "results": "Results",
    }
    sections |= {
        "logs": "Logs",
        **({"lineage": "Lineage"} if data.lineage else {}),
        "definition": "Definition",
    }
    problems = [each for each in replicas if each.state is not AppState.SUCCEEDED or each.restarts]
    shown_replicas = (
        replicas if len(replicas) <= MAX_REPLICAS else _most_telling(replicas, problems)
    )
    return render(
        "app.html",
        "transload app",
        parsed.app_id,
        sections,
        data.written,
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
        again=sum(replica.restarts > 0 for replica in replicas),
        filtered=len(problems) if len(replicas) > 12 and 0 < len(problems) < len(replicas) else 0,
        has_earlier=any(replica.earlier for replica in replicas),
        by_name={(replica.role, replica.id): replica for replica in replicas},
        opened=2 if status.state is AppState.FAILED or len(data.logs) <= 2 else 1,
        more=_more(data),
        timeline=timeline(rows, "replicas"),
        roles=[(role.name, _definition(role)) for role in (data.app.roles if data.app else ())],
        graph=graph_of(data.lineage) if data.lineage else None,
        links_left=max(0, len(data.lineage.edges) - 500) if data.lineage else 0,
        **_results(data),
    )


def _waited(created: float | None, started: float | None) -> float | None:
    return None if created is None or started is None or started < created else started - created


def _most_telling(
    replicas: Sequence[ReplicaStatus], problems: Sequence[ReplicaStatus]
) -> list[ReplicaStatus]:
    """Return so many replicas as the table may have: those with a problem first."""
    marked = {id(each) for each in problems}
    return [*problems, *(each for each in replicas if id(each) not in marked)][:MAX_REPLICAS]


def _failures(replicas: Sequence[ReplicaStatus], message: str) -> list[str]:
    """Return a line for each of the first replicas that failed by themselves."""
    failed = [each for each in replicas if each.state is AppState.FAILED and each.exit_code != 0]
    failed.sort(
        key=lambda each: (each.exit_code is None or each.exit_code < 0, each.end_time or 0.0)
    )
    lines = []
    for each in failed[:_SHOWN_FAILURES]:
        said = (
            ""
            if each.structured_error_msg == NONE
            else f": {shown(each.structured_error_msg)[:500]}"
        )
        how = "" if each.exit_code is None else f": {exit_text(each.exit_code)}"
        lines.append(f"{each.role}/{each.id} failed{how}{said}")
    if len(failed) > _SHOWN_FAILURES:
        lines.append(f"and {len(failed) - _SHOWN_FAILURES} more replicas")
    # of one failure the message of the scheduler says all
    return (
        lines
        if len(failed) > 1 or not message or (failed and failed[0].structured_error_msg != NONE)
        else []
    )


def _more(data: AppData) -> list[tuple[str, str]]:
    """Return the other facts about the app."""
    app = data.app
    peak, seconds = usage_texts(data.status.usage())
    return [
        ("Name", app.name if app else ""),
        ("Cancel", "requested" if data.status.cancel_requested else ""),
        ("Timeout", f"{app.timeout:g} s" if app and app.timeout is not None else ""),
        ("Options", _pairs(data.cfg)),
        ("Memory at most", peak),
        ("CPU time", seconds),
        ("Arguments", _pairs(app.arguments) if app else ""),
        ("Metadata", _pairs(app.metadata) if app else ""),
        ("Results in", data.tracker_base or ""),
        ("Logs in", data.log_url or ""),
        ("Page", data.status.ui_url or ""),
    ]


def _definition(role: Role) -> list[tuple[str, str]]:
    """Return what is known of a role, secrets masked, as ``transload describe`` shows it."""
    least = "" if role.min_replicas is None else f", at least {role.min_replicas} must end well"
    asked = {"cpu": role.resource.cpu, "gpu": role.resource.gpu, "memMB": role.resource.memMB}
    resource = {name: value for name, value in asked.items() if value > 0}
    return [
        ("replicas", f"{role.num_replicas}{least}"),
        ("command", shlex.join([role.entrypoint, *role.args])),
        ("image", role.image),
        ("retries", f"{role.max_retries} by {role.retry_policy.value}" if role.max_retries else ""),
        ("resource", _pairs({**resource, **role.resource.devices, **role.resource.capabilities})),
        ("ports", _pairs(role.port_map)),
        ("mounts", "; ".join(str(mount) for mount in role.mounts)),
        ("workspace", str(role.workspace) if role.workspace else ""),
        ("env", _pairs(masked_env(role.env))),
        ("secrets", _pairs(role.secrets)),
        ("metadata", _pairs(role.metadata)),
    ]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _results(data: AppData) -> dict[str, Any]:
    """Return what the section of the results shows."""
    results = data.results
    series = series_of(results, data.steps) if results else []
    singles = single_results(results, series) if results else []
    note = data.results_problem or (results.explain() if results and not results.results else "")
    if results and results.results and results.refused:
        note = "; ".join(f"not read: {line}" for line in results.refusals())
    if len(series) > MAX_PLOTS:
        note = f"{len(series)} series were reported; the first {MAX_PLOTS} are drawn."
    plots = [
        (each, series_plot(each, f"series-{k}"), series_words(each))
        for k, each in enumerate(series[:MAX_PLOTS])
    ]
    return {
        "result_count": sum(len(values) for values in results.results.values()) if results else 0,
        "results_note": note,
        "plots": plots,
        "series_tables": _tables(series[:MAX_PLOTS]),
        "singles": singles[:MAX_VALUES],
        "singles_left": max(0, len(singles) - MAX_VALUES),
    }


def _tables(series: Sequence[Series]) -> list[tuple[list[str], list[list[Any]], int]]:
    """Return one table for each group of keys: its head, its rows, how many rows are left out."""
    tables = []
    for group in dict.fromkeys(each.group for each in series):
        mine = [each for each in series if each.group == group]
        columns = [dict(each.points) for each in mine]
        places = sorted({place for column in columns for place in column})
        rows = [
            [place, *(column.get(place, "") for column in columns)]
            for place in places[-MAX_VALUES:]
        ]
        tables.append(
            (
                [group or "key", *(each.name for each in mine)],
                rows,
                max(0, len(places) - MAX_VALUES),
            )
        )
    return tables
