"""Waiting for a job that something else has started."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

from airflow.providers.common.compat import sdk

from transload.errors import ConfigError, StateUnknown, TransloadError
from transload.pipelines import AppLost, ExecutionOptions, json_safe
from transload.specs import AppState, AppStatus, is_terminal
from transload_airflow.deferral import mark_deferred
from transload_airflow.failures import failure, in_airflows_words
from transload_airflow.hooks import defaults_of
from transload_airflow.runner import runner_for_tasks
from transload_airflow.settings import default_deferrable
from transload_airflow.step import AirflowStep
from transload_airflow.task_instance import keep, kept
from transload_airflow.templates import TemplateRules
from transload_airflow.tries import identity_of

UNKNOWN: Final = "transload.unknown"
"""Entry of the task state store that says since when the pokes learn nothing, and in which try."""


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

    def failure_of(self, error: TransloadError) -> BaseException:
        """Return the exception that Airflow acts on."""
        if isinstance(error, AppLost):
            gone: BaseException = sdk.AirflowFailException(f"{error.handle} does not exist")
            return gone
        return failure(error, self.options, cancelled=self.cancelled)

    @in_airflows_words
    def execute(self, context: Any) -> Any:
        """Wait in the triggerer, or poke."""
        if not self.deferrable:
            return super().execute(context)
        try:
            step = self._new_step(context)
            if is_terminal(step.look().state):
                return _results_of(step)
        except TransloadError as exc:
            # Airflow itself skips only after a deferral
            if self.soft_fail or getattr(self, "never_fail", False):
                raise sdk.AirflowSkipException(str(exc)) from None
            raise
        from transload_airflow.triggers import AppStateTrigger

        trigger = AppStateTrigger(step.to_dict(), self.forward_logs, mark_deferred())
        return self.defer(
            trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout)
        )

    @in_airflows_words
    def resume(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the triggerer has waited."""
        if event is None or event["kind"] != "ended":
            self.log.warning("the triggerer cannot wait for %s: poking in place", self.handle)
            if event is not None and event["unknown_for"]:
                self._unknown_since = time.time() - event["unknown_for"]
            return super().execute(context)
        step = self._new_step(context)
        step.attach_by(event)
        step.look()
        return _results_of(step)

    @in_airflows_words
    def poke(self, context: Any) -> Any:
        """Look once."""
        step = self._new_step(context)
        if is_terminal(step.look().state):
            return sdk.PokeReturnValue(True, _results_of(step))
        assert step.status is not None
        self._count_unknown(context, step.status)
        return False

    def _new_step(self, context: Any) -> AirflowStep:
        """Return what looks at the job."""
        step = AirflowStep(
            None,
            self.options,
            identity=identity_of(context, "sensor"),
            runner=runner_for_tasks(cluster=defaults_of(self.conn_id).cluster),
            log=self.log,
        )
        step.hands_on_lines = False
        step.attach(self.handle)
        return step

    def _count_unknown(self, context: Any, status: AppStatus) -> None:
        """Fail once the pokes of a try have learnt nothing for longer than ``patience``."""
        now = time.time()
        # where each poke is a process of its own, the task state store remembers
        remembers = self.mode == "reschedule" and "task_state_store" in context
        before = self._unknown_since
        found = {}
        if remembers:
            found = kept(context, UNKNOWN)
            before = None
        if found.get("try") == context["ti"].try_number:
            before = found.get("since")
        since = None
        if status.state is AppState.UNKNOWN:
            since = now if before is None else before
        self._unknown_since = since
        if remembers and since != found.get("since"):
            keep(context, UNKNOWN, {"since": since, "try": context["ti"].try_number})
        if since is not None and now - since >= self.options.patience:
            raise StateUnknown(self.handle, now - since, status.msg)


def _results_of(step: AirflowStep) -> Any:
    return json_safe(step.collect().to_dict())
