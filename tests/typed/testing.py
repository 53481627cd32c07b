"""What a plugin author's type checker sees of the wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from transload.schedulers.api import SchedulerBase
from transload.specs import AppDef
from transload_testing import SchedulerConformance, ScriptedControl, ScriptedScheduler, scripted_app

assert_type(scripted_app("a"), AppDef)
scheduler: SchedulerBase = ScriptedScheduler("session", "folder")


class TestMine(SchedulerConformance):
    """A suite of somebody's own."""

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return what is tested."""
        return ScriptedScheduler("suite", str(ScriptedControl(folder).folder.root))
