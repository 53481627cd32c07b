"""The contract of schedulers, which run jobs."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from itertools import count
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    cast,
    get_args,
)

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError, UnsupportedFeature
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    CfgVal,
    Connection,
    JobMount,
    MountType,
    Options,
    Progress,
    RetryPolicy,
    Role,
    masked_args,
    masked_env,
)
from transload.specs.app import RETRY_DELAY

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from transload.runtime.tracking import Store
    from transload.schedulers.environments import Packages

    Opts = TypeVar("Opts", bound=Options, default=Any)
else:
    from typing import TypeVar

    Opts = TypeVar("Opts", bound=Options)

__all__ = [
    "EVERY_FIELD",
    "AppDescription",
    "CheckpointFolder",
    "ExecCommand",
    "Field",
    "JobFiles",
    "ListAppResponse",
    "LogPage",
    "LogQuery",
    "SchedulerBase",
    "Stream",
    "Submission",
    "Visibility",
    "Watch",
    "cancel_each",
    "check_replica",
    "damaged_message",
    "features",
    "reconcile",
    "refuse_unsupported",
]


Visibility = Literal["process", "host", "network"]
"""From where a job can be watched.

This is the process that submitted it, any process of the machine, or any machine.
"""


class Stream(str, Enum):
    """A replica's output streams. COMBINED is both, in the order of their growth."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"


Field = Literal[
    "roles",
    "num_replicas",
    "min_replicas",
    "retry_delay",
    "port_map",
    "timeout",
    "segment",
    "max_interruptions",
    "stall_after",
    "progress_server",
]
"""A field of `AppDef` or `Role` that a scheduler need not have. ``roles`` is more than one of them."""

EVERY_FIELD: Final[frozenset[Field]] = frozenset(get_args(Field))
"""What a scheduler's ``fields`` are if it has all of them."""


