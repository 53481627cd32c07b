"""What Airflow makes of an error, and what it logs of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, Literal, ParamSpec, TypeVar

from airflow.providers.common.compat import sdk

from transload.errors import AppFailed, TransloadError
from transload.pipelines import Ending, ExecutionOptions
from transload_airflow.states import ENDINGS

P = ParamSpec("P")
T = TypeVar("T")


def failure(
    error: TransloadError,
    options: ExecutionOptions | None = None,
    *,
    skip_on: Collection[int] = (),
    cancelled: Literal["fail", "skip"] = "fail",
    asked_to_end: bool = False,
) -> BaseException:
    """Return the exception by which Airflow skips a task, fails it, or perhaps retries it.

    Args:
        error: of the job, or of its submit.
        options: how the job is run.
        skip_on: exit codes of the first failed replica that make the task *skipped*.
        cancelled: what a task is whose job somebody cancelled.
        asked_to_end: something has ended the task.
    """
    ending = Ending.of(error)
    kind = ENDINGS[ending]
    message = str(error)
    if ending is Ending.CANCELLED and asked_to_end:
        # a person who marked the task has set its state, and a stopped worker's task is retried
        kind = "AirflowException"
        message = f"{message} (the task was asked to end)"
    elif ending is Ending.CANCELLED:
        if cancelled == "skip":
            kind = "AirflowSkipException"
    elif _failed_with(error, skip_on):
        kind = "AirflowSkipException"
    elif ending is not Ending.DETACHED and not (options or ExecutionOptions()).host_may_retry(
        error
    ):
        kind = "AirflowFailException"
    made: BaseException = getattr(sdk, kind)(message)
    return made


def _failed_with(error: TransloadError, exit_codes: Collection[int]) -> bool:
    """Tell whether a job failed because a replica ended with one of these exit codes."""
    if not isinstance(error, AppFailed):
        return False
    replica = error.status.first_failure()
    return replica is not None and replica.exit_code in exit_codes


def in_airflows_words(method: Callable[P, T]) -> Callable[P, T]:
    """Have a method of an operator raise what Airflow acts on for an error of transload.

    The operator's ``failure_of`` says what that is. Airflow logs its message alone, and no page of
    this package's frames. What somebody else raised keeps its traceback.
    """

    @functools.wraps(method)
    def brief(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except TransloadError as exc:
            operator: Any = args[0]
            raise operator.failure_of(exc) from None  # a retry policy finds it as its context

    return brief
