"""Implement `transload.schedulers.SchedulerBase` for this machine.

Each job has a keeper, a process beside it, and a folder.
"""

from __future__ import annotations

import os
import signal as signals
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.keeper import ending, layout, processes
from transload.schedulers import environments
from transload.schedulers.api import (
    EVERY_FIELD,
    ExecCommand,
    JobFiles,
    Stream,
    Submission,
    check_replica,
)
from transload.schedulers.folder import home, scope, store
from transload.schedulers.folder.kept import KeptScheduler
from transload.schedulers.folder.start import Program
from transload.schedulers.local import convert as _convert
from transload.schedulers.local import program as _program
from transload.schedulers.local.convert import submission_body
from transload.schedulers.local.options import LocalConnection, LocalOptions
from transload.specs import AppDef, RetryPolicy, Role, SpecError
from transload.specs.interruptions import SIGNALS

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages

_SHARED: Final = ("local", "local_cwd")
"""Names of this kind that keep their jobs in one folder."""


class LocalScheduler(KeptScheduler[LocalOptions]):
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
        super().__init__()
        self.name = name
        self._session = session_name
        self._always_cwd = always_cwd
        self.keep_in(home.local_home("local" if name in _SHARED else f"local-{name}"))

    def connect(self, connection: LocalConnection) -> None:
        """Keep its jobs where these settings say."""
        if connection.state_folder:
            folder = os.path.abspath(os.path.expanduser(connection.state_folder))
            self.keep_in(os.path.join(folder, "local"))

    def location(self) -> str:
        """Return the folder of its jobs."""
        return self.home

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
        self.ensure_home()
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

        self.ensure_home()
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
        if self.is_there(app_id, submission):
            return False
        body = submission_body(request, app_id, submission, layout.app_folder(self.home, app_id))
        answer = self.hand_over(app_id, body)
        if "started" in answer:
            return bool(answer["started"])
        raise self.refusal(app_id, answer)

    def program(self) -> Program:
        """Return the program of its keepers."""
        return _program.program()

    def broken_off(self, app_id: str, *, wanted: bool) -> bool:
        """Write that a job has failed whose keeper is dead."""
        ending.finalise(self.home, app_id, wait=True, why="its submit was broken off")
        return True

    def keeper_gone(self, app_id: str) -> dict[str, Any] | None:
        """End what is left of a job, write that it has failed, and return its state."""
        try:
            ending.finalise(self.home, app_id)
        except OSError as exc:
            state = store.read_state(self.home, app_id)
            if state is not None and state.get("state") not in layout.TERMINAL:
                state.update(
                    state="FAILED",
                    msg=f"its keeper died; its end cannot be written: {exc.strerror}",
                )
                written = store.changed_at(layout.state_file(layout.app_folder(self.home, app_id)))
                layout.end_replicas(state, "FAILED", written)
            return state
        return store.read_state(self.home, app_id)

    # -- afterwards

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
        state = self.state_of(app_id)
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
