"""Scripted apps for the tests on a real Airflow."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Mapping
from typing import Any

from airflow_server import AirflowServer, Run

from transload.pipelines import host_runner
from transload.runner import Cluster
from transload.specs import AppDef, parse_app_handle
from transload_testing import ScriptedControl, scripted_app


def held(*after: Any, lines: Any = (), **more: Any) -> dict[str, Any]:
    """Return a script that runs until its gate is opened."""
    return {
        "steps": [
            {"state": "RUNNING", "until": "go", "lines": list(lines)},
            *(after or ("SUCCEEDED",)),
        ],
        **more,
    }


class Stage:
    """Runs of scripted apps, told apart by the name of the app.

    Args:
        server: a real Airflow.
        control: directs the scripted apps.
    """

    def __init__(self, server: AirflowServer, control: ScriptedControl) -> None:
        self.server = server
        self.control = control
        self._names: dict[str, str] = {}

    def run(
        self,
        dag_id: str,
        script: Mapping[str, Any] | AppDef,
        roles: Mapping[str, int] | None = None,
    ) -> Run:
        """Start a run of a DAG with a job, either scripted or real on the local scheduler."""
        name = f"app-{uuid.uuid4().hex}"
        ours = isinstance(script, AppDef)
        app = script if isinstance(script, AppDef) else scripted_app(name, script, roles=roles)
        conf = {"app": json.loads(app.to_json()), "scheduler": "local" if ours else "scripted"}
        run = self.server.trigger(dag_id, conf)
        self._names[f"{dag_id} {run.run_id}"] = app.name
        return run

    def started(self, run: Run) -> list[str]:
        """Return the ids of all apps that a run has started, oldest first."""
        name = self._names[f"{run.dag_id} {run.run_id}"]
        found = []
        for app_id in self.control.started():
            record = self.control.folder.record(app_id)
            if record is not None and json.loads(record["app"])["name"] == name:
                found.append(app_id)
        return found

    def handle(self, run: Run, index: int = -1) -> str:
        """Wait for the handle of a run's app."""
        found: str = self.server.until(lambda: run.xcom("handle", index=index), "a handle as XCom")
        return found

    def app_id(self, run: Run, count: int = 1) -> str:
        """Wait until a run has started that many jobs, and return the id of the last one."""
        found = self.server.until(
            lambda: len(self.started(run)) >= count and self.started(run), f"{count} apps"
        )
        assert len(found) == count
        return str(found[-1])

    def go(self, run: Run, index: int = -1, gate: str = "go") -> None:
        """Open the gate of a run's latest app."""
        self.control.open(gate, parse_app_handle(self.handle(run, index)).app_id)

    def watched(self, app_id: str) -> None:
        """Wait until Airflow has asked about an app, once from now on."""
        before = len(self.control.calls("describe"))
        self.server.until(
            lambda: len(self.control.calls("describe")) > before,
            f"a question about {app_id}",
        )

    def ended(self, app_id: str) -> bool:
        """Tell whether an app has ended."""
        folder = str(self.control.folder.root)
        place = Cluster("scripted", "scripted", {"scripted_dir": folder})
        runner = host_runner("test", clusters=[place])
        status = runner.status(f"scripted://test/{app_id}")
        return status is not None and status.is_terminal()

    def cancelled(self, app_id: str) -> bool:
        """Tell whether the end of an app was asked for."""
        return bool(self.control.calls("cancel", app_id))


def kill_task(stage: Stage, run: Run) -> str:
    """Kill the process of a task that waits in place, as an out-of-memory killer would.

    Returns the job's id.
    """
    app_id = stage.app_id(run)
    stage.handle(run)
    os.kill(stage.control.calls("submit", app_id)[0]["pid"], signal.SIGKILL)
    return app_id
