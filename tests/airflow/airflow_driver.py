"""Do for the conformance suite what Airflow's task runner and triggerer do around a task.

Each task runs in a process of its own, forked from a server that has imported Airflow once. The
context is made here (the daemons have tests of their own). The operator and the trigger are the
real ones.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from warm import Warm, warm_up

STARTS: Final = {
    "monday": dt.datetime(2026, 1, 5, tzinfo=dt.UTC),
    "tuesday": dt.datetime(2026, 1, 6, tzinfo=dt.UTC),
}
"""When a run began."""


class Stored:
    """What ``context["task_state_store"]`` is, in a file per key."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return JsonFileStore(f"{self._prefix}.{key}").get() or default

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Keep a value."""
        JsonFileStore(f"{self._prefix}.{key}").put(value)


class TaskInstance(SimpleNamespace):
    """What the operator needs of a task instance."""

    def xcom_push(self, key: str, value: Any) -> None:
        """Check that Airflow could keep the value."""
        json.dumps(value, allow_nan=False)


class Lines(logging.Handler):
    """Reports each log record as a line of the host's log."""

    def __init__(self, child: ChildJob) -> None:
        super().__init__(logging.INFO)
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        """Report a record."""
        self._child.log(record.getMessage())


def run_task(child: ChildJob, deferrable: bool) -> None:
    """Run one task as Airflow would, and report how it ended."""
    from airflow.providers.common.compat.sdk import (
        AirflowFailException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )

    from transload_airflow import TransloadOperator, task_instance

    app_log = logging.getLogger("transload.app")
    app_log.setLevel(logging.INFO)
    app_log.addHandler(Lines(child))
    job = child.job
    options = {"deferrable": deferrable, "defer_after": 0, **job.options}
    launch = child.launch
    folder, words = launch.pop("folder", None), launch.pop("args", None)
    task = TransloadOperator(task_id="job", component_args=words, **launch, **options)
    task._cached_logger = app_log  # of what it says of the job
    now = dt.datetime.now(dt.UTC)
    cleared = int(job.generation)
    failures = Path(f"{child.store}.{cleared}.failures")
    number = 100 * cleared + 1
    if failures.exists():
        number += len(failures.read_text())
    ti = TaskInstance(
        id=f"{number:08}",
        dag_id=job.namespace,
        run_id="run",
        task_id=job.name,
        map_index=-1,
        max_tries=cleared,
        try_number=number,
        start_date=now,
    )
    context = {
        "ti": ti,
        "task": task,
        "dag": SimpleNamespace(fileloc=folder and f"{folder}/dag.py"),
        "dag_run": SimpleNamespace(clear_number=cleared, start_date=STARTS[job.began]),
        "task_state_store": Stored(child.store),
    }
    # no supervisor is here to be asked
    task_instance.task_state = lambda ti, absent=None: "failed" if child.asked() else "running"
    child.on_kill(task.on_kill)
    try:
        try:
            results = type(task).execute.__wrapped__(
                task, context
            )  # its guard wants the real task runner
        except TaskDeferred as deferral:
            event = _wait(child, deferral.trigger, task)
            results = task.resume(context, event)
    except AirflowFailException as exc:
        child.finish("failed", error=exc, retryable=False)
    except AirflowSkipException as exc:
        child.finish("skipped", error=exc)
    except (Exception, AirflowTaskTimeout) as exc:
        with failures.open("a") as file:
            file.write("x")
        child.finish("failed", error=exc, retryable=True)
    else:
        child.finish("success", results=results)


def _wait(child: ChildJob, trigger: Any, task: Any) -> Any:
    """Do what the triggerer does with a trigger. A kill stands for a person's mark."""
    from transload.plugins import load_attribute

    path, values = trigger.serialize()
    values["left"] = {}  # here the task's process does not end before its trigger
    made = load_attribute(":".join(path.rsplit(".", 1)))(**json.loads(json.dumps(values)))
    made._log = task.log

    async def end() -> NoReturn:
        if child.asked():  # else the triggerer was stopped
            await made.on_kill()
        os._exit(0)  # Airflow has set the state of the task already, and nobody comes back for it

    async def fires() -> Any:
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        assert this is not None
        loop.add_signal_handler(signal.SIGTERM, lambda: this.cancel("user-action"))
        if (
            task._asked_to_end
        ):  # between the task and its trigger, which never runs then: the listener ends the app
            await end()
        try:
            async for event in made.run():
                return event.payload
        except asyncio.CancelledError:
            await end()

    payload = asyncio.run(fires())
    child.on_kill(task.on_kill)
    return json.loads(json.dumps(payload))


def waits_in_task(child: ChildJob) -> None:
    """Run one task that waits itself."""
    run_task(child, False)


def waits_in_trigger(child: ChildJob) -> None:
    """Run one task that waits in a trigger."""
    run_task(child, True)


class AirflowDriver(Warm):
    """Runs one task in a forked process.

    Args:
        folder: where reports and the store are kept.
        environment: environment variables that the suite wants.
        deferrable: wait in a trigger.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], deferrable: bool) -> None:
        super().__init__(folder, environment)
        warm_up("airflow")
        self.entry = f"airflow_driver:{'waits_in_trigger' if deferrable else 'waits_in_task'}"

    def request(self) -> dict[str, Any]:
        """Return the store and context of the next process, or of a twin that was believed dead."""
        return {
            **super().request(),
            "store": str(self.folder.parent / Path(self._request["store"]).name),
        }
