"""Play Airflow's scheduler, executor and people on its own database, without a server.

Real functions of Airflow make every change. A try of a task runs in a process of its own, in a
context that is read from the database as Airflow's execution API reads it. With `through_api` that
API itself is asked, within that process, which takes seconds.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import logging
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from transload.specs import AppDef
from transload_testing import ScriptedControl, scripted_app

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import FORKS

LONGEST_S: Final = 100.0
"""Seconds that a process may take on a busy machine."""

DAG_FILE: Final = """
import datetime
from airflow.sdk import DAG, task
from transload_airflow import TransloadOperator

apps = {apps!r}

@task
def other():
    pass

with DAG({dag_id!r}, schedule={schedule!r}, start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)) as dag:
    fixed = {{
        "task_id": "job",
        "scheduler": "scripted",
        "retry_delay": datetime.timedelta(0),
        "defer_after": 0,
        **{options!r},
    }}
    if {mapped!r}:
        TransloadOperator.partial(**fixed).expand(app=apps)
    else:
        TransloadOperator(app=apps[0], **fixed)
    other()
"""


class Try:
    """A process that runs a try of a task, as a worker would."""

    def __init__(self, process: Any, answers: Any, take: Callable[[dict[str, Any]], None]) -> None:
        self.process = process
        self._answers = answers
        self._take = take

    def wait(self) -> None:
        """Wait until it has ended, and have Airflow take note of that."""
        self.process.join(LONGEST_S)
        assert self.process.exitcode is not None, "the try does not end"
        if self._answers.poll():
            self._take(self._answers.recv())

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended. Airflow does not see what it wanted."""
        os.kill(self.process.pid, number)
        self.process.join(LONGEST_S)
        assert self.process.exitcode is not None, "the try does not end"


