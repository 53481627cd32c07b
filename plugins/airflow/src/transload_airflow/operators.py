"""The operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn

from airflow.providers.common.compat.sdk import AirflowException

from transload import pipelines
from transload.errors import ConfigError, TransloadError
from transload.specs import AppDef, AppState, CfgVal, parse_app_handle
from transload_airflow.callbacks import AppCallbacks
from transload_airflow.generation import asked_here
from transload_airflow.hooks import Defaults, defaults_of
from transload_airflow.lineage import announce_assets, operator_lineage
from transload_airflow.links import LINK_KEY, AppLink
from transload_airflow.listener import departing
from transload_airflow.masks import Reads
from transload_airflow.run import (
    dag_folder,
    execution_of,
    hide_traceback,
    identity_of,
    run_app,
    traces_of,
    translate_errors,
    unit_here,
    unit_of_state,
)
from transload_airflow.runner import HOST, runner_for_tasks
from transload_airflow.settings import default_deferrable, triggerer_on_same_machine
from transload_airflow.settling import mark_deferred
from transload_airflow.stores import state_store
from transload_airflow.templates import TemplateRules
from transload_airflow.values import (
    app_name,
    arguments,
    as_component,
    as_values,
    called,
    decoded,
    exit_codes,
    plain,
    run_options,
    unwrapped,
    words_of,
)

if TYPE_CHECKING:
    from transload.pipelines import Execution, ExecutionOptions, Identity, Launch
    from transload.pipelines.attach import Attached
    from transload.runner import AppResults, Runner
    from transload_airflow.stores import LogStore

with suppress(ImportError):  # before Airflow 3.3 an administrator lists the class in airflow.cfg
    from airflow.sdk.serde import allow_class

    allow_class(AppDef)  # an upstream task may return one

HANDLE_KEY: Final = "handle"
"""XCom key of the app's handle; pushed before the task is deferred."""
QUEUED_S: Final = 0.5
"""Seconds within which an app must run, to be waited for in place before the task defers."""

GRACE: Final = timedelta(seconds=60)
"""How long after the deadline a trigger may still be silent before Airflow itself ends the wait."""


