"""Run a search to its end in one process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from transload.pipelines import (
    AdapterIO,
    Asked,
    Driver,
    ExecutionOptions,
    LifecycleState,
    LogSink,
    interrupted,
)
from transload.runner import Runner
from transload.specs import AppState
from transload_search.ledger import SearchLedger
from transload_search.search import SearchFailed, SearchTrial

STEPS_SECONDS: Final = 1.0
"""Longest pause between two reads of the running trials' steps, if they may be stopped early."""


def run_search(
    ledger: SearchLedger,
    runner: Runner,
    options: ExecutionOptions | None = None,
    *,
    sink_of: Callable[[SearchTrial], LogSink | None] | None = None,
    on_change: Callable[[], None] | None = None,
    asked: Asked | None = None,
) -> dict[str, Any]:
    """Run a search to its end and return its summary (`SearchLedger.summary`).

    Called again after a crash with the same ledger, it continues. Trials that have ended do not run
    again, and it reattaches to the running ones.

    Args:
        ledger: the search and its tracker base.
        runner: submits and watches the jobs; see `transload.pipelines.host_runner`.
        options: options for each trial's job. By default a cancelled trial runs again, and a failed
            one does not.
        sink_of: trial → the sink for its log lines.
        on_change: called when a trial has started or ended.
        asked: returns whether the end of the search was requested (see
            `transload.pipelines.AdapterIO`).
