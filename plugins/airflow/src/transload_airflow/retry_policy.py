"""The retry policy, for Airflow 3.4 and newer, which can run a try again without using a retry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from airflow import sdk
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from transload.errors import ConfigError, SchedulerUnavailable, SubmitError
from transload.pipelines import Detached
from transload_airflow.task_instance import HANDLES, kept

_Policy: Any = getattr(sdk, "RetryPolicy", object)  # from 3.3 on

LONGEST: Final = timedelta(days=1)
"""How long after a try was first rescheduled its retries count again, by default."""


class NoRetryMends(AirflowException):
    """A failure that no retry mends, of a task whose retry policy says so to Airflow."""


class TransloadRetryPolicy(_Policy):
    """Says by the end of a task's job whether Airflow runs the task again, and what that costs.

    - The task's process was ended without a request, the scheduler cannot be reached, or it takes
      no job now: the try is rescheduled, and none of the task's ``retries`` is used. It takes the
      job that goes on. A job of the try that has failed meanwhile is its failure.
    - No retry mends it (a wrong spec or option, a job that somebody cancelled): the task fails, and
      Airflow shows the reason.
    - After anything else, the task's ``retries`` count as without a policy.

    Args:
        retry_delay: until the rescheduled try runs. None means the task's ``retry_delay``.
        max_reschedules: how often a try is rescheduled before its retries count. None means that
            only the time counts.
        reschedule_timeout: how long after its first reschedule its retries count.

    Raises:
        ConfigError: for a value that is not allowed, and before Airflow 3.4.
    """

    def __init__(
        self,
        retry_delay: timedelta | None = None,
        *,
        max_reschedules: int | None = None,
        reschedule_timeout: timedelta = LONGEST,
    ) -> None:
        if not hasattr(getattr(sdk, "RetryDecision", None), "reschedule"):
            raise ConfigError(
                "TransloadRetryPolicy needs Airflow 3.4 or newer: without it, give the task retries="
            )
        for name, value in (
            ("retry_delay", timedelta(0) if retry_delay is None else retry_delay),
            ("reschedule_timeout", reschedule_timeout),
        ):
            if not isinstance(value, timedelta) or value < timedelta(0):
                raise ConfigError(f"{name}={value!r}: must be a timedelta, and not negative")
        self._bounds = {
            "delay": retry_delay,
            "max_reschedules": max_reschedules,
            "reschedule_timeout": reschedule_timeout,
        }
        try:
            self._rescheduled("")
        except (TypeError, ValueError) as exc:  # in Airflow's words
            raise ConfigError(
                f"max_reschedules={max_reschedules!r}, reschedule_timeout={reschedule_timeout!r}: {exc}"
            ) from exc

    def _rescheduled(self, reason: str) -> Any:
        decision: Any = sdk.RetryDecision
        return decision.reschedule(**self._bounds, reason=reason)

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return Airflow's decision after a task has failed."""
        if isinstance(exception, NoRetryMends):
            return sdk.RetryDecision.fail(reason=str(exception))
        if isinstance(exception, AirflowException) and _goes_on(
            exception.__context__, context or {}
        ):
            return self._rescheduled(str(exception))
        return sdk.RetryDecision.default()


def _goes_on(error: BaseException | None, context: Mapping[str, Any]) -> bool:
    """Tell whether the same try can go on later: its job does, or nothing was started.

    A job that Airflow has not kept counts as a failure, since only retries look for it elsewhere.
    """
    if isinstance(error, SubmitError):
        return error.transient
    if isinstance(error, Detached) and error.asked:
        return False
    if not isinstance(error, (Detached, SchedulerUnavailable)):
        return False
    handle = getattr(error, "handle", None)
    if handle is None or "://" not in handle:
        return True
    return handle in [noted["handle"] for noted in kept(context, HANDLES).values()]


def for_policy(raised: BaseException, policy: Any) -> BaseException:
    """Return what a task raises so that Airflow asks its policy, which it does not in any case."""
    if isinstance(raised, AirflowFailException) and isinstance(policy, TransloadRetryPolicy):
        return NoRetryMends(str(raised))
    return raised
