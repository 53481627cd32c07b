"""Running an app inside a task: the policy is core's, here it only meets Airflow."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from transload.errors import AppFailed, TransloadError, TransloadTimeout
from transload_airflow.generation import Marks, current_generation
from transload_airflow.stores import LogStore, TaskStore, state_store
from transload_airflow.values import decoded

if TYPE_CHECKING:
    from transload.pipelines import Execution, ExecutionOptions, Identity, Launch, LogSink
    from transload.runner import Runner
    from transload.specs import AppStatus

HOST: Final = "airflow"
"""Session name of all handles."""

_app_log = logging.getLogger("transload.app")


def runner_for_tasks(inherit_env: bool = False) -> Runner:
    """Return the runner that all tasks and triggers of this process share."""
    from transload.pipelines import host_runner

    return host_runner(HOST, inherit_env=inherit_env)


def log_line(role: str, replica: int, stream: object, line: str) -> None:
    """Put a line of a replica into the log of the task; works in triggers too."""
    _app_log.info("%s", f"{role}/{replica} {line.rstrip(chr(10))}")


def task_key(ti: Any) -> tuple[str, ...]:
    """Return what Airflow calls the task instance: DAG, run, task, map index; the readable part is last."""
    index = getattr(ti, "map_index", -1)
    return (ti.dag_id, ti.run_id, str(-1 if index is None else index), ti.task_id)


def make_execution(
    context: Mapping[str, Any], launch: Launch, options: ExecutionOptions, inherit_env: bool = False, **more: Any
) -> Execution:
    """Return the execution of a task's app, with the stores and the identity that this Airflow allows.

    Args:
        context: of the task.
        launch: what to run.
        options: the user's settings; the deadline is added here.
        inherit_env: give the job the environment of the worker.
        more: other arguments of ``transload.pipelines.Execution`` (``log_store`` from `log_store_of` …).

    Raises:
        SpecError: if the task state store holds something foreign.
        ConfigError: for a run option that is a text, and does not parse.
    """
    from transload.pipelines import Execution, Identity

    ti, task = context["ti"], context.get("task")
    options = with_deadline(context, options)
    runner = runner_for_tasks(inherit_env)
    launch = decoded(launch, runner)
    accessor = state_store(context) if options.durable else None
    sink: LogSink = log_line
    common = {"sink": sink, "log": task_log(context), "host_retries": getattr(task, "retries", None), **more}
    if accessor is not None:
        generation = current_generation(TaskStore(accessor, "generation"), Marks.of(context))
        identity = Identity(HOST, generation.namespace, task_key(ti), str(generation.number))
        return Execution(runner, launch, identity, options, store=TaskStore(accessor, "app"), **common)
    if options.durable:
        # without a store, only a retry can know that an earlier try has told of a loss
        options = replace(options, answer_lost=getattr(ti, "try_number", 1) > 1)
    identity = Identity(HOST, _deployment(runner, launch, options, context), task_key(ti), str(ti.max_tries))
    return Execution(runner, launch, identity, options, **common)


def log_store_of(context: Mapping[str, Any], options: ExecutionOptions) -> LogStore | None:
    """Return where a task keeps how far its logs were handed on; None without a task state store."""
    accessor = state_store(context) if options.durable else None
    return None if accessor is None else LogStore(accessor, "logs")


def with_deadline(context: Mapping[str, Any], options: ExecutionOptions) -> ExecutionOptions:
    """Return the options with the task's ``execution_timeout`` as an absolute end: while deferred, Airflow has none."""
    limit = getattr(context.get("task"), "execution_timeout", None)
    start = getattr(context["ti"], "start_date", None)
    if limit is None or start is None:
        return options
    return replace(options, deadline=start.timestamp() + limit.total_seconds())


def task_log(context: Mapping[str, Any]) -> Any:
    """Return what takes one line for people, in the log of the task."""
    task = context.get("task")
    logger = getattr(task, "log", None) or _app_log
    return lambda message: logger.info(message)


def _deployment(runner: Runner, launch: Launch, options: ExecutionOptions, context: Mapping[str, Any]) -> str:
    """Return the name of this installation, for an Airflow without task state store."""
    from transload_airflow.settings import setting

    name = setting("deployment_id", "")
    if not name and options.durable:
        scheduler = runner.scheduler(launch.scheduler or runner.settings.scheduler)
        if scheduler.capabilities.reachable_from == "network":
            logger = getattr(context.get("task"), "log", None) or _app_log
            logger.warning(
                f"[transload] deployment_id is not set: another Airflow with a DAG of this name, on the same "
                f"{scheduler.name} scheduler, would take this app for its own. Set it in airflow.cfg, differently for "
                "each installation."
            )
    return name


def failure(
    error: TransloadError, options: ExecutionOptions, *, skip_on: Collection[int] = (), cancelled: str = "fail"
) -> BaseException:
    """Return the exception with which Airflow is told of an error: skip, fail for good, or fail and perhaps retry.

    Args:
        error: what came out of the execution.
        options: they say who retries.
        skip_on: exit codes of the first failed replica that mean "skip".
        cancelled: ``fail`` or ``skip``: what a cancelled app is.
    """
    from airflow.providers.common.compat.sdk import (
        AirflowException,
        AirflowFailException,
        AirflowSkipException,
        AirflowTaskTimeout,
    )

    from transload.pipelines import AppCancelled, Detached

    text = str(error)
    in_time = not isinstance(error, TransloadTimeout) or "startup_timeout" in text or "schedule_timeout" in text
    kind: type[BaseException] = AirflowException if in_time else AirflowTaskTimeout
    if isinstance(error, AppCancelled):
        kind = AirflowSkipException if cancelled == "skip" else AirflowFailException
    elif isinstance(error, AppFailed) and exit_code(error.status) in skip_on:
        kind = AirflowSkipException
    elif not isinstance(error, Detached) and not options.rule.host_may_retry(error):
        # (a person who ended a detached task has set its state already; a lost worker's retry attaches again)
        kind = AirflowFailException
    return kind(text)


