"""Run a real Airflow on SQLite for the tests, with its four processes and LocalExecutor."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

_REPOSITORY = os.fsencode(Path(__file__).parents[2])

T = TypeVar("T")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARTS = ("api-server", "dag-processor", "scheduler", "triggerer")
READY_S = 240.0
WAIT_S = 120.0
SETTINGS = """
import importlib, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "connect")
def never_wait_for_the_disk(connection, record):
    connection.execute("PRAGMA synchronous = OFF")

for name in {modules} if "scheduler" in sys.argv else ():
    importlib.import_module(name)
"""
_CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_BEGINS = "-- started by the tests --\n"
ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class AirflowServer:
    """Starts and stops Airflow in a folder of its own, and talks to its REST API.

    Args:
        home: AIRFLOW_HOME, a folder of the test's.
        dags: folder of DAGs.
        environment: more variables for all of its processes.
        imported: modules that the scheduler imports, from which the processes of tasks are forked.
    """

    def __init__(
        self, home: Path, dags: Path, environment: Mapping[str, str], imported: Collection[str] = ()
    ) -> None:
        self.home = home
        self.port = free_port()
        self.token = ""
        self._parts = home / "parts.json"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, **_settings(home, dags, self.port), **environment}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if imported:
            (home / "config").mkdir(parents=True)
            (home / "config" / "airflow_local_settings.py").write_text(
                SETTINGS.format(modules=list(imported))
            )

    def to_dict(self) -> dict[str, Any]:
        """Return as JSON values what another process needs to use this Airflow."""
        return {
            "home": str(self.home),
            "port": self.port,
            "token": self.token,
            "environment": self.environment,
        }

    @classmethod
    def joined(cls, values: Mapping[str, Any]) -> AirflowServer:
        """Return an Airflow that another process has started, from `to_dict`."""
        made = cls.__new__(cls)
        made.home = Path(values["home"])
        made.port = values["port"]
        made.token = values["token"]
        made.environment = dict(values["environment"])
        made._parts = made.home / "parts.json"
        made._children = {}
        return made

    # -- its processes

    def start(self) -> None:
        """Make the database, start all parts, wait until they answer."""
        self.home.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [*_airflow(), "db", "migrate"], env=self.environment, capture_output=True, text=True
        )
        if made.returncode:
            raise RuntimeError(f"airflow db migrate: {made.stderr[-3000:]}")
        for part in PARTS:
            self.start_part(part)
        self.until(self._healthy, "Airflow is healthy", READY_S)
        self.token = self._get_token()
        self.until(self._has_dags, "the DAGs are parsed", READY_S)

    def start_part(self, part: str) -> None:
        """Start one part, in a session of its own."""
        more = (
            ["--port", str(self.port), "--host", "127.0.0.1", "--workers", "1"]
            if part == "api-server"
            else []
        )
        with open(self.home / f"{part}.log", "ab") as log:
            log.write(_BEGINS.encode())
            log.flush()
            process = subprocess.Popen(
                [*_airflow(), part, *more],
                env={**self.environment, _CONNECTION: _connection(self.home, part)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[process.pid] = process
        _STARTED.append(process)
        self._note({**self._pids(), part: process.pid})

    def end_part(self, part: str, number: int = signal.SIGTERM) -> None:
        """End one part and all of its processes."""
        pids = self._pids()
        pid = pids.pop(part)
        self._note(pids)
        _signal_group(pid, number)
        self._ended(pid, 20)
        _signal_group(pid, signal.SIGKILL)
        assert self._ended(pid, 20), f"{part} cannot be killed"

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End everything, whatever state it is in.

        SIGKILL ends it at once, as a machine goes down.
        """
        pids = list(self._pids().values())
        for pid in pids:
            _signal_group(pid, number)
        end = time.monotonic() + 5
        for pid in pids:
            self._ended(pid, max(0.1, end - time.monotonic()))
        for pid in pids:
            _signal_group(pid, signal.SIGKILL)
            self._ended(pid, 20)
        for pid in self.own_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._parts.unlink(missing_ok=True)

    def pid_of(self, part: str) -> int:
        """Return the process id of a part."""
        return self._pids()[part]

    def parts(self) -> list[str]:
        """Return the parts that were started, whether or not they still run."""
        return list(self._pids())

    def has_ended(self, part: str) -> bool:
        """Tell whether a part that was started has ended by itself."""
        return self._ended(self.pid_of(part), 0)

    def _revive(self) -> None:
        """Start parts again that ended by themselves, as whatever supervises an Airflow does.

        A scheduler that SQLite refuses for long gives up, and then waits for its tasks to end,
        of which some wait for a test.
        """
        with open(self.home / "parts.lock", "a") as lock:  # several processes of the tests wait
            fcntl.flock(lock, fcntl.LOCK_EX)
            for part in self.parts():
                gave_up = part == "scheduler" and self._scheduler_gave_up()
                if gave_up or self.has_ended(part):
                    print(f"{part} of Airflow ended by itself", file=sys.stderr, flush=True)
                    _signal_group(self.pid_of(part), signal.SIGKILL)  # what it has left
                    if part == "scheduler":
                        self._disown_tasks()
                    self.start_part(part)

    def _scheduler_gave_up(self) -> bool:
        """Tell whether the scheduler schedules no more, though its process may live."""
        said = (self.home / "scheduler.log").read_text(errors="replace")
        return "Exception when executing SchedulerJob" in said.rpartition(_BEGINS)[2]

    def _disown_tasks(self) -> None:
        """Let the next scheduler take the tasks of the last one at once, not when it is silent for
        as long as a busy machine may be.
        """
        ended = (
            "UPDATE job SET state = 'failed' WHERE job_type = 'SchedulerJob' AND state = 'running'"
        )
        with self.database() as database:
            database.execute(ended)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Hand out Airflow's database, in a transaction."""
        with (
            closing(sqlite3.connect(self.home / "airflow.db", timeout=60)) as database,
            database,
        ):
            yield database

    def _pids(self) -> dict[str, int]:
        """Return the process ids of its parts, whichever process of the tests started them."""
        try:
            return dict(json.loads(self._parts.read_text()))
        except FileNotFoundError:
            return {}

    def _note(self, pids: Mapping[str, int]) -> None:
        self._parts.write_text(json.dumps(dict(pids)))

    def _ended(self, pid: int, timeout: float) -> bool:
        """Tell whether a part has ended within so many seconds."""
        end = time.monotonic() + timeout
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.02)
        if _runs(pid):
            return False
        child = self._children.get(pid)
        if child is not None:  # its first thread may have ended before its others
            child.wait(10)
        return True

    def own_processes(self) -> list[int]:
        """Return all processes with this Airflow's home in their environment, in any session.

        A job of Slurm's may have that, too, from the task that submitted it: it is not Airflow's.
        """
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    title = (entry / "cmdline").read_bytes()
                    given = (entry / "environ").read_bytes()
                except OSError:
                    continue
                ours = (
                    f"AIRFLOW_HOME={self.home}\0".encode() in given
                    and b"SLURM_JOB_ID=" not in given
                )
                if ours and b"transload" not in title.replace(_REPOSITORY, b""):
                    found.append(int(entry.name))
        return found

    # -- its REST API

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON answer to a request. SQLite, or a busy server, may need a second one."""
        for _ in range(5):
            try:
                return self._call(method, path, body)
            except OSError:
                time.sleep(0.5)
            except RuntimeError as exc:
                if ": 500 " not in str(exc):
                    raise
                time.sleep(0.5)
        return self._call(method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as exc:
            said = exc.read().decode()[:500]
            if exc.code >= 500:
                said += f"; {(self.home / 'api-server.log').read_text(errors='replace')[-3000:]}"
            raise RuntimeError(f"{method} {path}: {exc.code} {said}") from exc

    def _get_token(self) -> str:
        return str(self.call("GET", "/auth/token")["access_token"])

    def _healthy(self) -> bool:
        try:
            health = self._call("GET", "/api/v2/monitor/health", None)
        except (OSError, RuntimeError, ValueError):
            self._check_alive()
            return False
        return all(
            health.get(part, {}).get("status") == "healthy"
            for part in ("scheduler", "triggerer", "dag_processor")
        )

    def _check_alive(self) -> None:
        for part, pid in self._pids().items():
            if not _runs(pid):
                raise RuntimeError(
                    f"{part} ended: {(self.home / f'{part}.log').read_text()[-3000:]}"
                )

    def _has_dags(self) -> bool:
        errors = self.call("GET", "/api/v2/importErrors")["import_errors"]
        if errors:
            raise RuntimeError(f"the DAGs cannot be imported: {errors[0]['stack_trace']}")
        return bool(self.call("GET", "/api/v2/dags?limit=1")["total_entries"])

    # -- runs and tasks

    def pause(self, dag_id: str, paused: bool = True) -> None:
        """Have the scheduler begin no task of a DAG, or (False) begin them again."""
        self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> Run:
        """Start a run of a DAG, and only one, however often a busy server has to be asked."""
        self.pause(dag_id, False)
        run_id = f"manual__{uuid.uuid4().hex}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        try:
            self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)
        except RuntimeError as exc:
            if ": 409 " not in str(exc):  # an answer that came too late
                raise
        return Run(self, dag_id, run_id)

    def until(self, condition: Callable[[], T], what: str, timeout: float = WAIT_S) -> T:
        """Return the first truthy value of a condition, or raise.

        Each question takes some 20 ms.
        """
        end, pause = time.monotonic() + timeout, 0.1
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {timeout} s (last: {value!r})")
            self._revive()
            time.sleep(pause)
            pause = min(pause * 1.3, 0.7)


class Run:
    """A run of a DAG.

    Args:
        server: its Airflow.
        dag_id: its DAG.
        run_id: its id.
    """

    def __init__(self, server: AirflowServer, dag_id: str, run_id: str) -> None:
        self.server = server
        self.dag_id = dag_id
        self.run_id = run_id
        self._path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"

    def task(self, task_id: str = "job", index: int = -1) -> dict[str, Any]:
        """Return what the API says of a task instance."""
        return dict(
            self.server.call("GET", f"{self._path}/taskInstances/{task_id}{_mapped(index)}")
        )

    def state(self, task_id: str = "job", index: int = -1) -> str | None:
        """Return the state of a task instance."""
        found: str | None = self.task(task_id, index)["state"]
        return found

    def over(self) -> bool:
        """Tell whether the run has ended."""
        return self.server.call("GET", self._path)["state"] in ENDED

    def states(self) -> list[str | None]:
        """Return the states of all task instances of the run."""
        found = self.server.call("GET", f"{self._path}/taskInstances")["task_instances"]
        return [each["state"] for each in found]

    def wait(
        self, *states: str, task_id: str = "job", index: int = -1, timeout: float = WAIT_S
    ) -> str:
        """Wait for one of the states. By default, wait for the end of the task."""
        wanted = states or ENDED
        seen: list[str | None] = []

        def reached() -> str | None:
            seen.append(self.state(task_id, index))
            if seen[-1] in ENDED and seen[-1] not in wanted:
                raise AssertionError(
                    f"{self.dag_id}.{task_id} is {seen[-1]}, not {wanted}: "
                    f"{self.log(task_id, index=index)[-3000:]}"
                )
            return seen[-1] if seen[-1] in wanted else None

        try:
            return str(self.server.until(reached, f"{self.dag_id}.{task_id} is {wanted}", timeout))
        except AssertionError as exc:
            raise AssertionError(f"{exc}; log: {self.log(task_id, index=index)[-3000:]}") from None

    def xcom(self, key: str = "return_value", task_id: str = "job", index: int = -1) -> Any:
        """Return an XCom, or None if there is none."""
        try:
            entry = self.server.call(
                "GET",
                f"{self._path}/taskInstances/{task_id}/xcomEntries/{quote(key)}?map_index={index}&deserialize=true",
            )
        except RuntimeError as exc:
            if " 404 " in str(exc):
                return None
            raise
        return entry["value"]

    def log(self, task_id: str = "job", attempt: int | None = None, index: int = -1) -> str:
        """Return the log of a try, by default the latest, as the interface shows it."""
        attempt = attempt or max(1, self.task(task_id, index)["try_number"])
        path = f"{self._path}/taskInstances/{task_id}/logs/{attempt}?map_index={index}&full_content=true"
        try:
            content = self.server.call("GET", path)["content"]
        except RuntimeError as exc:
            if " 404 " in str(exc):
                return ""
            raise
        return (
            "\n".join(_text(each) for each in content)
            if isinstance(content, list)
            else str(content)
        )

    def mark(self, state: str, task_id: str = "job") -> None:
        """Mark a task as a person would."""
        self.server.call("PATCH", f"{self._path}/taskInstances/{task_id}", {"new_state": state})

    def mark_run(self, state: str) -> None:
        """Mark the whole run as a person would."""
        self.server.call("PATCH", self._path, {"state": state})

    def begun_long_ago(self) -> None:
        """Set the start of the run to 2024 in the database, so that a ``dagrun_timeout`` passed."""
        with self.server.database() as database:
            text = "UPDATE dag_run SET start_date = '2024-01-01 00:00:00.000000' WHERE dag_id = ? AND run_id = ?"
            assert database.execute(text, (self.dag_id, self.run_id)).rowcount == 1

    def abandon(self, task_id: str = "job") -> None:
        """Have the scheduler find a task of a scheduler that has died, and begin it again."""
        job = "INSERT INTO job (state, job_type) VALUES ('failed', 'SchedulerJob')"
        text = (
            "UPDATE task_instance SET queued_by_job_id = ? "
            "WHERE dag_id = ? AND run_id = ? AND task_id = ?"
        )
        with self.server.database() as database:
            dead = database.execute(job).lastrowid
            names = (dead, self.dag_id, self.run_id, task_id)
            assert database.execute(text, names).rowcount == 1

    def clear(self, *task_ids: str) -> None:
        """Clear tasks as a person would."""
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": list(task_ids or ("job",)),
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.server.call("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", body)

    def accounted(self, task_id: str, attempt: int, processes: int = 1) -> None:
        """Wait until the scheduler has heard that so many processes of a try have ended.

        Airflow fails a task that is cleared, and queued again, before that.
        """
        key = f"task_id='{task_id}', run_id='{self.run_id}', try_number={attempt},"

        def heard() -> bool:
            lines = (self.server.home / "scheduler.log").read_text(errors="replace").splitlines()
            return (
                sum(
                    "Received executor event with state success" in each and key in each
                    for each in lines
                )
                >= processes
            )

        self.server.until(heard, f"the scheduler knows that {task_id} has ended")

    def links(self, task_id: str = "job") -> dict[str, Any]:
        """Return the extra links of a task."""
        return dict(
            self.server.call("GET", f"{self._path}/taskInstances/{task_id}/links")["extra_links"]
        )


def _mapped(index: int) -> str:
    return "" if index < 0 else f"/{index}"


def _text(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    details = entry.get("error_detail") or []
    causes = [
        f"{each.get('exc_type')}: {each.get('exc_value')}"
        for each in details
        if isinstance(each, dict)
    ]
    return "\n".join([str(entry.get("event", "")), *causes])


def _airflow() -> list[str]:
    return [sys.executable, "-m", "airflow"]


_STARTED: list[subprocess.Popen[bytes]] = []
"""All that this process started, some of which runs on while other processes use it."""


def _runs(pid: int) -> bool:
    """Tell whether a process runs, which a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _connection(home: Path, part: str) -> str:
    """Return where the database is, and how many seconds a part waits for it.

    Two requests to the API server may wait for one another until one of them gives up, and is made
    again. A scheduler or a triggerer that gives up ends.
    """
    return f"sqlite:///{home}/airflow.db?timeout={5 if part == 'api-server' else 60}"


