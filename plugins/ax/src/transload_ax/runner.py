"""Trials of an Ax experiment as apps."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ax.core.base_trial import BaseTrial
from ax.core.batch_trial import BatchTrial
from ax.core.experiment import Experiment
from ax.core.runner import Runner
from ax.core.trial import Trial
from ax.core.trial_status import TrialStatus

from transload.errors import ConfigError, SpecError, TransloadError
from transload.specs import AppState, CfgVal, looks_secret
from transload_ax.convert import (
    Component,
    StoredComponent,
    check_constants,
    check_experiment,
    component_path,
    digest,
)
from transload_ax.process import PerProcess
from transload_ax.run import TrialApps
from transload_ax.states import STATES
from transload_ax.units import LOGS, RECORD, MetadataStore, Seen, TrialLaunch, Unit, execution_options

TRANSLOAD_APP_HANDLE: Final = "transload_app_handle"
"""Key in a trial's run metadata: the handle of its app; of a batch trial, a dict of arm name → handle."""

TRANSLOAD_TRACKER_BASE: Final = "transload_tracker_base"
"""Key in a trial's run metadata: the tracker base."""

APP_STATE_TO_TRIAL_STATUS: Final[dict[AppState, TrialStatus]] = {
    state: TrialStatus[name] for state, name in STATES.items()
}
"""AppState → TrialStatus. Patience is applied before the table is read."""

MINIMUM_PAUSE: Final = 0.1
"""Seconds between two looks at apps of which there is no news, whatever the host's loop asks for."""

logger = logging.getLogger("transload_ax")


