"""The schedulers whose jobs have keepers on the machine where they were submitted."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from transload.errors import AppExists, SchedulerUnavailable, SpecError, SubmitError
from transload.keeper import creation, layout, processes
from transload.schedulers.api import Opts, Submission, Watch, cancel_each
from transload.schedulers.cancelling import asker
from transload.schedulers.folder import home, scope, store
from transload.schedulers.folder.scheduler import FolderScheduler
from transload.schedulers.folder.start import Program, start
from transload.schedulers.folder.watch import AppWatch
from transload.specs import AppState, AppStatus, Progress

__all__ = ["KeptScheduler"]


class KeptScheduler(FolderScheduler[Opts]):
    """Starts a keeper for each job, and sees by the lock of a job's record whether it lives."""

    def __init__(self) -> None:
        self._ready = False
        # whether a job has ended, by its folder, with what its states looked like then
        self._ended: dict[str, tuple[tuple[int, int, int], bool]] = {}

    # -- what an engine adds

    @abstractmethod
    def program(self) -> Program:
        """Return the program of its keepers."""

    @abstractmethod
    def keeper_gone(self, app_id: str) -> dict[str, Any] | None:
        """Do what is done for a job that has not ended and has no keeper, and return its state."""

    @abstractmethod
    def broken_off(self, app_id: str, *, wanted: bool) -> bool:
        """Clear what a submit has left whose keeper is dead.

        Args:
            app_id: the job.
            wanted: the submit was not interrupted.

        Returns:
            True if the job was started all the same.
        """

    # -- submit

    def keep_in(self, folder: str) -> None:
        """Keep jobs in a folder, which need not exist."""
        self.home = folder
        self._ready = False

    def ensure_home(self) -> None:
        """Make the folder of all jobs.

        Raises:
            ConfigError: if it cannot be made, or is not safe to use.
        """
        if not self._ready or not os.path.isdir(f"{self.home}/apps"):
            home.ensure(self.home)
            self._ready = True

    def is_there(self, app_id: str, submission: Submission) -> bool:
        """Tell whether that very job was submitted before.

        Raises:
            SpecError: if no job can have that id.
            AppExists: if the id is another job's.
        """
        if not store.safe_id(app_id):
            raise SpecError(
                f"app_id={app_id!r}: must be 1 to 200 characters, no '/', not beginning with '.'"
            )
        self.ensure_home()
        record = store.read_record(self.home, app_id)
        if record is None:
            return False
        if not record:
            raise AppExists(
                app_id, f"job {app_id!r} is there: {store.damaged_record(self.home, app_id)}"
            )
        if record.get("digest") != submission.digest:
            raise AppExists(app_id)
        return True

    def hand_over(self, app_id: str, body: dict[str, Any]) -> Mapping[str, Any]:
        """Start a keeper with this request, and return its answer.

        After an exception there is no such job.

        Raises:
            SubmitError: if no keeper can be started, or it ends without an answer.
            SchedulerUnavailable: if it does not answer.
        """
        scope.warn_once()
        try:
            return start(self.program(), self.home, body)
        except BaseException as exc:  # its keeper is dead
            token = body["record"]["token"]
            layout.remove_tree(creation.unfinished(self.home, token))
            there = store.read_record(self.home, app_id)
            if there is None or there.get("token") != token:
                raise
            wanted = isinstance(exc, SubmitError | SchedulerUnavailable)
            if self.broken_off(app_id, wanted=wanted) and wanted:
                return {"started": True}
            raise

    @staticmethod
    def refusal(app_id: str, answer: Mapping[str, Any]) -> Exception:
        """Return the error in the answer of a keeper."""
        if answer.get("error") == "exists":
            return AppExists(app_id)
        if answer.get("error") == "gone":
            return AppExists(
                app_id, f"job id {app_id!r} was a job that has been deleted; choose another id"
            )
        return SubmitError(
            f"job {app_id!r} was not started: {answer.get('message')}",
            bool(answer.get("transient")),
        )

    # -- how jobs are doing

    def state_of(self, app_id: str) -> dict[str, Any] | None:
        """Return the true state of a job, or None if there is no such job."""
        state = store.read_state(self.home, app_id)
        if state is None or isinstance(state, store.DamagedState) or _is_final(state):
            return state
        folder = layout.app_folder(self.home, app_id)
        if not layout.is_kept(folder):
            state = self.keeper_gone(app_id)
        if state is not None and not _is_final(state) and layout.is_end_asked(folder):
            state["cancel_requested"] = True
        return state

    def statuses(self, app_ids: Collection[str]) -> dict[str, AppStatus | None]:
        """Return how jobs are doing.

        Raises:
            SchedulerUnavailable: if the folder of all jobs cannot be read.
        """
        return {app_id: self._status(app_id) for app_id in app_ids}

    def _status(self, app_id: str) -> AppStatus | None:
        try:
            state = self.state_of(app_id)
        except SchedulerUnavailable as exc:
            next(store.app_ids(self.home), None)  # raises if no job can be read
            return AppStatus(AppState.UNKNOWN, msg=str(exc))
        if state is None:
            return None
        return store.status_of(self.home, app_id, state)

    def in_short(self, app_ids: Collection[str]) -> dict[str, tuple[AppState, Progress | None]]:
        """Return state and progress of jobs, without reading the rest of what was written."""
        found: dict[str, tuple[AppState, Progress | None]] = {}
        for app_id in app_ids:
            try:
                state = self.state_of(app_id)
            except SchedulerUnavailable:
                found[app_id] = (AppState.UNKNOWN, None)
                continue
            if state is not None:
                shown = AppState.__members__.get(str(state.get("state")), AppState.UNKNOWN)
                found[app_id] = (shown, Progress.from_value(state.get("progress")))
        return found

    def has_ended(self, app_id: str) -> bool:
        """Tell whether a job has ended, or is gone."""
        folder = layout.app_folder(self.home, app_id)
        try:
            stat = os.stat(layout.state_file(folder))
        except (FileNotFoundError, NotADirectoryError):
            return self.state_of(app_id) is None
        except OSError as exc:
            raise store.unreadable(layout.state_file(folder), exc) from exc
        key = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        before = self._ended.get(folder)
        if before is not None and before[0] == key and (before[1] or layout.is_kept(folder)):
            return before[1]  # the same file as when it was last looked at
        state = self.state_of(app_id)
        ended = state is None or _is_final(state)
        if isinstance(state, store.DamagedState):
            ended = not layout.is_kept(folder)
        store.keep(self._ended, folder, (key, ended))
        return ended

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch of any number of jobs, or None if no descriptor is free."""
        try:
            return AppWatch(self.home, changed)
        except OSError:
            return None

    # -- their end

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Request the end of jobs, without waiting. A job that has ended stays as it is.

        Returns:
            Those of the ids that there are jobs of.
        """
        return cancel_each(app_ids, self.cancel_one)

    def cancel_one(self, app_id: str) -> bool:
        """Request the end of a job, and return False if there is none."""
        state = self.state_of(app_id)
        if state is None or _is_final(state):
            return state is not None
        folder = layout.app_folder(self.home, app_id)
        with contextlib.suppress(OSError):  # on a full disk the message below is enough
            layout.ask_for_end(folder, asker())
        if not processes.notify(self.home, app_id, processes.CANCEL):
            self.state_of(app_id)  # sees to a job whose keeper is gone
        return True

    def lock_checkpoints(self) -> AbstractContextManager[object]:
        """Hold the lock of the folders of checkpoints."""
        return creation.locked_checkpoints(self.home)

    def remove(self, app_id: str) -> None:
        """Remove a job that has ended, after waiting for its keeper to end."""
        record = f"{layout.app_folder(self.home, app_id)}/record.json"
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(layout.locked(record))
            except (layout.Replaced, FileNotFoundError):
                pass  # what is no file, or gone, cannot be locked
            except OSError as exc:
                raise store.unreadable(record, exc) from exc
            super().remove(app_id)


def _is_final(state: Mapping[str, Any]) -> bool:
    return state.get("state") in layout.TERMINAL
