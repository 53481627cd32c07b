"""The conformance suite for adapters. Subclass `AdapterConformance` in your tests."""

from __future__ import annotations

from transload_testing.adapter_crashes import CrashScenarios
from transload_testing.adapter_endings import EndingScenarios
from transload_testing.adapter_identity import IdentityScenarios
from transload_testing.adapter_unknown import UnknownScenarios

__all__ = ["AdapterConformance"]


class AdapterConformance(EndingScenarios, CrashScenarios, UnknownScenarios, IdentityScenarios):
    """The tests for every adapter. Subclass it, set ``state_map`` and override ``make_driver``.

    Each test is one scenario. Declare scenarios that the orchestrator cannot have in ``cannot``, each
    with a reason, and publish them.
    """

    def test_only_scenarios_are_declared_impossible(self) -> None:
        """Each scenario that is declared impossible exists, and has a reason."""
        for name, why in self.cannot.items():
            assert name in self.scenarios(), f"cannot: {name!r} is not a scenario"
            assert why, f"cannot: {name!r} has no reason"
