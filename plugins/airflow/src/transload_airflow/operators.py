"""The operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn

from airflow.providers.common.compat.sdk import BaseOperator

from transload.errors import ConfigError
from transload.specs import AppDef, CfgVal
from transload_airflow.callbacks import AppCallbacks
from transload_airflow.links import LINK_KEY, AppLink
from transload_airflow.run import (
    identity_of,
    killed_by_anything,
    link_of,
    log_store_of,
    make_execution,
    never,
    runner_for_tasks,
    silent_trigger,
    told_briefly,
    told_to_airflow,
)
from transload_airflow.settings import default_deferrable, triggerer_on_same_machine
from transload_airflow.values import AsIs, arguments, as_values, called, decoded, exit_codes, plain, run_options

if TYPE_CHECKING:
    from transload.pipelines import Execution, ExecutionOptions, Launch
    from transload.pipelines._attacher import Attached
    from transload.runner import AppResults
    from transload_airflow.stores import LogStore

HANDLE_KEY: Final = "handle"
"""XCom key of the app's handle; pushed before the task is deferred."""

QUEUED_S: Final = 0.5
"""Seconds within which an app must run, to be waited for in place before the task defers."""

GRACE: Final = timedelta(seconds=60)
"""How long after the deadline a trigger may still be silent before Airflow itself ends the wait."""


