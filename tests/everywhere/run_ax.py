"""Trials of a real Ax experiment. Ax has no place for a job's lines."""

from __future__ import annotations

from ax_trial import one_trial
from row import ENGINES, Cell

from transload.runner import get_runner
from transload_ax import TRANSLOAD_APP_HANDLE

for engine in ENGINES:
    cell = Cell("Ax", engine)
    trial, accuracy = one_trial(engine)
    handle = trial.run_metadata[TRANSLOAD_APP_HANDLE]
    with get_runner() as runner:
        status = runner.status(handle)
    cell.emit(handle, status.state.name if status else "", trial.status.name, accuracy, None)
