"""Implement `transload.schedulers.SchedulerBase` for this machine.

Each job has a keeper, a process beside it, and a folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable, SubmitError
from transload.keeper import creation, ending, layout, processes
from transload.keeper.processes import GRACE_S
from transload.runtime.liveness import newest_change
from transload.runtime.tracking.stores import LocalStore
from transload.schedulers import environments
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    JobFiles,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Submission,
    Watch,
    check_replica,
)
from transload.schedulers.cancelling import asker
from transload.schedulers.folder import home, store
from transload.schedulers.folder.logs import read_log
from transload.schedulers.folder.store import safe_id, size_of
from transload.schedulers.local import convert as _convert
from transload.schedulers.local import scope
from transload.schedulers.local.convert import submission_body
from transload.schedulers.local.options import LocalConnection, LocalOptions
from transload.schedulers.local.start import start
from transload.schedulers.local.watch import AppWatch
from transload.specs import AppDef, AppState, AppStatus, Role, SpecError

if TYPE_CHECKING:
    from transload.runtime.tracking import Store
    from transload.schedulers.environments import Packages

_DELETE_S: Final = 60.0
_STALE_S: Final = 3600.0
_LOOK_S: Final = 0.005
_LONGEST_LOOK_S: Final = 0.1
_SHARED: Final = ("local", "local_cwd")
"""Names of this kind that keep their jobs in one folder."""


class LocalScheduler(SchedulerBase[LocalOptions]):
    """Runs jobs as processes of this machine. They outlive the program that submits them.

    Any process of the same user finds them by their id, through the state folder
    ``TRANSLOAD_HOME``. The scheduler is thread-safe. It touches no signal handler and starts no
    thread.

    Args:
        session_name: name of the session, recorded with each job.
        name: name of the scheduler. Each name but ``local`` and ``local_cwd`` has a folder of its
            own.
        always_cwd: replicas always run in the current directory.
    """

    capabilities = _convert.CAPABILITIES
    options = LocalOptions
    connection = LocalConnection

    def __init__(self, session_name: str, name: str = "local", *, always_cwd: bool = False) -> None:
        self.name = name
        self._session = session_name
        self._always_cwd = always_cwd
        self._keep_in(home.local_home("local" if name in _SHARED else f"local-{name}"))

    def connect(self, connection: LocalConnection) -> None:
        """Keep its jobs where these settings say."""
        if connection.state_folder:
            folder = os.path.abspath(os.path.expanduser(connection.state_folder))
            self._keep_in(os.path.join(folder, "local"))

    def location(self) -> str:
        """Return the folder of its jobs."""
        return self._local

    def _keep_in(self, local: str) -> None:
        self._local = local
        self._ready = False

    def _ensure(self) -> None:
        if not self._ready or not os.path.isdir(f"{self._local}/apps"):
            home.ensure(self._local)
            self._ready = True

    # -- before a submit

    def convert(self, app: AppDef, opts: LocalOptions) -> _convert.LocalRequest:
        """Return the request for ``app``. Pure.

        Raises:
            UnsupportedFeature: for mounts and spare replicas, by field.
        """
        return _convert.convert(app, opts, always_cwd=self._always_cwd, copies=self._copies)

    def format_request(self, request: _convert.LocalRequest) -> str:
        """Return a request as text for a person, secrets masked."""
        return _convert.format_request(request)

    @property
    def _copies(self) -> str:
        return f"{self._local}/workspaces"

    def with_packages(self, role: Role, packages: Packages, opts: LocalOptions) -> Role:
        """Return a role that is started by this machine's uv."""
        file = f"{self._requirements}/{packages.file_name}"
        uv = environments.uv_here()
        return environments.run_by_uv(role, packages, uv=uv, file=file, python=opts.python or "")

    def bring_packages(
        self,
        role: Role,
        packages: Packages,
        opts: LocalOptions,
        variables: Mapping[str, str],
    ) -> None:
        """Write the file of requirements beside the jobs."""
        self._ensure()
        try:
            home.make_private(self._requirements)
            environments.write_requirements(self._requirements, packages)
        except OSError as exc:
            raise SubmitError(f"role {role.name!r}: its requirements: {exc}") from exc

    @property
    def _requirements(self) -> str:
        return f"{self._local}/requirements"

    def prepare(self, app: AppDef, opts: LocalOptions) -> AppDef:
        """Copy the roles' workspaces.

        Each different one is copied once, for all replicas and roles that have it.

        Raises:
            SpecError: if a project of a workspace is not there.
            SubmitError: if the copy cannot be written.
        """
        if not any(role.workspace for role in app.roles):
            return app
        from transload.workspace import copy_workspace

        self._ensure()
        copies: dict[str, str] = {}
        role = app.roles[0]
        try:
            for role in app.roles:
                if role.workspace and str(role.workspace) not in copies:
                    copies[str(role.workspace)] = folder = f"{self._copies}/{os.urandom(8).hex()}"
                    home.make_private(self._copies)
                    copy_workspace(role.workspace, folder, leave_out=self._local)
        except BaseException as exc:
            for folder in copies.values():
                layout.remove_tree(folder)
            if isinstance(exc, OSError):
                raise SubmitError(
                    f"cannot copy the workspace of role {role.name!r}: {exc}"
                ) from exc
            raise
        roles = [
            replace(r, image=copies[str(r.workspace)]) if r.workspace else r for r in app.roles
        ]
        return replace(app, roles=roles)

    # -- submit

    def submit(self, request: _convert.LocalRequest, app_id: str, submission: Submission) -> bool:
        """Start a job, all or nothing, or reattach to it.

        Raises:
            AppExists: if the id is, or was, another job's.
            SpecError: if a role's program cannot be run. Nothing was started.
            ConfigError: if the state folder cannot be used.
            SubmitError: if the job could not be started.
        """
        started = False
        try:
            started = self._submit(request, app_id, submission)
            return started
        finally:
            if not started:
                for folder in request.workspaces:
                    layout.remove_tree(folder)

    def _submit(self, request: _convert.LocalRequest, app_id: str, submission: Submission) -> bool:
        if not safe_id(app_id):
            raise SpecError(
                f"app_id={app_id!r}: must be 1 to 200 characters, no '/', not beginning with '.'"
            )
        self._ensure()
        record = store.read_record(self._local, app_id)
        if record is not None:
            if not record:
                raise AppExists(
                    app_id, f"job {app_id!r} is there: {store.damaged_record(self._local, app_id)}"
                )
            if record.get("digest") != submission.digest:
                raise AppExists(app_id)
            return False
        body = submission_body(request, app_id, submission, layout.app_folder(self._local, app_id))
        token = body["record"]["token"]
        scope.warn_once()
        try:
            answer = start(self._local, body)
        except BaseException as exc:  # its keeper is dead
            layout.remove_tree(creation.unfinished(self._local, token))
            there = store.read_record(self._local, app_id)
            if there is None or there.get("token") != token:
                raise
            ending.finalise(self._local, app_id, wait=True, why="its submit was broken off")
            if isinstance(exc, SubmitError | SchedulerUnavailable):
                return True  # it was started, and has failed
            raise
        if "started" in answer:
            return bool(answer["started"])
        raise self._refusal(app_id, answer)

    @staticmethod
    def _refusal(app_id: str, answer: Mapping[str, Any]) -> Exception:
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

    # -- afterwards

    def describe(self, app_id: str) -> AppDescription | None:
        """Return what is known of a job, or None if there is no such job."""
        return store.describe(self._local, app_id)

    def describe_many(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return `describe` of many jobs. One that cannot be read is UNKNOWN."""
        found: dict[str, AppDescription | None] = {}
        for app_id in app_ids:
            try:
                found[app_id] = store.describe(self._local, app_id)
            except SchedulerUnavailable as exc:
                found[app_id] = AppDescription(app_id, AppStatus(AppState.UNKNOWN, msg=str(exc)))
        return found

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        A deleted job counts if the caller gave its id.
        """
        return store.read_record(self._local, app_id) is not None or store.is_gone(
            self._local, app_id
        )

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too, by one look at the folder (see the base)."""
        ids = store.ids_in_chain(self._local, prefix)
        described = self.describe_many(ids.values())
        return [(number, described[app_id]) for number, app_id in ids.items()]

    def watch(self, logs: bool = False) -> Watch | None:
        """Return a new watch of any number of jobs, or None if no descriptor is free."""
        try:
            return AppWatch(self._local, logs)
        except OSError:
            return None

    def list(self) -> list[ListAppResponse]:
        """Return the user's jobs, of all sessions, newest first."""
        return store.list_apps(self._local)

    def cancel(self, app_id: str) -> bool:
        """Request the end of a job, without waiting. A job that has ended stays as it is.

        Returns:
            False if there is no such job.
        """
        state = store.true_state(self._local, app_id)
        if state is None or state.get("state") in layout.TERMINAL:
            return state is not None
        folder = layout.app_folder(self._local, app_id)
        with contextlib.suppress(OSError):  # on a full disk the message below is enough
            layout.ask_for_end(folder, asker())
        if not processes.notify(self._local, app_id, processes.CANCEL):
            store.true_state(self._local, app_id)  # ends a job whose keeper is gone
        return True

    def delete(self, app_id: str) -> bool:
        """Delete a job, after ending it if it runs.

        The record of an id that the caller gave stays.

        Returns:
            False if there is no such job.

        Raises:
            SchedulerUnavailable: if the job does not end.
        """
        if store.read_record(self._local, app_id) is None:
            return False
        if not store.has_ended(self._local, app_id):
            self.cancel(app_id)
            self._await_end(app_id)
        store.remove(self._local, app_id)
        return True

    def _await_end(self, app_id: str) -> None:
        deadline = time.monotonic() + _DELETE_S + self._longest_end(app_id)
        pause = _LOOK_S
        while not store.has_ended(self._local, app_id):
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(
                    f"job {app_id} does not end: some process of it cannot be killed"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_S)

    def _longest_end(self, app_id: str) -> float:
        """Return how many seconds the processes of a job have until they are killed."""
        record = store.read_record(self._local, app_id) or {}
        of_earlier_version = (record.get("cfg") or {}).get("grace_period") or 0.0
        roles = (record.get("app") or {}).get("roles", ())
        notices = [(role.get("notice") or {}).get("seconds", 0.0) for role in roles]
        return float(max([GRACE_S, of_earlier_version, *notices]))

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
        ends = store.ends(self._local)
        sizes: dict[str, int] = {}
        if max_size is not None:
            sizes = {each: size_of(layout.app_folder(self._local, each)) for each in ends}
        total = sum(sizes.values())
        removed = []
        for app_id, end in ends.items():
            is_old = older_than is not None and moment - end >= older_than
            is_too_much = max_size is not None and total > max_size
            if not is_old and not is_too_much:
                continue
            if not dry_run:
                store.remove(self._local, app_id)
            total -= sizes.get(app_id, 0)
            removed.append(app_id)
        if not dry_run:
            store.sweep(self._local, _STALE_S)
        return removed

    def diagnose(self) -> list[tuple[str, bool, str]]:  # type: ignore[valid-type]  # ``list`` is a method here
        """Return what ``transload doctor`` shows of this scheduler.

        It says where jobs are kept, and whether they outlive a service that submits them.
        """
        fit, kept = home.explain()
        return [
            ("jobs", fit, f"{kept}; {len(self.list())} known"),
            ("lifetime", True, scope.explain()),
        ]

    # -- logs

    def _replica(self, app_id: str, role_name: str, k: int) -> tuple[str, bool]:
        """Return a replica's log folder, and whether a size limit is set."""
        record = store.read_record(self._local, app_id)
        if record is None:
            raise AppNotFound(app_id)
        if not record:
            raise SchedulerUnavailable(f"job {app_id}: {store.damaged_record(self._local, app_id)}")
        roles = (record.get("app") or {}).get("roles", ())
        check_replica(
            app_id, {role["name"]: role.get("num_replicas", 1) for role in roles}, role_name, k
        )
        return f"{record['logs']}/{role_name}/{k}", bool(
            (record.get("cfg") or {}).get("max_log_size")
        )

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, without ever blocking.

        Lines of other times are skipped by the index.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a malformed cursor.
        """
        folder, limited = self._replica(app_id, query.role, query.replica)
        ended = store.has_ended(self._local, app_id)
        return read_log(folder, query, ended, limited=limited)

    # -- rest

    def results_folder(self, app_id: str, opts: LocalOptions) -> str | None:
        """Return the job's own folder for results."""
        return f"{layout.app_folder(self._local, app_id)}/results" if safe_id(app_id) else None

    def checkpoint_folder(self, name: str, role: Role, opts: LocalOptions) -> str | None:
        """Return the folder of a role's checkpoints, in the state folder."""
        return creation.checkpoint_folder(self._local, name, role.name)

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, with size and age."""
        found = []
        for role, folder in self._checkpoint_folders(app_id).items():
            _, changed = newest_change(folder)
            found.append(
                CheckpointFolder(role, folder, size=size_of(folder), changed=changed or None)
            )
        return found

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if it has none."""
        folder = self._checkpoint_folders(app_id).get(role)
        if folder is None:
            return None
        return LocalStore(folder)

    def _checkpoint_folders(self, app_id: str) -> dict[str, str]:
        """Return the folder of each role of a job that has checkpoints."""
        description = self.describe(app_id)
        if description is None:
            raise AppNotFound(app_id)
        name = description.checkpoints
        if name is None or description.app is None:
            return {}
        return {
            role.name: creation.checkpoint_folder(self._local, name, role.name)
            for role in description.app.roles
            if role.checkpoints
        }

    def uses_image(self, role: Role, opts: LocalOptions) -> bool:
        """Tell whether the image is a folder to work in, which alone counts here."""
        return not self._always_cwd and os.path.isdir(os.path.expanduser(role.image))

    def mounts_jobs(self, role: Role, opts: LocalOptions) -> JobFiles:
        """Return ``in place``, since a role reads another job's files where they are."""
        return "in place"


def create_local(session_name: str, name: str = "local") -> LocalScheduler:
    """Make a scheduler of kind ``local``.

    An image that is an existing folder is the working directory.
    """
    return LocalScheduler(session_name, name)


def create_local_cwd(session_name: str, name: str = "local_cwd") -> LocalScheduler:
    """Make a scheduler of kind ``local_cwd``, whose replicas run in the current directory."""
    return LocalScheduler(session_name, name, always_cwd=True)
