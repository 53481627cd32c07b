"""The contract of a scheduler: what a backend that runs apps must do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Protocol, runtime_checkable

from transload.specs import AppDef, AppState, AppStatus, CfgVal, MountType, RetryPolicy, runopts

Reach = Literal["process", "host", "network"]
"""From where an app can be watched: the process that submitted it, any process of the machine, anywhere."""


class Stream(str, Enum):
    """A replica's output streams; COMBINED is both in the order in which they were seen to grow."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a scheduler can express. What it cannot, it refuses in ``convert`` by field name.

    Args:
        replicas: more than one replica of a role.
        roles: more than one role.
        retries: the retry policies that it honours.
        mounts: the kinds of mounts.
        ports: ``Role.port_map``.
        gangs: all replicas start together, or none.
        since_until: logs by time.
        min_replicas: ``Role.min_replicas``.
        timeout: ``AppDef.timeout``.
        reachable_from: see `Reach`.
    """

    replicas: bool = True
    roles: bool = True
    retries: frozenset[RetryPolicy] = frozenset()
    mounts: frozenset[MountType] = frozenset()
    ports: bool = False
    gangs: bool = True
    since_until: bool = False
    min_replicas: bool = True
    timeout: bool = True
    reachable_from: Reach = "network"


@dataclass(slots=True)
class AppDescription:
    """What a scheduler knows of an app.

    Args:
        app_id: its id.
        status: its status.
        app: the app as submitted, secret-looking values masked; None if the scheduler does not keep it.
        session: name of the session that submitted it.
        cfg: the run options that it was submitted with, without secrets.
        digest: digest of the app as submitted.
        tracker_base: where it reports results.
        created: when it was submitted, seconds since the epoch.
        log_url: folder or page of its logs.
        due: something is left to do that only the process which waits for the app as its owner does: see ``tend``.
    """

    app_id: str
    status: AppStatus
    app: AppDef | None = None
    session: str | None = None
    cfg: dict[str, CfgVal] = field(default_factory=dict)
    digest: str | None = None
    tracker_base: str | None = None
    created: float | None = None
    log_url: str | None = None
    due: bool = False


@dataclass(slots=True)
class ListAppResponse:
    """One row of a list of apps. (The name is TorchX's, kept for those who come from there.)"""

    app_id: str
    state: AppState
    app_handle: str = ""
    name: str = ""
    created: float | None = None


@dataclass(slots=True)
class LogPage:
    """A piece of one replica's log.

    Args:
        lines: whole lines, each ending in a newline, except perhaps the very last one of a replica that has ended.
        cursor: where to go on; opaque text.
        complete: the replica has ended for good and all of its log was read.
        dropped: bytes that were lost to a size limit before this page.
    """

    lines: list[str]
    cursor: str
    complete: bool
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Submission:
    """What goes with a native request when it is submitted.

    Args:
        app: the app as passed by the caller (before macros and injected environment): what ``describe`` shows.
        digest: its digest.
        session: name of the session.
        cfg: the resolved run options.
        tracker_base: where the app reports results.
        id_given: the app id is the caller's: a record must outlive ``delete``.
        inherit_env: the job gets the whole environment of the submitting process, else an allow-list of it.
        secrets: role name → environment variable → value; never written to disk, never shown.
    """

    app: AppDef
    digest: str
    session: str
    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    id_given: bool = False
    inherit_env: bool = True
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


@runtime_checkable
class Watch(Protocol):
    """Tells which apps may have changed, without a query per app. One per process and scheduler serves any number."""

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""

    def wait(self, timeout: float | None) -> set[str]:
        """Return ids that may have changed since the last call; block up to ``timeout`` seconds (None: no limit).

        Empty when time ran out or `wake` was called. Ids just added by `update` count as changed.
        """

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""

    def close(self) -> None:
        """Free what the watch holds."""


class Scheduler(Protocol):
    """A backend that runs apps.

    All methods may be called from any thread. An error of the backend itself (it cannot be reached) is
    `SchedulerUnavailable`; a query that cannot be answered for one app gives state UNKNOWN for it.
    """

    name: str
    capabilities: Capabilities

    def run_opts(self) -> runopts:
        """Return the options that this scheduler takes."""

    def convert(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> Any:
        """Return the native request for ``app``. Pure: nothing outside of the process is touched.

        ``${app_id}`` is already replaced in ``app``, the other macros are this method's; ``cfg`` is resolved.

        Raises:
            UnsupportedFeature: for a field that this scheduler cannot express, by its path.
        """

    def format_request(self, request: Any) -> str:
        """Return a request as text for a person, secrets masked."""

    def prepare(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDef:
        """Build what must exist before the app can run (a patched image, a copied workspace). Called only by a submit.

        Returns:
            The app to convert; often ``app`` itself.
        """

    def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
        """Start the app under ``app_id``, or adopt it: all or nothing.

        Returns:
            True if it was started; False if an app of that id and digest is there already.

        Raises:
            AppExists: if the id is taken by another app.
            SubmitError: if it was not taken; nothing runs.
        """

    def describe(self, app_id: str) -> AppDescription | None:
        """Return what is known of an app; None only if it provably does not exist; state UNKNOWN if not known."""

    def describe_many(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return `describe` for many apps with as few queries as possible."""

    def existed(self, app_id: str) -> bool:
        """Tell whether an app of that id was ever submitted here, as far as records reach (deleted ones included)."""

    def watch(self) -> Watch | None:
        """Return a new watch, or None if this scheduler can only be asked."""

    def list(self) -> list[ListAppResponse]:
        """Return the apps that it knows, newest first."""

    def cancel(self, app_id: str) -> None:
        """Ask for the end of an app; return at once. Nothing happens if it has ended or does not exist."""

    def delete(self, app_id: str) -> None:
        """Forget an app (ending it first); the record of a caller-given id stays. Nothing happens if it is gone."""

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterator[str]:
        """Yield the log lines of replica ``k`` of a role, newline included.

        Args:
            app_id: the app.
            role_name: the role.
            k: number of the replica within the role.
            regex: only lines in which it is found.
            since: only lines written at or after this time (naive: local time).
            until: only lines written before this time.
            should_tail: follow until the replica has ended.
            streams: which output; None: combined.

        Raises:
            SpecError: for an unknown role or replica, or a bad regex.
            AppNotFound: if there is no such app.
        """

    def log_read(
        self, app_id: str, role_name: str, k: int, stream: Stream, cursor: str | None = None, max_bytes: int = 1 << 20
    ) -> LogPage:
        """Return the next page of a log; never blocks.

        Args:
            app_id: the app.
            role_name: the role.
            k: number of the replica within the role.
            stream: which output.
            cursor: from an earlier page; None: the beginning.
            max_bytes: about how much to read.
        """

    def results_folder(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str | None:
        """Return the tracker base of the app's own, visible inside the job; None if there cannot be one."""

    def close(self) -> None:
        """Free what this object holds; running apps go on. May be called more than once."""


SchedulerFactory = Callable[..., Scheduler]
"""``factory(session_name, **params)``; unknown params are to be ignored."""


def unsupported_fields(app: AppDef, capabilities: Capabilities) -> Iterable[tuple[str, str]]:
    """Yield ``(path, reason)`` for each field of ``app`` that ``capabilities`` rule out."""
    if app.timeout is not None and not capabilities.timeout:
        yield "timeout", "no limit of time can be set"
    if len(app.roles) > 1 and not capabilities.roles:
        yield "roles", "only one role can be run"
    for index, role in enumerate(app.roles):
        path = f"roles[{index}]"
        if role.num_replicas > 1 and not capabilities.replicas:
            yield f"{path}.num_replicas", "only one replica can be run"
        if role.min_replicas not in (None, role.num_replicas) and not capabilities.min_replicas:
            yield f"{path}.min_replicas", "all replicas must end well"
        if role.max_retries and role.retry_policy not in capabilities.retries:
            offered = ", ".join(sorted(policy.value for policy in capabilities.retries)) or "none"
            yield f"{path}.retry_policy", f"{role.retry_policy.value} is not offered (offered: {offered})"
        if role.port_map and not capabilities.ports:
            yield f"{path}.port_map", "ports cannot be mapped"
        for number, mount in enumerate(role.mounts):
            kind = MountType(type(mount).__name__.removesuffix("Mount").lower())
            if kind not in capabilities.mounts:
                yield f"{path}.mounts[{number}]", f"{kind.value} mounts are not offered"


def refuse_unsupported(app: AppDef, capabilities: Capabilities, scheduler: str) -> None:
    """Refuse an app that uses a field which the scheduler cannot express.

    Raises:
        UnsupportedFeature: for the first such field.
    """
    from transload.errors import UnsupportedFeature

    for path, reason in unsupported_fields(app, capabilities):
        raise UnsupportedFeature(f"{path}: not possible on scheduler {scheduler!r}: {reason}", path)
