"""The conformance suite for adapters: subclass `AdapterConformance` in your tests."""

from __future__ import annotations

from transload_testing.adapter_crashes import CrashScenarios
from transload_testing.adapter_endings import EndingScenarios
from transload_testing.adapter_identity import IdentityScenarios
from transload_testing.adapter_unknown import UnknownScenarios

__all__ = ["AdapterConformance"]


class AdapterConformance(EndingScenarios, CrashScenarios, UnknownScenarios, IdentityScenarios):
    """What every adapter must do, whatever its host. Subclass it, set ``state_map`` and override
    ``make_driver``.

    Each test is one scenario. One that a host cannot have is declared in ``cannot``, with the
    reason, and published.
    """

    def test_only_scenarios_are_declared_impossible(self) -> None:
        """What a host is said not to be able to have exists, and has a reason."""
        for name, why in self.cannot.items():
            assert name in self.scenarios(), f"cannot: {name!r} is not a scenario"
            assert why, f"cannot: {name!r} has no reason"
