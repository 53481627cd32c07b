"""The conformance suite for schedulers. Subclass `SchedulerConformance` in your tests."""

from __future__ import annotations

from transload_testing.scheduler_apps import AppTests
from transload_testing.scheduler_identity import IdentityTests
from transload_testing.scheduler_inside import InsideTests
from transload_testing.scheduler_interruptions import InterruptionTests
from transload_testing.scheduler_logs import LogTests
from transload_testing.scheduler_refusals import RefusalTests
from transload_testing.scheduler_stage import (
    Damage,
    Program,
    SchedulerStage,
    damage_file,
    damaged_text,
)

__all__ = [
    "Damage",
    "Program",
    "SchedulerConformance",
    "SchedulerStage",
    "damage_file",
    "damaged_text",
]


class SchedulerConformance(
    AppTests, IdentityTests, InsideTests, InterruptionTests, LogTests, RefusalTests
):
    """The rules for every scheduler.

    Subclass it, and override ``make_scheduler``, ``image``, ``cfg``.

    A field or method that the scheduler's class does not have is not tested, but must be refused.
    What a scheduler lacks otherwise is declared in ``cannot``, with the reason, and published in its
    documentation.
    """

    def test_only_tests_are_declared_impossible(self) -> None:
        """Each test that is declared impossible exists, and has a reason."""
        for name, why in self.cannot.items():
            assert name.startswith("test_"), name
            assert not hasattr(getattr(self, name, None), "submits_once"), (
                f"cannot: {name!r}: one id is one job, always"
            )
            assert hasattr(self, name), f"cannot: {name!r} is not a test"
            assert why, f"cannot: {name!r} has no reason"
