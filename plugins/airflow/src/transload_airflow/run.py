"""Running an app inside a task: the policy is core's, here it only meets Airflow."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.providers.common.compat import sdk

from transload import pipelines
from transload.errors import AppFailed, TransloadError
from transload.pipelines import Ending
from transload_airflow.generation import Marks, asked_here, current_generation, current_unit
from transload_airflow.lineage import parent_variables
from transload_airflow.runner import HOST
from transload_airflow.settings import setting
from transload_airflow.states import ENDINGS
from transload_airflow.stores import (
    CursorFile,
    LogStore,
    TaskStore,
    app_entry,
    log_entry,
    state_store,
)
from transload_airflow.values import decoded

if TYPE_CHECKING:
    from transload.pipelines import Execution, ExecutionOptions, Identity, Launch
    from transload.runner import Runner

CANCEL_S: Final = 20.0
"""Seconds for which a scheduler that cannot be reached is asked again to cancel; Airflow gives a
trigger 30 by default (``[triggerer] on_kill_timeout``)."""

PAUSE_S: Final = 1.0

_KEY_PARTS: Final = 4
"""Length of `task_key`."""

AT_ONCE: Final = 30_000
"""Bytes that one thread writes into a pipe in one go, whatever the others do."""

PIECE: Final = AT_ONCE // 6
"""Characters of a line that are as many bytes at most once they are JSON."""

_app_log = logging.getLogger("transload.app")


# -- whose app it is


def task_key(ti: Any) -> tuple[str, ...]:
    """Return what Airflow calls the task instance: DAG, run, task, map index; the readable part is
    last.
    """
    index = getattr(ti, "map_index", -1)
    return (ti.dag_id, ti.run_id, str(-1 if index is None else index), ti.task_id)


def task_state(ti: Any, absent: str | None = None) -> str | None:
    """Ask Airflow for the state of a task instance, ``cleared`` if it has none yet; ``absent`` if
    it knows of none.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = -1 if getattr(ti, "map_index", None) is None else ti.map_index
    which = {
        "dag_id": ti.dag_id,
        "task_ids": [ti.task_id],
        "run_ids": [ti.run_id],
        "map_index": index,
    }
    states = RuntimeTaskInstance.get_task_states(**which).get(ti.run_id, {}).values()
    return next((str(state or "cleared") for state in states), absent)


OVER: Final = frozenset(
    {
        "success",
        "failed",
        "skipped",
        "upstream_failed",
        "removed",
        "restarting",
        "cleared",
        "deleted",
    }
)
"""States of a task instance whose present try is no longer to run; Airflow has no words for the
last two."""


def end_asked_for(ti: Any) -> bool:
    """Tell whether somebody asked for the end of a task: marked it, cleared it, deleted its run.

    A worker that is stopped, a supervisor that is killed and an API server that does not answer for
    long arrive as the same SIGTERM. In ``dag.test()`` a person's Ctrl-C is such a wish.
    """
    if pipelines.interrupted():
        return True
    return task_state(ti, absent="deleted") in OVER


def identity_of(
    context: Mapping[str, Any], namespace: str = "", unit: str = pipelines.FIRST_UNIT
) -> Identity:
    """Return whose app it is: equal for all tries of a task, another one once somebody has cleared
    it.

    Args:
        context: of the task.
        namespace: tells this installation from others, where there is no task state store.
        unit: from `unit_here`.

    Raises:
        SpecError: if the task state store holds something foreign.
    """
    accessor, ti = state_store(context), context["ti"]
    generation = str(ti.max_tries)
    if accessor is not None:
        namespace, number = current_generation(TaskStore(accessor, "generation"), Marks.of(context))
        generation = str(number)
    *above, task_id = task_key(ti)
    own = [] if unit == pipelines.FIRST_UNIT else [unit]
    return pipelines.Identity(HOST, namespace, (*above, *own, task_id), generation)


def unit_here(context: Mapping[str, Any], ask: str) -> str:
    """Return which of the things that a task asks for this is, and note it before anything is
    submitted.

    One task may ask for several: a class that calls ``execute`` twice, operators that a ``@task``
    executes.

    Args:
        context: of the task.
        ask: from ``transload.pipelines.ask_of``; empty: what the task asked for last.

    Raises:
        SpecError: if the task state store holds something foreign.
    """
    accessor = state_store(context)
    with asked_here(context["ti"]) as asked:
        if accessor is None:
            unit = (
                pipelines.unit_of(ask, asked, asked_before=bool(asked))
                if ask
                else pipelines.FIRST_UNIT
            )
        else:
            store = TaskStore(accessor, "generation")
            unit = current_unit(store, Marks.of(context), ask, asked_before=bool(asked)).name
        if ask not in asked:
            asked.append(ask)
        return unit


