"""Trials of an Ax experiment as jobs."""

from __future__ import annotations

import inspect
import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack, cast
from weakref import WeakValueDictionary

from ax.core.base_trial import BaseTrial
from ax.core.batch_trial import BatchTrial
from ax.core.experiment import Experiment
from ax.core.runner import Runner
from ax.core.trial import Trial
from ax.core.trial_status import TrialStatus

from transload.errors import ConfigError, SpecError
from transload.pipelines import (
    ExecutionSettings,
    Launch,
    OverrideOptions,
    caller_folder,
    dry_run,
    read_settings,
    split_overrides,
)
from transload.runner.job_env import surrounding_run
from transload.specs import AppState, CfgVal, Environment, Workspace, looks_secret
from transload.specs.checks import as_list, check_given
from transload.specs.serialization import to_value
from transload_ax.arguments import Component, check_space, component_path, digest
from transload_ax.jobs import TrialJobs, exit_on_sigterm
from transload_ax.options import TrialSettings
from transload_ax.states import STATES
from transload_ax.trials import GIVEN_UP, Trials, TrialView
from transload_ax.units import BASE, HANDLE, HOST, TrialLaunch, base_of, execution_options

if TYPE_CHECKING:
    from transload.components import Component as FoundComponent

TRANSLOAD_APP_HANDLE: Final = HANDLE
"""Key in a trial's run metadata for the handle of its job, or for arm name → handle."""

TRANSLOAD_TRACKER_BASE: Final = BASE
"""Key in a trial's run metadata for the tracker base (``""`` if none was given)."""

MOST_SUBMITS: Final = 16
"""How many jobs are submitted side by side, at most."""

APP_STATE_TO_TRIAL_STATUS: Final[dict[AppState, TrialStatus]] = {
    state: TrialStatus[name] for state, name in STATES.items()
}
"""AppState → TrialStatus. Patience is applied before the table is read."""

_NOT_STORED: Final = ("_trials", "_within")
"""The attributes that Ax does not compare or store, while it takes all others of a runner."""

_shared: WeakValueDictionary[tuple[int, str], Trials] = WeakValueDictionary()
_lock = threading.Lock()