class TransloadRunner(PerProcess, Runner):
    """Runs each trial as an app: the component called with the trial's parameters.

    The names and types of the experiment's parameters must match the component's arguments. ``trial_idx`` (int),
    ``experiment_name`` and ``tracker_base`` (str) are given to a component that declares them.

    Args:
        tracker_base: where trials report: under the key ``trial_idx``, by `transload.runtime.tracking`.
        component: the component, a name (``train.py:trainer``) or a function of a module.
        component_const_params: arguments that are the same in all trials.
        scheduler: where trials run.
        cfg: run options of the scheduler; those whose name looks secret are used, but neither shown nor stored.
        orchestrator: another name for ``scheduler``.
        namespace: tells this experiment's apps from those of others of the same name; default: a new uuid. It is
            stored with the experiment.
        workspace: local folder that travels with the app.
        arms_as_apps: accept batch trials: one app for each arm, each with the tracker base ``<tracker_base>/<arm>``.
        max_running: how many apps may run at once; None: as many as the host likes.
        inherit_env: give jobs the whole environment of this process, not an allow-list of it.
        options: see `transload.pipelines.ExecutionOptions`, by name.

    Raises:
        SpecError: for an argument that the component does not have, by name.
        ConfigError: for a wrong option.
    """

    def __init__(
        self,
        tracker_base: str,
        component: Component,
        component_const_params: Mapping[str, Any] | None = None,
        scheduler: str = "local",
        cfg: Mapping[str, CfgVal] | None = None,
        orchestrator: str | None = None,
        namespace: str | None = None,
        workspace: str | None = None,
        arms_as_apps: bool = False,
        max_running: int | None = None,
        inherit_env: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(tracker_base, str) or not tracker_base:
            raise SpecError(f"tracker_base={tracker_base!r}: must be a path or a URL")
        if max_running is not None and (isinstance(max_running, bool) or max_running < 1):
            raise ConfigError(f"max_running={max_running!r}: must be an int, 1 or more")
        if not isinstance(component, StoredComponent):
            check_constants(component, component_const_params or {})
        self.tracker_base = tracker_base
        self.component = _storable(component)
        self.component_const_params: dict[str, Any] = dict(component_const_params or {})
        self.scheduler = orchestrator or scheduler
        self.cfg: dict[str, CfgVal] = {name: value for name, value in (cfg or {}).items() if not looks_secret(name)}
        self.namespace = namespace or uuid.uuid4().hex
        self.workspace = workspace
        self.arms_as_apps = arms_as_apps
        self.max_running = max_running
        self.inherit_env = inherit_env
        self.options: dict[str, Any] = dict(options or {})
        execution_options(self.options)
        self.here.component = None if isinstance(component, str) else component
        self.here.cfg = dict(cfg or {})

    @property
    def orchestrator(self) -> str:
        """Another name for ``scheduler``."""
        return self.scheduler

    @property
    def apps(self) -> TrialApps:
        """The apps of the trials, as this process sees them."""
        if self.here.apps is None:
            options = execution_options(self.options)
            self.here.apps = TrialApps(self.namespace, options, inherit_env=self.inherit_env)
        return self.here.apps

    def check(self, experiment: Experiment) -> None:
        """Check that the search space and the constant arguments are what the component needs.

        Raises:
            SpecError: for an unknown, missing or doubly given name, or a type that does not fit, by name.
        """
        check_experiment(self._component, self.component_const_params, experiment)
        self.here.checked.add(id(experiment))

    # -- what Ax asks for

    @property
    def staging_required(self) -> bool:
        """True: a trial is STAGED by `run`, and RUNNING once its app is seen to run.

        False while Ax's own ``Orchestrator`` drives this runner: it does not run the trials of one that wants staging.
        """
        return self.here.stages_trials

    @property
    def run_metadata_report_keys(self) -> list[str]:
        """The metadata that is of interest to people: the app handle."""
        return [TRANSLOAD_APP_HANDLE]

    def run(self, trial: BaseTrial) -> dict[str, Any]:
        """Submit the trial's app, or attach to it if it was submitted before; return handle and tracker base.

        Raises:
            ValueError: for a batch trial, unless ``arms_as_apps``.
            SpecError: if the search space does not fit the component; nothing is submitted.
            SubmitError: if the app was not taken.
        """
        if not isinstance(trial, Trial) and not (self.arms_as_apps and isinstance(trial, BatchTrial)):
            raise ValueError(
                f"trial {trial.index} is a {type(trial).__name__}: must be a Trial, or arms_as_apps=True be set on the "
                "runner, which runs one app for each arm"
            )
        experiment = trial.experiment
        if id(experiment) not in self.here.checked:
            self.check(experiment)
        if isinstance(trial, Trial):
            if trial.arm is None:
                raise ValueError(f"trial {trial.index} has no arm")
            handle: Any = self._start(trial, Unit(_name(experiment), trial.index), trial.arm.parameters)
        else:
            handle = {
                arm.name: self._start(trial, Unit(_name(experiment), trial.index, arm.name), arm.parameters)
                for arm in trial.arms
            }
        return {TRANSLOAD_APP_HANDLE: handle, TRANSLOAD_TRACKER_BASE: self.tracker_base}

    def run_multiple(self, trials: Iterable[BaseTrial]) -> dict[int, dict[str, Any]]:
        """Do what `run` does for each of the trials; return trial index → metadata.

        One that cannot be submitted stops the rest; called again, what was submitted is found, not started again.
        """
        return {trial.index: self.run(trial) for trial in trials}

    def poll_available_capacity(self) -> int:
        """Return how many more apps may run; -1: no limit of this runner's own."""
        if not self.here.host_stages:
            self.here.stages_trials = False  # only an orchestrator asks, and Ax's own does not stage
        return -1 if self.max_running is None else max(0, self.max_running - len(self.apps.live))

    def poll_trial_status(self, trials: Iterable[BaseTrial]) -> dict[TrialStatus, set[int]]:
        """Look at the apps of trials once; return status → trial indices. Never raises.

        A trial that is RUNNING is never taken back to STAGED, though its app may wait again (pre-emption): Ax would
        believe that nothing runs. What cannot be told leaves the status as it is, as long as patience lasts.
        """
        trials = list(trials)
        found: dict[TrialStatus, set[int]] = {}
        try:
            self._pace()
            self._stop_ended(trials)
            pending = [trial for trial in trials if not trial.status.is_terminal]
            seen = self._observe(pending)
        except Exception:
            logger.exception("trials could not be looked at")
            pending, seen = [trial for trial in trials if not trial.status.is_terminal], {}
        for trial in pending:
            found.setdefault(self._status(trial, seen.get(trial.index, [])), set()).add(trial.index)
        return found

    def poll_exception(self, trial: BaseTrial) -> str:
        """Return why a trial did not end well: replica, exit code, last lines of its log."""
        reason = self.here.reasons.get(trial.index)
        if reason is not None:
            return reason
        try:
            seen = self._observe([trial])
            return "; ".join(each.reason for each in seen.get(trial.index, []) if each.reason) or "no reason is known"
        except Exception as exc:
            return f"no reason is known: {exc}"

    def stop(self, trial: BaseTrial, reason: str | None = None) -> dict[str, Any]:
        """Cancel the trial's app; one that has ended stays as it is."""
        for unit, handle in self._handles(trial):
            try:
                self.apps.stop(unit, handle)
            except TransloadError as exc:
                logger.warning("trial %s: %s could not be cancelled: %s", trial.index, handle, exc)
        return {"reason": reason} if reason else {}

    def close(self, cancel: bool | None = None) -> None:
        """Let go of all trials, and see to it that nothing is left behind.

        Args:
            cancel: cancel the apps that still run, and wait for their end; None: unless ``options`` has
                ``on_kill="detach"``.
        """
        if self.here.apps is not None:
            self.here.apps.close(cancel=cancel)

    def __enter__(self) -> TransloadRunner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- storage

    @classmethod
    def serialize_init_args(cls, obj: Any) -> dict[str, Any]:
        """Return the constructor's arguments as JSON values; options whose name looks secret are left out."""
        args = {name: getattr(obj, name) for name in _ARGUMENTS}
        args["component"] = component_path(obj.component)
        return args

    @classmethod
    def deserialize_init_args(
        cls, args: dict[str, Any], decoder_registry: Any = None, class_decoder_registry: Any = None
    ) -> dict[str, Any]:
        """Return constructor arguments from what `serialize_init_args` returned; the component is not looked up."""
        given = {name: args[name] for name in _ARGUMENTS if args.get(name) is not None}
        given["component"] = StoredComponent(given["component"])
        return given

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return dict(self.__dict__)

    # -- inside

    @property
    def _component(self) -> Component:
        given = self.here.component or self.component
        return str(given) if isinstance(given, str) else given

    @property
    def _cfg(self) -> dict[str, CfgVal]:
        return self.cfg if self.here.cfg is None else self.here.cfg

    def _start(self, trial: BaseTrial, unit: Unit, parameters: Mapping[str, Any]) -> str:
        base = self.base_of(unit.arm)
        launch = TrialLaunch(
            component=self._component,
            args={**self.component_const_params, **parameters},
            scheduler=self.scheduler,
            cfg=self._cfg,
            workspace=self.workspace,
            tracker_base=base,
            mark=digest(parameters),
            ttl=trial.ttl_seconds,
        )
        known = {"trial_idx": trial.index, "experiment_name": unit.experiment, "tracker_base": base}
        return self.apps.start(
            unit, launch, known, store=self._store(trial, unit, RECORD, True), log_store=self._store(trial, unit, LOGS)
        )

    def base_of(self, arm: str = "") -> str:
        """Return the tracker base of a trial, or of one arm of a batch trial."""
        return f"{self.tracker_base.rstrip('/')}/{arm}" if arm else self.tracker_base

    def _store(self, trial: BaseTrial, unit: Unit, key: str, tell: bool = False) -> MetadataStore:
        name = f"{key}/{unit.arm}" if unit.arm else key
        return MetadataStore(trial.run_metadata, name, self.here.on_record if tell else None)

    def _handles(self, trial: BaseTrial) -> Iterator[tuple[Unit, str]]:
        """Yield the apps of a trial as its metadata has them."""
        found, name = trial.run_metadata.get(TRANSLOAD_APP_HANDLE), _name(trial.experiment)
        if isinstance(found, str):
            yield Unit(name, trial.index), found
        elif isinstance(found, Mapping):
            for arm, handle in found.items():
                yield Unit(name, trial.index, str(arm)), str(handle)

    def _pace(self) -> None:
        """Wait a moment for news: a loop that does not pause must not become a storm of questions."""
        apps = self.apps
        if apps.live and not apps.moved:
            apps.wait(MINIMUM_PAUSE)

    def _observe(self, trials: Iterable[BaseTrial]) -> dict[int, list[Seen]]:
        found: dict[int, list[Seen]] = {}
        wanted: dict[Unit, int] = {}
        for trial in trials:
            if trial.status.is_candidate:
                continue
            units = list(self._handles(trial)) or self._found(trial)
            if not units:
                why = "its run metadata has no app handle, and no app of its own is found"
                found[trial.index] = [Seen("", AppState.FAILED, f"trial {trial.index} is lost: {why}")]
            for unit, handle in units:
                try:
                    record, logs = self._store(trial, unit, RECORD), self._store(trial, unit, LOGS)
                    self.apps.attach(unit, handle, store=record, log_store=logs)
                    wanted[unit] = trial.index
                except TransloadError as exc:
                    seen = Seen(handle, AppState.FAILED, f"{handle!r} cannot be asked about: {exc}", left=True)
                    found.setdefault(trial.index, []).append(seen)
        for unit, seen in self.apps.poll(wanted).items():
            found.setdefault(wanted[unit], []).append(seen)
        return found

    def _found(self, trial: BaseTrial) -> list[tuple[Unit, str]]:
        """Find apps by their ids, where the metadata was lost."""
        arms = [arm.name for arm in trial.arms] if isinstance(trial, BatchTrial) else [""]
        units = [Unit(_name(trial.experiment), trial.index, arm) for arm in arms]
        found = [(unit, self.apps.find(unit, self.scheduler, self._cfg)) for unit in units]
        return [(unit, handle) for unit, handle in found if handle is not None]

    def _status(self, trial: BaseTrial, seen: list[Seen]) -> TrialStatus:
        """Return the status of a trial, from what is known of its apps."""
        if not seen or any(each.state is None for each in seen):
            return trial.status
        statuses = {each.handle: APP_STATE_TO_TRIAL_STATUS[each.state] for each in seen if each.state is not None}
        if any(not status.is_terminal for status in statuses.values()):
            runs = trial.status.is_running or TrialStatus.RUNNING in statuses.values()
            return TrialStatus.RUNNING if runs else TrialStatus.STAGED
        if any(each.left for each in seen):
            self.here.left.add(trial.index)
        bad = [each for each in seen if each.reason]
        if bad:
            self.here.reasons[trial.index] = "\n".join(each.reason for each in bad)
        if len(bad) < len(seen):
            self._abandon_arms(trial, bad)
            return TrialStatus.COMPLETED
        return TrialStatus.FAILED if TrialStatus.FAILED in statuses.values() else TrialStatus.ABANDONED

    def _abandon_arms(self, trial: BaseTrial, bad: list[Seen]) -> None:
        """Let a batch trial complete without the arms that did not end well."""
        reasons = {each.handle: each.reason for each in bad}
        for unit, handle in self._handles(trial):
            if handle in reasons and isinstance(trial, BatchTrial):
                trial.mark_arm_abandoned(unit.arm, reason=reasons[handle])

    def _stop_ended(self, trials: list[BaseTrial]) -> None:
        """Cancel the apps of trials that Ax has given up: their time to live is over, or somebody marked them."""
        if not trials or not self.apps.live:
            return
        every = trials[0].experiment.trials
        for unit, handle in self.apps.live.items():
            trial = every.get(unit.trial)
            if trial is not None and trial.status in _GIVEN_UP and trial.index not in self.here.left:
                if unit not in self.here.stopped:
                    self.here.stopped.add(unit)
                    logger.info("trial %s is %s: its app is cancelled", trial.index, trial.status.name)
                    self.apps.stop(unit, handle)
                self.apps.poll([unit])


_GIVEN_UP: Final = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.EARLY_STOPPED, TrialStatus.STALE)

_ARGUMENTS: Final = (
    "tracker_base",
    "component",
    "component_const_params",
    "scheduler",
    "cfg",
    "namespace",
    "workspace",
    "arms_as_apps",
    "max_running",
    "inherit_env",
    "options",
)


def _storable(component: Component) -> Component:
    """Return a component by its name, so that it can be stored; one without a name that can be found stays as it is."""
    try:
        return StoredComponent(component_path(component))
    except SpecError:
        return component


def _name(experiment: Experiment) -> str:
    return experiment.name if experiment.has_name else "experiment"