def unit_of_state(state: Mapping[str, Any]) -> str:
    """Return which of the things that a task asks for an execution's state belongs to."""
    key = state["identity"][2]
    return str(key[-2]) if len(key) > _KEY_PARTS else pipelines.FIRST_UNIT


# -- its execution


def execution_of(
    context: Mapping[str, Any],
    launch: Launch,
    options: ExecutionOptions,
    runner: Runner,
    *,
    unit: str = pipelines.FIRST_UNIT,
    identity: Identity | None = None,
    **traces: Any,
) -> Execution:
    """Return the execution of a task's app.

    Args:
        context: of the task.
        launch: what to run.
        options: the user's settings; the task's own limit is added here.
        runner: of `runner_for_tasks`.
        unit: from `unit_here`.
        identity: whose app it is; None: asked for.
        traces: other arguments of ``transload.pipelines.Execution``; see `traces_of`.

    Raises:
        SpecError: if the task state store holds something foreign.
        ConfigError: for a run option that is a text, and does not parse.
    """
    launch, options, namespace = decoded(launch, runner), within_time_limit(context, options), ""
    if options.durable and state_store(context) is None:
        # without a store, only a retry can know that an earlier try has told of a loss
        options = replace(
            options, loss_already_reported=getattr(context["ti"], "try_number", 1) > 1
        )
        namespace = _deployment(runner, launch, context)
    retries = getattr(context.get("task"), "retries", None)
    told = parent_variables(context["ti"])
    if told:
        runner = runner.with_environ({**os.environ, **told})
        launch = replace(launch, pass_env=[*launch.pass_env, *told])
    identity = identity or identity_of(context, namespace, unit)
    return pipelines.Execution(runner, launch, identity, options, host_retries=retries, **traces)


def dag_folder(context: Mapping[str, Any]) -> str | None:
    """Return the folder of the file that defines the DAG, where its bundle is in this process;
    None: unknown.
    """
    path = getattr(context.get("dag"), "fileloc", None)
    return os.path.dirname(path) if path else None


def traces_of(
    context: Mapping[str, Any],
    options: ExecutionOptions,
    unit: str = pipelines.FIRST_UNIT,
    identity: Identity | None = None,
) -> dict[str, Any]:
    """Return where a task leaves what it knows of its app: arguments of
    ``transload.pipelines.Execution``.

    Args:
        context: of the task.
        options: the user's settings.
        unit: from `unit_here`.
        identity: whose app it is; None: asked for.
    """
    accessor = state_store(context) if options.durable else None
    stores: dict[str, Any] = {}
    if accessor is not None:
        who = identity or identity_of(context, unit=unit)
        beside = CursorFile([who.host, who.namespace, list(who.key), who.generation])
        stores["store"] = TaskStore(accessor, app_entry(unit), on_kill=options.on_kill)
        stores["log_store"] = LogStore(accessor, log_entry(unit), beside)
    logger = getattr(context.get("task"), "log", None) or _app_log
    asked = functools.partial(end_asked_for, context["ti"])
    return {"sink": log_line, "log": lambda message: logger.info(message), "asked": asked, **stores}


def log_line(role: str, replica: int, stream: object, line: str) -> None:
    """Put a line of a replica into the log of the task; works in triggers too."""
    _app_log.info("%s", f"{role}/{replica} {line.rstrip(chr(10))}")


def log_line_in_pieces(role: str, replica: int, stream: object, line: str) -> None:
    """Do what `log_line` does, in a trigger: a very long line as several.

    The threads of a triggerer share one pipe for their logs. What does not fit into it at once is
    mixed with what another thread writes, and Airflow throws both away (seen in 3.3.2, from about
    200,000 bytes on).
    """
    text = line.rstrip("\n")
    if len(text) <= PIECE or len(json.dumps(text)) <= AT_ONCE:
        log_line(role, replica, stream, text)
        return
    for start in range(0, len(text), PIECE):
        log_line(role, replica, stream, text[start : start + PIECE])


def within_time_limit(context: Mapping[str, Any], options: ExecutionOptions) -> ExecutionOptions:
    """Return the options with the task's ``execution_timeout`` as an absolute end: while deferred,
    Airflow has none.
    """
    limit = getattr(context.get("task"), "execution_timeout", None)
    start = getattr(context["ti"], "start_date", None)
    if limit is None or start is None:
        return options
    return replace(options, deadline=start.timestamp() + limit.total_seconds())


