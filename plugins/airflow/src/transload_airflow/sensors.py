"""Waiting for an app that something else has started."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat import sdk

from transload import pipelines
from transload.errors import ConfigError, StateUnknown
from transload.specs import AppState
from transload_airflow.hooks import defaults_of
from transload_airflow.run import hide_traceback, task_key, translate_errors
from transload_airflow.runner import HOST, runner_for_tasks
from transload_airflow.settings import default_deferrable
from transload_airflow.settling import mark_deferred
from transload_airflow.stores import CursorFile, TaskStore, state_store
from transload_airflow.templates import TemplateRules
from transload_airflow.values import plain

if TYPE_CHECKING:
    from transload.pipelines import Execution, ExecutionOptions
    from transload.specs import AppStatus


class AppSensor(TemplateRules, sdk.BaseSensorOperator):
    """Waits until an app has ended; succeeds with its results if it ended well.

    It never cancels the app: that is its starter's.

    Args:
        conn_id: the connection of type ``transload`` that is the app's cluster, if it is one.
        handle: the app, for example ``{{ ti.xcom_pull(task_ids='train', key='handle') }}``.
        deferrable: wait in the triggerer; default: ``[operators] default_deferrable``.
        patience: seconds for which the scheduler may be unable to say what the app does, counted
            over all pokes of a try; with ``mode="reschedule"`` before Airflow 3.3 there is nowhere
            to count, and only ``timeout`` holds.
        cancelled: ``fail`` or ``skip``: what the sensor is if somebody cancelled the app.
        forward_logs: put the app's lines into the log of the sensor too (deferrable only).
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
        cancelled: str = "fail",
        forward_logs: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.handle = handle
        self.conn_id = conn_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.patience = patience
        self.cancelled = cancelled
        self.forward_logs = forward_logs
        self._options()
        if cancelled not in ("fail", "skip"):
            raise ConfigError(f"cancelled={cancelled!r}: must be 'fail' or 'skip'")

    @hide_traceback
    def execute(self, context: Any) -> Any:
        """Wait in the triggerer, or poke."""
        if not self.deferrable:
            return super().execute(context)
        with self._softly():
            with translate_errors(self._options(), cancelled=self.cancelled):
                execution = self._execution(context)
                self._must_exist(execution)
            if execution.status is not None and execution.status.is_terminal():
                return self._results(execution)
        from transload_airflow.triggers import AppStateTrigger

        trigger = AppStateTrigger(execution.state(), self.forward_logs, mark_deferred())
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
        execution = self._execution(context)
        with translate_errors(self._options(), cancelled=self.cancelled):
            return plain(pipelines.settle(execution, event).to_dict())

    def poke(self, context: Any) -> Any:
        """Look once."""
        with translate_errors(self._options(), cancelled=self.cancelled):
            execution = self._execution(context)
            self._bear(context, self._must_exist(execution))
        if execution.status is None or not execution.status.is_terminal():
            return False
        return sdk.PokeReturnValue(True, self._results(execution))

    @contextmanager
    def _softly(self) -> Iterator[None]:
        """Do for the look before a deferral what Airflow does after it: ``soft_fail`` and
        ``never_fail`` skip.
        """
        try:
            yield
        except sdk.AirflowException as exc:
            if self.soft_fail or getattr(self, "never_fail", False):
                raise sdk.AirflowSkipException(str(exc)) from exc
            raise

    def _results(self, execution: Execution) -> Any:
        with translate_errors(self._options(), cancelled=self.cancelled):
            return plain(execution.collect().to_dict())

    def _must_exist(self, execution: Execution) -> AppStatus:
        seen = execution.poll()
        if seen.status is None:
            raise sdk.AirflowFailException(f"{self.handle} does not exist")
        return seen.status

    def _bear(self, context: Any, status: AppStatus) -> None:
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
            since = now if before is None else before
        self._unknown_since = since
        if store is not None and since != kept.get("since"):
            store.put({"since": since, "try": ti.try_number})
        if since is not None and now - since >= self.patience:
            raise StateUnknown(self.handle, now - since, status.msg)

    def _unknown_store(self, context: Any) -> TaskStore | None:
        """Return what remembers since when nothing is known, where each poke is its own process."""
        if self.mode != "reschedule":
            return None
        accessor = state_store(context)
        if accessor is None:
            return None
        return TaskStore(accessor, "unknown")

    def _options(self) -> ExecutionOptions:
        return pipelines.ExecutionOptions(patience=self.patience, on_kill="detach")

    def _execution(self, context: Any) -> Execution:
        identity = pipelines.Identity(HOST, "sensor", task_key(context["ti"]))
        runner = runner_for_tasks(cluster=defaults_of(self.conn_id).cluster)
        execution = pipelines.Execution(runner, None, identity, self._options())
        execution.attach(self.handle)
        return execution