@dataclass
class AppDescription:
    """A scheduler's description of a job.

    Args:
        app_id: its id.
        status: its status.
        app: its app definition, with secret-looking values masked. Do not change it. It is None if
            the scheduler does not keep it.
        session: name of the session that submitted it.
        cfg: its run options, without secrets.
        digest: digest of its app definition.
        tracker_base: where it reports results.
        parent_run_id: the run from which it derives.
        created: when it was submitted, in seconds since the epoch.
        log_url: folder or page of its logs.
        checkpoints: the name under which its checkpoints are kept (`Submission.checkpoints`), or
            None if it has none.
        needs_reconcile: something is left to do that only the process which waits for the job as
            its owner does (see ``reconcile``).
        asked: who asked for it (`Submission.asked`).
    """

    app_id: str
    status: AppStatus
    app: AppDef | None = None
    session: str | None = None
    cfg: dict[str, CfgVal] = field(default_factory=dict)
    digest: str | None = None
    tracker_base: str | None = None
    parent_run_id: str | None = None
    created: float | None = None
    log_url: str | None = None
    needs_reconcile: bool = False
    checkpoints: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give each ended replica an end time, so that no duration grows forever."""
        self.status.close(otherwise=self.created)


@dataclass
class ListAppResponse:
    """A row in a list of jobs. (TorchX has the same name.)

    ``progress`` is the job's progress, without its history, if its scheduler knows that without a
    further query. ``session`` is that of the job's submit, from which the runner makes
    ``app_handle``: a job has one handle, whoever lists it.
    """

    app_id: str
    state: AppState
    app_handle: str = ""
    name: str = ""
    created: float | None = None
    progress: Progress | None = None
    session: str = ""

    def __post_init__(self) -> None:
        if self.progress is not None:
            self.progress = self.progress.without_history()


@dataclass(frozen=True)
class LogQuery:
    """A request for a part of a log.

    With ``since``, ``until`` and ``last``, a scheduler may skip unwanted lines if it can do so
    cheaply. `transload.runner.logs` makes the exact choice.

    Args:
        role: name of the role.
        replica: number of the replica within the role.
        stream: the output, one of ``SchedulerBase.streams``.
        cursor: the cursor of an earlier page. None means the beginning.
        max_bytes: the approximate number of bytes to read.
        since: only lines written at or after this time are wanted, in seconds since the epoch.
        until: only lines written before this time are wanted.
        last: only this many of the current last lines are wanted. There is no cursor then.
    """

    role: str
    replica: int
    stream: Stream
    cursor: str | None = None
    max_bytes: int = 1 << 20
    since: float | None = None
    until: float | None = None
    last: int | None = None


@dataclass
class LogPage:
    """A part of one replica's log.

    Args:
        lines: complete lines, each with a newline at its end. The last line of a replica that has
            ended may lack it. The last one may also be the part of an unfinished line up to a
            carriage return, which a terminal would show.
        cursor: an opaque text from which to continue.
        complete: the replica has ended for good and its whole log was read.
        dropped: bytes that were removed by a size limit before this page.
        stamps: the times of lines, ``(index of a line, seconds since the epoch)``, ascending by
            index. A line without a stamp has that of the line before it.
        unfinished: the text after the lines, without a newline yet. The next page has it again.
        left: the approximate number of bytes after this page when it was read. It is 0 if there
            is at most an unfinished line, and None if it is unknown. A reader that does not follow
            the log uses it to stop, even if the log keeps growing.
        missing: the file of the log, if there is none.
    """

    lines: list[str]
    cursor: str
    complete: bool
    dropped: int = 0
    stamps: list[tuple[int, float]] = field(default_factory=list)
    unfinished: str = ""
    left: int | None = None
    missing: str = ""


@dataclass
class Submission:
    """Further facts for the submit of a native request.

    Args:
        app: the app definition of the caller, before macros and injected environment. ``describe``
            shows it.
        digest: its digest.
        session: name of the session.
        cfg: the resolved run options.
        tracker_base: where the job reports results.
        parent_run_id: the run from which the job derives. ``describe`` shows it.
        id_given: whether the caller gave the job id, so that a record must outlive ``delete``.
        inherit_env: whether the job gets the whole environment of the submitting process, or only
            allowed variables.
        secrets: role name → environment variable → value. They are never written to disk, never
            shown.
        checkpoints: the name under which the job's checkpoints are kept, safe as the name of a
            folder. Other jobs may have the same. None means that no role asks for them.
        asked: who asks: ``user``, ``machine``, ``folder``, ``git`` (``commit``, ``dirty``,
            ``remote``), and under the name of an orchestrator its words, which tell one try of its
            step from another. They are JSON values, kept with the job, shown by ``describe``, and
            no part of its digest.
    """

    app: AppDef
    digest: str
    session: str
    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    parent_run_id: str | None = None
    id_given: bool = False
    inherit_env: bool = True
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    checkpoints: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckpointFolder:
    """The folder of checkpoints of a role.

    Args:
        role: name of the role.
        path: its path for the program.
        size: its size in bytes, or None if it is unknown.
        changed: the time of its last change, in seconds since the epoch, or None if it is unknown
            or the folder is empty.
    """

    role: str
    path: str
    size: int | None = None
    changed: float | None = None


@dataclass(frozen=True)
class ExecCommand:
    """A command line of this machine that runs a command beside a replica.

    It gets the standard streams of whoever runs it, and has the exit code of the command.

    Args:
        argv: the program and its arguments.
        env: its environment. None means that of this process.
        cwd: its working directory. None means that of this process.
    """

    argv: Sequence[str]
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | None = None


JobFiles = Literal["mounted", "mounted writable", "in place", "out of reach"]
"""How a role gets at the files of another job.

They are mounted into it, for reading. An engine that cannot do that mounts them for writing too. On
a shared disk a role sees them at their own path. Otherwise they are out of reach.
"""


class Watch(Protocol):
    """What `SchedulerBase.watch` returns. Any thread may call it."""

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. Changes from now on are reported."""

    def close(self) -> None:
        """Report nothing any more, and release threads and connections."""