class TransloadOperator(BaseOperator):  # type: ignore[misc]
    """Runs an app as one task, whatever its roles and replicas, on any scheduler.

    Exactly one of ``app`` and ``component`` is given. The AppDef of a component is built when the task runs, so
    outputs of upstream tasks can be its launch parameters (image, replicas, resources): put them into
    ``component_args``; rendered texts are decoded as on the command line.

    Returns (as XCom) the JSON form of ``transload.runner.AppResults``; the handle is the XCom ``handle`` as soon as
    the app is submitted.

    Args:
        app: an AppDef, its JSON (text or values), or a callable that returns one and takes any of the context's names.
        component: name (``utils.echo``, ``package.module:function``, ``file.py:function``) or function.
        component_args: arguments of the component: name → value, or as on the command line.
        scheduler: where to run it; None: the connection's, else the configured one, else ``local``.
        cfg: run options of the scheduler; they go before those of the connection.
        workspace: local folder that travels with the app.
        tracker_base: where the app reports results; None: the connection's, else a folder of the app's own.
        parent_run_id: run that this one derives from.
        conn_id: a connection of type ``transload`` with defaults.
        deferrable: wait in the triggerer where that is possible; default: ``[operators] default_deferrable``.
        defer_after: seconds for which a running app is waited for in place first; 0: none. To defer and to come back
            costs about as much as the default, so an app that is done by then is done sooner.
        durable: False: no store, no attaching; every try submits an app of a fresh id.
        on_kill: ``cancel``: the app ends with the task; ``detach``: it goes on when the task is killed or marked.
        patience: seconds for which the scheduler may be unable to say what the app does.
        poll_interval: longest pause in seconds between questions to a scheduler that does not push changes.
        logging_interval: longest pause in seconds between looks at the logs.
        schedule_timeout: seconds in SUBMITTED before the app is cancelled and the task fails.
        startup_timeout: seconds in PENDING before it first runs, likewise.
        skip_on_exit_code: exit code, or codes, of the first failed replica that make the task *skipped*.
        cancelled: ``fail`` (no retry) or ``skip``: what a task is whose app somebody cancelled.
        retries_by: ``nested`` (each retry of the task is a new attempt, within which the scheduler spends
            ``max_retries``), ``host`` (only the task retries) or ``scheduler`` (only the scheduler does).
        max_log_rate: lines (``1000``) or bytes (``"5 MB/s"``) a second; None: all lines are handed on.
        tail_lines: how many last log lines go into the message of a failure.
        inherit_env: give the job the whole environment of the worker; default: only an allow-list of it.
        template_app: False: ``{{`` in the app's own texts is left alone.
        push_results: push each key of the results as an XCom of its own too, ``results.<key>``.
        callbacks: called while the app runs.
        kwargs: of ``BaseOperator``.

    Raises:
        ConfigError: for a value that is not allowed.
        SpecError: for an AppDef that is not valid, or not exactly one of app and component.
    """

    template_fields: Sequence[str] = (
        "app",
        "component_args",
        "scheduler",
        "cfg",
        "workspace",
        "tracker_base",
        "parent_run_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"app": "json", "component_args": "json", "cfg": "json"}
    operator_extra_links = (AppLink(),)
    ui_color = "#d9e8f5"

    # of one try, in the task's process
    app_link: str | None = None
    handle: str | None = None
    results: AppResults | None = None
    _execution: Execution | None = None
    _log_store: LogStore | None = None
    _asked_to_end = False

    _source_is_given: ClassVar[bool] = True
    """Whether the constructor says what to run; False in classes that find that out when the task runs."""

    def __init__(
        self,
        *,
        app: AppDef | str | Mapping[str, Any] | Callable[..., AppDef] | None = None,
        component: str | Callable[..., AppDef] | None = None,
        component_args: Mapping[str, Any] | Sequence[str] | None = None,
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
        inherit_env: bool = False,
        template_app: bool = True,
        push_results: bool = False,
        callbacks: AppCallbacks | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app, self.app_callable = as_values(app, template_app)
        self.component, self.component_args = component, component_args
        self.scheduler, self.cfg, self.conn_id = scheduler, cfg, conn_id
        self.workspace, self.tracker_base, self.parent_run_id = workspace, tracker_base, parent_run_id
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.defer_after = defer_after
        self.options: dict[str, Any] = {
            "durable": durable,
            "on_kill": on_kill,
            "patience": patience,
            "poll_interval": poll_interval,
            "logging_interval": logging_interval,
            "schedule_timeout": schedule_timeout,
            "startup_timeout": startup_timeout,
            "retries_by": retries_by,
            "max_log_rate": max_log_rate,
            "tail_lines": tail_lines,
        }
        self.skip_on_exit_code = exit_codes(skip_on_exit_code)
        self.cancelled = cancelled
        self.inherit_env = inherit_env
        self.template_app = template_app
        self.push_results = push_results
        self.callbacks = callbacks or AppCallbacks()
        self._check()

    def _check(self) -> None:
        from transload.pipelines import Launch

        self._options()
        if self._source_is_given:
            source = self.app if self.app_callable is None else self.app_callable
            Launch(app=source, component=self.component, args=self.component_args or {})
        if self.cancelled not in ("fail", "skip"):
            raise ConfigError(f"cancelled={self.cancelled!r}: must be 'fail' or 'skip'")
        if isinstance(self.defer_after, bool) or not isinstance(self.defer_after, (int, float)) or self.defer_after < 0:
            raise ConfigError(f"defer_after={self.defer_after!r}: must be a number of seconds, 0 or more")

    # -- the life of the task

    @told_briefly
    def execute(self, context: Any) -> Any:
        """Submit the app, or attach to it; wait here or in the triggerer; return its results."""
        return self._begin(context, self.deferrable)

    @told_briefly
    def resume(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the triggerer has waited.

        Args:
            context: of the task.
            event: of `AppStateTrigger`.
        """
        if event is None:
            return self._wait_here(context, "the trigger has said nothing")
        from transload.pipelines import ExecutionOptions, Launch
        from transload.specs import parse_app_handle

        event = dict(event)
        state = event["state"]
        options = ExecutionOptions.from_dict(state["options"])
        parsed = parse_app_handle(state["handle"])
        launch = Launch(app=never, scheduler=parsed.scheduler_backend)
        execution = self._make(context, launch, options)
        execution.identity = identity_of(state)
        if event["kind"] in ("elsewhere", "error"):
            self.log.warning(
                f"the triggerer cannot wait for {state['handle']} ({event.get('message', '')}): this task waits in "
                "place, and holds its slot"
            )
            event["kind"] = "elsewhere"
        self._take(execution)
        return self._end(context, execution, lambda: execution.settle(event), options)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Go on after a deferral; a trigger that failed or ran out of time is no failure of the app."""
        if next_method != "__fail__":
            return super().resume_execution(next_method, next_kwargs, context)
        error = str((next_kwargs or {}).get("error", "Unknown"))
        return self._wait_here(context, error)

    def on_kill(self) -> None:
        """Do what ``on_kill`` says; called by Airflow in the task's process, in a signal handler perhaps."""
        self._asked_to_end = True
        if self._execution is not None:
            self._execution.kill()

    def dry_run(self) -> str:
        """Log and return what would be submitted; nothing outside of this process is touched."""
        from transload.pipelines import Execution, Identity

        runner = runner_for_tasks()
        launch = decoded(self._launch({"task": self, "params": self.params}), runner)
        execution = Execution(runner, launch, Identity("airflow", "dry-run", (self.task_id,)))
        text = execution.dry_run()
        self.log.info(text)
        return text

    # -- parts

    def _wait_here(self, context: Any, error: str) -> Any:
        """Wait in place for the app whose trigger did not bring the task to an end."""
        if not self.options["durable"]:
            # nothing but this try's own XCom knows its app: to begin again would start a second one
            return self.resume(context, silent_trigger(context, self._options(), HANDLE_KEY, error))
        self.log.warning(f"{error}: attaching to the app again, and waiting in place")
        return self._begin(context, False)

    def _begin(self, context: Any, deferrable: bool) -> Any:
        options = self._options()
        with self._told(options):
            same_machine = deferrable and triggerer_on_same_machine()  # if that is set wrongly, nothing is started
            launch = self._launch(context)
            execution = self._make(context, launch, options)
        self._take(execution)
        options = execution.options
        with self._told(options), killed_by_anything(execution, context):
            attached = execution.start()
            self._announce(context, execution, attached)
            defer = deferrable and not self._ends_soon(execution) and self._may_defer(execution, same_machine)
        if defer and not self._asked_to_end:
            self._defer(execution)
        return self._end(context, execution, lambda: execution.collect(execution.follow()), options)

    def _end(
        self, context: Any, execution: Execution, wait: Callable[[], AppResults], options: ExecutionOptions
    ) -> dict[str, Any]:
        try:
            with self._told(options), killed_by_anything(execution, context):
                self.results = wait()
        finally:
            self.handle = execution.handle
            if self._log_store is not None and not self._asked_to_end:
                self._log_store.flush()
        self.callbacks.on_results(self.results, context)
        if self.push_results:
            for key, values in self.results.results.items():
                context["ti"].xcom_push(key=f"results.{key}", value=plain(values))
        values = plain(self.results.to_dict())
        assert isinstance(values, dict)
        return values

    def _make(self, context: Any, launch: Launch, options: ExecutionOptions) -> Execution:
        self._log_store = log_store_of(context, options)
        return make_execution(
            context,
            launch,
            options,
            self.inherit_env,
            log_store=self._log_store,
            known=self._known(),
            on_change=lambda status: self.callbacks.on_status(status, context),
        )

    def _known(self) -> dict[str, Any]:
        """Return what the task knows of arguments that a component may declare."""
        return {}

    def _take(self, execution: Execution) -> None:
        """Make an execution the one that a kill ends, also a kill that came before it was there."""
        self._execution = execution
        if self._asked_to_end:
            execution.kill()

    def _announce(self, context: Any, execution: Execution, attached: Attached) -> None:
        self.handle = attached.handle
        ti = context["ti"]
        ti.xcom_push(key=HANDLE_KEY, value=attached.handle)
        self.app_link = link_of(attached.handle, execution.runner) or ""
        if self.app_link:
            ti.xcom_push(key=LINK_KEY, value=self.app_link)
        look = self.app_link or f"transload describe {attached.handle}"
        self.log.info(f"app {attached.handle} ({attached.action.value}, attempt {attached.attempt}): {look}")
        self.callbacks.on_started(attached, context)

    def _ends_soon(self, execution: Execution) -> bool:
        """Tell whether the app has ended before it would be worth while to defer."""
        from transload.specs import AppState

        if execution.status is None:
            execution.poll()
        queued = min(QUEUED_S, self.defer_after)
        if execution.follow_for(queued):
            return True
        running = execution.status is not None and execution.status.state is AppState.RUNNING
        return running and execution.follow_for(self.defer_after - queued)

    def _may_defer(self, execution: Execution, same_machine: bool) -> bool:
        from transload.specs import parse_app_handle

        if execution.may_wait_elsewhere(same_machine):
            return True
        assert execution.handle is not None
        scheduler = execution.runner.scheduler(parse_app_handle(execution.handle).scheduler_backend)
        reach = scheduler.capabilities.reachable_from
        self.log.warning(
            f"apps of scheduler {scheduler.name!r} are reachable from this {reach} only: this task waits in place, and "
            "holds its slot ([transload] triggerer_on_same_machine says where triggerers run)"
        )
        return False

    def _defer(self, execution: Execution) -> NoReturn:
        from transload_airflow.settling import departure
        from transload_airflow.triggers import AppStateTrigger

        if self._log_store is not None:
            self._log_store.flush()
        left = None
        if execution.options.deadline is not None:
            import time

            left = timedelta(seconds=max(0.0, execution.options.deadline - time.time())) + GRACE
        self.defer(trigger=AppStateTrigger(execution.state(), left=departure()), method_name="resume", timeout=left)
        raise AssertionError("defer() raises")

    def _options(self) -> ExecutionOptions:
        from transload.pipelines import ExecutionOptions

        return ExecutionOptions(**self.options)

    def _launch(self, context: Mapping[str, Any]) -> Launch:
        from transload.pipelines import Launch
        from transload_airflow.hooks import Defaults, defaults_of

        known = defaults_of(self.conn_id) if self.conn_id else Defaults()
        app = self.app if self.app_callable is None else called(self.app_callable, context)
        return Launch(
            app=app.value if isinstance(app, AsIs) else app,
            component=self.component,
            args=arguments(self.component_args),
            scheduler=self.scheduler or known.scheduler,
            cfg={**known.cfg, **run_options(self.cfg)},
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            tracker_base=self.tracker_base or known.tracker_base,
        )

    def _told(self, options: ExecutionOptions) -> Any:
        return told_to_airflow(
            options, skip_on=self.skip_on_exit_code, cancelled=self.cancelled, killed=lambda: self._asked_to_end
        )

    # -- OpenLineage, found by name

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return inputs, outputs and run facets of the app, from its trackers."""
        from transload_airflow.lineage import operator_lineage

        return operator_lineage(self.handle, self.results, self._execution)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:
        """Return what is known of an app that failed."""
        return self.get_openlineage_facets_on_complete(task_instance)