def exit_code(status: AppStatus) -> int | None:
    """Return the exit code of the replica that failed first, or None."""
    replica = status.first_failure()
    return None if replica is None else replica.exit_code


F = TypeVar("F", bound=Callable[..., Any])


def told_briefly(method: F) -> F:
    """Make a method whose failures are logged by Airflow with their message, not with a page of this package's frames.

    Args:
        method: of an operator: what Airflow calls.
    """

    @functools.wraps(method)
    def brief(*args: Any, **kwargs: Any) -> Any:
        from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout

        try:
            return method(*args, **kwargs)
        except (AirflowException, AirflowTaskTimeout) as exc:
            if not isinstance(exc.__cause__, TransloadError):
                raise  # not what `told_to_airflow` says: somebody's own
            raise exc.with_traceback(None) from None

    return brief  # type: ignore[return-value]


@contextmanager
def told_to_airflow(
    options: ExecutionOptions, *, skip_on: Collection[int] = (), cancelled: str = "fail", killed: Any = None
) -> Iterator[None]:
    """Turn errors into those that Airflow acts on; see `failure`.

    Args:
        options: see `failure`.
        skip_on: see `failure`.
        cancelled: see `failure`.
        killed: tells whether this task itself was asked to end: its cancelled app is then nobody else's decision.
    """
    from airflow.providers.common.compat.sdk import AirflowException

    from transload.pipelines import AppCancelled

    try:
        yield
    except AppCancelled as exc:
        if killed is not None and killed():
            # whoever marked the task has set its state; if the worker was evicted, a retry is what is wanted
            raise AirflowException(f"{exc} (the task was asked to end)") from exc
        raise failure(exc, options, cancelled=cancelled) from exc
    except TransloadError as exc:
        raise failure(exc, options, skip_on=skip_on, cancelled=cancelled) from exc


@contextmanager
def killed_by_anything(execution: Execution, context: Mapping[str, Any]) -> Iterator[None]:
    """Kill the app when something ends the task after which nobody comes back for the app.

    An error of ours says by itself what is to become of it. Any other (of a callback, of Airflow's API) leaves it
    alone only if a retry will attach to it. A time limit of Airflow's is no ordinary error, and never just detaches.
    """
    from airflow.providers.common.compat.sdk import AirflowTaskTimeout

    try:
        yield
    except TransloadError:
        raise
    except Exception as exc:
        if not (execution.options.durable and comes_back(exc, context)):
            execution.give_up()
        raise
    except AirflowTaskTimeout:
        execution.cancel()
        raise
    except BaseException:
        execution.give_up()
        raise


def comes_back(error: Exception, context: Mapping[str, Any]) -> bool:
    """Tell whether Airflow will answer an error that is none of ours with a retry of the same generation."""
    from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

    if isinstance(error, (AirflowFailException, AirflowSkipException)):
        return False
    # somebody has cleared the task: Airflow's API does not know this try any more
    detail = getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, Mapping) and detail.get("status_code") in (404, 409, 410):
        return False
    ti = context["ti"]
    return bool(ti.try_number <= ti.max_tries)


def link_of(handle: str, runner: Runner) -> str | None:
    """Return the address of a page about an app: a plugin's, else the scheduler's; None if there is none.

    Airflow's page takes anything else than a full address (a folder, a path) for a page of its own.
    """
    from transload.plugins import get_plugins

    links = [get_plugins().app_link(handle)]
    try:
        description = runner.description(handle)
    except TransloadError:
        description = None
    if description is not None:
        links += [description.status.ui_url, description.log_url]
    return next((link for link in links if link and link.startswith(("http://", "https://"))), None)


def never() -> Any:
    """Stand for an app that is never built: a resumed task only collects."""
    raise TransloadError("a task that only collects has nothing to submit")


def silent_trigger(context: Mapping[str, Any], options: ExecutionOptions, key: str, message: str) -> dict[str, Any]:
    """Return what a trigger that broke, or said nothing, would have said of the app of this very try: wait elsewhere.

    Args:
        context: of the task.
        options: the user's settings.
        key: the XCom under which this try has left its handle; Airflow keeps it over a deferral.
        message: what became of the trigger.

    Raises:
        AirflowException: if there is no handle.
    """
    from airflow.providers.common.compat.sdk import AirflowException

    ti = context["ti"]
    index = getattr(ti, "map_index", -1)
    handle = ti.xcom_pull(task_ids=ti.task_id, key=key, map_indexes=-1 if index is None else index)
    if not handle:
        raise AirflowException(f"{message}, and no XCom {key!r} says which app this try has started; nothing was done")
    state = {
        "handle": handle,
        "attempt": None,
        "identity": [HOST, "", list(task_key(ti)), str(ti.max_tries)],
        "options": options.to_dict(),
    }
    return {"kind": "elsewhere", "message": message, "state": state}


def identity_of(state: Mapping[str, Any]) -> Identity:
    """Return the identity inside an execution's state."""
    from transload.pipelines import Identity

    host, namespace, key, generation = state["identity"]
    return Identity(host, namespace, tuple(key), generation)
