"""A whole Airflow: scheduler with LocalExecutor, triggerer, DAG processor, API server; workers are
its processes.
"""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import shutil
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from harness import HERE, TESTS, Observed, app_of, words_of
from whole import FROZEN_S, WholeHost

sys.path.insert(0, str(TESTS / "airflow"))

from airflow_server import ENDED, PARTS, AirflowServer, Run
from warm import AIRFLOW_TASKS, IMPORTED

UNHEALTHY_S = 60.0
"""Airflow's own chart waits longer; it calls a part unhealthy that has not been heard of for 30
s."""
NUMBERS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "freeze": signal.SIGSTOP,
    "thaw": signal.SIGCONT,
}


class Host(WholeHost):
    """See the module."""

    victims = ("worker", "task", "triggerer", "scheduler", "api-server", "machine")
    success = "success"

    def __init__(self, folder: Path, engine: str, name: str) -> None:
        super().__init__(folder, engine, name)
        self.tools = ["transload", "transload_sync"]
        self.tools += {
            "local": ["bash", "bash_defaults"],
            "slurm": ["resumable"],
            "kubernetes": ["pod", "pod_deferrable", "pod_defaults"],
        }.get(engine, [])
        if engine == "local":  # jobs of this machine end with it, of right
            self.victims = self.victims[:-1]
        (dags := folder / "dags").mkdir()
        for file in ("airflow_dags.py", "airflow_slurm.py"):
            shutil.copy(HERE / "rivals" / file, dags)
        more = {
            "ONCE_TOOLS": " ".join(self.tools),
            "ONCE_TESTS": str(HERE),
            "ONCE_LEDGER": str(folder / "ledger"),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
            # what a dead scheduler had queued; default: 300
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
            # when it is taken for dead, and its tasks are; one may be frozen for less; default: 30
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "40",
            "AIRFLOW__CORE__PARALLELISM": "16",
        }
        if engine == "kubernetes":
            table = tomllib.loads(Path(os.environ["TRANSLOAD_CONFIG"]).read_text())["schedulers"][
                "kubernetes"
            ]
            more |= {"ONCE_NAMESPACE": table["namespace"], "ONCE_KUBECONFIG": table["kubeconfig"]}
            sidecar = {
                "kube_config_path": table["kubeconfig"],
                "xcom_sidecar_container_image": table["image"],
            }
            more["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps(
                {"conn_type": "kubernetes", "extra": sidecar}
            )
        modules = [*AIRFLOW_TASKS, *IMPORTED[engine]]
        modules += ["airflow.providers.standard.operators.bash"]
        modules += (
            ["airflow.providers.cncf.kubernetes.operators.pod"] if engine == "kubernetes" else []
        )
        self._ill: dict[str, float] = {}
        self._server = AirflowServer(folder / "airflow", dags, more, modules)

    def start(self) -> None:
        """Start all parts."""
        self._server.start()

    def begin(self, tool: str, unit: str, ledger: Path) -> Run:
        """Trigger the DAG of the tool."""
        results = ledger / f"results.{unit}"
        conf = {
            "app": json.loads(app_of(ledger, unit, self.engine)),
            "scheduler": self.engine,
            "results": str(results),
            "unit": unit,
            "command": shlex.join(words_of(ledger, unit)),
            "pod": shlex.join(words_of(ledger, unit)[1:]),
        }
        return self._server.trigger(tool, conf)

    def strike(self, victim: str, way: str, chance: random.Random) -> None:
        """Strike a daemon, the processes of half of the running tasks, or everything."""
        if victim in ("worker", "task"):
            end = time.monotonic() + FROZEN_S
            while not (there := self._workers(alone=victim == "task")) and time.monotonic() < end:
                time.sleep(0.05)
            self._hit(_some(there, chance), way)
        elif victim == "machine":
            self._server.stop(signal.SIGKILL)
            self._restart(list(PARTS))
        elif way == "freeze":
            self._freeze(os.getpgid(self._server.pid_of(victim)))
        else:
            self._server.end_part(victim, NUMBERS[way])
            self._restart([victim])

    def clear(self, run: Run) -> None:
        """Clear the task."""
        run.clear()

    def _restart(self, parts: list[str]) -> None:
        for part in parts:
            self._server.start_part(part)

    def _workers(self, *, alone: bool = False) -> list[int]:
        """Return the processes of tasks: each a supervisor, below the executor, with what it
        supervises.

        Args:
            alone: only those that are supervised.
        """
        found = []
        for pid in self._server.own_processes():
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"airflow worker -- ") and b"<idle>" not in title:
                found.append(pid)
        if alone:
            return [pid for pid in found if _parent_of(pid) in found]
        return found

    def _hit(self, pids: list[int], way: str) -> None:
        for pid in pids:
            try:
                os.kill(pid, NUMBERS[way])
            except ProcessLookupError:
                continue
        if way == "freeze":
            time.sleep(FROZEN_S)
            self._hit(pids, "thaw")

    def _freeze(self, group: int) -> None:
        os.killpg(group, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        os.killpg(group, signal.SIGCONT)

    def look(self, tool: str, run: Run) -> Observed:
        """Ask the API server."""
        try:
            task = run.task()
            state = task["state"] if task["state"] in ENDED else None
            if state is None:
                return Observed(alive=True)
            lines = "\n".join(
                run.log(attempt=k + 1) for k in range(max(1, task["try_number"]))
            ).splitlines()
            return Observed(state=state, results=run.xcom(), logs=lines)
        except (OSError, RuntimeError):  # it is being started again
            return Observed(alive=True)

    def tend(self, runs: list[tuple[str, Any]]) -> None:
        """Start again what ended by itself, or has been unhealthy for a while: what a liveness
        probe is for. Clear again what a clear did not reach.

        A scheduler that SQLite refuses too often gives up, and may then wait for its workers for
        ever.
        """
        try:
            health = self._server.call("GET", "/api/v2/monitor/health")
            self._clear_forgotten([run for _, run in runs])
        except (OSError, RuntimeError):
            health = {}
        for part in self._server.parts():
            ill = health.get(part.replace("-", "_"), {}).get("status") == "unhealthy"
            self._ill[part] = (
                min(self._ill.get(part, math.inf), time.monotonic()) if ill else math.inf
            )
            if self._server.has_ended(part):
                print(f"{part} ended by itself", file=sys.stderr, flush=True)
                self._server.start_part(part)
            elif time.monotonic() > self._ill[part] + UNHEALTHY_S:
                print(f"{part} is unhealthy, and was killed", file=sys.stderr, flush=True)
                self._server.end_part(part, signal.SIGKILL)
                self._server.start_part(part)
                self._ill[part] = math.inf

    def _clear_forgotten(self, runs: list[Run]) -> None:
        """Clear tasks again whose run has ended in the moment of a clear, as Airflow forgets them."""
        for run in runs:
            if run.over() and run.state() is None:
                run.clear()

    def stop(self) -> None:
        """End all parts."""
        self._server.stop()


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _some(pids: list[int], chance: random.Random) -> list[int]:
    """Return about half of them, at least one if there is one."""
    ordered = sorted(pids)
    return chance.sample(ordered, (len(ordered) + 1) // 2)
