"""Implement `transload.schedulers.SchedulerBase` for this machine.

Each job has a keeper, a process beside it, and a folder.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable, SubmitError
from transload.keeper import creation, ending, layout, processes
from transload.schedulers import environments
from transload.schedulers.api import (
    EVERY_FIELD,
    ExecCommand,
    JobFiles,
    Stream,
    Submission,
    Watch,
    cancel_each,
    check_replica,
)
from transload.schedulers.cancelling import asker
from transload.schedulers.folder import home, store
from transload.schedulers.folder.scheduler import FolderScheduler
from transload.schedulers.folder.store import safe_id
from transload.schedulers.local import convert as _convert
from transload.schedulers.local import scope, states
from transload.schedulers.local.convert import submission_body
from transload.schedulers.local.options import LocalConnection, LocalOptions
from transload.schedulers.local.start import start
from transload.schedulers.local.watch import AppWatch
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    Progress,
    RetryPolicy,
    Role,
    SpecError,
)
from transload.specs.interruptions import SIGNALS

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages

_SHARED: Final = ("local", "local_cwd")
"""Names of this kind that keep their jobs in one folder."""


class LocalScheduler(FolderScheduler[LocalOptions]):
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

    reach = "host"
    fields = EVERY_FIELD
    retries = frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION})
    notice_signals = frozenset(SIGNALS)
    streams = frozenset({Stream.STDOUT, Stream.STDERR})
    since_until = True
    log_pause = 0.05
    inherits_env = True
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
        return self.home

    def _keep_in(self, local: str) -> None:
        self.home = local
        self._ready = False

    def _ensure(self) -> None:
        if not self._ready or not os.path.isdir(f"{self.home}/apps"):
            home.ensure(self.home)
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
        return f"{self.home}/workspaces"

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
        return f"{self.home}/requirements"

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
                    copy_workspace(role.workspace, folder, leave_out=self.home)
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
        record = store.read_record(self.home, app_id)
        if record is not None:
            if not record:
                raise AppExists(
                    app_id, f"job {app_id!r} is there: {store.damaged_record(self.home, app_id)}"
                )
            if record.get("digest") != submission.digest:
                raise AppExists(app_id)
            return False
        body = submission_body(request, app_id, submission, layout.app_folder(self.home, app_id))
        token = body["record"]["token"]
        scope.warn_once()
        try:
            answer = start(self.home, body)
        except BaseException as exc:  # its keeper is dead
            layout.remove_tree(creation.unfinished(self.home, token))
            there = store.read_record(self.home, app_id)
            if there is None or there.get("token") != token:
                raise
            ending.finalise(self.home, app_id, wait=True, why="its submit was broken off")
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

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch of any number of jobs, or None if no descriptor is free."""
        try:
            return AppWatch(self.home, changed)
        except OSError:
            return None

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Request the end of jobs, without waiting. A job that has ended stays as it is.

        Returns:
            Those of the ids that there are jobs of.
        """
        return cancel_each(app_ids, self._cancel)

    def _cancel(self, app_id: str) -> bool:
        state = states.true_state(self.home, app_id)
        if state is None or state.get("state") in layout.TERMINAL:
            return state is not None
        folder = layout.app_folder(self.home, app_id)
        with contextlib.suppress(OSError):  # on a full disk the message below is enough
            layout.ask_for_end(folder, asker())
        if not processes.notify(self.home, app_id, processes.CANCEL):
            states.true_state(self.home, app_id)  # ends a job whose keeper is gone
        return True

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas."""
        for role, k in replicas:
            pid, started = self._main_process(app_id, role, k)
            if not processes.send(pid, started, getattr(signals, f"SIG{name}")):
                raise SchedulerUnavailable(f"{role}/{k}: its process {pid} cannot be signalled")

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return a command with the folder and the variables that a replica has."""
        pid, _ = self._main_process(app_id, role, k)
        program = processes.program_of(pid)
        try:
            env = processes.variables_of(program)
            folder = os.readlink(f"/proc/{program}/cwd")
        except OSError as exc:
            raise SchedulerUnavailable(
                f"{role}/{k}: its process {program} cannot be looked into: {exc.strerror}"
            ) from exc
        return ExecCommand(command, env, folder)

    def _main_process(self, app_id: str, role: str, k: int) -> tuple[int, int]:
        """Return the pid and the start time of a replica's main process."""
        state = states.true_state(self.home, app_id)
        record = store.read_record(self.home, app_id)
        if state is None or not record:
            raise AppNotFound(app_id)
        sizes = {each["name"]: each.get("num_replicas", 1) for each in record["app"]["roles"]}
        check_replica(app_id, sizes, role, k)
        wanted = [list(sizes).index(role), k]
        for pid, started, *which in state.get("processes") or ():
            if which == wanted:
                return int(pid), int(started)
        raise SpecError(f"{role}/{k}: it does not run (any more)")

    def statuses(self, app_ids: Collection[str]) -> dict[str, AppStatus | None]:
        """Return how jobs are doing. The end of one whose keeper is gone is written first.

        Raises:
            SchedulerUnavailable: if the folder of all jobs cannot be read.
        """
        return {app_id: self._status(app_id) for app_id in app_ids}

    def _status(self, app_id: str) -> AppStatus | None:
        try:
            state = states.true_state(self.home, app_id)
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
                state = states.true_state(self.home, app_id)
            except SchedulerUnavailable:
                found[app_id] = (AppState.UNKNOWN, None)
                continue
            if state is not None:
                shown = AppState.__members__.get(str(state.get("state")), AppState.UNKNOWN)
                found[app_id] = (shown, Progress.from_value(state.get("progress")))
        return found

    def has_ended(self, app_id: str) -> bool:
        """Tell whether a job has ended, or is gone."""
        return states.has_ended(self.home, app_id)

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

    def diagnose(self) -> Sequence[tuple[str, bool, str]]:
        """Return what ``transload doctor`` shows of this scheduler.

        It says where jobs are kept, and whether they outlive a service that submits them.
        """
        fit, kept = home.explain()
        return [
            ("jobs", fit, f"{kept}; {len(self.list())} known"),
            ("lifetime", True, scope.explain()),
        ]

    # -- rest

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