class TransloadRunner(Runner):
    """Runs each trial as a job, by the component called with the trial's parameters.

    The names and types of the experiment's parameters must match the component's arguments.
    ``trial_idx`` (int), ``experiment_name`` and ``tracker_base`` (str) are given to a component
    that declares them.

    Args:
        tracker_base: where trials report under the key ``trial_idx``, by
            `transload.runtime.tracking`. With None, each reports where its scheduler keeps a job's
            results, which needs nothing that jobs and this process share.
        component: the component, a name (``train.py:trainer``) or a function of a module.
        component_const_params: arguments that are the same in all trials.
        scheduler: where trials run.
        cfg: run options of the scheduler. Those whose name looks secret are used, but neither shown
            nor stored.
        orchestrator: another name for ``scheduler``.
        namespace: tells this experiment's jobs from those of others of the same name, by default a
            new uuid. It is stored with the experiment.
        workspace: local folder that travels with the job.
        arms_as_apps: accept batch trials, with one job for each arm, each with the tracker base
            ``<tracker_base>/<arm>``.
        max_running: how many jobs may run at once, or None for as many as Ax likes.
        inherit_env: give jobs the whole environment of this process, not an allow-list of it.
        parent_run_id: the run that all trials derive from. By default it is the job around this,
            else ``search/NAMESPACE``.
        pass_env: variables of this process that jobs get, by patterns such as ``["HF_*"]``.
        folder: what relative paths (component file, ``workspace``) are relative to, and where
            trials work on this machine's disk. By default it is the folder of the file that calls
            this.
        environment: what must be installed where trials run, as a file (``requirements.txt``,
            ``uv.lock``, a script with a header), or ``none``.
        overrides: what is set over what the job of each trial says, by the names of
            `transload.pipelines.OverrideOptions`. It is stored with the experiment.
        options: the same by the names of `transload.pipelines.JobSettings` (``gpu=1``), and those
            of `transload.pipelines.ExecutionOptions`, such as ``patience``, ``on_kill`` …, but not
            ``resubmit_on``, since a trial has one job.

    Raises:
        ConfigError: for a wrong option.
        SpecError: for a setting of the job that cannot be read.
    """

    __slots__ = _NOT_STORED
    _trials: Trials
    _within: ExitStack

    def __init__(
        self,
        tracker_base: str | None,
        component: Component,
        component_const_params: Mapping[str, Any] | None = None,
        scheduler: str = "local",
        cfg: Mapping[str, CfgVal] | None = None,
        orchestrator: str | None = None,
        namespace: str | None = None,
        workspace: str | Workspace | None = None,
        arms_as_apps: bool = False,
        max_running: int | None = None,
        inherit_env: bool = False,
        parent_run_id: str | None = None,
        pass_env: Sequence[str] = (),
        folder: str | None = None,
        environment: Environment | str | None = None,
        overrides: OverrideOptions | None = None,
        **options: Unpack[TrialSettings],
    ) -> None:
        check_given(
            scheduler=scheduler,
            orchestrator=orchestrator,
            workspace=workspace,
            parent_run_id=parent_run_id,
            environment=environment,
            namespace=namespace,
        )
        if tracker_base is not None and (not isinstance(tracker_base, str) or not tracker_base):
            raise SpecError(f"tracker_base={tracker_base!r}: must be a path or a URL")
        if max_running is not None and (isinstance(max_running, bool) or max_running < 1):
            raise ConfigError(f"max_running={max_running!r}: must be an int, 1 or more")
        if orchestrator is not None and scheduler not in ("local", orchestrator):
            both = f"scheduler={scheduler!r}, orchestrator={orchestrator!r}"
            raise ConfigError(f"{both}: two names of one thing, give one")
        self.tracker_base = tracker_base
        self.component = component
        with suppress(SpecError):
            # a function that cannot be imported again can be run, but not stored
            self.component = component_path(component)
        self.component_const_params: dict[str, Any] = dict(component_const_params or {})
        self.scheduler = orchestrator or scheduler
        given = dict(cfg or {})
        self.cfg: dict[str, CfgVal] = {
            name: value for name, value in given.items() if not looks_secret(name)
        }
        self.namespace = namespace or uuid.uuid4().hex
        self.workspace: str | None = None
        if workspace is not None:
            self.workspace = str(workspace)
        self.arms_as_apps = arms_as_apps
        self.max_running = max_running
        self.inherit_env = inherit_env
        settings, others = split_overrides({**options, "overrides": overrides})
        read_settings(settings)  # a wrong one is found now
        self.overrides: dict[str, Any] = to_value(settings)  # as Ax stores it
        self.options = cast("ExecutionSettings", others)
        self.parent_run_id = parent_run_id
        self.pass_env = as_list(pass_env, "pass_env")
        self.environment = environment
        if folder is None:
            folder = caller_folder("transload_ax", "ax") or ""
        self.folder = folder
        # a copy, made from what is stored, shares them: it must not take away what is not stored
        self.trials.jobs.cfg.update(given)

    @property
    def orchestrator(self) -> str:
        """Another name for ``scheduler``."""
        return self.scheduler

    @property
    def trials(self) -> Trials:
        """The trials, as this process sees them.

        This runner's copies share them. A loaded experiment has several copies.
        """
        if not hasattr(self, "_trials"):
            key = (os.getpid(), repr([getattr(self, name) for name in ARGUMENTS]))
            options = execution_options(self.options)
            jobs = TrialJobs(
                self.namespace, self.scheduler, self.cfg, options, inherit_env=self.inherit_env
            )
            with _lock:
                self._trials = _shared.setdefault(key, Trials(jobs))
        return self._trials

    def check(self, experiment: Experiment) -> None:
        """Check that the search space and the constant arguments are what the component needs.

        It is also checked that there is such a scheduler, and that it has the run options. The
        scheduler is not asked anything.

        Raises:
            SpecError: for an unknown, missing or doubly given name, or a type that does not fit, by
                name.
            ConfigError: for an unknown scheduler or option, or a value of the wrong type.
        """
        check_space(
            self.resolve_component(),
            self.component_const_params,
            experiment.search_space.parameters.values(),
        )
        runner = self.trials.jobs.runner
        opts = runner.scheduler_run_opts(self.scheduler)
        opts.read({**runner.configured_options(self.scheduler), **self.trials.jobs.cfg})

    def resolve_component(self) -> FoundComponent:
        """Return the component.

        Raises:
            SpecError: if there is no such component.
        """
        return Launch(component=self.component, folder=self.folder or None).resolve_component()

    def dry_run(self, parameters: Mapping[str, Any]) -> str:
        """Return what a trial of these parameters would submit, as text for a person.

        Errors are those of `run`.
        """
        known = {"trial_idx": 0, "experiment_name": "dry-run"}
        launch = self._launch("", parameters, None)
        return dry_run(
            HOST, launch, self.trials.jobs.options, context_args=known, inherit_env=self.inherit_env
        )

    # -- what Ax asks for

    @property
    def run_metadata_report_keys(self) -> list[str]:
        """The keys of the metadata that is of interest to people, which is the job's handle."""
        return [TRANSLOAD_APP_HANDLE]

    def run(self, trial: BaseTrial) -> dict[str, Any]:
        """Submit the trial's job, or reattach to it if it was submitted before.

        Returns its handle and the tracker base.

        Raises:
            ValueError: for a batch trial, unless ``arms_as_apps``.
            SpecError: if the search space does not fit the component. Nothing is submitted.
            SubmitError: if the job was not taken.
        """
        self._check_kind(trial)
        self.check(trial.experiment)
        handle = self.trials.run(self._view(trial), partial(self._launch, ttl=trial.ttl_seconds))
        return {HANDLE: handle, BASE: self.tracker_base}

    def _check_kind(self, trial: BaseTrial) -> None:
        """Refuse a trial that is not one job, unless each arm may be one."""
        if isinstance(trial, Trial):
            if trial.arm is None:
                raise ValueError(f"trial {trial.index} has no arm")
        elif not (self.arms_as_apps and isinstance(trial, BatchTrial)):
            raise ValueError(
                f"trial {trial.index} is a {type(trial).__name__}: must be a Trial, or "
                "arms_as_apps=True be set on the runner, which runs one job for each arm"
            )

    def run_multiple(self, trials: Iterable[BaseTrial]) -> dict[int, dict[str, Any]]:
        """Do what `run` does for each of the trials, side by side. Return their metadata by index.

        If one cannot be submitted, the others still are. Called again, it reattaches to the
        submitted jobs, and starts none twice.
        """
        with ThreadPoolExecutor(MOST_SUBMITS, "transload-ax-submit") as pool:
            submits = {trial.index: pool.submit(self.run, trial) for trial in trials}
        return {index: submit.result() for index, submit in submits.items()}

    def poll_available_capacity(self) -> int:
        """Return how many more jobs may run, or -1 if this runner sets no limit."""
        if self.max_running is None:
            return -1
        return max(0, self.max_running - len(self.trials.jobs.live))

    def poll_trial_status(self, trials: Iterable[BaseTrial]) -> dict[TrialStatus, set[int]]:
        """Look at the jobs of trials once, and never raise. Return the trials' indices by status.

        A trial whose job waits, for the first time or again (pre-emption), is RUNNING. Otherwise Ax
        would believe that nothing runs. While a state is not known, the status stays, for as long
        as ``patience`` says.
        """
        asked = {trial.index: trial for trial in trials}
        every: Mapping[int, BaseTrial] = next(
            (trial.experiment.trials for trial in asked.values()), {}
        )
        given_up = [index for index, trial in every.items() if trial.status.name in GIVEN_UP]
        views = [self._view(trial) for trial in asked.values()]
        found: dict[TrialStatus, set[int]] = {}
        for index, name in self.trials.poll(views, given_up=given_up).items():
            found.setdefault(TrialStatus[name], set()).add(index)
            self._abandon_arms(asked[index])
        return found

    def poll_exception(self, trial: BaseTrial) -> str:
        """Return why a trial did not end well, with replica, exit code, last lines of its log."""
        return self.trials.reason(self._view(trial))

    def stop(self, trial: BaseTrial, reason: str | None = None) -> dict[str, Any]:
        """Cancel the trial's job. One that has ended stays."""
        self.trials.stop(self._view(trial))
        if reason:
            return {"reason": reason}
        return {}

    def close(self, cancel: bool | None = None) -> None:
        """Stop following all trials, and leave nothing behind.

        Args:
            cancel: cancel the jobs that still run, and wait for their end. With None this is done
                unless ``on_kill="detach"``, or a signal ends this process that nobody is known to
                have sent on purpose.
        """
        self.trials.jobs.close(cancel=cancel)

    def __enter__(self) -> TransloadRunner:
        self._within = ExitStack()
        self._within.enter_context(exit_on_sigterm())
        self._within.callback(self.close)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._within.close()

    # -- storage

    @classmethod
    def serialize_init_args(cls, obj: Any) -> dict[str, Any]:
        """Return the constructor's arguments as JSON values.

        Options whose name looks secret are left out.
        """
        args = {name: getattr(obj, name) for name in ARGUMENTS}
        args["component"] = component_path(obj.component)
        if isinstance(obj.environment, Environment):
            args["environment"] = asdict(obj.environment)
        if not obj.overrides:
            del args["overrides"]  # which earlier versions do not know
        return args

    @classmethod
    def deserialize_init_args(
        cls, args: dict[str, Any], decoder_registry: Any = None, class_decoder_registry: Any = None
    ) -> dict[str, Any]:
        """Return constructor arguments from what `serialize_init_args` returned.

        The component is not looked up.
        """
        known = {name: args[name] for name in ARGUMENTS if name in args and name != "options"}
        if isinstance(known.get("environment"), Mapping):
            known["environment"] = Environment(**known["environment"])
        return {**known, **args["options"]}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the slots, which belong to this process."""
        return dict(self.__dict__)

    # -- inside

    def _launch(self, arm: str, parameters: Mapping[str, Any], ttl: float | None) -> TrialLaunch:
        settings = cast("OverrideOptions", self.overrides)
        limit = read_settings(settings).get("time_limit")
        if ttl is not None and limit is not None:
            settings = {**settings, "time_limit": f"{min(ttl, limit):f}s"}
        return TrialLaunch(
            component=self.component,
            args={**self.component_const_params, **parameters},
            scheduler=self.scheduler,
            cfg=self.trials.jobs.cfg,
            workspace=self.workspace,
            parent_run_id=self.parent_run_id or surrounding_run() or f"search/{self.namespace}",
            tracker_base=base_of(self.tracker_base, arm),
            pass_env=self.pass_env,
            environment=self.environment,
            folder=self.folder or None,
            overrides=settings,
            mark=digest(parameters),
            ttl=ttl,
        )

    def _view(self, trial: BaseTrial) -> TrialView:
        arms = {self._arm_name(trial, arm.name): arm.parameters for arm in trial.arms}
        name = "experiment"
        if trial.experiment.has_name:
            name = trial.experiment.name
        return TrialView(name, trial.index, trial.status.name, trial.run_metadata, arms)

    @staticmethod
    def _arm_name(trial: BaseTrial, name: str) -> str:
        """Return the name of an arm whose job is its own, or ``""`` if the trial has one job."""
        if isinstance(trial, BatchTrial):
            return name
        return ""

    def _abandon_arms(self, trial: BaseTrial) -> None:
        """Let a batch trial complete without the arms that did not end well."""
        if isinstance(trial, BatchTrial):
            for arm, reason in self.trials.lost_arms.get(trial.index, {}).items():
                trial.mark_arm_abandoned(arm, reason=reason)


ARGUMENTS: Final = tuple(
    name
    for name in inspect.signature(TransloadRunner.__init__).parameters
    if name not in ("self", "orchestrator")
)
"""The constructor's arguments, which are public attributes, and what is stored."""