class OrmAirflow:
    """An Airflow of one DAG, whose task ``job`` runs a scripted app.

    Args:
        folder: of its DAG file.
        control: directs the apps.
    """

    def __init__(self, folder: Path, control: ScriptedControl) -> None:
        self.control = control
        self.dag_id = f"clears_{uuid.uuid4().hex[:8]}"
        self.run_id = "run"
        self.file = folder / f"{self.dag_id}.py"
        self.environment: dict[str, str] = {}
        self.clock: float | None = None  # seconds of difference of the next processes' machine
        self._definition: dict[str, Any] = {}
        self._tries: list[Try] = []

    # -- the DAG

    def define(
        self,
        script: Mapping[str, Any] | AppDef | None = None,
        *,
        schedule: str | None = None,
        mapped: int = 0,
        **options: Any,
    ) -> None:
        """Write or edit the DAG file, and have Airflow read it."""
        from airflow.dag_processing.bundles.manager import DagBundlesManager

        if isinstance(script, AppDef):
            apps = [script.to_json()]
        elif script is not None:
            apps = [scripted_app(f"app-{n}", script).to_json() for n in range(mapped or 1)]
        if script is not None:
            self._definition = {"apps": apps, "mapped": mapped, "schedule": schedule, "options": {}}
        self._definition["options"] |= options
        self.file.write_text(DAG_FILE.format(dag_id=self.dag_id, **self._definition))
        self.file.with_suffix(".pyc").unlink(missing_ok=True)
        module = _dag_bag_module()
        bag = module.DagBag(str(self.file), bundle_path=self.file.parent)
        assert not bag.import_errors, bag.import_errors
        with self.session() as session:
            DagBundlesManager().sync_bundles_to_db(session=session)
        with self.session() as session:
            module.sync_bag_to_db(bag, "dags-folder", None, session=session)

    def trigger(self, logical_date: datetime | None = None) -> None:
        """Make a run, as a person does."""
        from airflow.api.common.trigger_dag import trigger_dag
        from airflow.utils.types import DagRunTriggeredByType

        with self.session() as session:
            trigger_dag(
                self.dag_id,
                run_id=self.run_id,
                logical_date=logical_date,
                triggered_by=DagRunTriggeredByType.TEST,
                session=session,
            )

    # -- what the scheduler and the executor do

    def begin(self, index: int = -1) -> Try:
        """Schedule the task and start its next try."""
        with self.session() as session:
            run = self._run(session)
            if run.state == "queued":
                run.set_state("running")
            ready, _ = run.update_state(session=session, execute_callbacks=False)
            run.schedule_tis([ti for ti in ready if ti.task_id == "job"], session=session)
        return self.resume(index)

    def resume(self, index: int = -1) -> Try:
        """Start the process of a task that is scheduled, or whose trigger has fired."""
        with self.session() as session:
            ti = self._ti(session, index)
            assert ti.state == "scheduled", ti.state
            ti.set_state("running", session=session)
            values = self._context_values(ti, index)
        return self._started("run_try", values, lambda answer: self._take(answer, index))

    def begin_through_api(self) -> Try:
        """Schedule the task and start its next try by Airflow's execution API."""
        with self.session() as session:
            run = self._run(session)
            run.set_state("running")
            ready, _ = run.update_state(session=session, execute_callbacks=False)
            run.schedule_tis(ready, session=session)
        with self.session() as session:
            ti = self._ti(session)
            ti.set_state("queued", session=session)
            values = _sdk_values(ti)
        return self._started("run_try_through_api", values)

    def _take(self, answer: dict[str, Any], index: int) -> None:
        """Do what the execution API does when a task's process says how it ended."""
        from airflow.models.trigger import Trigger

        kind = answer["kind"]
        with self.session() as session:
            ti = self._ti(session, index)
            if kind == "failed":
                ti.handle_failure("failed", session=session)
            elif kind == "deferred":
                trigger = Trigger(classpath=answer["classpath"], kwargs=answer["kwargs"])
                session.add(trigger)
                session.flush()
                ti.trigger_id = trigger.id
                ti.next_method, ti.next_kwargs = answer["method"], {}
                ti.state = "deferred"
            else:
                ti.next_method = ti.next_kwargs = None
                state = "failed" if kind == "failed_for_good" else kind
                ti.set_state(state, session=session)

    def _context_values(self, ti: Any, index: int) -> dict[str, Any]:
        """Return what the execution API tells a worker of a task instance."""
        run = ti.dag_run
        values = _sdk_values(ti, index)
        values["id"] = str(ti.id)
        return {
            "ti": {
                **values,
                "row": ti.id,  # a text before 3.2
                "max_tries": ti.max_tries,
                "start_date": ti.start_date,
            },
            "dag_run": {
                "run_id": run.run_id,
                "clear_number": run.clear_number,
                "start_date": run.start_date,
                "logical_date": run.logical_date,
            },
            "next_method": ti.next_method,
            "next_kwargs": ti.next_kwargs,
            "xcoms": str(self.file.with_name(f"xcoms-{ti.id}.json")),
        }

    def dag_test(self, date: datetime) -> Try:
        """Do what ``airflow dags test`` does."""
        return self._started("run_dag_test", {"date": date})

    def _started(
        self,
        name: str,
        values: dict[str, Any],
        take: Callable[[dict[str, Any]], None] = lambda answer: None,
    ) -> Try:
        receiving, sending = FORKS.Pipe(duplex=False)
        environment = {**os.environ, **self.environment}
        arguments = (name, environment, self.clock, str(self.file), values, sending)
        process = FORKS.Process(target=child, args=arguments)
        process.start()
        made = Try(process, receiving, take)
        self._tries.append(made)
        return made

    def report_end(self, *, failed: bool, index: int = -1) -> None:
        """Have the scheduler read the executor's report of an ended process."""
        from airflow.executors.base_executor import BaseExecutor
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.models.dagbag import DBDagBag

        executor = BaseExecutor()
        with self.session() as session:
            key = _executor_key(self._ti(session, index))
            if failed:
                executor.fail(key)
            else:
                executor.success(key)
            SchedulerJobRunner.process_executor_events(
                executor=executor, job_id=None, scheduler_dag_bag=DBDagBag(), session=session
            )

    def watch(self, index: int = -1) -> Try:
        """Have the trigger of the deferred task wait for its job, and take its event."""
        from airflow.models.trigger import Trigger
        from airflow.triggers.base import TriggerEvent

        with self.session() as session:
            trigger = session.get(Trigger, self._ti(session, index).trigger_id)
            number, values = trigger.id, dict(trigger.kwargs)

        def take(event: dict[str, Any]) -> None:
            with self.session() as session:
                Trigger.submit_event(number, TriggerEvent(event), session=session)

        return self._started("wait_in_trigger", values, take)

    def fire(self, index: int = -1) -> None:
        """Have the trigger of the deferred task wait until its job has ended."""
        self.watch(index).wait()

    def break_trigger(self, index: int = -1) -> None:
        """Have the trigger of the deferred task fail."""
        from airflow.models.trigger import Trigger

        with self.session() as session:
            number = self._ti(session, index).trigger_id
            Trigger.submit_failure(number, session=session)

    def time_out(self) -> None:
        """Have the scheduler find that the trigger of the deferred task is silent for too long."""
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        with self.session() as session:
            self._ti(session).trigger_timeout = datetime.now(UTC) - timedelta(seconds=1)
            session.flush()
            scheduler = SimpleNamespace(log=logging.getLogger(__name__))
            SchedulerJobRunner.check_trigger_timeouts(scheduler, session=session)

    def finish_run(self) -> str:
        """Have the run end, once the job's task has ended."""
        with self.session() as session:
            self._ti(session, task_id="other").set_state("success", session=session)
        with self.session() as session:
            run = self._run(session)
            run.update_state(session=session, execute_callbacks=False)
            return str(run.state)

    # -- what people do

    def clear(self, task_id: str = "job", index: int = -1, **options: Any) -> None:
        """Clear a task, or one map index of it."""
        from airflow.models.taskinstance import clear_task_instances

        with self.session() as session:
            tis = [self._ti(session, index, task_id)]
            clear_task_instances(tis, session, **options)
            _forget_stored(tis, session)

    def clear_run(self) -> None:
        """Clear the whole run."""
        with self.session() as session:
            run = self._run(session)
            run.dag.clear(run_id=self.run_id, session=session)
            _forget_stored(run.get_task_instances(session=session), session)

    def delete_run(self) -> None:
        """Delete the run."""
        with self.session() as session:
            session.delete(self._run(session))

    def backfill_again(self, date: datetime) -> None:
        """Backfill a date whose run exists, and have it run again."""
        from airflow.models.backfill import ReprocessBehavior, _create_backfill

        _create_backfill(
            dag_id=self.dag_id,
            from_date=date,
            to_date=date,
            max_active_runs=1,
            reverse=False,
            triggering_user_name="somebody",
            dag_run_conf={},
            reprocess_behavior=ReprocessBehavior.COMPLETED,
        )

    # -- what is there

    def state(self, index: int = -1) -> str | None:
        """Return the state of the task."""
        with self.session() as session:
            found = self._ti(session, index).state
            return None if found is None else str(found)

    def retry_reason(self, index: int = -1) -> str:
        """Return what a retry policy has said of the task, from Airflow 3.3 on."""
        with self.session() as session:
            return str(self._ti(session, index).retry_reason)

    def xcom_keys(self) -> set[str]:
        """Return the keys of the task's XComs."""
        from airflow.models.xcom import XComModel
        from sqlalchemy import select

        wanted = select(XComModel.key).where(
            XComModel.dag_id == self.dag_id, XComModel.task_id == "job"
        )
        with self.session() as session:
            return set(session.scalars(wanted))

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Give a session, which is committed."""
        from airflow.utils.session import create_session

        with create_session() as session:
            yield session

    def close(self) -> None:
        """End the processes that are left."""
        for each in self._tries:
            if each.process.is_alive():
                each.end(signal.SIGKILL)

    def _run(self, session: Any) -> Any:
        from airflow.models.dagbag import DBDagBag
        from airflow.models.dagrun import DagRun
        from sqlalchemy import select

        wanted = select(DagRun).where(DagRun.dag_id == self.dag_id, DagRun.run_id == self.run_id)
        run = session.scalars(wanted).one()
        run.dag = DBDagBag().get_dag_for_run(dag_run=run, session=session)
        return run

    def _ti(self, session: Any, index: int = -1, task_id: str = "job") -> Any:
        run = self._run(session)
        found = [
            ti
            for ti in run.get_task_instances(session=session)
            if ti.task_id == task_id and index in (getattr(ti, "region_index", None), ti.map_index)
        ]
        assert len(found) == 1, found
        found[0].task = run.dag.get_task(task_id)
        return found[0]


def _dag_bag_module() -> Any:
    """Return the module of Airflow that reads DAG files, which has moved in 3.2."""
    try:
        return importlib.import_module("airflow.dag_processing.dagbag")
    except ImportError:
        return importlib.import_module("airflow.models.dagbag")


def _executor_key(ti: Any) -> Any:
    """Return by what an executor calls a task instance. From 3.4 on it is its id."""
    try:
        from airflow.executors.workloads.types import TaskInstanceUuid
    except ImportError:
        return ti.key
    return TaskInstanceUuid(ti.id)


def _forget_stored(tis: list[Any], session: Any) -> None:
    """Do what the clear of a person does to the task state store, from Airflow 3.4 on."""
    from airflow.api_fastapi.core_api.services.public import task_instances

    forget = getattr(task_instances, "_discard_task_state_store", None)
    if forget is not None:
        forget(tis, session, event="cleared")


def _sdk_values(ti: Any, index: int = -1) -> dict[str, Any]:
    """Return what the executor hands to a worker of a task instance."""
    values = {
        "id": ti.id,
        "task_id": ti.task_id,
        "dag_id": ti.dag_id,
        "run_id": ti.run_id,
        "try_number": ti.try_number,
        "map_index": index,
        "dag_version_id": ti.dag_version_id,
    }
    if hasattr(ti, "region_id"):
        values |= {"region_id": ti.region_id, "region_index": ti.region_index}
    return values


# -- in the process of a try


def child(
    name: str,
    environment: Mapping[str, str],
    clock: float | None,
    file: str,
    values: dict[str, Any],
    answers: Any,
) -> None:
    """Begin a process of Airflow's, and do what it is for."""
    os.environ.update(environment)
    os.setsid()
    if clock is not None:
        be_elsewhere(clock)
    does = {
        "run_try": run_try,
        "run_try_through_api": run_try_through_api,
        "run_dag_test": run_dag_test,
        "wait_in_trigger": wait_in_trigger,
    }
    answers.send(does[name](file, values))


