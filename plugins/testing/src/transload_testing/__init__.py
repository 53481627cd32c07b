"""A scheduler that plays scripts, and conformance suites, for authors of plugins.

The suites are pytest classes. Subclass one in a test module, say how to make what is tested, and
run pytest. Nothing but the suites' own modules imports pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_testing.adapter_driver import AdapterDriver, ChildDriver, HostJob, Observed
    from transload_testing.adapters import AdapterConformance
    from transload_testing.schedulers import Program, SchedulerConformance
    from transload_testing.scripted import (
        Line,
        Script,
        ScriptedControl,
        ScriptedScheduler,
        Step,
        scripted_app,
    )
    from transload_testing.trackers import ResultTrackerConformance, TrackerConformance

__all__ = [
    "AdapterConformance",
    "AdapterDriver",
    "ChildDriver",
    "HostJob",
    "Line",
    "Observed",
    "Program",
    "ResultTrackerConformance",
    "SchedulerConformance",
    "Script",
    "ScriptedControl",
    "ScriptedScheduler",
    "Step",
    "TrackerConformance",
    "__version__",
    "scripted_app",
]

__version__: Final = "0.1.0"

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "adapter_driver": "AdapterDriver ChildDriver HostJob Observed",
        "adapters": "AdapterConformance",
        "schedulers": "Program SchedulerConformance",
        "scripted": "Line Script ScriptedControl ScriptedScheduler Step scripted_app",
        "trackers": "ResultTrackerConformance TrackerConformance",
    },
)