class SchedulerBase(ABC, Generic[Opts]):
    """Runs jobs. An author must write six methods. The others have a simple default.

    Any thread may call any method. If the scheduler cannot be reached, methods raise
    `SchedulerUnavailable`. If a query has no answer for one job, the state of that job is UNKNOWN.
    For a job that does not exist, `describe` has None, `cancel` leaves it out, `delete` returns False,
    and the other methods raise `AppNotFound`.

    The class says what a scheduler has: what it does not set or override is refused, by name, before
    `convert` is called (`refuse_unsupported`).

    Attributes:
        name: name of the scheduler in handles.
        reach: see `Visibility`.
        fields: the fields that jobs may have here.
        retries: the retry policies.
        mounts: the kinds of mounts.
        notice_signals: names of the signals that can be a notice (``Role.notice``), without ``SIG``.
        streams: the separate outputs of a replica. COMBINED alone is allowed. If it is not among
            them, it is merged from the other two by their stamps.
        since_until: logs can be read by time, because pages have stamps.
        log_pause: the longest pause in seconds between two looks at logs that are followed.
        shares_disk: jobs see the files of the submitter. Otherwise a component's folder is copied
            to its job.
        inherits_env: jobs inherit the environment of the process that submits them, if
            `Submission` allows it.
        secret_kinds: kinds of secret sources that it resolves itself (``{"k8s"}``).
        options: the class of its run options. By default it has none of its own.
        connection: the class of the settings that select a cluster, such as a context or a host. By
            default there are none.
    """

    name: str
    reach: Visibility = "network"
    fields: frozenset[Field] = frozenset()
    retries: frozenset[RetryPolicy] = frozenset()
    mounts: frozenset[MountType] = frozenset()
    notice_signals: frozenset[str] = frozenset()
    streams: frozenset[Stream] = frozenset(Stream)
    since_until: bool = False
    log_pause: float = 0.5
    shares_disk: bool = True
    inherits_env: bool = False
    secret_kinds: frozenset[str] = frozenset()
    options: type[Opts] = cast("Any", Options)
    connection: type[Connection] = Connection

    def offers(self, name: str) -> bool:
        """Tell whether jobs may have a field here, or a method with a default is overridden."""
        own = getattr(type(self), name, None)
        return name in self.fields or own is not getattr(SchedulerBase, name, None)

    # -- every scheduler must have these

    @abstractmethod
    def convert(self, app: AppDef, opts: Opts) -> Any:
        """Return the native request for ``app``. It is pure and has no effect outside the process.

        ``${app_id}`` is already replaced in ``app``. This method replaces the other macros.

        Raises:
            UnsupportedFeature: if this scheduler does not support a field. The message has its
                path.
        """

    @abstractmethod
    def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
        """Start the job under ``app_id``, all or nothing, or reattach to it.

        Returns:
            True if it was started, False if a job with that id and digest already exists.

        Raises:
            AppExists: if another job has the id.
            SubmitError: if the scheduler did not accept it. Nothing runs.
        """

    @abstractmethod
    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return the descriptions of jobs, by as few queries as the engine allows.

        One that certainly does not exist has None. One whose state cannot be told has the state
        UNKNOWN.
        """

    @abstractmethod
    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Request the end of jobs, without waiting for it. A job that has ended does not change.

        Returns:
            Those of the ids that there are jobs of.

        Raises:
            SchedulerUnavailable: if one could not be asked to end. The others were.
        """

    @abstractmethod
    def list(self) -> list[ListAppResponse]:
        """Return the known jobs, newest first."""

    @abstractmethod
    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log without waiting.

        Args:
            app_id: the job.
            query: the wanted part of the log.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: if the role or the replica is unknown.
        """

    # -- with a default

    defaults: Callable[[], Mapping[str, CfgVal]] = dict
    """Returns the run options that the settings give to jobs which leave them open.

    A runner sets it, for what is not about one job, such as `list`.
    """

    def why_no_log(self, app_id: str, role_name: str, k: int) -> str:
        """Return why the log of a replica is empty. The default, ``""``, means it wrote nothing."""
        return ""

    def connect(self, connection: Any) -> None:
        """Use the cluster of these settings (an object of `connection`), without connecting.

        It is called once, before any other method, if there is a setting. Otherwise the scheduler uses
        its default cluster.

        Raises:
            ConfigError: if a value is not allowed.
        """

    def location(self) -> str:
        """Return the location for people, such as a folder, a host or a context.

        The default is ``""``. It does not connect.
        """
        return ""

    def format_request(self, request: Any) -> str:
        """Return a request as readable text with secrets masked. The default is JSON."""
        return request_json(request)

    def prepare(self, app: AppDef, opts: Opts) -> AppDef:
        """Build what the job needs, such as a patched image or a copied workspace.

        Only a submit calls it.

        Returns:
            The app definition to convert. The default is ``app`` itself.
        """
        return app

    def with_packages(self, role: Role, packages: Packages, opts: Opts) -> Role:
        """Return a role whose program is started by uv, with the packages that it needs. Pure.

        Only called for a role with an environment, before `convert`.

        Args:
            role: the role, which is not changed.
            packages: what it needs.
            opts: the run options.

        Raises:
            ConfigError: if uv is needed here, and there is none.
            UnsupportedFeature: if this scheduler cannot, the default.
        """
        raise UnsupportedFeature(no_environments(f"role {role.name!r}", self.name), "environment")

    def bring_packages(
        self,
        role: Role,
        packages: Packages,
        opts: Opts,
        variables: Mapping[str, str],
    ) -> None:
        """Put what `with_packages` names to where the role will run. Only a submit calls it.

        Args:
            role: the role, as `with_packages` returned it.
            packages: what it needs.
            opts: the run options.
            variables: what uv reads, such as the password of an index. They must neither be
                written to disk nor shown.

        Raises:
            SubmitError: if that is not possible.
            UnsupportedFeature: if this scheduler cannot, the default.
        """
        raise UnsupportedFeature(no_environments(f"role {role.name!r}", self.name), "environment")

    def takes_workspace(self, opts: Opts) -> bool:
        """Tell whether local folders can be copied to jobs with these options. Default True."""
        return True

    def uses_image(self, role: Role, opts: Opts) -> bool:
        """Tell whether the image of a role has an effect. Default True."""
        return True

    def qualified_id(self, app_id: str, opts: Opts) -> str:
        """Return the id under which a job is submitted, for example with a namespace.

        Default: ``app_id``.
        """
        return app_id

    def reconcile(self, app_id: str) -> None:
        """Do the pending steps of a job (`AppDescription.needs_reconcile`) as its owner.

        The default does nothing. It is safe to repeat in any process. Reading never does it.
        """

    def existed(self, app_id: str) -> bool:
        """Tell whether a job with that id was ever submitted, as far as records say.

        This includes deleted jobs. The default tells whether there is one now.
        """
        return self.describe([app_id])[app_id] is not None

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs whose ids are ``<prefix>-<number>``, in the order of their numbers.

        A job that is gone while its id is remembered has None in place of its description. One that
        the scheduler cannot tell the state of is UNKNOWN, as in `describe`. A scheduler answers this
        by one question. The default looks for one number after the other.

        Args:
            prefix: of the ids, qualified as they are (see `qualified_id`).
        """
        found: list[tuple[int, AppDescription | None]] = []
        for number in count():
            app_id = f"{prefix}-{number}"
            description = self.describe([app_id])[app_id]
            if description is None and not self.existed(app_id):
                break
            found.append((number, description))
        return found

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Report from now on which jobs may have changed, where the engine can say so.

        One watch for each process and scheduler serves any number of jobs. A report that is lost is
        made up for, since all jobs are looked at once a minute.

        Args:
            changed: takes the ids, from any thread, and returns at once. Those that nobody watches
                are ignored.

        Returns:
            The watch, which has no jobs yet. None, the default, means that jobs are looked at with
            growing pauses.
        """
        return None

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main process of each of these replicas, which run.

        Args:
            app_id: the job.
            replicas: role and number of each.
            name: one of `transload.specs.interruptions.SIGNALS`.

        Raises:
            SpecError: if one does not run any more.
            SchedulerUnavailable: if one did not get it, because the engine refused or is away.
            UnsupportedFeature: if this scheduler sends none, which is the default.
        """
        raise UnsupportedFeature(f"scheduler {self.name!r} sends no signals to replicas", "signal")

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how to run a command where a replica runs, with its folder and variables.

        Nobody gets in whom the engine does not let in.

        Args:
            app_id: the job.
            role: name of the role.
            k: number of the replica within it.
            command: the program and its arguments.
            terminal: the command gets a terminal, since whoever runs it has one.

        Raises:
            SpecError: if the replica does not run any more.
            SchedulerUnavailable: if the engine is away.
            UnsupportedFeature: if this scheduler runs none, which is the default.
        """
        raise UnsupportedFeature(
            f"scheduler {self.name!r} runs no commands beside replicas", "exec_command"
        )

    def delete(self, app_id: str) -> bool:
        """Delete a job, after ending it. The record of an id that the caller gave stays.

        Returns:
            False if there is no such job.

        Raises:
            UnsupportedFeature: if this scheduler cannot delete jobs, which is the default.
        """
        raise UnsupportedFeature(f"scheduler {self.name!r} cannot delete jobs", "delete")

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete ended jobs by age and by size.

        Args:
            older_than: least seconds since their end. With None, age does not matter.
            max_size: bytes that all ended jobs together may take. The oldest are deleted first.
                With None, size does not matter. With neither, no job is deleted.
            now: the time now, in seconds since the epoch. The default is the clock.
            dry_run: delete nothing, and only return the ids.

        Returns:
            The ids of the deleted jobs, oldest first.

        Raises:
            UnsupportedFeature: if this scheduler cannot do that, which is the default.
        """
        advice = "delete its ended jobs by their handles"
        raise UnsupportedFeature(
            f"scheduler {self.name!r} cannot delete jobs by age or size: {advice}", "prune"
        )

    def diagnose(self) -> Sequence[tuple[str, bool, str]]:
        """Return the checks of ``transload doctor``, each ``(subject, ok, details)``."""
        return ()

    def results_folder(self, app_id: str, opts: Opts) -> str | None:
        """Return the job's own tracker base inside the job, or None, the default.

        If it is a folder, `submit` makes it, since one that is missing later was removed, and
        results with it.
        """
        return None

    def expand_user(self, path: str) -> str:
        """Return a path that begins with ``~`` as jobs see it.

        The default is for jobs that see the submitter's home. A path that is left as it is must be
        made absolute by `submit`, wherever it stands in the request.

        Raises:
            ConfigError: where jobs have no home that is known.
        """
        return os.path.expanduser(path)

    def checkpoint_folder(self, name: str, role: Role, opts: Opts) -> str | None:
        """Return the folder of checkpoints of a role as its program sees it.

        It is the value of ``TRANSLOAD_CHECKPOINT_DIR``, on a disk that all nodes of the role see.
        The method is pure, as `convert` is, which finds the folder in the role's environment. The
        submit makes the folder.

        Args:
            name: the name under which they are kept (`Submission.checkpoints`).
            role: the role.
            opts: the job's run options.

        Returns:
            The folder. The default is None, which means that there is no such folder.

        Raises:
            UnsupportedFeature: if there is no such place for this role, by the field
                ``checkpoints``.
        """
        return None

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of the roles that have one. By default there are none.

        Raises:
            AppNotFound: if there is no such job.
        """
        return ()

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None, the default, if they cannot be read from here.

        Raises:
            AppNotFound: if there is no such job.
        """
        return None

    def mounts_jobs(self, role: Role, opts: Opts) -> JobFiles:
        """Return how a role accesses the files of another job (`transload.specs.JobMount`).

        Both jobs are of this scheduler.

        Args:
            role: the role.
            opts: the job's run options.

        Returns:
            The way, by default ``out of reach``.
        """
        return "out of reach"

    def results_store(self, app_id: str) -> Store | None:
        """Return a job's results if only the scheduler can read them.

        None, the default, means that they are in the tracker base.

        Raises:
            AppNotFound: if there is no such job.
            ResultsGone: if it cannot be said any more what the job reported, as what had it was
                deleted. An empty store means that it reported nothing.
            TrackingError: if the results are too large to be returned.
        """
        return None

    def close(self) -> None:
        """Release the resources of this object. Jobs go on. It may be called more than once."""