def _deployment(runner: Runner, launch: Launch, context: Mapping[str, Any]) -> str:
    """Return the name of this installation, for an Airflow without task state store."""
    name = setting("deployment_id", "")
    scheduler = runner.scheduler(launch.scheduler_name(runner.settings))
    if not name and scheduler.capabilities.reachable_from == "network":
        logger = getattr(context.get("task"), "log", None) or _app_log
        logger.warning(
            "[transload] deployment_id is not set: another Airflow with a DAG of this name, on "
            "the same "
            f"{scheduler.name} scheduler, would take this app for its own. Set it in airflow.cfg, "
            "differently for "
            "each installation."
        )
    return name


# -- its life in the task

T = TypeVar("T")


def run_app(
    execution: Execution, context: Mapping[str, Any], step: Callable[[], T], **telling: Any
) -> T:
    """Take an app through a step of its life; what ends the task ends the app, and Airflow is told
    what it acts on.
    """
    with translate_errors(execution.options, **telling), cancel_on_exit(execution, context):
        return step()


def cancel(execution: Execution) -> None:
    """Cancel an app; a scheduler that cannot be reached is asked again, for `CANCEL_S`."""
    end = time.monotonic() + CANCEL_S
    while not (done := execution.cancel()) and time.monotonic() < end:
        time.sleep(PAUSE_S)
    if not done:
        execution.log(
            f"the task was ended, but {execution.handle} could not be cancelled, and goes on"
        )


@contextmanager
def cancel_on_exit(execution: Execution, context: Mapping[str, Any]) -> Iterator[None]:
    """End the app if its end was asked for, and else leave it, when something ends the task.

    An error of ours says by itself what is to become of the app. Any other (of a callback, of
    Airflow's API) leaves it
    alone only if a retry will attach to it: else the task is over. A time limit of Airflow's never
    just detaches.
    """
    try:
        yield
    except TransloadError:
        raise
    except sdk.AirflowTaskTimeout:
        cancel(execution)
        raise
    except Exception as exc:
        if not (execution.options.durable and _comes_back(exc, context)):
            execution.give_up(asked=True)
        raise
    except BaseException:
        execution.give_up()
        raise


def _comes_back(error: Exception, context: Mapping[str, Any]) -> bool:
    """Tell whether Airflow will answer an error that is none of ours with a retry of the same
    generation.
    """
    if isinstance(error, (sdk.AirflowFailException, sdk.AirflowSkipException)):
        return False
    # somebody has cleared the task: Airflow's API does not know this try any more
    detail = getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, Mapping) and detail.get("status_code") in (404, 409, 410):
        return False
    ti = context["ti"]
    return bool(ti.try_number <= ti.max_tries)


@contextmanager
def translate_errors(options: ExecutionOptions, **how: Any) -> Iterator[None]:
    """Turn errors into those that Airflow acts on; ``how``: arguments of `ending_of`."""
    try:
        yield
    except TransloadError as exc:
        raise ending_of(exc, options, **how) from exc


def ending_of(
    error: TransloadError,
    options: ExecutionOptions,
    *,
    skip_on: Collection[int] = (),
    cancelled: str = "fail",
    killed: Callable[[], bool] | None = None,
) -> BaseException:
    """Return the exception with which Airflow is told of an error: skip, fail for good, or fail and
    perhaps retry.

    Args:
        error: what came out of the execution.
        options: they say who retries.
        skip_on: exit codes of the first failed replica that mean "skip".
        cancelled: ``fail`` or ``skip``: what a cancelled app is.
        killed: tells whether this task itself was asked to end: its cancelled app is then nobody
            else's decision.
    """
    ending, note = Ending.of(error), ""
    kind = ENDINGS[ending]
    if ending is Ending.CANCELLED:
        if killed is not None and killed():
            # whoever marked the task has set its state; if the worker was evicted, a retry is what
            # is wanted
            kind, note = "AirflowException", " (the task was asked to end)"
        elif cancelled == "skip":
            kind = "AirflowSkipException"
    elif (
        isinstance(error, AppFailed)
        and (bad := error.status.first_failure())
        and bad.exit_code in skip_on
    ):
        kind = "AirflowSkipException"
    elif ending is not Ending.DETACHED and not options.host_may_retry(error):
        # (a person who ended a detached task has set its state already; a lost worker's retry
        # attaches again)
        kind = "AirflowFailException"
    made: BaseException = getattr(sdk, kind)(f"{error}{note}")
    return made


F = TypeVar("F", bound=Callable[..., Any])


def hide_traceback(method: F) -> F:
    """Have Airflow log the failures of a method of an operator with their message, not with a page
    of our frames.
    """

    @functools.wraps(method)
    def brief(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (sdk.AirflowException, sdk.AirflowTaskTimeout) as exc:
            if not isinstance(exc.__cause__, TransloadError):
                raise  # not what `translate_errors` says: somebody's own
            raise exc.with_traceback(None) from None

    return brief  # type: ignore[return-value]
