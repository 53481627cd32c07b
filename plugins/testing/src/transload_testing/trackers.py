"""Conformance suites for trackers, to be subclassed in your tests.

They test the rules for every tracker, on any store. Test your tracker's further promises yourself.
"""

from __future__ import annotations

from transload_testing.result_suite import ResultTrackerConformance
from transload_testing.tracker_suite import TrackerConformance

__all__ = ["ResultTrackerConformance", "TrackerConformance"]
