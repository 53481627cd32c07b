"""The adapter passes the suite that every adapter must pass, driven without Ax."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from transload_ax.states import STATES
from transload_testing import AdapterConformance, ChildDriver

_FOLDER = Path(__file__).parent


class AxDriver(ChildDriver):
    """Runs one trial in a child process."""

    entry = "ax_driver:run"
    environment: ClassVar[Mapping[str, str]] = {
        "PYTHONPATH": os.pathsep.join([str(_FOLDER), *sys.path])
    }


class TestAx(AdapterConformance):
    """Every scenario, on what decides about trials."""

    state_map = STATES
    submit_failed_state = "CANDIDATE"
    cannot: ClassVar[Mapping[str, str]] = {
        "test_app_fails_while_the_host_is_down": "a trial whose job failed is FAILED; Ax answers with another trial",
        "test_retry_is_a_new_attempt": "a trial has one job; Ax answers a FAILED trial with another one",
        "test_crash_in_a_later_attempt": "a trial has one job",
        "test_restart_while_being_cancelled": "a trial whose job is cancelled is ABANDONED, and never run again",
        "test_new_generation_waits_for_the_old_app": "a trial has one generation",
        "test_again_while_the_old_app_does_not_end": "a trial has one generation",
        "test_again_with_detach_waits_for_the_old_app": "a trial has one generation",
        "test_a_try_that_is_over_touches_nothing": "a trial has one generation",
        "test_an_app_of_another_installation_is_refused_while_it_runs": "an experiment has an id of its own everywhere",
    }

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AxDriver:
        """Return a driver of the adapter."""
        return AxDriver(folder, environment)


def test_what_ax_cannot_have_is_published() -> None:
    """The documentation's table is the suite's."""
    page = (_FOLDER.parents[1] / "dev" / "conformance.md").read_text(encoding="utf-8")
    assert TestAx.render_exceptions() in page


def test_the_states_are_published() -> None:
    """The documentation's table of states is the map's."""
    page = (_FOLDER.parents[1] / "docs" / "reference" / "states.md").read_text(encoding="utf-8")
    assert STATES.markdown() in page