def be_elsewhere(clock: float) -> None:
    """Make this process one of another machine, whose clock differs by so many seconds."""
    right, readlink = time.time, os.readlink
    time.time = lambda: right() + clock
    os.readlink = lambda path: "another" if path == "/proc/self/ns/pid" else readlink(path)


def read_dag(file: str) -> Any:
    """Return the DAG of a file."""
    spec = importlib.util.spec_from_file_location("dag_file", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag, module.apps


class Ti(SimpleNamespace):
    """What the operator needs of a task instance."""

    row: Any
    xcoms: str

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep an XCom."""
        Path(self.xcoms).write_text(json.dumps({**self._pushed(), key: value}))

    def xcom_pull(self, task_ids: str, key: str, map_indexes: int) -> Any:
        """Return an XCom of this very task instance, or None."""
        return self._pushed().get(key)

    def _pushed(self) -> dict[str, Any]:
        try:
            return dict(json.loads(Path(self.xcoms).read_text()))
        except FileNotFoundError:
            return {}


class StateStore:
    """The task state store, as the execution API keeps it (from Airflow 3.3 on)."""

    def __init__(self, ti: Ti) -> None:
        from airflow._shared.state import TaskScope

        place = [ti.dag_id, ti.run_id, ti.task_id]
        if hasattr(ti, "region_id"):
            self._scope = TaskScope(*place, ti.region_index, ti.region_id)
        else:
            self._scope = TaskScope(*place, ti.map_index)

    def get(self, key: str) -> Any:
        """Return a value, or None."""
        from airflow.state import get_state_backend

        return json.loads(get_state_backend().get(self._scope, key) or "null")

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        """Keep a value."""
        from airflow.state import get_state_backend

        get_state_backend().set(self._scope, key, json.dumps(value))


def run_try(file: str, values: dict[str, Any]) -> dict[str, Any]:
    """Run a try of a task, or go on with it after a deferral, and return how it ended."""
    from airflow.providers.common.compat.sdk import (
        AirflowFailException,
        AirflowSkipException,
        TaskDeferred,
    )

    from transload_airflow import task_instance

    dag, apps = read_dag(file)
    ti = Ti(**values["ti"], xcoms=values["xcoms"])
    task = dag.task_dict[ti.task_id]
    if ti.map_index >= 0:
        task = task.unmap({"app": apps[ti.map_index]})
    context = {"ti": ti, "task": task, "dag": dag, "dag_run": SimpleNamespace(**values["dag_run"])}
    with suppress(ImportError):
        context["task_state_store"] = StateStore(ti)
    state_of(ti)  # the first question takes long, and a task that is to end has three seconds
    task_instance.task_state = lambda ti, absent=None: state_of(ti) or absent
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    try:
        if values["next_method"]:
            kwargs = _plain_kwargs(values["next_kwargs"])
            task.resume_execution(values["next_method"], kwargs, context)
        else:
            Path(ti.xcoms).unlink(missing_ok=True)
            type(task).execute.__wrapped__(task, context)
    except TaskDeferred as deferral:
        path, arguments = deferral.trigger.serialize()
        return {
            "kind": "deferred",
            "classpath": path,
            "kwargs": arguments,
            "method": deferral.method_name,
        }
    except AirflowSkipException:
        return {"kind": "skipped"}
    except AirflowFailException as exc:
        traceback.print_exception(exc)
        return {"kind": "failed_for_good", "error": str(exc)}
    except BaseException as exc:
        traceback.print_exception(exc)
        return {"kind": "failed", "error": str(exc)}
    return {"kind": "success"}


def _plain_kwargs(kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a method that goes on, as the task runner reads them."""
    try:
        from airflow.sdk.serde import deserialize
    except ImportError:  # the column has read them already
        return dict(kwargs or {})
    return dict(deserialize(kwargs) or {})


def state_of(ti: Ti) -> str | None:
    """Return the state of a task instance by Airflow's database, ``cleared`` if it has none."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.get(TaskInstance, ti.row)
        return None if found is None else str(found.state or "cleared")


def run_try_through_api(file: str, values: dict[str, Any]) -> None:
    """Run a try of a task with all that Airflow's execution API does."""
    from airflow.sdk.api.datamodels._generated import TaskInstance
    from airflow.sdk.execution_time.supervisor import run_task_in_process

    dag, _ = read_dag(file)
    ti = TaskInstance(**values)
    run_task_in_process(ti=ti, task=dag.task_dict[ti.task_id])


def run_dag_test(file: str, values: dict[str, Any]) -> None:
    """Run a whole DAG, as ``airflow dags test`` does."""
    from airflow.sdk.execution_time import supervisor

    # 3.2 forgets its API while it asks it, and fails
    supervisor.in_process_api_server = functools.cache(supervisor.in_process_api_server)
    dag, _ = read_dag(file)
    dag.test(logical_date=values["date"])


def wait_in_trigger(file: str, values: dict[str, Any]) -> Any:
    """Wait as a triggerer does, and return the event."""
    import asyncio

    from transload_airflow.triggers import AppStateTrigger

    async def first() -> Any:
        # Airflow has noticed by now that the task's process is gone
        async for event in AppStateTrigger(**{**values, "left": {}}).run():
            return event.payload
        raise AssertionError("no event")

    return asyncio.run(first())
