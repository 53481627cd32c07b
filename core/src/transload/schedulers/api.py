"""The contract of a scheduler: what a backend that runs apps must do."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, runtime_checkable

from transload.errors import AppNotFound, SchedulerUnavailable, SpecError, UnsupportedFeature
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    CfgVal,
    JobMount,
    MountType,
    Progress,
    RetryPolicy,
    Role,
    masked_args,
    masked_env,
    runopts,
)
from transload.specs.app import RETRY_DELAY

if TYPE_CHECKING:
    from transload.runtime.tracking import Store
    from transload.schedulers.environments import MadeEnvironment, Recipe

__all__ = [
    "AppDescription",
    "Capabilities",
    "Change",
    "CheckpointFolder",
    "JobFiles",
    "ListAppResponse",
    "LogPage",
    "LogQuery",
    "SchedulerBase",
    "Stream",
    "Submission",
    "Visibility",
    "Watch",
    "check_replica",
    "damaged_message",
    "reconcile",
    "refuse_unsupported",
]


Visibility = Literal["process", "host", "network"]
"""From where an app can be watched: the process that submitted it, any process of the machine,
anywhere."""


class Stream(str, Enum):
    """A replica's output streams; COMBINED is both in the order in which they were seen to grow."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"


class Capabilities(NamedTuple):
    """What a scheduler can express. What it cannot, it refuses in ``convert`` by field name.

    Args:
        replicas: more than one replica of a role.
        roles: more than one role.
        retries: the retry policies that it honours.
        mounts: the kinds of mounts.
        ports: replicas can be reached at the ports of ``Role.port_map``: mapped, or their host's
            own.
        gangs: all replicas start together, or none.
        since_until: logs by time: pages have stamps.
        streams: the outputs of a replica that it tells apart. COMBINED alone is legal; where it is
            not among them, it is made of the other two, by their stamps.
        min_replicas: ``Role.min_replicas``.
        retry_delay: ``Role.retry_delay``; else the engine has a back-off of its own.
        timeout: ``AppDef.timeout``.
        shares_disk: jobs see the files of whoever submits; else a component's folder travels with
            its app.
        inherits_env: jobs inherit the environment of the process that submits them, where
            `Submission` allows it.
        delete: apps can be deleted; that an id was given is remembered (see
            `SchedulerBase.existed`).
        reachable_from: see `Visibility`.
        notice: names of the signals that can be a notice (``Role.notice``), without ``SIG``.
        segment: ``AppDef.segment``.
        checkpoints: ``Role.checkpoints``: there is a folder that all attempts of a job share.
        interruptions: ends that are nobody's fault are counted apart, up to
            ``Role.max_interruptions``.
        stall: ``Role.stall_after``, and all of ``Role.on_stall``.
        progress: what a job says of its progress is brought to its status
            (`AppStatus.progress`).
        environments: ``Role.environment``: what a role needs is installed where it runs (see
            `SchedulerBase.provide_environment`).
    """

    replicas: bool = True
    roles: bool = True
    retries: frozenset[RetryPolicy] = frozenset()
    mounts: frozenset[MountType] = frozenset()
    ports: bool = False
    gangs: bool = True
    since_until: bool = False
    streams: frozenset[Stream] = frozenset(Stream)
    min_replicas: bool = True
    retry_delay: bool = True
    timeout: bool = True
    shares_disk: bool = True
    inherits_env: bool = False
    delete: bool = False
    reachable_from: Visibility = "network"
    notice: frozenset[str] = frozenset()
    segment: bool = False
    checkpoints: bool = False
    interruptions: bool = False
    stall: bool = False
    progress: bool = False
    environments: bool = False


