"""Run jobs as tasks of Airflow.

This holds what is Airflow's own, while the core runs the job. What the adapter is capable of is
read without Airflow, so that is imported where it is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import transload_airflow
from transload.errors import AppFailed, TransloadError
from transload.pipelines import (
    AdapterIO,
    Again,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleAdapter,
    dry_run,
    json_safe,
)
from transload_airflow.sources import is_search, launch_of
from transload_airflow.states import ENDINGS, STATES
from transload_airflow.task_instance import end_asked_for, will_reattach
from transload_airflow.tries import asked_anew, identity_of, words_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskGroup

    from transload.pipelines import AttachStore, LogSink
    from transload.runner import Cluster
    from transload.specs import AppStatus
    from transload_airflow.operators import TransloadOperator

CANCEL_S: Final = 20.0
"""Seconds for which a scheduler that cannot be reached is asked again to cancel.

Airflow gives a trigger 30 by default (``[triggerer] on_kill_timeout``).
"""

PROGRESS_KEY: Final = "progress"
"""XCom key of how far the job was at its end, as fields of `transload.specs.Progress`."""

PAUSE_S: Final = 1.0
"""Seconds between two such questions."""


def _log_line(text: str) -> None:
    logging.getLogger("transload.pipelines").info("%s", text)


@dataclass(kw_only=True)
class TaskContext:
    """What Airflow says of one task that runs, or of its trigger, and what its user set.

    Args:
        airflow: Airflow's context of the task, which is empty in a trigger.
        options: how the job is run.
        key: which of the task's jobs it is, if it has several.
        cluster: where it runs, if a connection says that.
        inherit_env: give the job the whole environment of the worker.
        store: where the job is found again, or None for nowhere.
        log_store: where it is kept how far log lines were handed on, or None for nowhere.
        sink: gets the job's log lines. With None, nobody does.
        log: takes one line for people.
        on_change: gets the handle and each new status of the job.
        context_args: arguments that a component may declare (``trial_idx`` …).
        may_save: whether it may submit and use Airflow's store. A trigger may not.
        owner: the task has started the job, so its end may be the job's.
        skip_on: exit codes of the first failed replica that make the task *skipped*.
        cancelled: what a task is whose job somebody cancelled.

    Attributes:
        ended: something ends the task.
        driver: what looks after the job, once it does.
    """

    airflow: Mapping[str, Any] = field(default_factory=dict)
    options: ExecutionOptions = field(default_factory=ExecutionOptions)
    key: str | None = None
    cluster: Cluster | None = None
    inherit_env: bool = False
    store: AttachStore | None = None
    log_store: AttachStore | None = None
    sink: LogSink | None = None
    log: Callable[[str], None] = _log_line
    on_change: Callable[[str, AppStatus], None] | None = None
    context_args: Mapping[str, Any] = field(default_factory=dict)
    may_save: bool = True
    owner: bool = True
    skip_on: Collection[int] = ()
    cancelled: Literal["fail", "skip"] = "fail"
    ended: bool = field(default=False, init=False)
    driver: Driver | None = field(default=None, init=False)

    def end(self) -> None:
        """Take note that something ends the task. It may be called in a signal handler."""
        self.ended = True
        if self.driver is not None:
            self.driver.kill()


class AirflowAdapter(LifecycleAdapter[TaskContext]):
    """The adapter that ``transload.pipelines.get_adapter("airflow")`` returns."""

    name = "airflow"
    states = STATES
    endings: ClassVar[Mapping[Ending, str]] = ENDINGS

    def convert(self, source: Any, **host_options: Any) -> TransloadOperator | TaskGroup:
        """Return an operator, and of a Search a group of tasks.

        See `operator_from_app` and `search_group`.
        """
        # by the package's own names, since operators import this module
        if not is_search(source):
            return transload_airflow.operator_from_app(source, **host_options)
        group_id = host_options.pop("task_id", None)
        if group_id is not None:
            host_options["group_id"] = group_id
        return transload_airflow.search_group(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what a task would submit, and of a Search what its first round would.

        Options that only an operator has need Airflow.
        """
        if is_search(source):
            return self._dry_run_of_search(source)
        launch, other_options = launch_of(source, host_options)
        if not other_options:
            return dry_run(self.name, launch)
        return transload_airflow.operator_from_app(source, **host_options).dry_run()

    def _dry_run_of_search(self, search: Any) -> str:
        from transload_search import next_round

        trials, *_ = next_round(search, None, {})
        texts = []
        for trial in trials:
            launch = Launch(
                component=search.component,
                args={**search.constants, **trial.parameters},
                scheduler=search.scheduler,
                cfg=dict(search.cfg),
            )
            texts.append(dry_run(self.name, launch, context_args={"trial_idx": trial.index}))
        return "\n".join(texts)

    def identity(self, context: TaskContext) -> Identity:
        """Return whose job it is, which is equal for all tries of a task, cleared or not."""
        return identity_of(context.airflow, context.key)

    def asked(self, context: TaskContext) -> Mapping[str, Any]:
        """Return what Airflow says of this try, which is kept with the job that it submits."""
        return words_of(context.airflow)

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether somebody has cleared the task since its newest job was submitted."""
        return asked_anew(kept, now)

    def advice(self, schedulers: Collection[str]) -> Iterator[str]:
        """Advise to name the installation, and say what an older Airflow has not."""
        from transload_airflow.settings import setting

        others = sorted(set(schedulers) - {"local"})
        if others and not setting("deployment_id", ""):
            yield (
                f"[transload] deployment_id is not set, and jobs run on {', '.join(others)}: set "
                "it in airflow.cfg, differently for each Airflow that uses them"
            )
        installed = version("apache-airflow")
        if tuple(map(int, installed.split(".")[:2])) < (3, 3):
            yield (
                f"Airflow {installed} is installed, and from 3.3 on a mark or a clear of a deferred "
                "task ends its job at once. An environment with other orchestrators gets an older "
                "Airflow without a word: give Airflow one of its own"
            )

    def io(self, context: TaskContext) -> AdapterIO:
        """Return the task's stores and log, and how Airflow is asked about its end."""
        from transload_airflow.runner import runner_for_tasks

        runner = runner_for_tasks(context.inherit_env, context.cluster)
        io = AdapterIO(
            runner=runner,
            store=context.store,
            log_store=context.log_store,
            sink=context.sink,
            log=context.log,
            on_change=context.on_change,
            context_args=context.context_args,
            host_retries=getattr(context.airflow.get("task"), "retries", None),
            may_save=context.may_save,
        )
        if "ti" in context.airflow:
            io.asked = partial(end_asked_for, context.airflow)
            io.show_progress = partial(push_progress, context.airflow["ti"])
        return io

    @contextmanager
    def cancel_on_exit(self, context: TaskContext, driver: Driver) -> Iterator[None]:
        """Give a context in which what ends the task reaches the driver.

        Transload's own errors say what becomes of the job. After any other error, of a callback or
        of Airflow's API, it goes on if a retry will reattach to it. A time limit of Airflow's
        cancels it in any case.
        """
        from airflow.providers.common.compat.sdk import AirflowTaskTimeout

        if not context.owner:
            yield
            return
        context.driver = driver
        if context.ended:  # before there was a driver
            driver.kill()
        try:
            yield
        except TransloadError:
            raise
        except AirflowTaskTimeout:
            cancel(driver)
            raise
        except Exception as exc:
            if not will_reattach(exc, context.airflow):
                driver.give_up(asked=True)
            raise
        except BaseException:
            driver.give_up()
            raise

    def translate(self, error: TransloadError, context: TaskContext) -> BaseException:
        """Return the exception by which Airflow skips a task, fails it, or perhaps retries it."""
        from airflow.providers.common.compat import sdk

        ending = Ending.of(error)
        kind = self.endings[ending]
        message = str(error)
        if ending is Ending.CANCELLED and context.ended:
            # a person who marked the task has set its state, and a stopped worker's task is retried
            kind = "AirflowException"
            message = f"{message} (the task was asked to end)"
        elif ending is Ending.CANCELLED:
            if context.cancelled == "skip":
                kind = "AirflowSkipException"
        elif _failed_with(error, context.skip_on):
            kind = "AirflowSkipException"
        elif ending is not Ending.DETACHED and not context.options.host_may_retry(error):
            kind = "AirflowFailException"
        made: BaseException = getattr(sdk, kind)(message)
        return made


