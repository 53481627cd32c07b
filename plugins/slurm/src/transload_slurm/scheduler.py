"""The Slurm scheduler, for a cluster on this machine or behind ssh."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from transload.errors import SchedulerUnavailable, SubmitError
from transload.keeper import layout
from transload.runtime.tracking import LocalStore, Store
from transload.schedulers.api import (
    EVERY_FIELD,
    AppDescription,
    CheckpointFolder,
    ExecCommand,
    JobFiles,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
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
from transload_slurm.remote import RemoteApps
from transload_slurm.store import root_folder

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages


class SlurmScheduler(SchedulerBase[SlurmOptions]):
    """Runs jobs on a Slurm cluster.

    A job is found by its id from any machine that can ask Slurm and shares the folder of the jobs
    (``TRANSLOAD_SLURM_DIR``). A machine that can log in to such a one finds it, too. The scheduler
    is thread-safe.

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
        self._session = session_name
        self.name = name
        self.apps: Apps | RemoteApps = Apps(
            root_folder() if name == "slurm" else f"{root_folder()}/.clusters/{name}"
        )

    def connect(self, connection: SlurmConnection) -> None:
        """Lead to the Slurm here, with the jobs in a folder of its own, or to one behind ssh.

        Raises:
            ConfigError: if ``ssh`` is no host's name.
        """
        host, folder = connection.ssh, connection.folder
        if host is not None:
            self.shares_disk = False
            python = connection.login_python
            self.apps = RemoteApps(host, folder or "~/.transload/slurm", python)
        elif folder:
            self.apps = Apps(os.path.abspath(os.path.expanduser(folder)))

    def location(self) -> str:
        """Return the login node, and the folder of the jobs."""
        return f"{self.apps.where}, jobs in {self.apps.home}"

    # -- before a submit

    def convert(self, app: AppDef, opts: SlurmOptions) -> _convert.SlurmRequest:
        """Return the request for ``app``. Pure.

        Raises:
            UnsupportedFeature: for a field that Slurm cannot express, by its path.
            ConfigError: for a run option out of range.
        """
        return _convert.convert(app, opts, here=isinstance(self.apps, Apps))

    def format_request(self, request: _convert.SlurmRequest) -> str:
        """Return the batch script and what each role runs, with secrets masked."""
        return _convert.format_request(request, self.apps.home)

    def results_folder(self, app_id: str, opts: SlurmOptions) -> str | None:
        """Return the job's own folder for results, which the nodes share."""
        if not safe_id(app_id):
            return None
        if opts.job_dir:
            return f"{self.apps.place(opts.job_dir)}/{app_id}/results"
        return f"{layout.app_folder(self.apps.home, app_id)}/results"

    def expand_user(self, path: str) -> str:
        """Return a path with ``~`` as jobs see it. Behind ssh only the login node knows the home."""
        return os.path.expanduser(path) if isinstance(self.apps, Apps) else path

    def checkpoint_folder(self, name: str, role: Role, opts: SlurmOptions) -> str | None:
        """Return the folder of a role's checkpoints.

        It lies in ``checkpoint_base``, else in the folder of the jobs.
        """
        base = _convert.checkpoint_base(opts, here=isinstance(self.apps, Apps))
        return f"{base or f'{self.apps.home}/checkpoints'}/{name}/{role.name}"

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, with size and age."""
        return self.apps.checkpoints(app_id)

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if it has none."""
        for each in self.apps.checkpoints(app_id):
            if each.role == role and isinstance(self.apps, RemoteApps):
                return self.apps.folder_store(each.path)
            if each.role == role:
                return LocalStore(each.path)
        return None

    def uses_image(self, role: Role, opts: SlurmOptions) -> bool:
        """Tell whether the image is run in by a container, or a folder to work in."""
        boxed = opts.container != "none"
        return boxed or role.image.startswith(("/", "~/")) or os.path.isdir(role.image)

    def mounts_jobs(self, role: Role, opts: SlurmOptions) -> JobFiles:
        """Say how a job gets files of another, by a mount in a container or in place on a node."""
        if opts.container == "none" or not role.image:
            return "in place"
        return "mounted writable" if opts.container in BINDS_WRITABLE else "mounted"

    def results_store(self, app_id: str) -> Store | None:
        """Return a job's results on the disk of a remote cluster.

        It is None if they open here as files.

        Raises:
            AppNotFound: if there is no such job.
        """
        return self.apps.results_store(app_id)

    # -- the packages that jobs need

    def with_packages(self, role: Role, packages: Packages, opts: SlurmOptions) -> Role:
        """Return a role that is started by the uv beside the jobs."""
        return _packages.with_packages(role, packages, opts, self.apps.home)

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
            missing = self.apps.missing_packages(_packages.names_of(role))
            if missing:
                with _packages.collected(packages, missing) as folder:
                    self.apps.lay_packages(folder)
            if opts.prefetch:
                self.apps.prefetch(_packages.prefetching(role), variables)
        except (OSError, SchedulerUnavailable) as exc:
            raise SubmitError(f"environment {packages.environment}: {exc}", transient=True) from exc

    # -- what happens where the cluster's tools and disk are

    def submit(self, request: _convert.SlurmRequest, app_id: str, submission: Submission) -> bool:
        """Submit a job, all or nothing, or reattach to it (see `Apps.submit`)."""
        return self.apps.submit(request, app_id, submission)

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what is known of jobs, with one query to Slurm for all that have not ended.

        One is UNKNOWN if Slurm cannot say.
        """
        return self.apps.describe(app_ids)

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        Of deleted jobs, only those count whose id the caller gave.
        """
        return self.apps.existed(app_id)

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too, by one look at the folder (see the base)."""
        return self.apps.chain(prefix)

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch."""
        return self.apps.watch(changed)

    def list(self) -> list[ListAppResponse]:
        """Return the user's jobs, of all sessions, newest first."""
        return self.apps.list()

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Ask Slurm to end jobs, as `Apps.cancel` does."""
        return self.apps.cancel(app_ids)

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas, by a step for each role."""
        self.apps.signal(app_id, replicas, name)

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how to run a command on a replica's node, by a step of its Slurm job."""
        return self.apps.exec_command(app_id, role, k, command, terminal=terminal)

    def delete(self, app_id: str) -> bool:
        """Delete a job, as `Apps.delete` does."""
        return self.apps.delete(app_id)

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete jobs that have ended, as `Apps.prune` does."""
        return self.apps.prune(older_than, max_size, now, dry_run=dry_run)

    def diagnose(self) -> Sequence[Check]:
        """Return checks for ``transload doctor``.

        Each has a subject, whether it is well, and details.
        """
        return self.apps.diagnose()

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, as `Apps.log_read` does."""
        return self.apps.log_read(app_id, query)

    def close(self) -> None:
        """Let the connection go, if there is one."""
        self.apps.close()


def create_slurm(session_name: str, name: str = "slurm") -> SlurmScheduler:
    """Make the scheduler ``slurm``, or one of this kind with another name."""
    return SlurmScheduler(session_name, name)
