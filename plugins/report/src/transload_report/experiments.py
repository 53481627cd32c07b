"""Reading searches: the JSON snapshot of an Ax experiment, without Ax, or the tracker base of a
search.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from transload.errors import ConfigError, SpecError
from transload.specs import AppState, masked_url
from transload_report.model import SearchData, TrialData

__all__ = ["collect_experiment", "experiment_data", "ledger_data"]

_SCHEMA: Final = 1
_HANDLE: Final = "transload_app_handle"
_AX_STATES: Final[Mapping[str, AppState]] = {
    "CANDIDATE": AppState.UNSUBMITTED,
    "STAGED": AppState.SUBMITTED,
    "RUNNING": AppState.RUNNING,
    "COMPLETED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "ABANDONED": AppState.CANCELLED,
    "EARLY_STOPPED": AppState.CANCELLED,
    "STALE": AppState.FAILED,
    "DISPATCHED": AppState.SUBMITTED,
}
"""What a trial of Ax is doing → how it is coloured here."""


def collect_experiment(where: str) -> SearchData:
    """Read a search.

    Args:
        where: the name of a search of ``transload search``, the tracker base of a
            ``transload_search.Search``, or the JSON snapshot that ``transload_ax.Snapshot`` keeps.

    Raises:
        ConfigError: if it is none of these.
        SpecError: if it is one that cannot be read.
    """
    if _is_file(Path(where)):
        return experiment_data(_load(Path(where)), where)
    try:
        from transload_search import SearchLedger
        from transload_search.places import kept_base

        base = None if "/" in where else kept_base(where)
        return ledger_data(SearchLedger.open(base or where).summary())
    except SpecError:
        raise
    except (
        ConfigError,
        OSError,
        ValueError,
        ImportError,
    ) as exc:  # no base, or no URL that fsspec knows
        why = (
            f" ({exc})" if isinstance(exc, (PermissionError, ImportError, ConnectionError)) else ""
        )
        raise ConfigError(
            f"there is no search {where!r}: none of `transload search list`, no tracker base of a "
            "search, "
            f"no snapshot of that name{why}"
        ) from exc


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as exc:
        raise SpecError(f"{file}: not a snapshot of an experiment: {exc}") from exc


def ledger_data(summary: Mapping[str, Any], written: float | None = None) -> SearchData:
    """Return the data of a page from what ``SearchLedger.summary()`` returned.

    Args:
        summary: the summary.
        written: when it was read, seconds since the epoch; None: now.
    """
    from transload_search.ledger import STOPPED

    search = summary["search"]
    objective = (
        search["objective"] if isinstance(search["objective"], Mapping) else search["objective"][0]
    )
    trials = [
        TrialData(
            row["index"],
            row["parameters"],
            row["state"] or "OPEN",
            AppState.CANCELLED
            if row["state"] == STOPPED
            else AppState[row["state"] or "SUBMITTED"],
            row["value"],
            row["handle"] or "",
        )
        for row in summary["trials"]
    ]
    base = str(summary["tracker_base"])
    name = base.rstrip("/").rpartition("/")[2] or base
    facts = {
        "Component": str(search["component"]),
        "Suggester": str(search["suggester"]),
        "At once": str(search["parallelism"]),
        "Seed": str(search["seed"]),
        "Scheduler": str(search["scheduler"] or ""),
        "Constants": ", ".join(f"{key}={value}" for key, value in search["constants"].items()),
        "Kept in": masked_url(base),
    }
    now = time.time() if written is None else written
    return SearchData(
        name, objective["name"], objective["minimize"], trials, now, search["trials"], facts
    )


def experiment_data(body: Any, where: str, written: float | None = None) -> SearchData:
    """Return the data of a page from the JSON of a snapshot.

    Args:
        body: what the snapshot holds.
        where: its name, for messages.
        written: when it was read, seconds since the epoch; None: now.

    Raises:
        SpecError: if it is not a snapshot of an experiment with one objective, or of a newer
            schema.
    """
    try:
        if body["schema"] > _SCHEMA:
            raise SpecError(
                f"{where}: schema {body['schema']!r} is newer than this version reads ({_SCHEMA})"
            )
        experiment = body["experiment"]
        metric, minimize = _objective(experiment, where)
        runner = experiment.get("runner") or {}
        trials = [_trial(experiment, trial, metric) for trial in experiment["trials"].values()]
        facts = {
            "Component": str(runner.get("component", "")),
            "Scheduler": str(runner.get("scheduler") or ""),
            "Begun": str((experiment.get("time_created") or {}).get("value", "")).partition(".")[0],
            "Saved": ""
            if "saved" not in body
            else datetime.fromtimestamp(body["saved"]).isoformat(" ", "seconds"),
            "Results in": masked_url(str(runner.get("tracker_base") or "")),
            "Kept in": where,
        }
        name = str(experiment.get("name") or Path(where).stem)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
        if isinstance(exc, SpecError):
            raise
        raise SpecError(f"{where}: not a snapshot of an experiment: {exc!r}") from exc
    now = time.time() if written is None else written
    return SearchData(
        name, metric, minimize, sorted(trials, key=lambda trial: trial.index), now, None, facts
    )


def _objective(experiment: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Return the name of the objective, and whether small is good. Ax writes ``-loss`` for a loss
    to be made small.
    """
    objective = (experiment.get("optimization_config") or {}).get("objective") or {}
    expression = objective.get("expression")
    if isinstance(expression, str):
        name = expression.strip()
        return name.removeprefix("-").strip(), name.startswith("-")
    metric = objective.get("metric")
    if isinstance(metric, dict):
        return str(metric["name"]), bool(objective["minimize"])
    raise SpecError(f"{where}: the experiment has no single objective to draw")


def _trial(experiment: Mapping[str, Any], trial: Mapping[str, Any], metric: str) -> TrialData:
    state = str(trial["status"]["name"])
    structure = (
        trial.get("generator_run")
        or (trial.get("generator_run_structs") or [{}])[0].get("generator_run")
        or {}
    )
    arms = structure.get("arms") or [{}]
    handle = trial.get("run_metadata", {}).get(_HANDLE, "")
    completed = state in ("COMPLETED", "EARLY_STOPPED")
    return TrialData(
        int(trial["index"]),
        arms[0].get("parameters", {}),
        state,
        _AX_STATES.get(state, AppState.UNKNOWN),
        _value(experiment, str(trial["index"]), metric) if completed else None,
        handle if isinstance(handle, str) else ", ".join(map(str, handle.values())),
    )


def _value(experiment: Mapping[str, Any], index: str, metric: str) -> float | None:
    """Return the objective of a trial: the mean in the last of its data, which are kept as a table
    in JSON.
    """
    found = None
    for _, data in (experiment.get("data_by_trial") or {}).get(index, {}).get("value", ()):
        table = json.loads(data["df"]["value"])
        for row, name in table.get("metric_name", {}).items():
            if name == metric and table["mean"].get(row) is not None:
                found = float(table["mean"][row])
    return found
