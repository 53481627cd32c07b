"""Control scripted jobs from a test.

It opens gates, plays outages, makes jobs vanish, and counts what was asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from transload.schedulers.folder.home import make_private
from transload.specs import AppDef, Role
from transload_testing.scripted.folder import ENV_DIR, Folder
from transload_testing.scripted.scheduler import OUTAGE
from transload_testing.scripted.script import Script


def scripted_app(
    name: str,
    script: Script | Mapping[str, Any] | None = None,
    *,
    roles: Mapping[str, int] | None = None,
) -> AppDef:
    """Return a job that plays a script on the scripted scheduler.

    Args:
        name: name of the job.
        script: the script, or its JSON values. By default it succeeds at once.
        roles: replicas of each role by name, by default one role ``main`` of one replica.
    """
    values = script.to_dict() if isinstance(script, Script) else dict(script or {})
    Script.from_dict(values)
    made = [
        Role(role, image="none", entrypoint="none", num_replicas=replicas)
        for role, replicas in (roles or {"main": 1}).items()
    ]
    made[0].metadata["scripted"] = values
    return AppDef(name, made)


class ScriptedControl:
    """Directs the scripted jobs of a folder, from any process.

    Args:
        folder: the folder of the scripted scheduler.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Folder(folder)

    def environment(self) -> dict[str, str]:
        """Return the variables that make a process use this folder."""
        return {ENV_DIR: str(self.folder.root)}

    def open(self, gate: str, app_id: str | None = None) -> None:
        """Open a gate of one job, or of all jobs."""
        make_private(self.folder.root)
        self.folder.mark(gate, app_id)

    def outage(self, on: bool = True) -> None:
        """Start or end an outage, in which all queries and submits fail."""
        if on:
            self.open(OUTAGE)
        else:
            self.folder.unmark(OUTAGE)

    def vanish(self, app_id: str, *, forget: bool = False) -> None:
        """Make a job disappear.

        Args:
            app_id: the job.
            forget: the record of its id disappears too.
        """
        self.folder.remove(app_id)
        if forget:
            self.folder.forget(app_id)

    def calls(self, call: str | None = None, app_id: str | None = None) -> list[dict[str, Any]]:
        """Return what was asked of the scheduler, oldest first.

        Each is a dict with ``call``, ``time``, ``pid``, ``app_id`` …
        """
        return [
            each
            for each in self.folder.calls()
            if (call is None or each["call"] == call)
            and (app_id is None or each.get("app_id") == app_id)
        ]

    def started(self) -> list[str]:
        """Return the ids of all jobs that were ever started, oldest first."""
        return [each["app_id"] for each in self.calls("submit") if each.get("started")]
