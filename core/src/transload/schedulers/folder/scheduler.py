"""The schedulers that keep each job in a folder, whatever runs it."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable
from transload.keeper import layout
from transload.keeper.signs import newest_change
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    ListAppResponse,
    LogPage,
    LogQuery,
    Opts,
    SchedulerBase,
    check_replica,
)
from transload.schedulers.folder import store
from transload.schedulers.folder.logs import read_log
from transload.specs import AppState, AppStatus, Progress, Role

if TYPE_CHECKING:
    from transload.runtime.tracking import Store

__all__ = ["FolderScheduler"]

_DELETE_S: Final = 60.0
_STALE_S: Final = 3600.0
_LOOK_S: Final = 0.005
_LONGEST_LOOK_S: Final = 0.1


class FolderScheduler(SchedulerBase[Opts]):
    """Finds, lists, reads and deletes jobs of which each has a folder (`transload.keeper.layout`).

    An engine adds how a job is submitted and cancelled, and how it is doing, which its folder alone
    may not say.

    Attributes:
        home: the folder of all jobs. It need not exist.
    """

    home: str

    # -- what an engine adds

    @abstractmethod
    def statuses(self, app_ids: Collection[str]) -> dict[str, AppStatus | None]:
        """Return how jobs are doing, or None for one that there is not.

        One that nobody can tell anything of is UNKNOWN.
        """

    def in_short(self, app_ids: Collection[str]) -> dict[str, tuple[AppState, Progress | None]]:
        """Return state and progress of those jobs that there are, which is all that a list shows."""
        statuses = self.statuses(app_ids)
        return {
            app_id: (status.state, status.progress)
            for app_id, status in statuses.items()
            if status is not None
        }

    @abstractmethod
    def has_ended(self, app_id: str) -> bool:
        """Tell whether a job has ended, or is gone. Cheap enough for every page of a log."""

    def ended_at(self, app_id: str) -> float:
        """Return when the end of a job was written, seconds since the epoch, or 0 if it is gone."""
        return store.changed_at(layout.state_file(layout.app_folder(self.home, app_id))) or 0.0

    def lock_checkpoints(self) -> AbstractContextManager[object]:
        """Hold what a submit holds while it makes folders of checkpoints. By default nothing."""
        return nullcontext()

    def size_of(self, app_id: str) -> int:
        """Return how many bytes a job takes on disk."""
        return store.size_of(layout.app_folder(self.home, app_id))

    def remove(self, app_id: str) -> None:
        """Remove all that is left of a job that has ended."""
        store.remove(self.home, app_id, self.lock_checkpoints)

    # -- which jobs there are

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what is known of jobs. One that cannot be read is UNKNOWN."""
        found: dict[str, AppDescription | None] = {}
        for app_id, status in self.statuses(app_ids).items():
            found[app_id] = None
            if status is not None:
                found[app_id] = self._description(app_id, status)
        return found

    def _description(self, app_id: str, status: AppStatus) -> AppDescription:
        try:
            record = store.read_record(self.home, app_id) or {}
        except SchedulerUnavailable as exc:
            return AppDescription(app_id, AppStatus(AppState.UNKNOWN, msg=str(exc)))
        if not record:
            damage = store.damaged_record(self.home, app_id)
            status.msg = "; ".join(filter(None, (status.msg, damage)))
        return AppDescription(
            app_id,
            status,
            store.app_of(app_id, record),
            session=record.get("session"),
            cfg=dict(record.get("cfg") or {}),
            digest=record.get("digest"),
            tracker_base=record.get("tracker_base"),
            parent_run_id=record.get("parent_run_id"),
            created=record.get("created"),
            log_url=record.get("logs"),
            checkpoints=record.get("checkpoints"),
            asked=dict(record.get("asked") or {}),
        )

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        A deleted job counts if the caller gave its id.
        """
        return store.read_record(self.home, app_id) is not None or store.is_gone(self.home, app_id)

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too, by one look at the folder (see the base)."""
        ids = store.ids_in_chain(self.home, prefix)
        described = self.describe(ids.values())
        return [
            (number, described[app_id])
            for number, app_id in ids.items()
            if described[app_id] is not None or self.existed(app_id)
        ]

    def list(self) -> list[ListAppResponse]:
        """Return the user's jobs, of all sessions, newest first."""
        known = self.in_short([*store.app_ids(self.home)])
        rows = [self._row(app_id, *found) for app_id, found in known.items()]
        return sorted(rows, key=lambda row: row.created or 0.0, reverse=True)

    def _row(self, app_id: str, state: AppState, progress: Progress | None) -> ListAppResponse:
        try:
            record = store.read_record(self.home, app_id) or {}
        except SchedulerUnavailable:
            return ListAppResponse(app_id, AppState.UNKNOWN)
        return ListAppResponse(
            app_id,
            state,
            name=str((record.get("app") or {}).get("name", "")),
            created=record.get("created"),
            progress=progress,
            session=str(record.get("session") or ""),
        )

    # -- their end

    def delete(self, app_id: str) -> bool:
        """Delete a job, after ending it if it runs.

        The record of an id that the caller gave stays.

        Returns:
            False if there is no such job.

        Raises:
            SchedulerUnavailable: if the job does not end.
        """
        record = store.read_record(self.home, app_id)
        if record is None:
            return False
        if not self.has_ended(app_id):
            self.cancel([app_id])
            self._await_end(app_id, _DELETE_S + _longest_notice(record))
        self.remove(app_id)
        return True

    def _await_end(self, app_id: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        pause = _LOOK_S
        while not self.has_ended(app_id):
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(f"job {app_id} does not end{self._doing(app_id)}")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_S)

    def _doing(self, app_id: str) -> str:
        status = self.statuses([app_id])[app_id]
        return f": {status.msg}" if status is not None and status.msg else ""

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete ended jobs by age, and the oldest until the rest is small enough."""
        moment = now
        if moment is None:
            moment = time.time()
        ends = self._ends()
        sizes: dict[str, int] = {}
        if max_size is not None:
            sizes = {app_id: self.size_of(app_id) for app_id in ends}
        total = sum(sizes.values())
        removed = []
        for app_id, end in ends.items():
            is_old = older_than is not None and moment - end >= older_than
            is_too_much = max_size is not None and total > max_size
            if not is_old and not is_too_much:
                continue
            if not dry_run:
                self.remove(app_id)
            total -= sizes.get(app_id, 0)
            removed.append(app_id)
        if not dry_run:
            store.sweep(self.home, _STALE_S, self.lock_checkpoints)
        return removed

    def _ends(self) -> dict[str, float]:
        """Return when each job that has ended did so, the first one first."""
        statuses = self.statuses([*store.app_ids(self.home)])
        ends = {
            app_id: self.ended_at(app_id)
            for app_id, status in statuses.items()
            if status is not None and status.is_terminal()
        }
        return dict(sorted(ends.items(), key=lambda item: item[1]))

    # -- what they left

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, without ever blocking.

        Lines of other times are skipped by the index.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a malformed cursor.
        """
        record = self._readable(app_id)
        roles = (record.get("app") or {}).get("roles", ())
        sizes = {role["name"]: role.get("num_replicas", 1) for role in roles}
        check_replica(app_id, sizes, query.role, query.replica)
        ended = self.has_ended(app_id)  # asked before: nothing is written after an end
        limited = bool((record.get("cfg") or {}).get("max_log_size"))
        folder = f"{record['logs']}/{query.role}/{query.replica}"
        return read_log(folder, query, ended, limited=limited)

    def _readable(self, app_id: str) -> dict[str, Any]:
        """Return the record of a job.

        Raises:
            AppNotFound: if there is no such job.
            SchedulerUnavailable: if it cannot be read.
        """
        record = store.read_record(self.home, app_id)
        if record is None:
            raise AppNotFound(app_id)
        if not record:
            raise SchedulerUnavailable(f"job {app_id}: {store.damaged_record(self.home, app_id)}")
        return record

    def results_folder(self, app_id: str, opts: Opts) -> str | None:
        """Return the job's own folder for results."""
        if not store.safe_id(app_id):
            return None
        return f"{layout.app_folder(self.home, app_id)}/results"

    def checkpoint_folder(self, name: str, role: Role, opts: Opts) -> str | None:
        """Return the folder of a role's checkpoints, beside the jobs."""
        return f"{self.home}/checkpoints/{name}/{role.name}"

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, with size and age."""
        found = []
        for role, folder in self._checkpoint_folders(app_id).items():
            _, changed = newest_change(folder)
            size = store.size_of(folder)
            found.append(CheckpointFolder(role, folder, size, changed or None))
        return found

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if it has none."""
        folder = self._checkpoint_folders(app_id).get(role)
        if folder is None:
            return None
        from transload.runtime.tracking.stores import LocalStore  # nobody else needs it

        return LocalStore(folder)

    def _checkpoint_folders(self, app_id: str) -> dict[str, str]:
        """Return the folder of each role of a job that has checkpoints."""
        record = store.read_record(self.home, app_id)
        if record is None:
            raise AppNotFound(app_id)
        return store.checkpoint_folders(self.home, record)


def _longest_notice(record: Mapping[str, Any]) -> float:
    """Return the seconds that the replicas of a job have at most before they are killed."""
    roles = (record.get("app") or {}).get("roles", ())
    return float(max([0.0, *((role.get("notice") or {}).get("seconds", 0.0) for role in roles)]))