def _settings(home: Path, dags: Path, port: int) -> dict[str, str]:
    folder = home / "dags"
    if not folder.exists():
        home.mkdir(parents=True, exist_ok=True)
        shutil.copytree(dags, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for example in (EXAMPLES / "airflow").glob("*.py"):
            shutil.copy(example, folder)
        without = shutil.ignore_patterns("__pycache__")
        for example in ("chain", "script"):
            shutil.copytree(EXAMPLES / example, folder / example, ignore=without)
        shutil.copytree(EXAMPLES / "digits", home / "digits", ignore=without)
    values = {
        "CORE__DAGS_FOLDER": str(folder),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "10",
        # so long a task that is to end may take, from 3.4; 60 by default
        "CORE__KILLED_TASK_CLEANUP_TIME": "5",
        "CORE__TEST_CONNECTION": "Enabled",
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": "64",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "CORE__FERNET_KEY": "",
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API_AUTH__JWT_SECRET": "only-for-these-tests-0123456789abcdef0123456789abcdef0123456789abcdef",
        "API__SECRET_KEY": "only-for-these-tests",
        "DATABASE__SQL_ALCHEMY_CONN": _connection(home, "scheduler"),
        "LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.4",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        # what a dead scheduler has left, 300 by default
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
        # a scheduler that a busy machine holds up is not dead, and keeps its tasks
        "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "600",
        # a busy machine answers late, and Airflow fails the task at once
        "WORKERS__EXECUTION_API_TIMEOUT": "60",
        "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
        "TRACES__OTEL_ON": "False",
    }
    return {
        "AIRFLOW_HOME": str(home),
        "NO_PROXY": "*",
        **{f"AIRFLOW__{key}": value for key, value in values.items()},
    }
