"""The Slurm scheduler, for a cluster on this machine or behind ssh."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.runtime.tracking import Store, local_path
from transload.schedulers.api import (
    EVERY_FIELD,
    ExecCommand,
    JobFiles,
    Stream,
    Submission,
    Watch,
)
from transload.schedulers.folder.store import safe_id
from transload.specs import (
    AppDef,
    MountType,
    RetryPolicy,
    Role,
)
from transload.specs.interruptions import SIGNALS
from transload_slurm import convert as _convert
from transload_slurm import packages as _packages
from transload_slurm.apps import Apps
from transload_slurm.containers import BINDS_WRITABLE
from transload_slurm.diagnose import Check
from transload_slurm.options import SlurmConnection, SlurmOptions
from transload_slurm.remote import LoginNode
from transload_slurm.store import root_folder

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _on_login_node(method: _Method) -> _Method:
    """Return a method of `Apps` that is called on the login node, if jobs are behind ssh."""

    @wraps(method)
    def call(self: SlurmScheduler, *arguments: Any, **named: Any) -> Any:
        if self.login_node is None:
            return method(self, *arguments, **named)
        return self.login_node.call(method.__name__, *arguments, **named)

    return cast("_Method", call)


class SlurmScheduler(Apps):
    """Runs jobs on a Slurm cluster.

    A job is found by its id from any machine that can ask Slurm and shares the folder of the jobs
    (``TRANSLOAD_SLURM_DIR``). A machine that can log in to such a one finds it, too: there the same
    methods are called on the login node. The scheduler is thread-safe.

    Args:
        session_name: name of the session, recorded with each job.
        name: name of the scheduler. Each has a separate folder of jobs.
    """

    fields = EVERY_FIELD
    retries = frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION})
    mounts = frozenset({MountType.BIND})  # where a role runs in a container
    notice_signals = frozenset(SIGNALS)
    streams = frozenset({Stream.STDOUT, Stream.STDERR})
    since_until = True
    options = SlurmOptions
    connection = SlurmConnection

    def __init__(self, session_name: str, name: str = "slurm") -> None:
        super().__init__(root_folder() if name == "slurm" else f"{root_folder()}/.clusters/{name}")
        self._session = session_name
        self.name = name
        self.login_node: LoginNode | None = None

    def connect(self, connection: SlurmConnection) -> None:
        """Lead to the Slurm here, with the jobs in a folder of its own, or to one behind ssh.

        Raises:
            ConfigError: if ``ssh`` is no host's name.
        """
        host, folder = connection.ssh, connection.folder
        if host is not None:
            self.shares_disk = False
            self.home = folder or "~/.transload/slurm"
            self.login_node = LoginNode(host, self.home, connection.login_python)
        elif folder:
            super().__init__(os.path.abspath(os.path.expanduser(folder)))

    def location(self) -> str:
        """Return the login node, and the folder of the jobs."""
        where = "this machine's Slurm"
        if self.login_node is not None:
            where = f"ssh {self.login_node.host}"
        return f"{where}, jobs in {self.home}"

    # -- before a submit

    def convert(self, app: AppDef, opts: SlurmOptions) -> _convert.SlurmRequest:
        """Return the request for ``app``. Pure.

        Raises:
            UnsupportedFeature: for a field that Slurm cannot express, by its path.
            ConfigError: for a run option out of range.
        """
        return _convert.convert(app, opts, here=self.login_node is None)

    def format_request(self, request: _convert.SlurmRequest) -> str:
        """Return the batch script and what each role runs, with secrets masked."""
        return _convert.format_request(request, self.home)

    def results_folder(self, app_id: str, opts: SlurmOptions) -> str | None:
        """Return the job's own folder for results, which the nodes share."""
        if not safe_id(app_id):
            return None
        if not opts.job_dir:
            return super().results_folder(app_id, opts)
        folder = self.expand_user(opts.job_dir)
        if self.login_node is None:
            folder = os.path.abspath(folder)
        return f"{folder}/{app_id}/results"

    def expand_user(self, path: str) -> str:
        """Return a path with ``~`` as jobs see it. Behind ssh only the login node knows the home."""
        return os.path.expanduser(path) if self.login_node is None else path

    def checkpoint_folder(self, name: str, role: Role, opts: SlurmOptions) -> str | None:
        """Return the folder of a role's checkpoints.

        It lies in ``checkpoint_base``, else in the folder of the jobs.
        """
        base = _convert.checkpoint_base(opts, here=self.login_node is None)
        if base is None:
            return super().checkpoint_folder(name, role, opts)
        return f"{base}/{name}/{role.name}"

    def uses_image(self, role: Role, opts: SlurmOptions) -> bool:
        """Tell whether the image is run in by a container, or a folder to work in."""
        boxed = opts.container != "none"
        return boxed or role.image.startswith(("/", "~/")) or os.path.isdir(role.image)

    def mounts_jobs(self, role: Role, opts: SlurmOptions) -> JobFiles:
        """Say how a job gets files of another, by a mount in a container or in place on a node."""
        if opts.container == "none" or not role.image:
            return "in place"
        return "mounted writable" if opts.container in BINDS_WRITABLE else "mounted"

    # -- the packages that jobs need

    def with_packages(self, role: Role, packages: Packages, opts: SlurmOptions) -> Role:
        """Return a role that is started by the uv beside the jobs."""
        return _packages.with_packages(role, packages, opts, self.home)

    def bring_packages(
        self,
        role: Role,
        packages: Packages,
        opts: SlurmOptions,
        variables: Mapping[str, str],
    ) -> None:
        """Put uv and the file of requirements beside the jobs, and fill uv's cache if asked to.

        Raises:
            SubmitError: if the login node cannot be reached, or uv cannot fetch the packages.
        """
        try:
            missing = self.missing_packages(_packages.names_of(role))
            if missing:
                with _packages.collected(packages, missing) as folder:
                    self.lay_packages(folder)
            if opts.prefetch:
                self.prefetch(_packages.prefetching(role), variables)
        except (OSError, SchedulerUnavailable) as exc:
            raise SubmitError(f"environment {packages.environment}: {exc}", transient=True) from exc

    # -- what happens where the cluster's tools and disk are

    describe = _on_login_node(Apps.describe)
    existed = _on_login_node(Apps.existed)
    chain = _on_login_node(Apps.chain)
    cancel = _on_login_node(Apps.cancel)
    signal = _on_login_node(Apps.signal)
    log_read = _on_login_node(Apps.log_read)
    checkpoints = _on_login_node(Apps.checkpoints)
    delete = _on_login_node(Apps.delete)
    prune = _on_login_node(Apps.prune)
    step_beside = _on_login_node(Apps.step_beside)
    missing_packages = _on_login_node(Apps.missing_packages)
    prefetch = _on_login_node(Apps.prefetch)

    def submit(self, request: _convert.SlurmRequest, app_id: str, submission: Submission) -> bool:
        """Submit a job, all or nothing, or reattach to it (see `Apps.submit_once`)."""
        if self.login_node is not None:
            return self.login_node.submit(request, app_id, submission)
        return super().submit(request, app_id, submission)

    def lay_packages(self, folder: str) -> None:
        """Put the files of a folder beside the jobs."""
        if self.login_node is not None:
            self.login_node.lay_packages(folder)
        else:
            super().lay_packages(folder)

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch:
        """Return a new watch."""
        if self.login_node is not None:
            return self.login_node.watch(changed)
        return super().watch(changed)

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how to run a command on a replica's node, by a step of its Slurm job."""
        if self.login_node is None:
            return super().exec_command(app_id, role, k, command, terminal=terminal)
        step = self.step_beside(app_id, role, k, command, terminal=terminal)
        return ExecCommand(self.login_node.command(step, terminal=terminal))

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if it has none."""
        if self.login_node is None:
            return super().checkpoint_store(app_id, role)
        folders = {each.role: each.path for each in self.checkpoints(app_id)}
        return self.login_node.store(folders[role]) if role in folders else None

    def results_store(self, app_id: str) -> Store | None:
        """Return a job's results on the disk of a remote cluster.

        It is None if they open here as files.

        Raises:
            AppNotFound: if there is no such job.
        """
        if self.login_node is None:
            return None
        found = self.describe([app_id])[app_id]
        if found is None:
            raise AppNotFound(app_id)
        base = found.tracker_base
        return self.login_node.store(base) if base and local_path(base) == base else None

    def diagnose(self) -> Sequence[Check]:
        """Return checks for ``transload doctor``.

        Each has a subject, whether it is well, and details.
        """
        return super().diagnose() if self.login_node is None else self.login_node.diagnose()

    def close(self) -> None:
        """Let the connection go, if there is one."""
        if self.login_node is not None:
            self.login_node.close()

    list = _on_login_node(Apps.list)


def create_slurm(session_name: str, name: str = "slurm") -> SlurmScheduler:
    """Make the scheduler ``slurm``, or one of this kind with another name."""
    return SlurmScheduler(session_name, name)