SchedulerFactory = Callable[..., SchedulerBase]
"""``factory(session_name, …)`` gets the runner's parameters that its signature has.

With a parameter ``name``, it can create clusters with other names (``[schedulers.NAME] kind = …``).
Their connection settings are passed to `SchedulerBase.connect`.
"""


_MOUNTED_OTHERWISE: Final = {
    MountType.BIND: "leave it out, and give the program the folder's own path",
    MountType.VOLUME: "run it with -s docker, or with -s kubernetes",
    MountType.DEVICE: "leave it out: the program sees the devices of its machine",
}
"""Kind of mount → what to do where jobs run without containers."""


_WITHOUT: Final[Mapping[Field, str]] = {
    "roles": "only one role can be run",
    "num_replicas": "only one replica can be run",
    "min_replicas": "all replicas must end well",
    "retry_delay": "the engine has a back-off of its own",
    "port_map": "ports cannot be mapped",
    "timeout": "no limit of time can be set",
    "segment": "a job cannot go on in a further segment",
    "max_interruptions": "interruptions are not counted up to a bound",
    "stall_after": "it is not watched whether a replica has stalled",
    "progress_server": "a container finds no server for its progress",
}
"""Field → what is missing where a scheduler does not have it."""


def refuse_unsupported(app: AppDef, scheduler: SchedulerBase) -> None:
    """Refuse an app definition with a field that the scheduler does not have.

    Raises:
        UnsupportedFeature: for the first such field.
    """

    def refuse(path: str, reason: str) -> NoReturn:
        message = f"{path}: not possible on scheduler {scheduler.name!r}: {reason}"
        raise UnsupportedFeature(message, path)

    for path, field_ in _used_fields(app):
        if field_ not in scheduler.fields:
            refuse(path, _WITHOUT[field_])
    for index, role in enumerate(app.roles):
        path = f"roles[{index}]"
        if role.max_retries and role.retry_policy not in scheduler.retries:
            offered = ", ".join(sorted(policy.value for policy in scheduler.retries)) or "none"
            refuse(
                f"{path}.retry_policy",
                f"{role.retry_policy.value} is not offered (offered: {offered})",
            )
        if role.notice is not None and not scheduler.notice_signals:
            refuse(f"{path}.notice", "no warning can be given before the end")
        if role.notice is not None and role.notice.signal not in scheduler.notice_signals:
            signal, offered = role.notice.signal, ", ".join(sorted(scheduler.notice_signals))
            refuse(f"{path}.notice.signal", f"{signal} cannot be sent (offered: {offered})")
        if role.checkpoints and not scheduler.offers("checkpoint_folder"):
            refuse(f"{path}.checkpoints", "there is no folder that all attempts share")
        wanted = role.environment
        if wanted is not None and not wanted.is_none and not scheduler.offers("with_packages"):
            where = f"{path}.environment"
            raise UnsupportedFeature(no_environments(where, scheduler.name), where)
        for number, mount in enumerate(role.mounts):
            if isinstance(mount, JobMount):
                refuse(f"{path}.mounts[{number}]", "files of a job are mounted by a runner")
            kind = MountType(type(mount).__name__.removesuffix("Mount").lower())
            if kind not in scheduler.mounts:
                reason = f"{kind.value} mounts are not offered"
                if not scheduler.mounts:
                    reason = f"{reason} without a container; {_MOUNTED_OTHERWISE[kind]}"
                refuse(f"{path}.mounts[{number}]", reason)


def _used_fields(app: AppDef) -> Iterator[tuple[str, Field]]:
    """Yield the path and the name of each field of a job that a scheduler need not have."""
    if app.timeout is not None:
        yield "timeout", "timeout"
    if app.segment is not None:
        yield "segment", "segment"
    if len(app.roles) > 1:
        yield "roles", "roles"
    for index, role in enumerate(app.roles):
        used: dict[Field, object] = {
            "num_replicas": role.num_replicas > 1,
            "min_replicas": role.min_replicas not in (None, role.num_replicas),
            "retry_delay": role.max_retries and role.retry_delay != RETRY_DELAY,
            "port_map": role.port_map,
            "max_interruptions": role.max_interruptions,
            "stall_after": role.stall_after is not None,
            "progress_server": role.progress_server,
        }
        yield from ((f"roles[{index}].{name}", name) for name, is_used in used.items() if is_used)


def features(scheduler: SchedulerBase | type[SchedulerBase]) -> dict[str, Any]:
    """Return what a scheduler has, as its class says, in JSON values.

    ``methods`` are those that have a default in `SchedulerBase` and are overridden.
    """
    cls = scheduler if isinstance(scheduler, type) else type(scheduler)
    names = [
        name
        for name, default in vars(SchedulerBase).items()
        if inspect.isfunction(default) and name not in SchedulerBase.__abstractmethods__
    ]
    return {
        "reach": scheduler.reach,
        "fields": sorted(scheduler.fields),
        "retries": sorted(policy.value for policy in scheduler.retries),
        "mounts": sorted(kind.value for kind in scheduler.mounts),
        "notice_signals": sorted(scheduler.notice_signals),
        "streams": sorted(stream.value for stream in scheduler.streams),
        "since_until": scheduler.since_until,
        "shares_disk": scheduler.shares_disk,
        "inherits_env": scheduler.inherits_env,
        "methods": [n for n in names if getattr(cls, n) is not getattr(SchedulerBase, n)],
    }


