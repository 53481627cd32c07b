"""Do the steps of a trial, to run it, look at it and stop it, by its status and run metadata.

It imports nothing of Ax.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import TransloadError
from transload_ax.jobs import TrialJobs
from transload_ax.units import JobView, TrialKey, TrialLaunch, TrialNotes

GIVEN_UP: Final = frozenset({"FAILED", "ABANDONED", "EARLY_STOPPED", "STALE"})
ENDED: Final = GIVEN_UP | {"COMPLETED"}
"""Names of statuses in which a trial's job is not to run any more."""

logger = logging.getLogger("transload_ax")


@dataclass(frozen=True, slots=True)
class TrialView:
    """What there is to know of a trial.

    Args:
        experiment: name of its experiment.
        index: its number.
        status: name of its ``TrialStatus``.
        metadata: its run metadata, which is written to.
        arms: the parameters of each arm. The arm of a trial that has just one is ``""``.
    """

    experiment: str
    index: int
    status: str
    metadata: MutableMapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]

    def key(self, arm: str = "") -> TrialKey:
        """Return what the job of an arm stands for."""
        return TrialKey(self.experiment, self.index, arm)

    @property
    def notes(self) -> TrialNotes:
        """What its run metadata says of its jobs."""
        return TrialNotes(self.metadata)


@dataclass
class Trials:
    """The trials of an experiment, as one process sees them.

    Args:
        jobs: their jobs.
        reasons: trial → why it did not end well.
        lost_arms: trial → arm → why it did not end well, of batch trials that completed without it.
        left: trials whose jobs must be left alone.
        stopped: jobs that were cancelled because their trials were given up.
    """

    jobs: TrialJobs
    reasons: dict[int, str] = field(default_factory=dict)
    lost_arms: dict[int, dict[str, str]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    stopped: set[TrialKey] = field(default_factory=set)

    def run(
        self, trial: TrialView, launch: Callable[[str, Mapping[str, Any]], TrialLaunch]
    ) -> str | dict[str, str]:
        """Submit a trial's job, or reattach to it if it was submitted before.

        Args:
            trial: the trial.
            launch: returns what to submit for an arm and its parameters.

        Returns:
            The job's handle, or the handle of each arm.

        Raises:
            TransloadError: if it was not taken, as in `TrialJobs.start`.
        """
        known = {"trial_idx": trial.index, "experiment_name": trial.experiment}
        handles = {
            arm: self.jobs.start(trial.key(arm), launch(arm, parameters), trial.notes, known)
            for arm, parameters in trial.arms.items()
        }
        return handles.get("", handles)

    def poll(self, trials: Iterable[TrialView], *, given_up: Iterable[int] = ()) -> dict[int, str]:
        """Look at the jobs of trials once, and never raise. Return the name of each trial's status.

        A trial whose job waits, for the first time or again (pre-emption), is RUNNING. Otherwise Ax
        would believe that nothing runs. While a state is not known, the status stays, for as long
        as ``patience`` says.

        Args:
            trials: the trials. Those that have ended are left out.
            given_up: trials of the experiment that Ax counts as ended badly. Their jobs are
                cancelled.
        """
        pending = [trial for trial in trials if trial.status not in ENDED]
        try:
            self._stop(given_up)
            seen = self._observe(pending)
        except Exception:
            logger.exception("trials could not be looked at")
            seen = {}
        return {trial.index: self._status(trial, seen.get(trial.index, [])) for trial in pending}

    def reason(self, trial: TrialView) -> str:
        """Return why a trial did not end well, with replica, exit code, last lines of its log."""
        known = self.reasons.get(trial.index)
        if known is not None:
            return known
        try:
            seen = self._observe([trial]).get(trial.index, [])
            return "; ".join(each.reason for each in seen if each.reason) or "no reason is known"
        except Exception as exc:
            return f"no reason is known: {exc}"

    def stop(self, trial: TrialView) -> None:
        """Cancel a trial's jobs. Those that have ended stay. What cannot be done is logged."""
        try:
            keys = self._jobs_of(trial)
        except Exception as exc:
            logger.warning("trial %s: its job cannot be looked for: %s", trial.index, exc)
            return
        for key, handle in keys:
            try:
                self._attach(trial, key, handle)
                self.jobs.stop(key)
            except Exception as exc:
                logger.warning("trial %s: %s cannot be cancelled: %s", trial.index, handle, exc)

    # -- inside

    def _attach(self, trial: TrialView, key: TrialKey, handle: str) -> None:
        self.jobs.attach(key, handle, trial.notes)

    def _jobs_of(self, trial: TrialView) -> list[tuple[TrialKey, str]]:
        """Return a trial's jobs, known by their ids where the metadata was lost."""
        found = trial.notes.handles()
        if found:
            return [(trial.key(arm), handle) for arm, handle in found.items()]
        keys = [trial.key(arm) for arm in trial.arms]
        return [(key, handle) for key in keys if (handle := self.jobs.find(key)) is not None]

    def _stop(self, given_up: Iterable[int]) -> None:
        """Cancel the jobs of trials that Ax has given up.

        Their time to live is over, or somebody marked them.
        """
        gone = set(given_up) - self.left
        keys = [key for key in self.jobs.live if key.trial in gone]
        for key in keys:
            if key not in self.stopped:
                self.stopped.add(key)
                logger.info("trial %s was given up: its job is cancelled", key.trial)
                self.jobs.stop(key)
        if keys:
            self.jobs.poll(keys)

    def _observe(self, trials: Iterable[TrialView]) -> dict[int, list[JobView]]:
        found: dict[int, list[JobView]] = {}
        wanted: list[TrialKey] = []
        for trial in trials:
            if trial.status == "CANDIDATE":
                continue
            keys = self._jobs_of(trial)
            if not keys:
                why = "its run metadata has no handle, and there is no job of it"
                found[trial.index] = [JobView("", "FAILED", f"trial {trial.index} is lost: {why}")]
            for key, handle in keys:
                try:
                    self._attach(trial, key, handle)
                    wanted.append(key)
                except TransloadError as exc:
                    seen = JobView(
                        handle, "FAILED", f"{handle!r} cannot be asked about: {exc}", abandoned=True
                    )
                    found.setdefault(trial.index, []).append(seen)
        for key, seen in self.jobs.poll(wanted).items():
            found.setdefault(key.trial, []).append(seen)
        return found

    def _status(self, trial: TrialView, seen: list[JobView]) -> str:
        """Return the name of a trial's status, from what is known of its jobs."""
        names = [each.status for each in seen if each.status is not None]
        if not seen or len(names) < len(seen):
            return trial.status
        if any(name not in ENDED for name in names):
            return "RUNNING"
        if any(each.abandoned for each in seen):
            self.left.add(trial.index)
        bad = {each.handle: each.reason for each in seen if each.reason}
        if bad:
            self.reasons[trial.index] = "\n".join(bad.values())
        if len(bad) < len(seen):
            self.lost_arms[trial.index] = {
                arm: bad[handle] for arm, handle in trial.notes.handles().items() if handle in bad
            }
            return "COMPLETED"
        if "FAILED" in names:
            return "FAILED"
        return "ABANDONED"
