"""The end of an app in MLflow: its results become metrics, and its run ends as the app did."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, ConfigError
from transload.schedulers.patience import backoff
from transload.specs import AppState, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.plugins import AppEvent
    from transload_mlflow.tracker import MlflowTracker, Status

__all__ = ["note_end"]

_STATUS: Final[dict[AppState, Status]] = {
    AppState.SUCCEEDED: "FINISHED",
    AppState.FAILED: "FAILED",
    AppState.CANCELLED: "KILLED",
}
_LIMIT: Final = (
    30.0  # seconds for which whoever saw an end waits: a host may end its process hard right after
)
_PAUSES: Final = (1.0, 60.0)  # between two tries: at first, and at most
_READING: Final = 600.0  # seconds after which an end does without what cannot be read
_TRYING: Final = 3600.0
_log = logging.getLogger("transload_mlflow")
_ends: dict[
    str, threading.Thread | None
] = {}  # those under way, and (None) those that came through


def note_end(event: AppEvent) -> None:
    """Finish the MLflow run of an app that has ended, where a tracker ``mlflow`` is configured.

    It is done in time, unless MLflow is out of reach: then it is tried again, and later ends are
    not waited for.
    """
    if event.state not in _STATUS or event.id in _ends:
        return
    from transload.runner.config import load_settings
    from transload_mlflow.tracker import create

    trackers = load_settings().trackers()
    if "mlflow" not in trackers:
        return
    thread = threading.Thread(
        target=_keep_trying, args=(event, create(trackers["mlflow"])), daemon=True
    )
    late = any(each is not None and each.is_alive() for each in list(_ends.values()))
    _ends[event.id] = thread
    thread.start()
    thread.join(0 if late else _LIMIT)
    if thread.is_alive() and not late:
        _log.warning(
            "the end of %s is not in MLflow yet: it is tried as long as this process lives",
            event.handle,
        )


def _keep_trying(event: AppEvent, tracker: MlflowTracker) -> None:
    began, pause = time.monotonic(), _PAUSES[0]
    while (passed := time.monotonic() - began) < _TRYING:
        try:
            _finish(tracker, event, patient=passed < _READING)
        except Exception as exc:  # the app itself is well
            if pause == _PAUSES[0]:
                _log.warning(
                    "the end of %s is not in MLflow: %s: %s", event.handle, type(exc).__name__, exc
                )
            time.sleep(pause)
            pause = backoff(pause, _PAUSES[1])
        else:
            _ends[event.id] = None
            return
    del _ends[event.id]


def _finish(tracker: MlflowTracker, event: AppEvent, *, patient: bool) -> None:
    from transload.runner import get_runner
    from transload.runner.results import collect_results, collect_steps

    parsed, run_id, ended, more = (
        parse_app_handle(event.handle),
        event.handle,
        event.status,
        dict[str, Any](),
    )
    try:
        with get_runner() as runner:
            backend = runner.scheduler(parsed.scheduler_backend)
            found = backend.describe(parsed.app_id)
            if found is None:
                raise AppNotFound(event.handle)
            # a job knows itself by the session that submitted it
            run_id = make_app_handle(
                parsed.scheduler_backend, found.session or parsed.session_name, parsed.app_id
            )
            ended, more = found.status, {"parent": found.parent_run_id}
            told = collect_results(run_id, backend, found, {})
            more |= {
                "results": told.results,
                "first": told.first,
                "steps": collect_steps(backend, found),
            }
    except Exception as exc:
        if patient and not isinstance(exc, ConfigError | AppNotFound):
            raise
        _log.warning("%s has ended in MLflow without its results: %s", event.handle, exc)
    used = ended.usage()
    usage = {
        "peak_memory_megabytes": used.peak_memory and used.peak_memory / 1e6,
        "cpu_seconds": used.cpu_seconds,
    }
    tracker.finish(run_id, _STATUS[event.state], usage=usage, **more)
