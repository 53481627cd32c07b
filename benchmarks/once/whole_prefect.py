"""A whole Prefect: server, and a worker, which runs each flow run in a process of its own."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
from harness import HERE, Observed, app_of, words_of
from whole import FROZEN_S, WholeHost

NUMBERS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
FLOWS = str(HERE / "rivals")
READY_S = 240.0
WITHOUT_PROCESS_S = {"CRASHED": 5, "RUNNING": 5, "PENDING": 30}
"""So long may a flow run have no process; a worker that ends just after its claim leaves it PENDING
for ever, and one that is given a run that it has not let go yet ends."""


class Host(WholeHost):
    """See the module."""

    victims = ("process", "worker", "server", "machine")
    success = "COMPLETED"

    def __init__(self, folder: Path, engine: str, name: str) -> None:
        super().__init__(folder, engine, name)
        self.tools = ["transload"]
        self.tools += {
            "local": ["shell", "shell_defaults"],
            "kubernetes": ["kubernetes_job", "kubernetes_job_defaults"],
        }.get(engine, [])
        if engine == "local":  # jobs of this machine end with it, of right
            self.victims = self.victims[:-1]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{self._port}/api"
        self._environment = os.environ | {
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self._url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.5",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_PREFETCH_SECONDS": "1",
            "PREFECT_CLI_PROMPT": "false",
            # two minutes: so long a server may take to start on a busy machine
            "PREFECT_CLIENT_MAX_RETRIES": "6",
            "ONCE_LEDGER": str(folder / "ledger"),
        }
        if engine == "kubernetes":
            table = tomllib.loads(Path(os.environ["TRANSLOAD_CONFIG"]).read_text())["schedulers"][
                "kubernetes"
            ]
            self._environment |= {
                "ONCE_NAMESPACE": table["namespace"],
                "KUBECONFIG": table["kubeconfig"],
            }
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._deployments: dict[str, str] = {}
        self._gone: dict[str, float] = {}

    # -- its processes

    def start(self) -> None:
        """Start the server, deploy the flow, start the worker."""
        self._start("server")
        end = time.monotonic() + READY_S
        while not self._answers():
            if time.monotonic() > end:
                raise RuntimeError((self.folder / "server.log").read_text()[-3000:])
            time.sleep(0.3)
        made = subprocess.run(
            [sys.executable, f"{FLOWS}/prefect_flows.py"],
            env=self._environment,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(made.stdout + made.stderr)
        self._deployments = {
            each["name"]: each["id"] for each in self._ask("POST", "/deployments/filter", {})
        }
        self._start("worker")

    def _start(self, part: str) -> None:
        words = {
            "server": [
                "server",
                "start",
                "--host",
                "127.0.0.1",
                "--port",
                str(self._port),
                "--no-ui",
            ],
            "worker": [
                "worker",
                "start",
                "--pool",
                "once",
                "--type",
                "process",
                "--name",
                "one",
                "--limit",
                "100",
            ],
        }[part]
        with open(self.folder / f"{part}.log", "ab") as log:
            self._parts[part] = subprocess.Popen(
                [sys.executable, "-m", "prefect", *words],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _processes(self) -> dict[str, list[int]]:
        """Return the processes of flow runs, by the run's id."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            try:
                ours = (
                    entry.name.isdigit() and self._url.encode() in (entry / "environ").read_bytes()
                )
                words = (entry / "cmdline").read_bytes().split(b"\0") if ours else []
                run = (
                    (entry / "environ")
                    .read_bytes()
                    .partition(b"PREFECT__FLOW_RUN_ID=")[2]
                    .partition(b"\0")[0]
                )
            except OSError:
                continue
            if run and any(b"prefect" in word for word in words[:3]):
                found.setdefault(run.decode(), []).append(int(entry.name))
        return found

    def strike(self, victim: str, way: str, chance: random.Random) -> None:
        """Strike the server, the worker, half of the flow runs' processes, or everything."""
        end = time.monotonic() + FROZEN_S
        while not (flows := sorted(self._processes().values())) and time.monotonic() < end:
            time.sleep(0.1)
        if victim == "machine":
            for pid in [*chain.from_iterable(flows), *(each.pid for each in self._parts.values())]:
                _signal(pid, signal.SIGKILL)
            for part in list(self._parts):
                self._end(part, signal.SIGKILL)
                self._start(part)
            return
        pids = list(chain.from_iterable(chance.sample(flows, (len(flows) + 1) // 2)))
        if victim in self._parts:
            pids = [self._parts[victim].pid]
        if way == "freeze":
            for pid in pids:
                _signal(pid, signal.SIGSTOP)
            time.sleep(FROZEN_S)
            for pid in pids:
                _signal(pid, signal.SIGCONT)
        elif victim in self._parts:
            self._end(victim, NUMBERS[way])
            self._start(victim)
        else:
            for pid in pids:
                _signal(pid, NUMBERS[way])

    def _end(self, part: str, number: int) -> None:
        process = self._parts[part]
        _signal(process.pid, number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all of it."""
        for pid in chain.from_iterable(self._processes().values()):
            _signal(pid, signal.SIGKILL)
        for part in reversed(list(self._parts)):
            self._end(part, signal.SIGTERM)

    # -- units

    def begin(self, tool: str, unit: str, ledger: Path) -> str:
        """Have the deployment run; return the flow run's id."""
        results = ledger / f"results.{unit}"
        results.mkdir()
        parameters = {
            "tool": tool,
            "unit": unit,
            "app": app_of(ledger, unit, self.engine),
            "scheduler": self.engine,
            "command": shlex.join(words_of(ledger, unit)),
            "results": str(results),
        }
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}, "idempotency_key": unit}
        deployment = self._deployments["once"]
        while True:
            try:
                return str(
                    self._ask("POST", f"/deployments/{deployment}/create_flow_run", body)["id"]
                )
            except httpx.HTTPError:
                time.sleep(0.5)

    def look(self, tool: str, run: str) -> Observed:
        """Ask the server; what the flow's next step was given lies in a file."""
        try:
            found = self._ask("GET", f"/flow_runs/{run}")
            if found["state_type"] not in (
                "COMPLETED",
                "FAILED",
                "CANCELLED",
            ):  # CRASHED: see `tend`
                return Observed(alive=True)
            given = Path(found["parameters"]["results"], "given.json")
            logs, offset = [], 0
            while page := self._ask(
                "POST",
                "/logs/filter",
                {
                    "logs": {"flow_run_id": {"any_": [run]}},
                    "sort": "TIMESTAMP_ASC",
                    "limit": 200,
                    "offset": offset,
                },
            ):
                logs += [line for each in page for line in each["message"].splitlines()]
                offset += len(page)
            return Observed(
                state=found["state_type"],
                results=json.loads(given.read_text()) if given.exists() else None,
                logs=logs,
            )
        except httpx.HTTPError:
            return Observed(alive=True)

    def tend(self, runs: list[tuple[str, Any]]) -> None:
        """Schedule again what crashed, or has had no process for a while: what an automation on
        both would do.

        A part that ended by itself is started again, as by its supervisor.
        """
        for part, process in list(self._parts.items()):
            if process.poll() is not None:
                print(
                    f"{part} ended by itself: exit {process.returncode}",
                    file=sys.stderr,
                    flush=True,
                )
                self._start(part)
        there = self._processes()
        for _, run in runs:
            try:
                state = self._ask("GET", f"/flow_runs/{run}")["state_type"]
                dead = state in WITHOUT_PROCESS_S and run not in there
                self._gone = (
                    {**self._gone, run: self._gone.get(run, time.monotonic())}
                    if dead
                    else {each: since for each, since in self._gone.items() if each != run}
                )
                if dead and time.monotonic() > self._gone[run] + WITHOUT_PROCESS_S[state]:
                    again = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": True}
                    self._ask("POST", f"/flow_runs/{run}/set_state", again)
                    self._gone.pop(run, None)
            except httpx.HTTPError:
                continue

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/health")
        except httpx.HTTPError:
            return False
        return True

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(method, self._url + path, json=body, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
