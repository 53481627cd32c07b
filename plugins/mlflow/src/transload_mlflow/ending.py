"""The end of an app in MLflow: its results become metrics, and its run ends as the app did."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from transload.specs import AppState, Usage

if TYPE_CHECKING:
    from transload.plugins import AppEvent
    from transload_mlflow.tracker import MlflowTracker, Status

__all__ = ["note_end"]

_STATUS: Final[dict[AppState, Status]] = {
    AppState.SUCCEEDED: "FINISHED",
    AppState.FAILED: "FAILED",
    AppState.CANCELLED: "KILLED",
}
_log = logging.getLogger("transload_mlflow")
_seen: set[str] = set()


def note_end(event: AppEvent) -> None:
    """Finish the MLflow run of an app that has ended, where a tracker ``mlflow`` is configured.

    It takes a thread of its own: whoever observed the end has other apps to look after. The process waits for it.
    """
    status = _STATUS.get(event.state)
    if status is None or event.id in _seen:
        return
    _seen.add(event.id)
    from transload.runner.config import load_settings
    from transload_mlflow.tracker import create

    configs = [config for name, config in load_settings().trackers().items() if name == "mlflow"]
    for config in configs:
        threading.Thread(target=_finish, args=(create(config), event.handle, status), name="transload-mlflow").start()


def _finish(tracker: MlflowTracker, handle: str, status: Status) -> None:
    from transload.runner import get_runner

    try:
        with get_runner() as runner:
            told, seen, steps = runner.results(handle), runner.status(handle), runner.steps(handle)
        used = Usage() if seen is None else seen.usage()
        memory = None if used.peak_memory is None else used.peak_memory / 1e6
        found = {"peak_memory_megabytes": memory, "cpu_seconds": used.cpu_seconds}
        usage = {name: value for name, value in found.items() if value is not None}
        tracker.finish(handle, status, told.results, usage, steps=steps, first=told.first)
    except Exception as exc:  # the app itself is well
        _log.warning("the end of %s is not in MLflow: %s: %s", handle, type(exc).__name__, exc)
