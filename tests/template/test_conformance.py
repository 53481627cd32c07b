"""The template's adapter passes the suite that every adapter must pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from transload_testing import AdapterConformance, ChildDriver
from transload_tinyflow.states import STATES

_FOLDER = Path(__file__).parent
_TEMPLATE = Path(__file__).parents[2] / "plugins" / "_template"


class TinyflowDriver(ChildDriver):
    """Runs one step of Tinyflow in a child process."""

    entry = "tinyflow_driver:run"
    environment: ClassVar[Mapping[str, str]] = {
        "PYTHONPATH": os.pathsep.join(
            [str(_TEMPLATE / "src"), str(_TEMPLATE), str(_FOLDER), *sys.path]
        )
    }


class TestTinyflow(AdapterConformance):
    """Every scenario, on Tinyflow."""

    state_map = STATES
    cannot: ClassVar[Mapping[str, str]] = {
        "test_app_vanishes_without_a_record_while_the_host_is_down": (
            "nothing is kept in the host: what its scheduler has forgotten altogether never was"
        ),
    }

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> TinyflowDriver:
        """Return a driver of the template's adapter."""
        return TinyflowDriver(folder, environment)
