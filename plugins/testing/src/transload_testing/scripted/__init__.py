"""A scheduler that runs nothing and plays a script.

A script is any course of events, the same each time, and seen by any process.
"""

from __future__ import annotations

from transload_testing.scripted.control import ScriptedControl, scripted_app
from transload_testing.scripted.scheduler import ScriptedScheduler, create_scheduler
from transload_testing.scripted.script import Line, Moment, Script, Step

__all__ = [
    "Line",
    "Moment",
    "Script",
    "ScriptedControl",
    "ScriptedScheduler",
    "Step",
    "create_scheduler",
    "scripted_app",
]