def no_environments(path: str, scheduler: str) -> str:
    """Return what is said where an environment is wanted of a scheduler that makes none."""
    return (
        f"{path}: not possible on scheduler {scheduler!r}: it installs no packages; have them in "
        "the image, and switch this off by --environment none"
    )


def request_json(request: Any) -> str:
    """Return a request as indented JSON, with secrets in variables and commands masked."""

    def plain(value: Any) -> Any:
        if isinstance(value, AppDef):
            return value.masked().to_dict()
        if is_dataclass(value) and not isinstance(value, type):
            return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in masked_env(value).items()}
        if not isinstance(value, list | tuple | set | frozenset):
            return value
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return masked_args(items)
        return [plain(item) for item in items]

    return json.dumps(plain(request), indent=2, default=str)


def replicas_of(description: AppDescription) -> list[tuple[str, int]]:
    """Return ``(role, number)`` for every replica of a job."""
    if description.app is not None:
        return [(role.name, k) for role in description.app.roles for k in range(role.num_replicas)]
    return [
        (role.role, replica.id) for role in description.status.roles for replica in role.replicas
    ]


def damaged_message(what: str, why: str = "") -> str:
    """Return the message of a status for a job with an unreadable file.

    Args:
        what: the file and its place, such as ``its record /home/…/record.json``.
        why: what is wrong with it, or ``""`` if that is unknown.
    """
    found = f"is damaged: {why}" if why else "is damaged"
    return f"{what} {found}; `transload delete --force` removes the job"


