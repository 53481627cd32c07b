"""Play Airflow's scheduler, executor and people on its own database, without a server.

Real functions of Airflow make every change. A try of a task runs in a process of its own, whose
context comes from Airflow's execution API, which is asked within that process.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from transload.specs import AppDef
from transload_testing import ScriptedControl, scripted_app

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import FORKS

DAG_FILE = """
import datetime as dt
from airflow.sdk import DAG, task
from transload_airflow import TransloadOperator

@task
def other():
    pass

with DAG({dag_id!r}, schedule={schedule!r}, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
    fixed = {{
        "task_id": "job",
        "scheduler": "scripted",
        "retry_delay": dt.timedelta(0),
        "defer_after": 0,
        **{options!r},
    }}
    if {mapped!r}:
        TransloadOperator.partial(**fixed).expand(app={apps!r})
    else:
        TransloadOperator(app={apps!r}[0], **fixed)
    other()
"""


class Try:
    """A process that runs a try of a task, as a worker would."""

    def __init__(self, process: Any, ti_id: Any) -> None:
        self.process = process
        self.ti_id = ti_id

    def wait(self) -> None:
        """Wait until it has ended."""
        self.process.join(60)
        assert self.process.exitcode is not None, "the try does not end"

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        os.kill(self.process.pid, number)
        self.wait()


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
            ti.set_state("queued", session=session)
            values = _sdk_values(ti, index)
        return self._started("run_try", values)

    def dag_test(self, date: datetime) -> Try:
        """Do what ``airflow dags test`` does."""
        return self._started("run_dag_test", {"date": date})

    def _started(self, name: str, values: dict[str, Any]) -> Try:
        environment = {**os.environ, **self.environment}
        arguments = (name, environment, str(self.file), self.dag_id, values)
        process = FORKS.Process(target=child, args=arguments, daemon=True)
        process.start()
        made = Try(process, values.get("id"))
        self._tries.append(made)
        return made

    def report_end(self, *, failed: bool, index: int = -1) -> None:
        """Have the scheduler read the executor's report of an ended process."""
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.models.dagbag import DBDagBag

        with self.session() as session:
            ti = self._ti(session, index)
            word = "failed" if failed else "success"
            executor = _Executor({ti.key: (word, None)})
            ti.external_executor_id = None
            arguments = {"executor": executor, "job_id": None, "session": session}
            SchedulerJobRunner.process_executor_events(scheduler_dag_bag=DBDagBag(), **arguments)

    def fire(self, index: int = -1) -> None:
        """Have the trigger of the deferred task wait for its job, and take its event."""
        from airflow.models.trigger import Trigger
        from airflow.triggers.base import TriggerEvent

        with self.session() as session:
            trigger = session.get(Trigger, self._ti(session, index).trigger_id)
            number, values = trigger.id, dict(trigger.kwargs)
        receiving, sending = FORKS.Pipe(duplex=False)
        process = FORKS.Process(
            target=wait_in_trigger, args=({**os.environ, **self.environment}, values, sending)
        )
        process.start()
        assert receiving.poll(60)
        payload = receiving.recv()
        process.join(30)
        with self.session() as session:
            Trigger.submit_event(number, TriggerEvent(payload), session=session)

    def break_trigger(self, index: int = -1) -> None:
        """Have the trigger of the deferred task fail."""
        from airflow.models.trigger import Trigger

        with self.session() as session:
            number = self._ti(session, index).trigger_id
            Trigger.submit_failure(number, session=session)

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
            clear_task_instances([self._ti(session, index, task_id)], session, **options)

    def clear_run(self) -> None:
        """Clear the whole run."""
        from airflow.models.taskinstance import clear_task_instances

        with self.session() as session:
            clear_task_instances(self._run(session).get_task_instances(session=session), session)

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


class _Executor:
    """An executor that only reports."""

    name = None

    def __init__(self, events: Mapping[Any, Any]) -> None:
        self.event_buffer = dict(events)

    def get_event_buffer(self) -> dict[Any, Any]:
        """Return what it reports."""
        events, self.event_buffer = self.event_buffer, {}
        return events

    def has_task(self, ti: Any) -> bool:
        """Tell that it has nothing."""
        return False

    def send_callback(self, request: Any) -> None:
        """Take a callback, which nobody runs."""


def _dag_bag_module() -> Any:
    """Return the module of Airflow that reads DAG files, which has moved in 3.2."""
    try:
        return importlib.import_module("airflow.dag_processing.dagbag")
    except ImportError:
        return importlib.import_module("airflow.models.dagbag")


def _sdk_values(ti: Any, index: int) -> dict[str, Any]:
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
    name: str, environment: Mapping[str, str], file: str, dag_id: str, values: dict[str, Any]
) -> None:
    """Begin a process as a worker's, and do what it is for."""
    os.environ.update(environment)
    os.setsid()
    spec = importlib.util.spec_from_file_location(dag_id, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    {"run_try": run_try, "run_dag_test": run_dag_test}[name](module.dag, values)


def run_try(dag: Any, values: dict[str, Any]) -> None:
    """Run a try of a task."""
    from airflow.sdk.api.datamodels._generated import TaskInstance
    from airflow.sdk.execution_time.supervisor import run_task_in_process

    ti = TaskInstance(**values)
    run_task_in_process(ti=ti, task=dag.task_dict[ti.task_id])


def run_dag_test(dag: Any, values: dict[str, Any]) -> None:
    """Run a whole DAG, as ``airflow dags test`` does."""
    dag.test(logical_date=values["date"])


def wait_in_trigger(environment: Mapping[str, str], values: dict[str, Any], answer: Any) -> None:
    """Wait as a triggerer does, and send the event."""
    import asyncio

    from transload_airflow.triggers import AppStateTrigger

    os.environ.update(environment)

    async def first() -> Any:
        # Airflow has noticed by now that the task's process is gone
        async for event in AppStateTrigger(**{**values, "left": {}}).run():
            return event.payload
        raise AssertionError("no event")

    answer.send(asyncio.run(first()))
