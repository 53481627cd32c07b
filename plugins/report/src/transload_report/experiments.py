"""Read searches from a file of Ax's own JSON storage, or from a tracker base.

Such a file is read without Ax.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from transload.errors import ConfigError, SpecError
from transload.specs import AppState, masked_url
from transload_report.model import SearchData, TrialData

__all__ = ["collect_experiment", "experiment_data", "ledger_data"]

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
"""State of a trial in Ax → the `AppState` that gives its colour."""


def collect_experiment(where: str) -> SearchData:
    """Read a search.

    Args:
        where: the name of a search of ``transload search``, the tracker base of a
            ``transload_search.Search``, or a file that Ax's ``save_experiment`` or
            ``Client.save_to_json_file`` has written.

    Raises:
        ConfigError: if it is none of these.
        SpecError: if it cannot be read.
    """
    if _is_file(Path(where)):
        return experiment_data(_load(Path(where)), where)
    try:
        return ledger_data(_summary(where))
    except SpecError:
        raise
    except (PermissionError, ImportError, ConnectionError) as exc:
        raise ConfigError(f"{_no_search(where)} ({exc})") from exc
    except (ConfigError, OSError, ValueError) as exc:
        raise ConfigError(_no_search(where)) from exc


def _summary(where: str) -> Mapping[str, Any]:
    """Return the summary of a search by its name or its tracker base."""
    from transload_search import SearchLedger
    from transload_search.places import kept_base

    base = None if "/" in where else kept_base(where)
    return SearchLedger.open(base or where).summary()


def _no_search(where: str) -> str:
    return (
        f"there is no search {where!r}: none of `transload search list`, no tracker base of a "
        "search, no file of Ax of that name"
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as exc:
        raise SpecError(f"{file}: must be an experiment of Ax: {exc}") from exc


def ledger_data(summary: Mapping[str, Any], written: float | None = None) -> SearchData:
    """Return the data of a page from a summary of ``SearchLedger.summary()``.

    Args:
        summary: the summary.
        written: when it was read, in seconds since the epoch, or None for now.
    """
    search = summary["search"]
    objective = search["objective"]
    if not isinstance(objective, Mapping):
        objective = objective[0]  # if a search has several objectives, the first is drawn
    base = str(summary["tracker_base"])
    constants = [f"{key}={value}" for key, value in search["constants"].items()]
    facts = {
        "Component": str(search["component"]),
        "Suggester": str(search["suggester"]),
        "At once": str(search["parallelism"]),
        "Seed": str(search["seed"]),
        "Scheduler": str(search["scheduler"] or ""),
        "Constants": ", ".join(constants),
        "Kept in": masked_url(base),
    }
    return SearchData(
        name=base.rstrip("/").rpartition("/")[2] or base,
        objective=objective["name"],
        minimize=objective["minimize"],
        trials=[_ledger_trial(row) for row in summary["trials"]],
        written=time.time() if written is None else written,
        planned=search["trials"],
        facts=facts,
        log_parameters=[each["name"] for each in search["parameters"] if each.get("log")],
    )


def _ledger_trial(row: Mapping[str, Any]) -> TrialData:
    from transload_search.ledger import STOPPED

    state = row["state"]
    if not state:
        app_state = AppState.SUBMITTED
    elif state == STOPPED:
        app_state = AppState.CANCELLED
    else:
        app_state = AppState[state]
    return TrialData(
        index=row["index"],
        parameters=row["parameters"],
        state=state or "OPEN",
        app_state=app_state,
        value=row["value"],
        handle=row["handle"] or "",
    )


def experiment_data(body: Any, where: str, written: float | None = None) -> SearchData:
    """Return the data of a page from the JSON of an experiment.

    Args:
        body: the contents of the file.
        where: its name, for messages.
        written: when it was read, in seconds since the epoch, or None for now.

    Raises:
        SpecError: if it is not an experiment with one objective.
    """
    try:
        # a client is stored with its experiment in it
        return _experiment(
            body.get("experiment", body), where, time.time() if written is None else written
        )
    except SpecError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
        raise SpecError(f"{where}: must be an experiment of Ax: {exc!r}") from exc


def _experiment(experiment: Mapping[str, Any], where: str, written: float) -> SearchData:
    metric, minimize = _objective(experiment, where)
    trials = [_trial(experiment, trial, metric) for trial in experiment["trials"].values()]
    runner = experiment.get("runner") or {}
    created = experiment.get("time_created") or {}
    facts = {
        "Component": str(runner.get("component", "")),
        "Scheduler": str(runner.get("scheduler") or ""),
        "Begun": str(created.get("value", "")).partition(".")[0],
        "Results in": masked_url(str(runner.get("tracker_base") or "")),
        "Kept in": where,
    }
    return SearchData(
        name=str(experiment.get("name") or Path(where).stem),
        objective=metric,
        minimize=minimize,
        trials=sorted(trials, key=lambda trial: trial.index),
        written=written,
        facts=facts,
        log_parameters=_log_parameters(experiment),
    )


def _log_parameters(experiment: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters that have a logarithmic scale."""
    space = experiment.get("search_space") or {}
    return [str(each["name"]) for each in space.get("parameters", ()) if each.get("log_scale")]


def _objective(experiment: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Return the name of the objective, and whether it is minimized.

    Ax writes ``-loss`` for a loss that is minimized.
    """
    objective = (experiment.get("optimization_config") or {}).get("objective") or {}
    expression = objective.get("expression")
    if isinstance(expression, str):
        name = expression.strip()
        return name.removeprefix("-").strip(), name.startswith("-")
    metric = objective.get("metric")
    if isinstance(metric, dict):
        return str(metric["name"]), bool(objective["minimize"])
    raise SpecError(f"{where}: the experiment must have exactly one objective")


def _trial(experiment: Mapping[str, Any], trial: Mapping[str, Any], metric: str) -> TrialData:
    state = str(trial["status"]["name"])
    value = None
    if state in ("COMPLETED", "EARLY_STOPPED"):
        value = _value(experiment, str(trial["index"]), metric)
    handle = trial.get("run_metadata", {}).get(_HANDLE, "")
    if not isinstance(handle, str):  # a batch trial: arm → handle
        handle = ", ".join(str(each) for each in handle.values())
    return TrialData(
        index=int(trial["index"]),
        parameters=_parameters(trial),
        state=state,
        app_state=_AX_STATES.get(state, AppState.UNKNOWN),
        value=value,
        handle=handle,
    )


def _parameters(trial: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a trial's first arm."""
    generated = trial.get("generator_run")
    if not generated:  # a batch trial
        structs = trial.get("generator_run_structs") or [{}]
        generated = structs[0].get("generator_run") or {}
    arms = generated.get("arms") or [{}]
    parameters: Mapping[str, Any] = arms[0].get("parameters", {})
    return parameters


def _value(experiment: Mapping[str, Any], index: str, metric: str) -> float | None:
    """Return the objective of a trial, which is the mean in its latest data.

    Ax keeps data as the text of a JSON table, column → row → value.
    """
    found = None
    by_trial = experiment.get("data_by_trial") or {}
    for _, data in by_trial.get(index, {}).get("value", ()):
        table = json.loads(data["df"]["value"])
        for row, name in table.get("metric_name", {}).items():
            mean = table["mean"].get(row)
            if name == metric and mean is not None:
                found = float(mean)
    return found