ADAPTER: Final = AirflowAdapter()


def _failed_with(error: TransloadError, exit_codes: Collection[int]) -> bool:
    """Tell whether a job failed because a replica ended with one of these exit codes."""
    if not isinstance(error, AppFailed):
        return False
    replica = error.status.first_failure()
    return replica is not None and replica.exit_code in exit_codes


def push_progress(ti: Any, handle: str, status: AppStatus) -> None:
    """Push how far a job was at its end, as an XCom. While it runs, its log says so.

    Args:
        ti: the task instance.
        handle: the job.
        status: what was seen of it.
    """
    if status.progress is None or not status.is_terminal():
        return
    said = asdict(status.progress.without_history())
    values = {name: value for name, value in said.items() if value not in (None, [])}
    ti.xcom_push(key=PROGRESS_KEY, value=json_safe(values))


def cancel(driver: Driver) -> None:
    """Cancel a job. A scheduler that cannot be reached is asked again, for `CANCEL_S`."""
    end = time.monotonic() + CANCEL_S
    cancelled = driver.cancel()
    while not cancelled and time.monotonic() < end:
        time.sleep(PAUSE_S)
        cancelled = driver.cancel()
    if not cancelled:
        driver.log(f"the task was ended, but {driver.handle} could not be cancelled, and goes on")