@dataclass
class AppDescription:
    """What a scheduler knows of an app.

    Args:
        app_id: its id.
        status: its status.
        app: the app as submitted, secret-looking values masked; not to be changed; None if it is
            not kept.
        session: name of the session that submitted it.
        cfg: the run options that it was submitted with, without secrets.
        digest: digest of the app as submitted.
        tracker_base: where it reports results.
        parent_run_id: the run that it derives from.
        created: when it was submitted, seconds since the epoch.
        log_url: folder or page of its logs.
        checkpoints: the name under which its checkpoints are kept (`Submission.checkpoints`); None:
            it has none.
        needs_reconcile: something is left to do that only the process which waits for the app as its owner
            does: see ``reconcile``.
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

    def __post_init__(self) -> None:
        """See to it that what has ended has an end, whatever its scheduler knows: no duration
        counts up for ever.
        """
        self.status.close(otherwise=self.created)


@dataclass
class ListAppResponse:
    """One row of a list of apps. (The name is TorchX's, kept for those who come from there.)

    ``progress`` is how far it is, where its scheduler knows that without asking further.
    """

    app_id: str
    state: AppState
    app_handle: str = ""
    name: str = ""
    created: float | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class LogQuery:
    """Which log is read, from where, and what of it is wanted.

    ``since``, ``until`` and ``last`` let a scheduler leave the rest unread. It skips as much of
    that as it cheaply can,
    or nothing: `transload.runner.logs` makes the exact choice.

    Args:
        role: name of the role.
        replica: number of the replica within the role.
        stream: which output, one of ``capabilities.streams``.
        cursor: from an earlier page; None: the beginning.
        max_bytes: about how much to read.
        since: only lines written at or after this time are wanted, seconds since the epoch.
        until: only lines written before this time are wanted.
        last: only this many last lines of what is there now are wanted; given without a cursor.
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
    """A piece of one replica's log.

    Args:
        lines: whole lines, each ending in a newline, except perhaps the very last one of a replica
            that has ended. Of a line that is still being written the last may be a part, up to a
            carriage return: what was drawn so far.
        cursor: where to go on; opaque text.
        complete: the replica has ended for good and all of its log was read.
        dropped: bytes that were lost to a size limit before this page.
        stamps: when lines were written: ``(index of a line, seconds since the epoch)``, ascending
            by index. A line without a stamp of its own has that of the line before it.
        unfinished: the end of what was written behind the lines, without a newline yet; the next
            page has it again.
        left: about how many bytes of the log lay behind this page when it was read; 0: none, but
            for a line that is not finished; None: not known. Who does not follow a log stops by it,
            however fast the log grows meanwhile.
    """

    lines: list[str]
    cursor: str
    complete: bool
    dropped: int = 0
    stamps: list[tuple[int, float]] = field(default_factory=list)
    unfinished: str = ""
    left: int | None = None


@dataclass
class Submission:
    """What goes with a native request when it is submitted.

    Args:
        app: the app as passed by the caller (before macros and injected environment): what
            ``describe`` shows.
        digest: its digest.
        session: name of the session.
        cfg: the resolved run options.
        tracker_base: where the app reports results.
        parent_run_id: the run that the app derives from: what ``describe`` shows.
        id_given: the app id is the caller's: a record must outlive ``delete``.
        inherit_env: the job gets the whole environment of the submitting process, else an
            allow-list of it.
        secrets: role name → environment variable → value; never written to disk, never shown.
        checkpoints: the name under which the app's checkpoints are kept, safe as the name of a
            folder; other apps may have the same. None: no role asks for them.
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


@dataclass(frozen=True)
class CheckpointFolder:
    """The folder of checkpoints of a role.

    Args:
        role: name of the role.
        path: where it is, as the program sees it.
        size: bytes of all that is in it; None: not known.
        changed: when something in it changed last, seconds since the epoch; None: not known, or it
            is empty.
    """

    role: str
    path: str
    size: int | None = None
    changed: float | None = None


JobFiles = Literal["mounted", "mounted writable", "in place", "out of reach"]
"""How a role gets at the files of another job: they are mounted into it, for reading (or, where an
engine cannot do that, for writing too); it sees them at their own path; or not at all."""

Kind = Literal["state", "logs"]


class Change(NamedTuple):
    """What a `Watch` tells: the state of an app may have changed, or its logs have grown."""

    app_id: str
    kind: Kind = "state"


@runtime_checkable
class Watch(Protocol):
    """Tells which apps may have changed, without a query per app. One per process and scheduler
    serves any number.
    """

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed since the last call; block up to ``timeout`` seconds (None:
        no limit).

        Empty when time ran out or `wake` was called. Ids just added by `update` count as changed.
        """

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""

    def close(self) -> None:
        """Free what the watch holds."""


class SchedulerBase(ABC):
    """A backend that runs apps. Seven methods are an author's to write; the others have a default
    for a simple backend.

    All methods may be called from any thread. An error of the backend itself (it cannot be reached)
    is `SchedulerUnavailable`; a query that cannot be answered for one app gives state UNKNOWN for
    it. For an app that does not exist `describe` gives None, `cancel` and `delete` return False,
    and the rest raise `AppNotFound`.

    Attributes:
        name: name of the scheduler, as it is in handles.
        capabilities: what it can express.
        secret_kinds: kinds of secret sources that it resolves itself (``{"k8s"}``).
    """

    name: str
    capabilities: Capabilities = Capabilities()
    secret_kinds: frozenset[str] = frozenset()

    # -- every author's

    @abstractmethod
    def run_opts(self) -> runopts:
        """Return the options that this scheduler takes."""

    @abstractmethod
    def convert(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> Any:
        """Return the native request for ``app``. Pure: nothing outside of the process is touched.

        ``${app_id}`` is already replaced in ``app``, the other macros are this method's; ``cfg`` is
        resolved.

        Raises:
            UnsupportedFeature: for a field that this scheduler cannot express, by its path.
        """

    @abstractmethod
    def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
        """Start the app under ``app_id``, or adopt it: all or nothing.

        Returns:
            True if it was started; False if an app of that id and digest is there already.

        Raises:
            AppExists: if the id is taken by another app.
            SubmitError: if it was not taken; nothing runs.
        """

    @abstractmethod
    def describe(self, app_id: str) -> AppDescription | None:
        """Return what is known of an app; None only if it provably does not exist; state UNKNOWN if
        not known.
        """

    @abstractmethod
    def cancel(self, app_id: str) -> bool:
        """Ask for the end of an app; return at once. One that has ended stays as it is.

        Returns:
            False if there is no such app.
        """

    @abstractmethod
    def list(self) -> list[ListAppResponse]:
        """Return the apps that it knows, newest first."""

    @abstractmethod
    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, at once, with what is there.

        Args:
            app_id: the app.
            query: which log, where to go on, and what of it is wanted.

        Raises:
            AppNotFound: if there is no such app.
            SpecError: for an unknown role or replica.
        """

    # -- with a default

    def why_no_log(self, app_id: str, role_name: str, k: int) -> str:
        """Return why the log of a replica is empty, if not since it wrote nothing. Default:
        ``""``.
        """
        return ""

    def connection_opts(self) -> runopts:
        """Return the settings that say which cluster this is (context, host, folder). Default:
        there are none.
        """
        return runopts()

    def connect(self, connection: Mapping[str, CfgVal]) -> None:  # noqa: B027 - nothing to set is the default
        """Lead where these settings say, checked by `connection_opts`. Reaches nothing yet.

        Called once, before anything else, where a setting is given; else the scheduler leads where
        it does by itself.

        Raises:
            ConfigError: for a value that is not allowed.
        """

    def location(self) -> str:
        """Return where it leads, for people: a folder, a host, a context. Nothing is reached.
        Default: not told.
        """
        return ""

    def format_request(self, request: Any) -> str:
        """Return a request as text for a person, secrets masked. Default: as JSON."""
        return request_json(request)

    def prepare(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDef:
        """Build what must exist before the app can run (a patched image, a copied workspace).
        Called only by a submit.

        Returns:
            The app to convert. Default: ``app`` itself.
        """
        return app

    def provide_environment(
        self,
        role: Role,
        recipe: Recipe,
        cfg: Mapping[str, CfgVal],
        variables: Mapping[str, str],
    ) -> Role:
        """Have what a role needs installed where it will run: made once for its content, and used
        by all.

        Called only by a submit, before `prepare`, where ``capabilities.environments`` is true. One
        that is half made is never used, and two who want the same make one
        (`transload.schedulers.environments` has a program that does both).

        Args:
            role: the role; it is not changed.
            recipe: what is to be installed.
            cfg: the run options.
            variables: for the installer alone (the password of an index): not to be written to
                disk, nor shown.

        Returns:
            The role, changed so that it runs with these packages, and with its ``environment``.

        Raises:
            SubmitError: if it cannot be made; with the installer's last lines.
            UnsupportedFeature: if this scheduler cannot, the default.
        """
        raise UnsupportedFeature(no_environments(f"role {role.name!r}", self.name), "environment")

    def environments(self) -> Sequence[MadeEnvironment]:
        """Return the environments that were made here, and which of them jobs use. Default: none
        are kept.
        """
        return ()

    def delete_environments(
        self, older_than: float | None = None, *, dry_run: bool = False
    ) -> Sequence[MadeEnvironment]:
        """Delete environments that no job uses, running or stored to be started again.

        Args:
            older_than: seconds since the last use; None: all that no job uses.
            dry_run: delete nothing, only tell.

        Returns:
            What was deleted. Default: nothing, as none are kept.
        """
        return ()

    def takes_workspace(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Tell whether local folders can travel with these options, so that one may unasked.
        Default: yes.
        """
        return True

    def uses_image(self, role: Role, cfg: Mapping[str, CfgVal]) -> bool:
        """Tell whether the image of a role decides what it runs in, or where. Default: yes."""
        return True

    def qualified_id(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str:
        """Return the id under which an app is submitted, where it must carry more than a name.
        Default: ``app_id``.
        """
        return app_id

    def describe_many(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return `describe` for many apps, with as few queries as possible. Default: one for
        each.
        """
        return {app_id: self.describe(app_id) for app_id in app_ids}

    def reconcile(self, app_id: str) -> None:  # noqa: B027 - nothing to do is the default
        """Do what is due for an app (`AppDescription.needs_reconcile`), as the process that waits for it.
        Default: nothing.

        Safe to repeat, by anybody. Reading never does it.
        """

    def existed(self, app_id: str) -> bool:
        """Tell whether an app of that id was ever submitted here, as far as records reach (deleted
        ones included).

        Default: whether there is one now.
        """
        return self.describe(app_id) is not None

    def watch(self, logs: bool = False) -> Watch | None:
        """Return a new watch; None, the default, if this scheduler can only be asked.

        Args:
            logs: tell of logs that grow, too; None if the scheduler cannot.
        """
        return None

    def delete(self, app_id: str) -> bool:
        """Forget an app (ending it first); the record of a caller-given id stays.

        Returns:
            False if there is no such app.

        Raises:
            UnsupportedFeature: if this scheduler cannot, the default.
        """
        raise UnsupportedFeature(f"scheduler {self.name!r} cannot delete apps", "delete")

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete apps that have ended: those older than so many seconds, and the oldest beyond so
        many bytes.

        Args:
            older_than: seconds since their end; None: age does not matter.
            max_size: bytes that all ended apps together may take; None: size does not matter.
            now: seconds since the epoch; default: the time.
            dry_run: delete nothing, only tell.

        Returns:
            The ids of the deleted apps, oldest first.

        Raises:
            UnsupportedFeature: if this scheduler cannot, the default.
        """
        advice = "delete its ended apps by their handles"
        raise UnsupportedFeature(
            f"scheduler {self.name!r} cannot delete apps by age or size: {advice}", "prune"
        )

    def diagnose(self) -> Sequence[tuple[str, bool, str]]:
        """Return checks for ``transload doctor``: what was looked at, whether it is well, what was
        found.
        """
        return ()

    def results_folder(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str | None:
        """Return the tracker base of the app's own, visible inside the job; None, the default, if
        there is none.
        """
        return None

    def checkpoint_folder(self, name: str, role: Role, cfg: Mapping[str, CfgVal]) -> str | None:
        """Return the folder of checkpoints of a role as its program sees it
        (``TRANSLOAD_CHECKPOINT_DIR``), on a disk that all nodes of the role see.

        Pure, as `convert`, which finds it in the role's environment. The submit makes the folder.

        Args:
            name: the name under which they are kept (`Submission.checkpoints`).
            role: the role.
            cfg: the app's run options.

        Returns:
            Default: None, there is no such folder.

        Raises:
            UnsupportedFeature: if there is no such place for this role, by the field
                ``checkpoints``.
        """
        return None

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of an app, of the roles that have one. Default: none.

        Raises:
            AppNotFound: if there is no such app.
        """
        return ()

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role where they can be read from here; None, the default, if
        they cannot.

        Raises:
            AppNotFound: if there is no such app.
        """
        return None

    def mounts_jobs(self, role: Role, cfg: Mapping[str, CfgVal]) -> JobFiles:
        """Tell how a role of an app gets at the files of another one of this scheduler
        (`transload.specs.JobMount`).

        Args:
            role: the role.
            cfg: the app's run options.

        Returns:
            Default: ``out of reach``.
        """
        return "out of reach"

    def results_store(self, app_id: str) -> Store | None:
        """Return an app's results where only the scheduler can read them; None, the default: see
        its tracker base.

        Raises:
            AppNotFound: if there is no such app.
            TrackingError: if there is more than can be brought here.
        """
        return None

    def close(self) -> None:  # noqa: B027 - nothing to free is the default
        """Free what this object holds; running apps go on. May be called more than once."""


SchedulerFactory = Callable[..., SchedulerBase]
"""``factory(session_name, …)`` gets those of the runner's parameters that its signature names. One
that names ``name`` makes clusters with names of their own (``[schedulers.NAME] kind = …``); what
says which cluster that is, is given to `SchedulerBase.connect`."""


def refuse_unsupported(app: AppDef, capabilities: Capabilities, scheduler: str) -> None:
    """Refuse an app that uses a field which the scheduler cannot express.

    Raises:
        UnsupportedFeature: for the first such field.
    """

    def refuse(path: str, reason: str) -> NoReturn:
        raise UnsupportedFeature(f"{path}: not possible on scheduler {scheduler!r}: {reason}", path)

    if app.timeout is not None and not capabilities.timeout:
        refuse("timeout", "no limit of time can be set")
    if app.segment is not None and not capabilities.segment:
        refuse("segment", "a job cannot go on in a further segment")
    if len(app.roles) > 1 and not capabilities.roles:
        refuse("roles", "only one role can be run")
    for index, role in enumerate(app.roles):
        path = f"roles[{index}]"
        if role.num_replicas > 1 and not capabilities.replicas:
            refuse(f"{path}.num_replicas", "only one replica can be run")
        if role.min_replicas not in (None, role.num_replicas) and not capabilities.min_replicas:
            refuse(f"{path}.min_replicas", "all replicas must end well")
        if role.max_retries and role.retry_policy not in capabilities.retries:
            offered = ", ".join(sorted(policy.value for policy in capabilities.retries)) or "none"
            refuse(
                f"{path}.retry_policy",
                f"{role.retry_policy.value} is not offered (offered: {offered})",
            )
        if role.max_retries and role.retry_delay != RETRY_DELAY and not capabilities.retry_delay:
            refuse(f"{path}.retry_delay", "the engine has a back-off of its own")
        _refuse_endings(role, path, capabilities, refuse)
        if role.port_map and not capabilities.ports:
            refuse(f"{path}.port_map", "ports cannot be mapped")
        wanted = role.environment
        if wanted is not None and not wanted.is_none and not capabilities.environments:
            where = f"{path}.environment"
            raise UnsupportedFeature(no_environments(where, scheduler), where)
        for number, mount in enumerate(role.mounts):
            if isinstance(mount, JobMount):
                refuse(f"{path}.mounts[{number}]", "files of a job are mounted by a runner")
            kind = MountType(type(mount).__name__.removesuffix("Mount").lower())
            if kind not in capabilities.mounts:
                refuse(f"{path}.mounts[{number}]", f"{kind.value} mounts are not offered")


def _refuse_endings(
    role: Role, path: str, capabilities: Capabilities, refuse: Callable[[str, str], NoReturn]
) -> None:
    """Refuse what a scheduler cannot do of notices, checkpoints, interruptions and stalls."""
    if role.notice is not None and not capabilities.notice:
        refuse(f"{path}.notice", "no warning can be given before the end")
    if role.notice is not None and role.notice.signal not in capabilities.notice:
        offered = ", ".join(sorted(capabilities.notice))
        refuse(f"{path}.notice.signal", f"{role.notice.signal} cannot be sent (offered: {offered})")
    if role.checkpoints and not capabilities.checkpoints:
        refuse(f"{path}.checkpoints", "there is no folder that all attempts share")
    if role.max_interruptions and not capabilities.interruptions:
        refuse(f"{path}.max_interruptions", "interruptions are not told apart from failures")
    if role.stall_after is not None and not capabilities.stall:
        refuse(f"{path}.stall_after", "nobody looks whether a replica has stalled")


def no_environments(path: str, scheduler: str) -> str:
    """Return what is said where an environment is wanted of a scheduler that makes none."""
    return (
        f"{path}: not possible on scheduler {scheduler!r}: it installs no packages; have them in "
        "the image, and switch this off by --environment none"
    )


def request_json(request: Any) -> str:
    """Return a request as indented JSON, what looks secret in variables and in the words of
    commands masked.
    """
    import json
    from dataclasses import is_dataclass

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
    """Return ``(role, number)`` of every replica of an app."""
    if description.app is not None:
        return [(role.name, k) for role in description.app.roles for k in range(role.num_replicas)]
    return [
        (role.role, replica.id) for role in description.status.roles for replica in role.replicas
    ]


def damaged_message(what: str, why: str = "") -> str:
    """Return what the status of an app says of which something that was kept cannot be read.

    Args:
        what: what cannot be read, and where it lies: ``its record /home/…/record.json``.
        why: what is wrong with it; "": it is not known.
    """
    found = f"is damaged: {why}" if why else "is damaged"
    return f"{what} {found}; `transload delete --force` removes the app"


def check_replica(app_id: str, replicas: Mapping[str, int] | None, role: str, k: int) -> None:
    """Refuse a replica that an app does not have, as `SchedulerBase.log_read` does.

    Args:
        app_id: the app.
        replicas: role → how many replicas it has; None: there is no such app.
        role: the role that is asked for.
        k: number of the replica within it.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica.
    """
    if replicas is None:
        raise AppNotFound(app_id)
    if role not in replicas:
        raise SpecError(
            f"role {role!r}: app {app_id} has no such role; it has: {', '.join(sorted(replicas))}"
        )
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < replicas[role]:
        raise SpecError(f"replica {k!r}: role {role!r} has the replicas 0 to {replicas[role] - 1}")


def reconcile(scheduler: SchedulerBase, description: AppDescription | None) -> None:
    """Do what is due for an app, as the process that waits for it; what cannot be done now is left
    for later.
    """
    if description is not None and description.needs_reconcile:
        with contextlib.suppress(SchedulerUnavailable):
            scheduler.reconcile(description.app_id)
