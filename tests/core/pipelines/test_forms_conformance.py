"""The shared policy passes the adapter suite deferred and asynchronously.

The template covers the blocking form.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from transload.pipelines import StateMap
from transload.specs import AppState
from transload_testing import AdapterConformance, ChildDriver

TABLE = StateMap("Form", {state: state.name for state in AppState})
PATH = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


class DeferredDriver(ChildDriver):
    """Starts, waits and settles through JSON."""

    entry = "form_drivers:deferred"
    environment: ClassVar[Mapping[str, str]] = PATH


class AsyncDriver(ChildDriver):
    """Does all in one event loop."""

    entry = "form_drivers:run_async"
    environment: ClassVar[Mapping[str, str]] = PATH


@pytest.mark.slow
class TestDeferred(AdapterConformance):
    """An orchestrator that hands the waiting to another process, as Airflow does."""

    state_map = TABLE
    unknown_state = AppState.FAILED

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> ChildDriver:
        """Return a driver of the deferred form."""
        return DeferredDriver(folder, environment)


@pytest.mark.slow
class TestAsync(AdapterConformance):
    """As an asynchronous host."""

    state_map = TABLE
    unknown_state = AppState.FAILED

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> ChildDriver:
        """Return a driver of the asynchronous form."""
        return AsyncDriver(folder, environment)