class TransloadOperator(TemplateRules):
    """Runs an app as one task, whatever its roles and replicas, on any scheduler.

    Exactly one of ``app``, ``component`` and ``command`` is given. A component's AppDef is built
    when the task runs, so outputs of upstream tasks can be its launch parameters (image, replicas,
    resources): put them into ``component_args``; rendered texts are decoded as on the command line.

    Returns (as XCom) the JSON form of ``transload.runner.AppResults``; the handle is the XCom
    ``handle`` as soon as the app is submitted.

    Args:
        app: an AppDef, its JSON (text or values), or a callable that returns one and takes any of
            the context's names.
        component: name (``utils.echo``, ``package.module:function``, ``file.py:function``) or
            function.
        component_args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, run as they are.
        scheduler: where to run it; None: the connection's, else the configured one, else ``local``.
        cfg: run options of the scheduler; they go before those of the connection.
        workspace: local folder that travels with the app.
        tracker_base: where the app reports results; None: the connection's, else a folder of the
            app's own.
        parent_run_id: run that this one derives from.
        conn_id: a connection of type ``transload``: the cluster, and defaults.
        deferrable: wait in the triggerer where that is possible; default: ``[operators]
            default_deferrable``.
        defer_after: seconds for which a running app is waited for in place first; 0: none. To defer
            and to come back costs about as much as the default, so an app that is done by then is
            done sooner.
        durable: False: no store, no attaching; every try submits an app of a fresh id.
        on_kill: ``cancel``: the app ends with a task that somebody marks or clears; ``detach``: it
            goes on.
        patience: seconds for which the scheduler may be unable to say what the app does.
        poll_interval: longest pause in seconds between questions to a scheduler that does not push
            changes.
        logging_interval: longest pause in seconds between looks at the logs.
        schedule_timeout: seconds in SUBMITTED before the app is cancelled and the task fails.
        startup_timeout: seconds in PENDING before it first runs, likewise.
        skip_on_exit_code: exit code, or codes, of the first failed replica that make the task
            *skipped*.
        cancelled: ``fail`` (no retry) or ``skip``: what a task is whose app somebody cancelled.
        retries_by: ``nested`` (each retry of the task is a new attempt, within which the scheduler
            spends ``max_retries``), ``host`` (only the task retries) or ``scheduler`` (only the
            scheduler does).
        max_log_rate: lines (``1000``) or bytes (``"5 MB/s"``) a second; None: all lines are handed
            on.
        tail_lines: how many last log lines go into the message of a failure.
        pass_env: patterns (``HF_*``) of the worker's variables that the job gets.
        inherit_env: give the job the whole environment of the worker; default: only an allow-list
            of it.
        environment: what must be installed where the job runs: a file beside the DAG's
            (``requirements.txt``, ``uv.lock``, a script with a header), or ``none``; default: what
            the app, the settings or the header of its script say.
        template_app: False: ``{{`` in the app's own texts is left alone.
        push_results: push each key of the results as an XCom of its own too, ``results.<key>``, and
            the path of each artifact, files of the output folder among them, as
            ``artifacts.<name>``.
        callbacks: called while the app runs.
        kwargs: of ``BaseOperator``.

    Raises:
        ConfigError: for a value that is not allowed.
        SpecError: for an AppDef that is not valid, or not exactly one of app, component and
            command.
    """

    template_fields: Sequence[str] = (
        "app",
        "component",
        "component_args",
        "command",
        "scheduler",
        "cfg",
        "workspace",
        "tracker_base",
        "parent_run_id",
        "conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("app", "component_args", "command", "cfg"), "json"
    )
    text_fields: Sequence[str] = (
        "component",
        "scheduler",
        "workspace",
        "tracker_base",
        "parent_run_id",
        "conn_id",
    )
    word_fields: Sequence[str] = ("command",)
    own_fields: Sequence[str] = ("app", "component_args", "cfg")
    operator_extra_links = (AppLink(),)
    ui_color = "#d9e8f5"

    # of one try, in the task's process
    app_link: str | None = None  # empty: there is none
    handle: str | None = None
    results: AppResults | None = None
    _execution: Execution | None = None
    _log_store: LogStore | None = None
    _defaults: Defaults = Defaults()
    _asked_to_end = False

    _source_is_given: ClassVar[bool] = True
    """Whether the constructor says what to run; False in classes that find that out when the task
    runs."""

    def __init__(
        self,
        *,
        app: AppDef | str | Mapping[str, Any] | Callable[..., AppDef] | None = None,
        component: str | Callable[..., AppDef] | None = None,
        component_args: Mapping[str, Any] | Sequence[str] | None = None,
        command: Sequence[str] | None = None,
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
        tracker_base: str | None = None,
        parent_run_id: str | None = None,
        conn_id: str | None = None,
        deferrable: bool | None = None,
        defer_after: float = 2.0,
        durable: bool = True,
        on_kill: Literal["cancel", "detach"] = "cancel",
        patience: float = 300.0,
        poll_interval: float = 5.0,
        logging_interval: float = 2.0,
        schedule_timeout: float | None = None,
        startup_timeout: float | None = None,
        skip_on_exit_code: int | Collection[int] | None = None,
        cancelled: Literal["fail", "skip"] = "fail",
        retries_by: Literal["nested", "host", "scheduler"] = "nested",
        max_log_rate: int | str | None = None,
        tail_lines: int = 20,
        pass_env: Sequence[str] = (),
        inherit_env: bool = False,
        environment: str | None = None,
        template_app: bool = True,
        push_results: bool = False,
        callbacks: AppCallbacks | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._reads = Reads()
        self._given_app = app
        self.app, self.app_callable = as_values(app, template_app)
        if isinstance(app, AppDef):
            self.word_fields = (
                *self.word_fields,
                "app",
            )  # whatever it has that is no text is no template either
        self.component = as_component(component)
        self.component_args = component_args
        self.command = command
        self.scheduler, self.cfg, self.conn_id = scheduler, cfg, conn_id
        self.workspace, self.tracker_base, self.parent_run_id = (
            workspace,
            tracker_base,
            parent_run_id,
        )
        self.callbacks = callbacks or AppCallbacks()
        self.deferrable = self._may_be_deferred(deferrable)
        self.defer_after = defer_after
        times = {"schedule_timeout": schedule_timeout, "startup_timeout": startup_timeout}
        times |= {
            "patience": patience,
            "poll_interval": poll_interval,
            "logging_interval": logging_interval,
        }
        rules = {"durable": durable, "on_kill": on_kill, "retries_by": retries_by}
        self.options: dict[str, Any] = {
            **times,
            **rules,
            "max_log_rate": max_log_rate,
            "tail_lines": tail_lines,
        }
        self.skip_on_exit_code = exit_codes(skip_on_exit_code)
        self.cancelled = cancelled
        self.pass_env, self.inherit_env = list(pass_env), inherit_env
        self.environment = environment
        self.template_app = template_app
        self.push_results = push_results
        self._check()

    def as_given(self, name: str) -> Any:
        """Return a template field as it was given to the constructor."""
        return self._given_app if name == "app" else super().as_given(name)

    def _may_be_deferred(self, wanted: bool | None) -> bool:
        """Return what ``deferrable`` means; where it is not given, Airflow's default, but for
        callbacks.
        """
        here = self.callbacks.needs_the_task
        if wanted and here:
            raise ConfigError(
                "deferrable=True: callbacks with on_status need the task's process: leave one out"
            )
        return wanted if wanted is not None else default_deferrable() and not here

    def _check(self) -> None:
        self._options()
        if self._source_is_given:
            pipelines.Launch(
                app=self.app if self.app_callable is None else self.app_callable,
                component=unwrapped(self.component),
                args=self.component_args or {},
                command=self.command,
            )
        if self.cancelled not in ("fail", "skip"):
            raise ConfigError(f"cancelled={self.cancelled!r}: must be 'fail' or 'skip'")
        if (
            isinstance(self.defer_after, bool)
            or not isinstance(self.defer_after, (int, float))
            or self.defer_after < 0
        ):
            raise ConfigError(
                f"defer_after={self.defer_after!r}: must be a number of seconds, 0 or more"
            )

    # -- the life of the task

    @hide_traceback
    def execute(self, context: Any) -> Any:
        """Submit the app, or attach to it; wait here or in the triggerer; return its results."""
        return self._begin(context, self.deferrable)

    @hide_traceback
    def resume(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the triggerer has waited.

        Args:
            context: of the task.
            event: of `AppStateTrigger`.
        """
        if event is None:
            return self._wait_here(context, "the trigger has said nothing")
        event = dict(event)
        state = event["state"]
        if event["kind"] in ("elsewhere", "error"):
            self.log.warning(
                f"the triggerer cannot wait for {state['handle']} ({event.get('message', '')}): "
                "this task waits in "
                "place, and holds its slot"
            )
            event["kind"] = "elsewhere"
        unit = unit_of_state(state)
        with asked_here(context["ti"]) as asked:
            asked.append(unit)
        self.app_link = state.get("link")
        traces = self._traces(context, pipelines.ExecutionOptions.from_dict(state["options"]), unit)
        execution = pipelines.Execution.from_state(state, self._runner(), **traces)
        self._take(execution)
        if self._log_store is not None and state.get("cursor"):
            # the trigger has handed on lines: should this process die, the next try goes on after
            # them
            self._log_store.put(
                {"schema": state["schema"], "handle": state["handle"], "cursor": state["cursor"]}
            )
            self._log_store.flush()
        return self._end(context, execution, lambda: pipelines.settle(execution, event))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any
    ) -> Any:
        """Go on after a deferral; a trigger that failed or ran out of time is no failure of the
        app.
        """
        if next_method != "__fail__":
            return super().resume_execution(next_method, next_kwargs, context)
        error = str((next_kwargs or {}).get("error", "Unknown"))
        return self._wait_here(context, error)

    def on_kill(self) -> None:
        """Have the app ended if somebody asked for that; called by Airflow in a signal handler
        perhaps.
        """
        self._asked_to_end = True
        if self._execution is not None:
            self._execution.kill()

    def dry_run(self) -> str:  # type: ignore[override]
        """Log and return what would be submitted; nothing outside of this process is touched."""
        self._defaults = defaults_of(self.conn_id)
        launch = self._launch({"task": self, "params": self.params, "dag": self.get_dag()})
        who = pipelines.Identity(HOST, "dry-run", (self.task_id,))
        text = pipelines.Execution(
            self._runner(), decoded(launch, self._runner()), who, self._options()
        ).dry_run()
        self.log.info(text)
        return text

    # -- parts

    def _wait_here(self, context: Any, error: str) -> Any:
        """Wait in place for the app whose trigger did not bring the task to an end."""
        if self.options["durable"]:
            self.log.warning(f"{error}: attaching to the app again, and waiting in place")
            return self._begin(context, False, again=True)
        # nothing but this try's own XCom, kept over a deferral, knows its app: to begin again would
        # start a second one
        ti, options = context["ti"], self._options()
        handle = ti.xcom_pull(
            task_ids=ti.task_id, key=HANDLE_KEY, map_indexes=getattr(ti, "map_index", -1)
        )
        if not handle:
            raise AirflowException(
                f"{error}, and no XCom {HANDLE_KEY!r} says which app this try started; nothing was "
                "done"
            )
        self.log.warning(f"{error}: waiting in place for {handle}")
        traces = self._traces(context, options)
        self._defaults = defaults_of(self.conn_id)
        execution = pipelines.Execution(
            self._runner(), None, identity_of(context), options, **traces
        )
        execution.attach(handle)
        self.app_link = execution.link() or ""
        self._take(execution)
        return self._end(context, execution, lambda: execution.collect(execution.follow()))

    def _begin(self, context: Any, deferrable: bool, *, again: bool = False) -> Any:
        """Submit the app or attach to it, and wait for it.

        Args:
            context: of the task.
            deferrable: let the triggerer wait, if it can.
            again: it is the app that this try has begun already, in an earlier process.
        """
        options = self._options()
        if not again:
            self.app_link = ""  # until there is one
        if deferrable and context.get("task", self) is not self:
            self.log.info(
                "this operator is executed inside another task, which waits in place, and holds "
                "its slot"
            )
            deferrable = False
        with translate_errors(options):
            same_machine = (
                deferrable and triggerer_on_same_machine()
            )  # if that is set wrongly, nothing is started
            self._defaults = defaults_of(self.conn_id)
            launch = self._launch(context)
            known = self._known(context)
            unit = pipelines.FIRST_UNIT
            if options.durable:
                unit = unit_here(
                    context, "" if again else pipelines.ask_of(launch, self._runner(), known)
                )
            who = None if state_store(context) is None else identity_of(context, unit=unit)
            traces = self._traces(context, options, unit, who)
            more = {"unit": unit, "identity": who, "context_args": known, **traces}
            execution = execution_of(context, launch, options, self._runner(), **more)
        self._take(execution)

        def start() -> bool:
            self._announce(context, execution, execution.start())
            return (
                deferrable
                and not self._ends_soon(execution)
                and self._may_defer(execution, same_machine)
            )

        if run_app(execution, context, start, **self._telling()) and not self._asked_to_end:
            self._defer(context, execution)
        return self._end(context, execution, lambda: execution.collect(execution.follow()))

    def _end(
        self, context: Any, execution: Execution, wait: Callable[[], AppResults]
    ) -> dict[str, Any]:
        try:
            self.results = run_app(execution, context, wait, **self._telling())
        finally:
            self.handle = execution.handle
            if self._log_store is not None and not self._asked_to_end:
                self._log_store.flush()
                self._log_store.forget()
        self.callbacks.on_results(self.results, context)
        if self.push_results:
            made: dict[str, Any] = {
                f"results.{key}": values for key, values in self.results.results.items()
            }
            made |= {
                f"artifacts.{name}": each.get("path")
                for name, each in self.results.artifacts.items()
            }
            for key, values in made.items():
                context["ti"].xcom_push(key=key, value=plain(values))
        announce_assets(context, self.outlets, self.results)
        values = plain(self.results.to_dict())
        assert isinstance(values, dict)
        return values

    def _traces(
        self,
        context: Any,
        options: ExecutionOptions,
        unit: str = pipelines.FIRST_UNIT,
        identity: Identity | None = None,
    ) -> dict[str, Any]:
        """Return where this task leaves what it knows of its app."""
        traces = traces_of(context, options, unit, identity)
        self._log_store = traces.get("log_store")
        return {**traces, "on_change": lambda status: self.callbacks.on_status(status, context)}

    def _telling(self) -> dict[str, Any]:
        return {
            "skip_on": self.skip_on_exit_code,
            "cancelled": self.cancelled,
            "killed": lambda: self._asked_to_end,
        }

    def _runner(self) -> Runner:
        return runner_for_tasks(self.inherit_env, self._defaults.cluster)

    def _known(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the task knows of arguments that a component may declare."""
        return {}

    def _take(self, execution: Execution) -> None:
        """Make an execution the one that a kill ends, also a kill that came before it was there."""
        self._execution = execution
        if self._asked_to_end:
            execution.kill()

    def _announce(self, context: Any, execution: Execution, attached: Attached) -> None:
        self.handle = attached.handle
        self._hide_secrets(context, execution)
        ti = context["ti"]
        ti.xcom_push(key=HANDLE_KEY, value=attached.handle)
        self.app_link = execution.link() or ""
        look = self.app_link or f"transload describe {attached.handle}"
        ti.xcom_push(key=LINK_KEY if self.app_link else "look", value=look)
        self.log.info(
            f"app {attached.handle} ({attached.action.value}, attempt {attached.attempt}): {look}"
        )
        self.callbacks.on_started(attached, context)

    def _hide_secrets(self, context: Any, execution: Execution) -> None:
        """Have Airflow hide the secrets that the app is given, should it print them."""
        with suppress(TransloadError):
            found = execution.runner.description(execution.handle or "")
            if found is not None and found.app is not None:
                self._reads.add_sources(found.app, dag_folder(context))
        self._reads.hide_sources()

    def _ends_soon(self, execution: Execution) -> bool:
        """Tell whether the app has ended before it would be worth while to defer."""
        if execution.status is None:
            execution.poll()
        queued = min(QUEUED_S, self.defer_after)
        if execution.follow_for(queued):
            return True
        running = execution.status is not None and execution.status.state is AppState.RUNNING
        return running and execution.follow_for(self.defer_after - queued)

    def _may_defer(self, execution: Execution, same_machine: bool) -> bool:
        if execution.can_defer(same_machine):
            return True
        assert execution.handle is not None
        scheduler = execution.runner.scheduler(parse_app_handle(execution.handle).scheduler_backend)
        reach = scheduler.capabilities.reachable_from
        self.log.warning(
            f"apps of scheduler {scheduler.name!r} are reachable from this {reach} only: this task "
            "waits in place, and "
            "holds its slot ([transload] triggerer_on_same_machine says where triggerers run)"
        )
        return False

    def _defer(self, context: Any, execution: Execution) -> NoReturn:
        from transload_airflow.triggers import AppStateTrigger

        departing.append((context["ti"], execution))
        if self._log_store is not None:
            self._log_store.flush()
        left = None
        if execution.options.deadline is not None:
            left = timedelta(seconds=max(0.0, execution.options.deadline - time.time())) + GRACE
        state = {**execution.state(), "link": self.app_link}
        trigger = AppStateTrigger(state, left=mark_deferred(), reads=self._reads.to_dict())
        self.defer(trigger=trigger, method_name="resume", timeout=left)
        raise AssertionError("defer() raises")

    def _options(self) -> ExecutionOptions:
        return pipelines.ExecutionOptions(**self.options)

    def _launch(self, context: Mapping[str, Any]) -> Launch:
        known = self._defaults
        app = self.app
        if self.app_callable is not None:
            app = called(self.app_callable, self._reads.noting(context))
        return pipelines.Launch(
            app=unwrapped(app),
            component=unwrapped(self.component),
            args=arguments(self.component_args),
            command=words_of(self.command),
            command_name=app_name(self.task_id),
            scheduler=self.scheduler or known.scheduler,
            cfg={**known.cfg, **run_options(self.cfg)},
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            tracker_base=self.tracker_base or known.tracker_base,
            folder=dag_folder(context),
            pass_env=self.pass_env,
            environment=self.environment,
        )

    # -- OpenLineage, found by name

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return inputs, outputs and run facets of the app, from its trackers."""
        return operator_lineage(self.handle, self.results, self._execution)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete
