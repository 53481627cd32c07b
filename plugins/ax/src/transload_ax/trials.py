"""What to do about a trial: run it, look at it, stop it, by its status and run metadata. Imports nothing of Ax."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import TransloadError
from transload.specs import CfgVal
from transload_ax.run import TrialApps
from transload_ax.units import LOGS, RECORD, MetadataStore, Seen, TrialLaunch, Unit

HANDLE: Final = "transload_app_handle"
BASE: Final = "transload_tracker_base"
"""Keys in a trial's run metadata."""

MINIMUM_PAUSE: Final = 0.1
"""Seconds between two looks at apps of which there is no news, whatever the host's loop asks for."""

GIVEN_UP: Final = frozenset({"FAILED", "ABANDONED", "EARLY_STOPPED", "STALE"})
ENDED: Final = GIVEN_UP | {"COMPLETED"}
"""Names of statuses in which a trial's app has no business to run any more."""

logger = logging.getLogger("transload_ax")


@dataclass(frozen=True, slots=True)
class TrialView:
    """What there is to know of a trial.

    Args:
        experiment: name of its experiment.
        index: its number.
        status: name of its ``TrialStatus``.
        metadata: its run metadata; written to.
        arms: arm → parameters; the arm of a trial that has just one is ``""``.
    """

    experiment: str
    index: int
    status: str
    metadata: MutableMapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]

    def unit(self, arm: str = "") -> Unit:
        """Return what the app of an arm stands for."""
        return Unit(self.experiment, self.index, arm)

    def store(self, key: str, arm: str = "", changed: Callable[[], None] | None = None) -> MetadataStore:
        """Return the store of an arm's app under a key of the run metadata."""
        return MetadataStore(self.metadata, f"{key}/{arm}" if arm else key, changed)

    def handles(self) -> list[tuple[Unit, str]]:
        """Return the apps that the run metadata names."""
        found = self.metadata.get(HANDLE)
        if isinstance(found, str):
            return [(self.unit(), found)]
        if isinstance(found, Mapping):
            return [(self.unit(str(arm)), str(handle)) for arm, handle in found.items()]
        return []


