"""Conformance suites for trackers: subclass them in your tests (needs pytest, ``transload[testing]``).

What must hold for every tracker, on any store, is tested here; what only yours promises, test yourself.
"""

from __future__ import annotations

from transload.testing._result_suite import ResultTrackerConformance
from transload.testing._tracker_suite import TrackerConformance

__all__ = ["ResultTrackerConformance", "TrackerConformance"]
