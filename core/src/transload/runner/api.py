"""Define `Runner`, which submits jobs and reports what becomes of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from transload.errors import ConfigError, SpecError
from transload.runner.config import load_settings
from transload.runner.job import Job
from transload.runner.launch import Launch
from transload.runner.logs import log_lines
from transload.runner.plan import Destination, Plan, destination
from transload.runner.schedulers import Cluster, Schedulers
from transload.runtime.forks import fork_lock
from transload.schedulers.api import Stream
from transload.specs import (
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppStatus,
    CfgVal,
    Environment,
    Options,
    Workspace,
    make_app_handle,
    nearest,
)
from transload.specs.checks import closest
from transload.specs.settings import SETTINGS, OverrideOptions, read_settings

if TYPE_CHECKING:
    from datetime import datetime
    from subprocess import CompletedProcess

    from transload.runner.config import Settings
    from transload.runner.results import AppResults
    from transload.schedulers.api import (
        ListAppResponse,
        SchedulerBase,
        SchedulerFactory,
    )


class RunOptions(TypedDict, total=False):
    """The keyword arguments of `Runner.dryrun` and its siblings, which describe them."""

    app_id: str | None
    tracker_base: str | None
    overrides: OverrideOptions | None


class Runner:
    """Submits jobs to schedulers, and reports what becomes of them.

    A job belongs to its scheduler, not to the runner that submitted it. Any runner of the same user
    can attach to it by its handle. A runner may be used from several threads. It installs no signal
    handler and leaves no thread behind.

    Args:
        name: name of the session, which is part of the handles that it makes.
        scheduler_factories: name → factory. The default is all schedulers that are built in or
            installed as plugins.
        component_defaults: component → argument → default, in the form of the command line.
        inherit_env: if it is True, jobs get the whole environment of this process, else only an
            allow-list of it.
        settings: the settings in force. By default they are read from files and the environment
            when first needed.
        clusters: clusters that this runner knows beside those of the settings, which go first.
        secret_sources: kind → what finds a value, for sources of secrets beside ``env`` and
            ``file``.
    """

    def __init__(
        self,
        name: str = "transload",
        scheduler_factories: Mapping[str, SchedulerFactory] | None = None,
        component_defaults: Mapping[str, Mapping[str, str]] | None = None,
        *,
        inherit_env: bool = True,
        settings: Settings | None = None,
        clusters: Iterable[Cluster] = (),
        secret_sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
    ) -> None:
        self._name = name
        self.component_defaults = component_defaults or {}
        self.inherit_env = inherit_env
        self._loaded_settings = settings
        self.environ: Mapping[str, str] = os.environ
        self.secret_sources = secret_sources
        self._schedulers = Schedulers(
            name,
            scheduler_factories,
            settings=lambda: self.settings,
            clusters=clusters,
            sources=secret_sources,
        )
        self._lock = fork_lock()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Runner(name={self._name!r}, schedulers={self.scheduler_backends()})"

    def close(self) -> None:
        """Free what the runner holds. Running jobs go on. It may be called more than once."""
        self._schedulers.close()

    def with_environ(self, environ: Mapping[str, str]) -> Runner:
        """Return this runner with another environment for the secrets of what it submits.

        Secrets of the source ``env:NAME`` are read there. Both runners share schedulers and
        settings, and are closed together. What jobs inherit is not changed.

        Args:
            environ: read at each submit in place of ``os.environ``. It goes nowhere else.
        """
        settings = self.settings  # read once for both
        other = copy.copy(self)
        other.environ = environ
        other._loaded_settings = settings
        return other

    def with_clusters(
        self,
        *clusters: Cluster,
        secret_sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
    ) -> Runner:
        """Return this runner with more clusters. Those of the settings go before them.

        Both share schedulers and settings, and are closed together. A runner that has them all
        already is returned itself, unless it gets sources of secrets.
        """
        if not secret_sources and all(self._schedulers.knows(cluster) for cluster in clusters):
            return self
        other = copy.copy(self)
        other._schedulers = self._schedulers.with_clusters(clusters, secret_sources)
        return other

    def name(self) -> str:
        """Return the name of the session."""
        return self._name

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        with self._lock:
            if self._loaded_settings is None:
                self._loaded_settings = load_settings()
            return self._loaded_settings

    # -- schedulers

    def scheduler_backends(self) -> list[str]:
        """Return the names of the schedulers that can be used.

        The clusters that the settings name are among them.
        """
        return self._schedulers.names()

    def known_schedulers(self) -> list[str]:
        """Return the names of all schedulers that can be used or have a table in the settings."""
        tables = self.settings.scheduler_tables()
        return list(dict.fromkeys([*self.scheduler_backends(), *tables]))

    def cluster(self, name: str) -> Cluster:
        """Return the cluster behind a scheduler's name.

        It is stored with handles, and given to `with_clusters`.

        Raises:
            ConfigError: if there is no scheduler of that name, or its settings are wrong.
        """
        return self._schedulers.cluster(name)

    def configured_options(self, scheduler: str) -> dict[str, CfgVal]:
        """Return the run options that files and the environment set for a scheduler.

        Raises:
            ConfigError: for an option that the scheduler does not have, saying where it was set.
        """
        return self._schedulers.configured(scheduler)

    def scheduler(self, name: str | None = None) -> SchedulerBase:
        """Return the scheduler of that name, made once per runner.

        Args:
            name: its name. The default is the configured one, else ``local``.

        Raises:
            UnknownSchedulerException: if there is none. The nearest name is suggested.
            PluginError: if its plugin is broken.
        """
        return self._schedulers.get(name or self.settings.scheduler)

    def scheduler_run_opts(self, scheduler: str | None = None) -> type[Options]:
        """Return the class of the options that a scheduler takes."""
        options: type[Options] = self.scheduler(scheduler).options
        return options

    def destination(
        self, scheduler: str | None = None, cfg: Mapping[str, CfgVal] | None = None
    ) -> Destination:
        """Return where a job goes, which is the scheduler and the run options in force there.

        Args:
            scheduler: its name. The default is the configured one, else ``local``.
            cfg: run options over the configured ones.

        Raises:
            ConfigError: for an unknown scheduler, or an option that is wrong.
        """
        return destination(self, scheduler or self.settings.scheduler, cfg or {})

    def qualified_id(
        self, app_id: str, scheduler: str | None = None, cfg: Mapping[str, CfgVal] | None = None
    ) -> str:
        """Return the full id under which `run` submits a job.

        Some schedulers add a namespace or a cluster.

        Raises:
            ConfigError: for an unknown scheduler or a wrong option.
        """
        to = self.destination(scheduler, cfg)
        return to.scheduler.qualified_id(app_id, to.opts)

    # -- submitting

    def dryrun(
        self,
        app: AppDef | Launch | str | Callable[..., AppDef],
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        *,
        app_id: str | None = None,
        tracker_base: str | None = None,
        overrides: OverrideOptions | None = None,
    ) -> Plan[Any]:
        """Return the request that `run` would submit. Nothing outside of this process is touched.

        Args:
            app: what is to run. It is an `AppDef`, its JSON, a component (its name or function), or
                a `Launch`.
            scheduler: where to run it. The default is the configured one, else ``local``.
            cfg: run options of the scheduler.
            workspace: a local folder (``PATH`` or ``PATH=TARGET,…``) that travels with every role
                that has none.
            parent_run_id: run that this one derives from. The default is the job that this process
                is part of, else ``TRANSLOAD_PARENT_RUN_ID``.
            app_id: the caller's own id. The default is a fresh one.
            tracker_base: where the job reports results. The default is that of ``cfg``, else a
                folder of the job's own. It is also given to a component that declares an argument
                of that name.
            overrides: what is set in the job over what it says, and over what the launch sets.

        Raises:
            SpecError: if the job or id is not valid, there is no such component or its arguments
                are wrong, or the scheduler cannot express it.
            ConfigError: for an unknown scheduler or option, or a tracker that is wrongly
                configured.
        """
        asked: dict[str, Any] = {
            "scheduler": scheduler,
            "cfg": cfg,
            "workspace": workspace,
            "parent_run_id": parent_run_id,
            "tracker_base": tracker_base,
        }
        return self.plan(Launch.of(app, **asked).with_overrides(overrides or {}), app_id)

    def plan(self, launch: Launch, app_id: str | None = None) -> Plan[Any]:
        """Return what would be submitted for a launch, as `Launch.plan` does."""
        return launch.plan(self, app_id)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> AppHandle:
        """Submit what `dryrun` returned, its request changed by the caller or not.

        Returns:
            The handle of the job. With a caller-given id, it reattaches to a job of that id and
            digest, and starts nothing.

        Raises:
            AppExists: if the id is taken by another job.
            SubmitError: if the scheduler did not accept it. Nothing runs.
            SpecError: if a secret cannot be resolved.
            SchedulerUnavailable: if the scheduler cannot be reached.
        """
        if not isinstance(dryrun_info, Plan):
            raise ConfigError("schedule() takes what this runner's dryrun() returned")
        return dryrun_info.submit().handle

    def run(
        self,
        app: AppDef | Launch | str | Callable[..., AppDef],
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AppHandle:
        """Submit a job and return its handle, without waiting.

        Arguments and errors are those of `dryrun` and `schedule`.
        """
        plan = self.dryrun(app, scheduler, cfg, workspace, parent_run_id, **options)
        return plan.submit().handle

    def dryrun_component(
        self,
        component: str | Callable[..., AppDef],
        component_args: Sequence[str] | Mapping[str, Any] = (),
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Plan[Any]:
        """Return the request that `run_component` would submit.

        The component is a name (``utils.echo``, ``file.py:function``, ``package.module:function``)
        or a function. Its arguments are as on the command line, or name → value. All else is as in
        `dryrun`.
        """
        launch = Launch(component=component, args=component_args)
        return self.dryrun(launch, scheduler, cfg, workspace, parent_run_id, **options)

    def run_component(
        self,
        component: str | Callable[..., AppDef],
        component_args: Sequence[str] | Mapping[str, Any] = (),
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AppHandle:
        """Build a job from a component and submit it.

        Arguments and errors are those of `dryrun_component` and `schedule`.
        """
        launch = Launch(component=component, args=component_args)
        return self.run(launch, scheduler, cfg, workspace, parent_run_id, **options)

    # -- what became of it

    def job(self, app_handle: AppHandle) -> Job:
        """Return the job of a handle, whether it is there or not.

        Raises:
            MalformedAppHandleException: if it is not a handle.
        """
        return Job(app_handle, self)

    def status(self, app_handle: AppHandle) -> AppStatus | None:
        """Return the status of a job, or None if there is no such job.

        Its state is UNKNOWN if the scheduler cannot say.
        """
        return self.job(app_handle).status()

    def status_many(self, app_handles: Sequence[AppHandle]) -> dict[AppHandle, AppStatus | None]:
        """Return `status` of many jobs, with one query per scheduler."""
        return self._schedulers.statuses(app_handles)

    def wait(
        self,
        app_handle: AppHandle,
        wait_interval: float | None = None,
        *,
        timeout: float | None = None,
        patience: float = 300.0,
        on_change: Callable[[AppStatus], None] | None = None,
    ) -> AppStatus | None:
        """Block until the job has ended.

        Args:
            app_handle: the job.
            wait_interval: ignored, since changes drive the wait. It is kept for those who come from
                TorchX.
            timeout: seconds to wait at most. None means no limit.
            patience: seconds for which its state may be UNKNOWN without a break.
            on_change: called in this thread with the first status, then at each new state, restart
                or wish to cancel.

        Returns:
            The final status, or None if there is no such job.

        Raises:
            TransloadTimeout: if ``timeout`` seconds have passed (also a TimeoutError). The job goes
                on.
            StateUnknown: if the unreachable timeout has passed (also a SchedulerUnavailable). The
                job is not touched.
        """
        job = self.job(app_handle)
        return job.wait_if_there(timeout=timeout, patience=patience, on_change=on_change)

    def cancel(self, app_handle: AppHandle) -> None:
        """Ask for the end of a job, without waiting. Nothing happens if it has ended already.

        Raises:
            AppNotFound: if there is no such job.
            SchedulerUnavailable: if the scheduler cannot be reached.
        """
        self.job(app_handle).cancel()

    def signal(
        self, app_handle: AppHandle, name: str, role: str | None = None, replica: int | None = None
    ) -> Sequence[tuple[str, int]]:
        """Send a signal to the replicas of a job that run (see `Job.signal`)."""
        return self.job(app_handle).signal(name, role, replica)

    def exec(
        self,
        app_handle: AppHandle,
        command: Sequence[str],
        role: str | None = None,
        replica: int | None = None,
        *,
        capture: bool = False,
    ) -> CompletedProcess[bytes]:
        """Run a command where a replica of a job runs (see `Job.exec`)."""
        return self.job(app_handle).exec(command, role, replica, capture=capture)

    def stop(self, app_handle: AppHandle) -> None:
        """Do what `cancel` does. The older name, kept for those who come from TorchX."""
        self.cancel(app_handle)

    def delete(self, app_handle: AppHandle) -> None:
        """Forget a job, ending it first. Nothing happens if it is gone already.

        Raises:
            UnsupportedFeature: if its scheduler cannot delete jobs.
        """
        self.job(app_handle).delete()

    def describe(self, app_handle: AppHandle) -> AppDef | None:
        """Return the job as it was submitted, with secret-looking values masked.

        Returns:
            The definition, or None if it is not known.
        """
        return self.job(app_handle).describe()

    def list(self, scheduler: str | None = None) -> list[ListAppResponse]:
        """Return the jobs that a scheduler knows, newest first, each with its handle."""
        name = scheduler or self.settings.scheduler
        apps = self.scheduler(name).list()
        for app in apps:
            app.app_handle = make_app_handle(name, app.session or self._name, app.app_id)
        return apps

    def log_lines(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterator[str]:
        """Return an iterator over the log lines of replica ``k`` of a role, newline included.

        Args:
            app_handle: the job.
            role_name: the role.
            k: number of the replica within the role.
            regex: only lines in which it is found.
            since: only lines written at or after this time. A naive time is local.
            until: only lines written before this time.
            should_tail: follow until the replica has ended.
            streams: which output. None means combined.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a bad regex.
            UnsupportedFeature: if the scheduler cannot tell that output apart, or keeps no times of
                lines.
        """
        job = self.job(app_handle)
        return log_lines(
            job.scheduler,
            job.app_id,
            role_name,
            k,
            stream=Stream(streams or Stream.COMBINED),
            regex=regex,
            since=None if since is None else since.timestamp(),
            until=None if until is None else until.timestamp(),
            follow=should_tail,
        )

    def results(self, app_handle: AppHandle, *, shared: bool = False) -> AppResults:
        """Return the results that a job has reported until now, also to the configured trackers.

        Args:
            app_handle: the job.
            shared: also what was written into the tracker base that was given for it by programs
                that do not say of which run they are. Jobs that share a base then share those
                results.

        Raises:
            AppNotFound: if there is no such job.
            TrackingError: if the results, or what a tracker knows, cannot be read. The message says
                where they are.
        """
        return self.job(app_handle).results(shared=shared)


# -- the runner that a process shares, and short forms with it

SESSION: Final = "transload"
"""The session of the command line, and of programs that name none."""

_runners: dict[tuple[object, ...], Runner] = {}
_runners_lock = fork_lock()


def get_runner(
    name: str | None = None,
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
    *,
    inherit_env: bool = True,
    clusters: Iterable[Cluster] = (),
) -> Runner:
    """Return a runner with all schedulers that are built in or installed as plugins.

    Args:
        name: name of the session. The default is ``transload``.
        component_defaults: component → argument → default, in the form of the command line.
        inherit_env: as of `Runner`.
        clusters: as of `Runner`.

    Example:
        >>> with get_runner() as runner:  # doctest: +SKIP
        ...     handle = runner.run_component("utils.echo", ["--msg", "hello"])
        ...     print(runner.wait(handle).state)
        SUCCEEDED
    """
    return Runner(
        name or SESSION,
        component_defaults=component_defaults,
        inherit_env=inherit_env,
        clusters=clusters,
    )


def host_runner(
    session: str,
    *,
    inherit_env: bool = False,
    clusters: Iterable[Cluster] = (),
    secret_sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> Runner:
    """Return the runner of a session that this process shares. Do not close it.

    Args:
        session: name of the session in the handles, which is that of an orchestrator.
        inherit_env: give jobs the whole environment of this process. By default they get only an
            allow-list of it.
        clusters: clusters beside those of the settings.
        secret_sources: kind → what finds a value. It is the same in every call of a session.
    """
    key = (os.getpid(), session, inherit_env, os.environ.get("TRANSLOAD_HOME"))
    with _runners_lock:
        runner = _runners.get(key)
        if runner is None:
            runner = _runners[key] = Runner(
                session,
                inherit_env=inherit_env,
                secret_sources=secret_sources,
            )
    return runner.with_clusters(*clusters)


def default_runner() -> Runner:
    """Return the runner that this process shares, of the session of the command line."""
    return host_runner(SESSION, inherit_env=True)


Job.default_runner = staticmethod(default_runner)


def check_keywords(values: OverrideOptions, arguments: str) -> None:
    """Check the settings that were given as keywords.

    Args:
        values: keyword → value.
        arguments: the keyword that takes the arguments of what is run, for the message.

    Raises:
        TypeError: for an unknown keyword, with the nearest.
        SpecError: for a value that cannot be read.
    """
    known = list(SETTINGS)
    unknown = sorted(values.keys() - {*known})
    if unknown:
        hint = nearest(unknown[0], known)
        if closest(unknown[0], known) is None:
            hint = "no setting of a job"
        raise TypeError(
            f"{unknown[0]}=: unknown argument: {hint} (an argument of what is run goes into "
            f"{arguments}={{{unknown[0]!r}: …}})"
        )
    read_settings(values)


def run(
    app: AppDef | str | Callable[..., AppDef] | None = None,
    args: Sequence[str] | Mapping[str, Any] = (),
    *,
    command: Sequence[str] | None = None,
    scheduler: str | None = None,
    cfg: Mapping[str, CfgVal] | None = None,
    workspace: str | Workspace | None = None,
    pass_env: Sequence[str] = (),
    app_id: str | None = None,
    parent_run_id: str | None = None,
    tracker_base: str | None = None,
    environment: Environment | str | None = None,
    runner: Runner | None = None,
    **overrides: Unpack[OverrideOptions],
) -> Job:
    """Submit a job and return it, without waiting.

    Args:
        app: an AppDef, or a component by its name (``train.py:train``, ``utils.echo``) or function.
        args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, in place of ``app``.
        scheduler: where to run it. The default is the configured one, else ``local``.
        cfg: run options of the scheduler.
        workspace: a local folder that travels with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        app_id: an id of your own. An equal job of that id is attached to, not started.
        parent_run_id: the run that this one derives from.
        tracker_base: where it reports results.
        environment: what must be installed where it runs. It is a file (``requirements.txt``,
            ``uv.lock``, a script with a header), or ``none`` (see `Launch`).
        runner: submits. The default is the one that this process shares.
        overrides: what is set over what the job says. They are ``name, env, image, replicas,
            retries, retry_delay, time_limit, cpu, gpu, mem, role, notice, checkpoints, segment``
            and so on (see `transload.specs.settings.OverrideOptions`).

    Raises:
        SpecError: if the job or an argument is not valid.
        ConfigError: for an unknown scheduler or option.
        SubmitError: if the scheduler did not accept it. Nothing runs.

    Example:
        >>> job = run(command=["python", "train.py"], gpu=1, mem="8G")  # doctest: +SKIP
        >>> print(job.wait().state, job.results())  # doctest: +SKIP
    """
    if (app is None) == (command is None):
        raise SpecError("run: exactly one of app and command must be given")
    check_keywords(overrides, "args")
    runner = runner or default_runner()
    more: dict[str, Any] = {}
    if args:
        more["args"] = args
    if pass_env:
        more["pass_env"] = pass_env
    if environment is not None:
        more["environment"] = environment
    launch = Launch(command=command, **more) if app is None else Launch.of(app, **more)
    plan = runner.dryrun(
        launch,
        scheduler=scheduler,
        cfg=cfg,
        workspace=workspace,
        parent_run_id=parent_run_id,
        app_id=app_id,
        tracker_base=tracker_base,
        overrides=overrides,
    )
    return plan.submit()


def attach(handle: AppHandle, runner: Runner | None = None) -> Job:
    """Return the job of a handle, whoever submitted it.

    Raises:
        AppNotFound: if there is no such job.
        MalformedAppHandleException: if it is no handle.
        SchedulerUnavailable: if its scheduler cannot be reached.
    """
    job = Job(handle, runner)
    job.need_description()
    return job
