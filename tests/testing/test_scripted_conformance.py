"""The scripted scheduler passes the suite for schedulers, as far as something that runs nothing
can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transload.specs import AppDef, Role
from transload_testing import Program, SchedulerConformance, ScriptedScheduler


class TestScripted(SchedulerConformance):
    """Programs become scripts."""

    image = "none"
    runs_programs = False

    def make_scheduler(self, folder: Path) -> ScriptedScheduler:
        """Return a scheduler on a folder of the test's own."""
        return ScriptedScheduler("suite", str(folder / "scripted"))

    def make_app(
        self,
        programs: Mapping[str, Program],
        replicas: int,
        folder: Path,
        fields: Mapping[str, Any],
    ) -> AppDef:
        """Return an app that will be seen to do what the programs would."""
        extra = dict(fields)
        timeout = extra.pop("timeout", None)
        roles = [Role(name, "none", entrypoint="none", num_replicas=replicas) for name in programs]
        for name, value in extra.items():
            setattr(roles[0], name, value)
        lines = [
            {"text": text, "role": name, "replica": -1, "stream": stream}
            for name, program in programs.items()
            for stream, texts in (("stdout", program.out), ("stderr", program.err))
            for text in texts
        ]
        worst = max(programs.values(), key=lambda program: abs(program.exit_code))
        running = {
            "state": "RUNNING",
            "lines": lines,
            "seconds": max(each.seconds for each in programs.values()),
        }
        if worst.exit_code:
            roles[0].metadata["scripted"] = {
                "steps": [running, "FAILED"],
                "exit_code": worst.exit_code,
            }
        elif any(program.hold for program in programs.values()):
            roles[0].metadata["scripted"] = {"steps": [running]}
        else:
            roles[0].metadata["scripted"] = {"steps": [running, "SUCCEEDED"]}
        return AppDef("suite", roles, timeout=timeout)
