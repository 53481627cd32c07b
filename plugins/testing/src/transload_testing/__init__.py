"""For authors of schedulers, trackers and adapters: a scheduler that plays scripts, and suites that a plugin must pass.

The suites are pytest classes: subclass one in a test module of yours, say how to make what is tested, and run pytest.
Nothing but the suites' own modules imports pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload_testing.adapter_driver import AdapterDriver, ChildDriver, HostJob, Observed
    from transload_testing.adapters import AdapterConformance
    from transload_testing.schedulers import Program, SchedulerConformance
    from transload_testing.scripted import Line, Script, ScriptedControl, ScriptedScheduler, Step, scripted_app
    from transload_testing.trackers import ResultTrackerConformance, TrackerConformance

_HOMES: Final = {
    "AdapterConformance": "adapters",
    "AdapterDriver": "adapter_driver",
    "ChildDriver": "adapter_driver",
    "HostJob": "adapter_driver",
    "Line": "scripted",
    "Observed": "adapter_driver",
    "Program": "schedulers",
    "ResultTrackerConformance": "trackers",
    "SchedulerConformance": "schedulers",
    "Script": "scripted",
    "ScriptedControl": "scripted",
    "ScriptedScheduler": "scripted",
    "Step": "scripted",
    "TrackerConformance": "trackers",
    "scripted_app": "scripted",
}

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


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
