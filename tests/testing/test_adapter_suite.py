"""The adapter suite itself finds what is wrong, and says what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from transload.pipelines import StateMap
from transload.specs import AppState
from transload_testing import AdapterConformance

TABLE = StateMap("Host", {state: state.name for state in AppState})


class Declared(AdapterConformance):
    """A host that cannot have one scenario."""

    state_map = TABLE
    cannot: ClassVar[Mapping[str, str]] = {"test_slow_scheduler": "its clock stands still"}


def test_thirty_scenarios_at_least() -> None:
    """The suite has the scenarios that the design asks for."""
    assert len(AdapterConformance.scenarios()) >= 45


def test_exceptions_are_rendered() -> None:
    """What a host cannot have is a table for its documentation."""
    assert "| slow scheduler | its clock stands still |" in Declared.render_exceptions()
    assert "scenarios of the conformance suite hold" in AdapterConformance.render_exceptions()


def test_only_scenarios_may_be_declared() -> None:
    """A misspelt declaration, or one without a reason, fails."""
    Declared().test_only_scenarios_are_declared_impossible()

    class Misspelt(Declared):
        cannot: ClassVar[Mapping[str, str]] = {"test_slow_schedulr": "x"}

    class Silent(Declared):
        cannot: ClassVar[Mapping[str, str]] = {"test_slow_scheduler": ""}

    for suite in (Misspelt, Silent):
        with pytest.raises(AssertionError):
            suite().test_only_scenarios_are_declared_impossible()


def test_every_scenario_says_what_it_is() -> None:
    """Each has a docstring, which is its documentation."""
    for name in AdapterConformance.scenarios():
        assert getattr(AdapterConformance, name).__doc__, name
