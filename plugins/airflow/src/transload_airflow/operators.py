"""The operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, Unpack

from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk.bases.operator import TriggerFailureReason

from transload.errors import ConfigError, TransloadError
from transload.pipelines import (
    JOB_SETTINGS,
    ExecutionOptions,
    ExecutionSettings,
    Identity,
    Launch,
    OverrideOptions,
    dry_run,
    json_safe,
    name_safe,
    split_overrides,
    where,
)
from transload.runner import Job
from transload.specs import (
    AppDef,
    AppState,
    Environment,
    Workspace,
    parse_app_handle,
)
from transload.specs.checks import as_list, check_given
from transload_airflow.adapter import HOST
from transload_airflow.assets import announce_assets
from transload_airflow.callbacks import AppCallbacks
from transload_airflow.deferral import mark_deferred
from transload_airflow.failures import failure, in_airflows_words
from transload_airflow.hooks import Defaults, defaults_of
from transload_airflow.links import LINK_KEY, AppLink
from transload_airflow.listener import departing
from transload_airflow.masks import Reads
from transload_airflow.options import ARGUMENTS, OperatorOptions, taking_arguments
from transload_airflow.retry_policy import for_policy
from transload_airflow.runner import runner_for_tasks
from transload_airflow.settings import default_deferrable, triggerer_on_same_machine
from transload_airflow.step import AirflowStep, identity_in
from transload_airflow.task_instance import dag_folder, within_time_limit
from transload_airflow.templates import TemplateRules
from transload_airflow.tries import identity_of, note_job
from transload_airflow.values import (
    app_name,
    arguments,
    as_component,
    as_values,
    called,
    exit_codes,
    refuse_misspelt,
    run_options,
    unwrapped,
    words_of,
)

if TYPE_CHECKING:
    from transload.runner import AppResults, Runner

with suppress(ImportError):  # before Airflow 3.3 an administrator lists the class in airflow.cfg
    from airflow.sdk.serde import allow_class

    allow_class(AppDef)  # an upstream task may return one

HANDLE_KEY: Final = "handle"
"""XCom key of the job's handle, pushed before the task is deferred."""

QUEUED_S: Final = 0.5
"""Seconds within which a job must run, to be waited for in place before the task defers."""

PUSH_S: Final = 10.0
"""Seconds after which what Airflow has refused to keep is given to it again."""

NOT_IN_XCOM_KEYS: Final = "%?#"
"""Characters that Airflow's API cannot take in the key of an XCom, which it puts into a URL."""

LONGEST_XCOM_KEY: Final = 512
"""Characters of the longest key that Airflow's database takes."""

GRACE: Final = timedelta(seconds=60)
"""How long after the deadline a trigger may still be silent before Airflow itself ends the wait."""