def cancel_each(app_ids: Collection[str], cancel: Callable[[str], bool]) -> set[str]:
    """Request the end of each job, like `SchedulerBase.cancel`, where an engine is asked for one.

    Args:
        app_ids: the jobs.
        cancel: requests the end of one, and returns whether there is such a job.
    """
    there = set()
    problem = None
    for app_id in app_ids:
        try:
            if cancel(app_id):
                there.add(app_id)
        except SchedulerUnavailable as exc:
            problem = problem or exc
    if problem is not None:
        raise problem
    return there


def check_replica(app_id: str, replicas: Mapping[str, int] | None, role: str, k: int) -> None:
    """Refuse a replica that a job does not have, like `SchedulerBase.log_read`.

    Args:
        app_id: the job.
        replicas: role → number of replicas, or None if there is no such job.
        role: the requested role.
        k: number of the replica within it.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: if the role or the replica is unknown.
    """
    if replicas is None:
        raise AppNotFound(app_id)
    if role not in replicas:
        raise SpecError(
            f"role {role!r}: job {app_id} has no such role; it has: {', '.join(sorted(replicas))}"
        )
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < replicas[role]:
        raise SpecError(f"replica {k!r}: role {role!r} has the replicas 0 to {replicas[role] - 1}")


def reconcile(scheduler: SchedulerBase, description: AppDescription | None) -> None:
    """Do the pending steps of a job as its owner. Steps that fail now are left for later."""
    if description is not None and description.needs_reconcile:
        with contextlib.suppress(SchedulerUnavailable):
            scheduler.reconcile(description.app_id)
