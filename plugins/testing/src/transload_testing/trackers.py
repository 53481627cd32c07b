"""Conformance suites for trackers: subclass them in your tests.

What must hold for every tracker, on any store, is tested here; what only yours promises, test
yourself.
"""

from __future__ import annotations

from transload_testing.result_suite import ResultTrackerConformance
from transload_testing.tracker_suite import TrackerConformance

__all__ = ["ResultTrackerConformance", "TrackerConformance"]