@dataclass
class Trials:
    """The trials of an experiment, as one process sees them.

    Args:
        apps: their apps.
        reasons: trial → why it did not end well.
        lost_arms: trial → arm → why it did not end well, of batch trials that completed without it.
        left: trials whose apps must be left alone.
        stopped: apps that were cancelled because their trials were given up.
        on_record: called when run metadata has changed that must be stored before a submit.
        on_logs: called when it was noted in run metadata how far logs were handed on.
    """

    apps: TrialApps
    reasons: dict[int, str] = field(default_factory=dict)
    lost_arms: dict[int, dict[str, str]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    stopped: set[Unit] = field(default_factory=set)
    on_record: Callable[[], None] | None = None
    on_logs: Callable[[], None] | None = None

    def run(self, trial: TrialView, launch: Callable[[str, Mapping[str, Any]], TrialLaunch]) -> str | dict[str, str]:
        """Submit a trial's app, or attach to it if it was submitted before; return its handle, or arm → handle.

        Args:
            trial: the trial.
            launch: arm, parameters → what to submit.

        Raises:
            TransloadError: if it was not taken; see `TrialApps.start`.
        """
        handles: dict[str, str] = {}
        for arm, parameters in trial.arms.items():
            made = launch(arm, parameters)
            base = made.tracker_base or ""
            known = {"trial_idx": trial.index, "experiment_name": trial.experiment, "tracker_base": base}
            record, logs = trial.store(RECORD, arm, self.on_record), trial.store(LOGS, arm, self.on_logs)
            handles[arm] = self.apps.start(trial.unit(arm), made, known, store=record, log_store=logs)
        return handles[""] if list(handles) == [""] else handles

    def poll(
        self, trials: Iterable[TrialView], scheduler: str, cfg: Mapping[str, CfgVal], *, given_up: Iterable[int] = ()
    ) -> dict[int, str]:
        """Look at the apps of trials once; return trial → name of its status. Never raises.

        A trial whose app waits, for the first time or again (pre-emption), is RUNNING: Ax would believe that nothing
        runs. What cannot be told leaves the status as it is, as long as patience lasts.

        Args:
            trials: the trials; those that have ended are passed over.
            scheduler: where apps are looked for whose handles were lost.
            cfg: its run options.
            given_up: trials of the experiment that Ax counts as ended badly; their apps are cancelled.
        """
        pending = [trial for trial in trials if trial.status not in ENDED]
        try:
            self._pace()
            self._stop(given_up)
            seen = self._observe(pending, scheduler, cfg)
        except Exception:
            logger.exception("trials could not be looked at")
            seen = {}
        return {trial.index: self._status(trial, seen.get(trial.index, [])) for trial in pending}

    def reason(self, trial: TrialView, scheduler: str, cfg: Mapping[str, CfgVal]) -> str:
        """Return why a trial did not end well: replica, exit code, last lines of its log."""
        known = self.reasons.get(trial.index)
        if known is not None:
            return known
        try:
            seen = self._observe([trial], scheduler, cfg).get(trial.index, [])
            return "; ".join(each.reason for each in seen if each.reason) or "no reason is known"
        except Exception as exc:
            return f"no reason is known: {exc}"

    def follow(
        self, trials: Iterable[TrialView], scheduler: str, cfg: Mapping[str, CfgVal], *, candidates: bool = False
    ) -> None:
        """Follow the apps of trials that an earlier process left running, and look at none. Never raises.

        Args:
            trials: the trials; those that have ended are passed over.
            scheduler: where apps are looked for whose handles were lost.
            cfg: its run options.
            candidates: also of trials that were killed between submit and store. While a search goes on these are
                left to the submit that will adopt them, or they would count as running.
        """
        for trial in trials:
            if trial.status in ENDED or (trial.status == "CANDIDATE" and not candidates):
                continue
            for unit, handle in self._apps_of(trial, scheduler, cfg):
                try:
                    self._attach(trial, unit, handle)
                except Exception as exc:
                    logger.warning("trial %s: %s cannot be followed yet: %s", trial.index, handle, exc)

    def stop(self, trial: TrialView, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Cancel a trial's apps; what has ended stays as it is.

        Args:
            trial: the trial.
            scheduler: where apps are looked for whose handles were lost.
            cfg: its run options.
        """
        for unit, handle in self._apps_of(trial, scheduler, cfg):
            try:
                self.apps.stop(unit, handle)
            except TransloadError as exc:
                logger.warning("trial %s: %s could not be cancelled: %s", trial.index, handle, exc)

    # -- inside

    def _pace(self) -> None:
        """Wait a moment for news: a loop that does not pause must not become a storm of questions."""
        if self.apps.live and not self.apps.moved:
            self.apps.wait(MINIMUM_PAUSE)

    def _stop(self, given_up: Iterable[int]) -> None:
        """Cancel the apps of trials that Ax has given up: their time to live is over, or somebody marked them."""
        gone = set(given_up) - self.left
        for unit, handle in self.apps.live.items():
            if unit.trial in gone:
                if unit not in self.stopped:
                    self.stopped.add(unit)
                    logger.info("trial %s was given up: its app is cancelled", unit.trial)
                    self.apps.stop(unit, handle)
                self.apps.poll([unit])

    def _observe(self, trials: Iterable[TrialView], scheduler: str, cfg: Mapping[str, CfgVal]) -> dict[int, list[Seen]]:
        found: dict[int, list[Seen]] = {}
        wanted: dict[Unit, int] = {}
        for trial in trials:
            if trial.status == "CANDIDATE":
                continue
            units = trial.handles() or self._search(trial, scheduler, cfg)
            if not units:
                why = "its run metadata has no app handle, and no app of its own is found"
                found[trial.index] = [Seen("", "FAILED", f"trial {trial.index} is lost: {why}")]
            for unit, handle in units:
                try:
                    self._attach(trial, unit, handle)
                    wanted[unit] = trial.index
                except TransloadError as exc:
                    seen = Seen(handle, "FAILED", f"{handle!r} cannot be asked about: {exc}", left=True)
                    found.setdefault(trial.index, []).append(seen)
        for unit, seen in self.apps.poll(wanted).items():
            found.setdefault(wanted[unit], []).append(seen)
        return found

    def _attach(self, trial: TrialView, unit: Unit, handle: str) -> None:
        record, logs = trial.store(RECORD, unit.arm), trial.store(LOGS, unit.arm, self.on_logs)
        self.apps.attach(unit, handle, store=record, log_store=logs)

    def _apps_of(self, trial: TrialView, scheduler: str, cfg: Mapping[str, CfgVal]) -> list[tuple[Unit, str]]:
        """Return a trial's apps, found by their ids where the metadata was lost; none, if that cannot be said."""
        try:
            return trial.handles() or self._search(trial, scheduler, cfg)
        except Exception as exc:
            logger.warning("trial %s: its app cannot be looked for: %s", trial.index, exc)
            return []

    def _search(self, trial: TrialView, scheduler: str, cfg: Mapping[str, CfgVal]) -> list[tuple[Unit, str]]:
        """Find apps by their ids, where the metadata was lost."""
        units = [trial.unit(arm) for arm in trial.arms]
        found = [(unit, self.apps.find(unit, scheduler, cfg)) for unit in units]
        return [(unit, handle) for unit, handle in found if handle is not None]

    def _status(self, trial: TrialView, seen: list[Seen]) -> str:
        """Return the name of a trial's status, from what is known of its apps."""
        names = [each.status for each in seen if each.status is not None]
        if not seen or len(names) < len(seen):
            return trial.status
        if any(name not in ENDED for name in names):
            return "RUNNING"
        if any(each.left for each in seen):
            self.left.add(trial.index)
        bad = {each.handle: each.reason for each in seen if each.reason}
        if bad:
            self.reasons[trial.index] = "\n".join(bad.values())
        if len(bad) < len(seen):
            self.lost_arms[trial.index] = {unit.arm: bad[handle] for unit, handle in trial.handles() if handle in bad}
            return "COMPLETED"
        return "FAILED" if "FAILED" in names else "ABANDONED"