class TransloadOperator(TemplateRules):
    """Runs a job as one task, whatever its roles and replicas, on any scheduler.

    Exactly one of ``app``, ``component`` and ``command`` is given. A component's AppDef is built
    when the task runs. So outputs of upstream tasks can be its launch parameters (image, replicas,
    resources) in ``component_args``, where rendered texts are decoded as on the command line.

    Returns (as XCom) the JSON form of ``transload.runner.AppResults``. The XCom ``handle`` is there
    as soon as the job is submitted, and ``progress`` once it has ended, if it says how far it is.

    Args:
        app: an AppDef, its JSON (text or values), or a callable that returns one and takes any of
            the context's names.
        component: name (``utils.echo``, ``package.module:function``, ``file.py:function``) or
            function.
        component_args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, run as they are.
        image: what the job's roles run in. Like all settings down to ``progress_server``, it is set
            over what the job says, and may be a template.
        replicas: how many of each role.
        cpu: cores of each replica.
        gpu: GPUs of each replica.
        mem: main memory of each replica: ``"8G"``, or bytes.
        mounts: what is mounted into each replica: ``"type=bind,src=/data,dst=/data"``, or mounts of
            ``transload.specs``.
        env: variables that the roles get beside their own.
        secrets: the same by the sources of their values (``{"HF_TOKEN": "env:HF_TOKEN"}``).
        time_limit: after this long (``"2h"``), the scheduler ends the job.
        segment: how long the queue gives the job at a time.
        notice: how long before its end the job is warned: ``"5m"``, or a ``Notice``.
        max_interruptions: how often the scheduler starts a role again after an end that was
            nobody's fault.
        stall_after: after how long without a sign of life a replica has stalled.
        on_stall: what is done then: ``note`` or ``dump``.
        stall_signal: name of the signal of ``dump``.
        progress_server: take the progress that Hugging Face's Trainer posts.
        overrides: these settings by name, and those whose names are Airflow's own: ``retries`` (by
            the scheduler), ``retry_delay``, ``checkpoints``, ``name``, ``role``. See
            ``transload.pipelines.OverrideOptions``.
        scheduler: where to run it. None means the connection's, else the configured one, else
            ``local``.
        cfg: run options of the scheduler, which override those of the connection.
        workspace: local folder that travels with the job.
        tracker_base: where the job reports results. None means the connection's, else a folder of
            the job's own.
        parent_run_id: run that this one derives from.
        conn_id: a connection of type ``transload``, with the cluster and defaults.
        key: which of the task's jobs it is, for a task that runs several: a text that is equal in
            all tries of the task.
        deferrable: wait in the triggerer where that is possible, by default as ``[operators]
            default_deferrable`` says.
        defer_after: seconds for which a running job is waited for in place first. With 0, it is
            not. To defer and to come back costs about as much as the default.
        on_kill: with ``cancel`` the job ends with a task that somebody marks or clears. With
            ``detach`` it goes on.
        patience: seconds for which the scheduler may be unable to say what the job does.
        poll_interval: longest pause in seconds between questions to a scheduler that does not push
            changes.
        logging_interval: longest pause in seconds between looks at the logs.
        schedule_timeout: seconds in SUBMITTED before the job is cancelled and the task fails.
        startup_timeout: seconds in PENDING before the job first runs, after which it is cancelled
            and the task fails.
        skip_on_exit_code: exit code, or codes, of the first failed replica that make the task
            *skipped*.
        cancelled: ``fail`` (no retry) or ``skip``: what a task is whose job somebody cancelled.
        retries_by: ``nested`` (each retry of the task is a new attempt, within which the scheduler
            spends ``max_retries``), ``host`` (only the task retries) or ``scheduler`` (only the
            scheduler does).
        checkpoints: ``keep`` (a try of the task begins with the checkpoints of the tries before it)
            or ``new`` (each begins without any). Only of roles that ask for checkpoints.
        tail_lines: how many last log lines go into the message of a failure.
        pass_env: patterns (``HF_*``) of the worker's variables that the job gets.
        inherit_env: give the job the whole environment of the worker. By default it gets an
            allow-list of it.
        environment: what must be installed where the job runs, as a file beside the DAG's
            (``requirements.txt``, ``uv.lock``, a script with a header), or ``none``. By default it
            is what the job, the settings or the header of its script say.
        template_app: False: ``{{`` in the job's own texts is left alone.
        push_results: push each key of the results as the XCom ``results.<key>`` too, and the path
            of each artifact, files of the output folder among them, as ``artifacts.<name>``.
        callbacks: called while the job runs.
        options: of ``BaseOperator``.

    Raises:
        ConfigError: for a value that is not allowed.
        SpecError: for an AppDef that is not valid, or not exactly one of job, component and
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
        "overrides",
        *JOB_SETTINGS,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        (
            "app",
            "component_args",
            "command",
            "cfg",
            "env",
            "secrets",
            "mounts",
            "overrides",
        ),
        "json",
    )
    text_fields: Sequence[str] = (
        "component",
        "scheduler",
        "workspace",
        "tracker_base",
        "parent_run_id",
        "conn_id",
        *(name for name in JOB_SETTINGS if name not in ("mounts", "env", "secrets")),
    )
    word_fields: Sequence[str] = ("command", "mounts", "env", "secrets")
    own_fields: Sequence[str] = ("app", "component_args", "cfg", "overrides")
    operator_extra_links = (AppLink(),)
    ui_color = "#d9e8f5"

    app: Any
    callbacks: AppCallbacks
    cancelled: Literal["fail", "skip"]
    cfg: Any
    command: Any
    component: Any
    component_args: Any
    conn_id: str | None
    defer_after: float
    deferrable: bool
    environment: Environment | str | None
    inherit_env: bool
    key: str | None
    overrides: Any
    parent_run_id: str | None
    pass_env: Sequence[str]
    push_results: bool
    scheduler: str | None
    skip_on_exit_code: Collection[int]
    template_app: bool
    tracker_base: str | None
    workspace: str | Workspace | None

    # of one try, in the task's process
    app_link: str | None = None  # empty: there is none
    handle: str | None = None
    results: AppResults | None = None
    _step: AirflowStep | None = None
    _defaults: Defaults = Defaults()
    _asked_to_end = False

    _source_is_given: ClassVar[bool] = True
    """Whether the constructor is given what to run.

    It is False in classes that find that out when the task runs.
    """

    @taking_arguments
    def __init__(self, **options: Unpack[OperatorOptions]) -> None:
        others: dict[str, Any] = dict(options)
        given = {name: others.pop(name, default) for name, default in ARGUMENTS.items()}
        refuse_misspelt(type(self), others, ARGUMENTS)
        super().__init__(**others)
        self._reads = Reads()
        self._unpushed: dict[str, Callable[[], object]] = {}
        how = {name: given.pop(name) for name in ExecutionSettings.__annotations__}
        self.options = ExecutionOptions(**how)
        for name, value in given.items():
            setattr(self, name, value)
        self._given_app = self.app
        self.app, self.app_callable = as_values(self.app, self.template_app)
        if isinstance(self._given_app, AppDef):  # what it has beside texts is no template either
            self.word_fields = (*self.word_fields, "app")
        self.component = as_component(self.component)
        self.callbacks = given["callbacks"] or AppCallbacks()
        self.deferrable = self._may_be_deferred(given["deferrable"])
        self.skip_on_exit_code = exit_codes(given["skip_on_exit_code"])
        self.pass_env = as_list(given["pass_env"], "pass_env")
        self._check()

    def as_given(self, name: str) -> Any:
        """Return a template field as it was given to the constructor."""
        if name == "app":
            return self._given_app
        return super().as_given(name)

    def _may_be_deferred(self, wanted: bool | None) -> bool:
        """Return what ``deferrable`` means. None is Airflow's default, but with callbacks False."""
        here = self.callbacks.needs_the_task
        if wanted is None:
            return default_deferrable() and not here
        if wanted and here:
            raise ConfigError(
                "deferrable=True: callbacks with on_status need the task's process: leave one out"
            )
        return wanted

    def _check(self) -> None:
        """Refuse what would fail the task.

        Raises:
            ConfigError: for a value that is not allowed.
            SpecError: if it is not said what to run.
        """
        if self._source_is_given:
            Launch(
                app=self.app_callable or self.app,
                component=unwrapped(self.component),
                args=self.component_args or {},
                command=self.command,
            )
        check_given(
            scheduler=self.scheduler,
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            tracker_base=self.tracker_base,
            environment=self.environment,
            image=getattr(self, "image", None),
        )
        if isinstance(self.overrides, Mapping):  # else it is known only when the task runs
            split_overrides({"overrides": self.overrides})
        if self.cancelled not in ("fail", "skip"):
            raise ConfigError(f"cancelled={self.cancelled!r}: must be 'fail' or 'skip'")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise ConfigError(f"key={self.key!r}: must be a text, and not empty")
        seconds = self.defer_after
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
            raise ConfigError(f"defer_after={seconds!r}: must be a number of seconds, 0 or more")

    # -- the life of the task

    def failure_of(self, error: TransloadError) -> BaseException:
        """Return the exception by which Airflow skips the task, fails it, or perhaps retries it."""
        raised = failure(
            error,
            self.options,
            skip_on=self.skip_on_exit_code,
            cancelled=self.cancelled,
            asked_to_end=self._asked_to_end,
        )
        return for_policy(raised, getattr(self, "retry_policy", None))

    @in_airflows_words
    def execute(self, context: Any) -> Any:
        """Submit the job or reattach to it, wait here or in the triggerer, return its results."""
        return self._begin(context, self.deferrable)

    @in_airflows_words
    def resume(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after the triggerer has waited. Nothing is submitted.

        Args:
            context: of the task.
            event: of `AppStateTrigger`.
        """
        if event is None:
            event = self._lost_event(context, "the trigger has said nothing")
        if event["kind"] in ("elsewhere", "error"):
            self.log.warning("the triggerer cannot wait for %s", event["handle"])
        self._defaults = defaults_of(self.conn_id)
        identity = identity_in(event)
        note_job(context, identity, resumed=True)
        step = self._new_step(context, identity)
        step.attach_by(event)
        self._hide_secrets(step)
        self.app_link = Job(event["handle"], step.runner).page() or ""
        return self._end(step)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any
    ) -> Any:
        """Go on after a deferral.

        A trigger that failed or ran out of time is no failure of the job.
        """
        if next_method != "__fail__":
            return super().resume_execution(next_method, next_kwargs, context)
        error = str((next_kwargs or {}).get("error", "Unknown"))
        return self.resume(context, self._lost_event(context, error))

    def _lost_event(self, context: Any, error: str) -> dict[str, Any]:
        """Return the event of a trigger that failed or ran out of time.

        This try has started its job. This try's own XCom, which a deferral keeps, says which.

        Args:
            context: of the task.
            error: what happened to the trigger.
        """
        ti = context["ti"]
        handle = ti.xcom_pull(
            task_ids=ti.task_id, key=HANDLE_KEY, map_indexes=getattr(ti, "map_index", -1)
        )
        if not handle:
            raise AirflowException(
                f"{error}, and no XCom {HANDLE_KEY!r} says which job this try started: it goes on"
            )
        kind = "error"
        if error == TriggerFailureReason.TRIGGER_TIMEOUT:
            # the task's limit, by Airflow's own clock: that of this worker may be another one
            kind = "limit"
            error = "the orchestrator's time limit has passed"
        identity = identity_of(context, self.key)
        return {
            "kind": kind,
            "handle": handle,
            "cursor": None,
            "message": error,
            "unknown_for": 0.0,
            "identity": [identity.run, identity.path],
        }

    def on_kill(self) -> None:
        """Have the job ended if somebody asked for that.

        Airflow may call it in a signal handler.
        """
        self._asked_to_end = True
        if self._step is not None:
            self._step.kill()

    def dry_run(self) -> str:  # type: ignore[override]
        """Log and return what would be submitted. Nothing outside of this process is touched."""
        self._defaults = defaults_of(self.conn_id)
        launch = self._launch({"task": self, "params": self.params, "dag": self.get_dag()})
        runner = self._runner()
        text = dry_run(HOST, launch, self.options, runner=runner)
        self.log.info(text)
        return text

    # -- parts

    def _begin(self, context: Any, deferrable: bool) -> Any:
        """Submit the job or reattach to it, and wait for it.

        Args:
            context: of the task.
            deferrable: let the triggerer wait, if it can.
        """
        self.app_link = ""  # until there is one
        if deferrable and context.get("task", self) is not self:
            self.log.info(
                "this operator is executed inside another task, which waits in place, and holds "
                "its slot"
            )
            deferrable = False
        # a wrong setting is found before anything is started
        same_machine = deferrable and triggerer_on_same_machine()
        self._defaults = defaults_of(self.conn_id)
        launch = self._launch(context)
        identity = identity_of(context, self.key)
        note_job(context, identity)
        step = self._new_step(context, identity, launch)
        with step.ending_with_its_task():
            step.start()
            self._announce(step)
            defers = (
                deferrable and not self._ends_soon(step) and self._may_defer(step, same_machine)
            )
        if defers and not step.killed:
            self._defer(step)
        return self._end(step)

    def _end(self, step: AirflowStep) -> dict[str, Any]:
        """Wait for the end of the job, and return its results."""
        try:
            with step.ending_with_its_task():
                while self._unpushed and not step.follow_for(PUSH_S):
                    self._push_where_to_look()
                self.results = step.collect(step.follow())
        finally:
            self.handle = step.handle
        self._push_where_to_look()
        self.callbacks.on_results(self.results, step.context)
        if self.push_results:
            self._push(step.context["ti"], self.results)
        announce_assets(step.context, self.outlets, self.results)
        values = json_safe(self.results.to_dict())
        assert isinstance(values, dict)
        return values

    def _push(self, ti: Any, results: AppResults) -> None:
        """Push each key of the results, and the path of each artifact, as an XCom of its own."""
        found: dict[str, Any] = {f"results.{key}": each for key, each in results.results.items()}
        for name, artifact in results.artifacts.items():
            found[f"artifacts.{name}"] = artifact.get("path")
        for name, value in found.items():
            key = name_safe(name, NOT_IN_XCOM_KEYS)
            if len(key) > LONGEST_XCOM_KEY:
                self.log.warning("not pushed, since its name is too long for an XCom: %s", key)
                continue
            ti.xcom_push(key=key, value=json_safe(value))

    def _new_step(
        self, context: Any, identity: Identity, launch: Launch | None = None
    ) -> AirflowStep:
        """Return what looks after the job. From now on a kill reaches it."""
        step = AirflowStep(
            launch,
            within_time_limit(context, self.options),
            identity=identity,
            runner=self._runner(),
            log=self.log,
            context=context,
            key=self.key,
            arguments=self._context_args(context),
            on_status=partial(self.callbacks.on_status, context=context),
        )
        self._step = step
        if self._asked_to_end:
            step.kill()
        return step

    def _runner(self) -> Runner:
        return runner_for_tasks(self.inherit_env, self._defaults.cluster)

    def _context_args(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's values for arguments that a component may declare."""
        return {}

    # -- after the start

    def _announce(self, step: AirflowStep) -> None:
        """Show the job in the task's XComs and log, and call the user's callback."""
        handle = str(step.handle)
        self.handle = handle
        self._hide_secrets(step)
        self.app_link = Job(handle, step.runner).page() or ""
        key = LINK_KEY
        look = self.app_link
        if not look:
            key = "look"
            look = f"transload describe {handle}"
        push = step.context["ti"].xcom_push
        self._unpushed = {
            f"XCom {HANDLE_KEY!r}": partial(push, key=HANDLE_KEY, value=handle),
            f"XCom {key!r}": partial(push, key=key, value=look),
            "task state": step.note,
        }
        self._push_where_to_look()
        self.log.info(f"job {handle}: {look}")
        self.callbacks.on_started(handle, step.attached, step.context)

    def _push_where_to_look(self) -> None:
        """Have Airflow keep what shows where the job is.

        What it refuses waits for a later call, since no job ends for that.
        """
        for name, push in list(self._unpushed.items()):
            try:
                push()
            except Exception as exc:
                self.log.warning("Airflow does not keep the %s now: %s", name, exc)
            else:
                del self._unpushed[name]

    def _hide_secrets(self, step: AirflowStep) -> None:
        """Have Airflow hide the secrets that the job is given, should it print them."""
        with suppress(TransloadError):
            found = step.runner.job(str(step.handle)).description()
            if found is not None and found.app is not None:
                self._reads.add_sources(found.app, dag_folder(step.context))
        try:
            self._reads.hide_sources()
        except Exception as exc:  # of Airflow, which has been asked for a connection
            self.log.warning(
                "secrets of this task may show in these lines: they cannot be read here: %s", exc
            )

    def _ends_soon(self, step: AirflowStep) -> bool:
        """Tell whether the job has ended so soon that to defer is not worth while."""
        if step.status is None:
            step.look()
        queued = min(QUEUED_S, self.defer_after)
        if step.follow_for(queued):
            return True
        if step.status is None or step.status.state is not AppState.RUNNING:
            return False
        return step.follow_for(self.defer_after - queued)

    def _may_defer(self, step: AirflowStep, same_machine: bool) -> bool:
        """Tell whether a triggerer can see the job. If not, the log says that the task waits here."""
        if step.can_be_seen(where() if same_machine else ""):
            return True
        backend = parse_app_handle(str(step.handle)).scheduler_backend
        scheduler = step.runner.scheduler(backend)
        self.log.warning(
            f"jobs of scheduler {scheduler.name!r} are reachable from this {scheduler.reach} only: "
            "this task waits in place, and holds its slot ([transload] triggerer_on_same_machine "
            "says where triggerers run)"
        )
        return False

    def _defer(self, step: AirflowStep) -> NoReturn:
        """Have the triggerer wait. Airflow goes on with `resume`."""
        from transload_airflow.triggers import AppStateTrigger

        # if the task was marked meanwhile, the listener ends the job when this process stops
        departing.append(step)
        self._push_where_to_look()
        timeout = None
        if step.options.deadline is not None:
            seconds = max(0.0, step.options.deadline - time.time())
            timeout = timedelta(seconds=seconds) + GRACE
        trigger = AppStateTrigger(step.to_dict(), left=mark_deferred(), reads=self._reads.to_dict())
        self.defer(trigger=trigger, method_name="resume", timeout=timeout)
        raise AssertionError("defer() raises")

    # -- what to run

    def _launch(self, context: Mapping[str, Any]) -> Launch:
        """Return the launch that this task's arguments describe."""
        defaults = self._defaults
        app = self.app
        if self.app_callable is not None:
            app = called(self.app_callable, self._reads.noting(context))
        return Launch(
            app=unwrapped(app),
            component=unwrapped(self.component),
            args=arguments(self.component_args),
            command=words_of(self.command),
            command_name=app_name(self.task_id),
            scheduler=defaults.scheduler if self.scheduler is None else self.scheduler,
            cfg={**defaults.cfg, **run_options(self.cfg)},
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            tracker_base=(
                defaults.tracker_base if self.tracker_base is None else self.tracker_base
            ),
            folder=dag_folder(context),
            pass_env=self.pass_env,
            environment=self.environment,
            overrides=self._settings(),
        )

    def _settings(self) -> OverrideOptions:
        """Return what is set over what the job says."""
        given = {name: getattr(self, name) for name in (*JOB_SETTINGS, "overrides")}
        settings, _ = split_overrides(given)
        return settings
