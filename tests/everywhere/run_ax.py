"""A trial of a real Ax experiment."""

from __future__ import annotations

import os
import time

import row
from ax_trial import one_trial

from transload.runner import get_runner
from transload_ax import TRANSLOAD_APP_HANDLE

began = time.monotonic()
trial, accuracy = one_trial(os.environ["TRANSLOAD_HOME"] + "/ax-results")
seconds = time.monotonic() - began
handle = trial.run_metadata[TRANSLOAD_APP_HANDLE]
with get_runner() as runner:
    status = runner.status(handle)
row.emit("Ax", handle, status.state.name if status else "", trial.status.name, accuracy, seconds)
