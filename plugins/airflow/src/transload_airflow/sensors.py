"""Waiting for a job that something else has started."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.common.compat import sdk

from transload.errors import ConfigError, StateUnknown
from transload.pipelines import ExecutionOptions, json_safe
from transload.specs import AppState
from transload_airflow.adapter import ADAPTER, TaskContext
from transload_airflow.deferral import mark_deferred
from transload_airflow.hooks import defaults_of
from transload_airflow.log_lines import log_of_task
from transload_airflow.settings import default_deferrable
from transload_airflow.stores import CursorFile, TaskStore
from transload_airflow.task_instance import state_store
from transload_airflow.templates import TemplateRules
from transload_airflow.tracebacks import hide_traceback

if TYPE_CHECKING:
    from transload.pipelines import Driver
    from transload.specs import AppStatus


class AppSensor(TemplateRules, sdk.BaseSensorOperator):
    """Waits until a job has ended, and succeeds with its results if it ended well.

    It never cancels the job, which belongs to the task that started it.

    Args:
        conn_id: the connection of type ``transload`` that is the job's cluster, if it is one.
        handle: the job, for example ``{{ ti.xcom_pull(task_ids='train', key='handle') }}``.
        deferrable: wait in the triggerer, by default as ``[operators] default_deferrable`` says.
        patience: seconds for which the scheduler may be unable to say what the job does, counted
            over all pokes of a try. With ``mode="reschedule"`` before Airflow 3.3 there is nowhere
            to count, and only ``timeout`` holds.
        cancelled: ``fail`` or ``skip``: what the sensor is if somebody cancelled the job.
        forward_logs: put the job's lines into the log of the sensor too (deferrable only).
        kwargs: of ``BaseSensorOperator`` (``timeout``, ``poke_interval``, ``mode`` …).

    Raises:
        ConfigError: for a value that is not allowed.
    """

    template_fields: Sequence[str] = ("handle", "conn_id")
    text_fields: Sequence[str] = ("handle", "conn_id")
    ui_color = "#e8eef5"

    _unknown_since: float | None = None
    """When the pokes of this process began to learn nothing, seconds since the epoch."""

    def __init__(
        self,
        *,
        handle: str,
        conn_id: str | None = None,
        deferrable: bool | None = None,
        patience: float = 300.0,
        cancelled: Literal["fail", "skip"] = "fail",
        forward_logs: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.handle = handle
        self.conn_id = conn_id
        self.deferrable = deferrable
        if deferrable is None:
            self.deferrable = default_deferrable()
        self.options = ExecutionOptions(patience=patience, on_kill="detach")
        self.cancelled = cancelled
        self.forward_logs = forward_logs
        if cancelled not in ("fail", "skip"):
            raise ConfigError(f"cancelled={cancelled!r}: must be 'fail' or 'skip'")

    @hide_traceback
    def execute(self, context: Any) -> Any:
        """Wait in the triggerer, or poke."""
        if not self.deferrable:
            return super().execute(context)
        step = self._new_step(context)
        with self._softly():
            driver = self._driver(step)
            status = self._look(step, driver)
            if status.is_terminal():
                return self._results(step, driver)
        from transload_airflow.triggers import AppStateTrigger

        trigger = AppStateTrigger(driver.state(), self.forward_logs, mark_deferred())
        return self.defer(
            trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout)
        )

    @hide_traceback
    def resume(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the triggerer has waited."""
        if event is None or event["kind"] in ("elsewhere", "error"):
            self.log.warning("the triggerer cannot wait for %s: poking in place", self.handle)
            return super().execute(context)
        CursorFile(event["state"]["identity"]).delete()
        step = self._new_step(context)
        results = ADAPTER.resume(step, self._driver(step), event)
        return json_safe(results.to_dict())

    def poke(self, context: Any) -> Any:
        """Look once."""
        step = self._new_step(context)
        driver = self._driver(step)
        status = self._look(step, driver)
        with ADAPTER.translating(step):
            self._count_unknown(context, status)
        if not status.is_terminal():
            return False
        return sdk.PokeReturnValue(True, self._results(step, driver))

    @contextmanager
    def _softly(self) -> Iterator[None]:
        """Skip if the look before a deferral fails, with ``soft_fail`` and ``never_fail``.

        Airflow does that itself after a deferral.
        """
        try:
            yield
        except sdk.AirflowException as exc:
            if self.soft_fail or getattr(self, "never_fail", False):
                raise sdk.AirflowSkipException(str(exc)) from exc
            raise

    def _new_step(self, context: Any) -> TaskContext:
        """Return this task as the adapter sees it."""
        return TaskContext(
            airflow=context,
            options=self.options,
            key="sensor",
            log=log_of_task(self.log),
            owner=False,
            cancelled=self.cancelled,
        )

    def _driver(self, step: TaskContext) -> Driver:
        """Return what looks at the job."""
        with ADAPTER.translating(step):
            step.cluster = defaults_of(self.conn_id).cluster
            driver = ADAPTER.driver(step, None, step.options)
            driver.attach(self.handle)
            return driver

    def _look(self, step: TaskContext, driver: Driver) -> AppStatus:
        """Look once at the job, which must exist."""
        with ADAPTER.translating(step):
            seen = driver.poll()
        if seen.status is None:
            raise sdk.AirflowFailException(f"{self.handle} does not exist")
        return seen.status

    def _results(self, step: TaskContext, driver: Driver) -> Any:
        with ADAPTER.translating(step):
            return json_safe(driver.collect().to_dict())

    def _count_unknown(self, context: Any, status: AppStatus) -> None:
        """Fail once the pokes of a try have learnt nothing for longer than ``patience``."""
        now = time.time()
        ti = context["ti"]
        store = self._unknown_store(context)
        kept: dict[str, Any] = {}
        if store is not None:
            kept = store.get() or {}
        before = self._unknown_since
        if kept.get("try") == ti.try_number:
            before = kept.get("since")
        since = None
        if status.state is AppState.UNKNOWN:
            since = before
            if since is None:
                since = now
        self._unknown_since = since
        if store is not None and since != kept.get("since"):
            store.put({"since": since, "try": ti.try_number})
        if since is not None and now - since >= self.options.patience:
            raise StateUnknown(self.handle, now - since, status.msg)

    def _unknown_store(self, context: Any) -> TaskStore | None:
        """Return what remembers since when nothing is known, where each poke is its own process."""
        if self.mode != "reschedule":
            return None
        accessor = state_store(context)
        if accessor is None:
            return None
        return TaskStore(accessor, "unknown")
