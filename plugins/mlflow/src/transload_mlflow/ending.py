"""Write the end of a job into MLflow, with its results as metrics and the state of its run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from transload.errors import AppNotFound, ConfigError
from transload.runner import get_runner
from transload.runner.config import load_settings
from transload.runner.results import collect_results, collect_steps
from transload.runtime.tracking import ResultsGone
from transload.schedulers.asked import asked_words
from transload.schedulers.patience import backoff
from transload.specs import AppState, AppStatus, make_app_handle, parse_app_handle
from transload_mlflow.convert import Sharing
from transload_mlflow.tracker import MlflowTracker, Status, create

if TYPE_CHECKING:
    from transload.plugins import AppEvent

__all__ = ["note_end"]

_STATUS: Final[dict[AppState, Status]] = {
    AppState.SUCCEEDED: "FINISHED",
    AppState.FAILED: "FAILED",
    AppState.CANCELLED: "KILLED",
}
_LIMIT: Final = 30.0
"""Seconds for which a caller waits for an end, because its process may exit right after it."""

_FIRST_PAUSE: Final = 1.0  # seconds between two tries
_LONGEST_PAUSE: Final = 60.0
_READING: Final = 600.0  # seconds after which an end is written without unreadable results
_TRYING: Final = 3600.0
_log = logging.getLogger("transload_mlflow")
_ends: dict[str, threading.Thread | None] = {}
"""The thread that writes the end of each event, or None once it is written."""


def note_end(event: AppEvent) -> None:
    """Finish the MLflow run of a job that has ended, if a tracker ``mlflow`` is configured.

    The caller waits for that, up to `_LIMIT` seconds. While MLflow is unreachable, a thread tries
    again in the background, and callers do not wait for later ends.
    """
    if event.state not in _STATUS or event.id in _ends:
        return
    trackers = load_settings().trackers()
    if "mlflow" not in trackers:
        return
    tracker = create(trackers["mlflow"])
    thread = threading.Thread(target=_keep_trying, args=(event, tracker), daemon=True)
    others = list(_ends.values())
    late = any(other is not None and other.is_alive() for other in others)
    _ends[event.id] = thread
    thread.start()
    if late:
        return
    thread.join(_LIMIT)
    if thread.is_alive():
        _log.warning(
            "the end of %s is not in MLflow yet; this process tries again until it exits",
            event.handle,
        )


def _keep_trying(event: AppEvent, tracker: MlflowTracker) -> None:
    began = time.monotonic()
    pause = _FIRST_PAUSE
    passed = 0.0
    while passed < _TRYING:
        try:
            _finish(tracker, event, patient=passed < _READING)
        except Exception as exc:  # the job itself is not affected
            if pause == _FIRST_PAUSE:
                _log.warning(
                    "the end of %s is not in MLflow: %s: %s", event.handle, type(exc).__name__, exc
                )
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_PAUSE)
            passed = time.monotonic() - began
        else:
            _ends[event.id] = None
            return
    del _ends[event.id]


@dataclass
class _End:
    """The end of a job. If the scheduler cannot be asked, it has only what the event says."""

    run_id: str
    status: AppStatus
    parent: str | None = None
    results: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Mapping[float, float]]] = field(default_factory=dict)
    first: str = "0"
    sharing: Sharing | None = None
    asked: Mapping[str, object] = field(default_factory=dict)


def _finish(tracker: MlflowTracker, event: AppEvent, *, patient: bool) -> None:
    """Write the end of a job into MLflow.

    Args:
        tracker: the MLflow tracker.
        event: the event, with the job and its state.
        patient: raise if its results cannot be read now. Otherwise write the end without them.
    """
    end = _End(event.handle, event.status)
    try:
        _read_end(end)
    except Exception as exc:
        if patient and not isinstance(exc, ConfigError | AppNotFound | ResultsGone):
            raise
        _log.warning("%s has ended in MLflow without its results: %s", event.handle, exc)
    used = end.status.usage()
    peak = None
    if used.peak_memory is not None:
        peak = used.peak_memory / 1e6
    tracker.finish(
        end.run_id,
        _STATUS[event.state],
        results=end.results,
        usage={"peak_memory_megabytes": peak, "cpu_seconds": used.cpu_seconds},
        steps=end.steps,
        first=end.first,
        parent=end.parent,
        sharing=end.sharing,
        asked=end.asked,
    )


def _read_end(end: _End) -> None:
    """Fill in the facts that the scheduler and the job's tracker base have about its end."""
    parsed = parse_app_handle(end.run_id)
    with get_runner() as runner:
        backend = runner.scheduler(parsed.scheduler_backend)
        found = backend.describe([parsed.app_id])[parsed.app_id]
        if found is None:
            raise AppNotFound(end.run_id)
        # the job itself uses the session that submitted it
        session = found.session or parsed.session_name
        end.run_id = make_app_handle(parsed.scheduler_backend, session, parsed.app_id)
        end.status = found.status
        end.parent = found.parent_run_id
        end.asked = asked_words(found.asked)
        if found.checkpoints is not None:
            end.sharing = Sharing.of(end.run_id, found.checkpoints, found.created)
        collected = collect_results(end.run_id, backend, found, {})
        steps = collect_steps(backend, found)
        end.results = collected.results
        end.first = collected.first
        end.steps = steps
