"""Define `AppDef` and `Role`, which describe a job as plain data that is validated."""

from __future__ import annotations

import copy
from dataclasses import InitVar, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from transload.specs.checks import (
    as_list,
    check_dict,
    check_int,
    check_json_dict,
    check_name,
    check_role_name,
    check_seconds,
    check_str,
    refuse,
)
from transload.specs.environment import Environment
from transload.specs.interruptions import (
    MOST_INTERRUPTIONS,
    ON_STALL,
    Notice,
    check_against_limits,
    signal_name,
)
from transload.specs.resources import (
    BindMount,
    DeviceMount,
    JobMount,
    Mount,
    Resource,
    VolumeMount,
    null_resource,
)
from transload.specs.secrets import (
    check_source,
    looks_secret,
    masked_args,
    masked_env,
    masked_values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transload.specs.dryrun import AppDryRunInfo

MISSING: Final = "<MISSING>"
"""Stands for an entrypoint or image that is not given."""

NONE: Final = "<NONE>"
"""Stands for an optional text that is not set."""


MOST_REPLICAS: Final = 100_000
"""The largest number of replicas of a job."""

LARGEST_ARGS: Final = 32 << 20
"""The largest number of characters of a role's arguments, all together."""

_MOST_RETRIES: Final = (1 << 31) - 1  # as engines count them

RETRY_DELAY: Final = 1.0
"""Seconds before the first retry, unless a role says otherwise."""


OnStall = Literal["note", "dump"]
"""What is done about a replica that has stalled."""


class RetryPolicy(str, Enum):
    """What is started again when a replica fails (bad exit, lost host, pre-emption).

    - ``REPLICA``: that replica alone. The others stay.
    - ``ROLE``: all replicas of its role.
    - ``APPLICATION``: the whole job.
    - ``HOT_SPARE``: kept for those who come from TorchX. A scheduler that has no spares refuses it.
    """

    REPLICA = "REPLICA"
    ROLE = "ROLE"
    APPLICATION = "APPLICATION"
    HOT_SPARE = "HOT_SPARE"


@dataclass
class Workspace:
    """Local folders that are copied to where the job runs.

    Args:
        projects: local folder → folder inside the job's workspace, where ``""`` is its root.

    Raises:
        SpecError: for a target that leaves the workspace.
    """

    projects: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check("Workspace")

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the workspace stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        check_dict(self.projects, f"{path}.projects")
        for source, target in self.projects.items():
            check_str(source, f"{path}.projects key", empty=False)
            check_str(target, f"{path}.projects[{source!r}]")
            if target.startswith("/") or ".." in target.split("/"):
                refuse(
                    f"{path}.projects[{source!r}]", target, "must be a relative folder without '..'"
                )

    def __bool__(self) -> bool:
        return bool(self.projects)

    @staticmethod
    def from_str(workspace: str | None) -> Workspace:
        """Read ``"PATH"`` or ``"PATH=TARGET,PATH=TARGET"``.

        None and ``""`` give the empty workspace.
        """
        projects: dict[str, str] = {}
        for part in (workspace or "").replace(";", ",").split(","):
            if part.strip():
                source, _, target = part.strip().partition("=")
                projects[_path_of(source)] = target
        return Workspace(projects)

    def __str__(self) -> str:
        return ",".join(
            f"{source}={target}" if target else source for source, target in self.projects.items()
        )


def _path_of(source: str) -> str:
    """Return the path that a local folder's path or ``file://`` URL means."""
    if not source.startswith("file://"):
        return source
    from urllib.parse import unquote  # seldom needed

    return unquote(source.removeprefix("file://"))


@dataclass
class Role:
    """A group of equal replicas within an `AppDef`.

    Args:
        name: its name, unique in the job. It has letters, digits, ``_``, ``.``, ``-``.
        image: what the replicas run in, as the scheduler understands it, such as a container image
            or a folder.
        min_replicas: how many must end well for the role to succeed. None means all.
        entrypoint: the program to run.
        args: its arguments, which may hold `macros`.
        env: its environment variables, whose values may hold `macros`.
        num_replicas: how many replicas, 1 or more.
        max_retries: how often a failure is answered by starting again, 0 or more.
        retry_policy: what is started again.
        resource: what each replica needs.
        port_map: name of a port → number, of the ports that each replica listens on. Where replicas
            have a network of their own (containers, pods) these are published or declared. Where
            they use their host's (a process, a task of Slurm) there is nothing to map.
        metadata: anything for one scheduler, by convention under ``scheduler.key``. It may hold
            `macros`.
        mounts: what is mounted into each replica.
        workspace: local folders that travel with the role.
        secrets: environment variable → source (``env:NAME``, ``file:PATH`` or a scheduler's own),
            resolved at submit.
        retry_delay: seconds before the first retry, doubled for each further failure in a row up to
            five minutes (or to itself, if it is more). An attempt that ran for ten minutes ends the
            row.
        notice: the warning that a replica gets before it is ended. None means the scheduler's own
            way.
        checkpoints: the role has a folder for checkpoints, ``TRANSLOAD_CHECKPOINT_DIR``, which all
            attempts of the job share.
        max_interruptions: how often the role is started again after an end that is nobody's fault
            (pre-emption, a lost machine, the end of a segment), without spending ``max_retries``.
            None means as many as `interruptions_allowed` says.
        stall_after: seconds without progress, log line or result after which a replica that runs
            has stalled. None means that nobody looks.
        on_stall: what is done then. ``note`` says so in the status, and ``dump`` sends
            ``stall_signal`` as well.
        stall_signal: name of the signal of ``dump``, with or without ``SIG``, at which the program
            is expected to write its stacks.
        progress_server: Hugging Face's Trainer finds an address to which it posts its progress.
        environment: the packages that must be installed where it runs. `Environment.from_str` reads
            a text such as ``requirements.txt``. None means what the header of its script says, if
            it has one.

    Raises:
        SpecError: for a wrong value, with its path and what is allowed.
    """

    name: str
    image: str
    min_replicas: int | None = None
    entrypoint: str = MISSING
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    num_replicas: int = 1
    max_retries: int = 0
    retry_policy: RetryPolicy = RetryPolicy.APPLICATION
    resource: Resource = field(default_factory=null_resource)
    port_map: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)
    workspace: Workspace | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    retry_delay: float = field(default=RETRY_DELAY, kw_only=True)
    notice: Notice | None = field(default=None, kw_only=True)
    checkpoints: bool = field(default=False, kw_only=True)
    max_interruptions: int | None = field(default=None, kw_only=True)
    stall_after: float | None = field(default=None, kw_only=True)
    on_stall: OnStall = field(default="note", kw_only=True)
    stall_signal: str = field(default="USR1", kw_only=True)
    environment: Environment | None = field(default=None, kw_only=True)
    progress_server: bool = field(default=False, kw_only=True)

    WHEN_SET = (
        "notice",
        "checkpoints",
        "max_interruptions",
        "stall_after",
        "on_stall",
        "stall_signal",
        "environment",
        "progress_server",
    )

    def __post_init__(self) -> None:
        self.check("Role")

    @property
    def interruptions_allowed(self) -> int:
        """Return how many interruptions are followed by another start.

        This is ``max_interruptions`` if it is set. Else it is 20 for a role that has a notice or
        asks for checkpoints, and 0 for others.
        """
        if self.max_interruptions is not None:
            return self.max_interruptions
        if self.notice is not None or self.checkpoints:
            return MOST_INTERRUPTIONS
        return 0

    @property
    def needed_replicas(self) -> int:
        """Return how many replicas must end well for the role to succeed."""
        if self.min_replicas is None:
            return self.num_replicas
        return self.min_replicas

    def check(self, path: str) -> None:
        """Refuse wrong values, and turn tuples that are given for lists into lists.

        Args:
            path: where the role stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        check_role_name(self.name, f"{path}.name")
        check_str(self.image, f"{path}.image")
        check_str(self.entrypoint, f"{path}.entrypoint", empty=False)
        check_int(self.num_replicas, f"{path}.num_replicas", 1, MOST_REPLICAS)
        if self.min_replicas is not None:
            check_int(self.min_replicas, f"{path}.min_replicas", 0, self.num_replicas)
        check_int(self.max_retries, f"{path}.max_retries", 0, _MOST_RETRIES)
        check_seconds(self.retry_delay, f"{path}.retry_delay", low=0)
        self._check_ends(path)
        self._check_texts(path)
        self._check_parts(path)

    def _check_ends(self, path: str) -> None:
        """Refuse what is wrong of the warning before the end, of interruptions and stalls."""
        if self.notice is not None:
            if not isinstance(self.notice, Notice):
                refuse(f"{path}.notice", self.notice, "must be a Notice or None")
            self.notice.check(f"{path}.notice")
        if not isinstance(self.checkpoints, bool):
            refuse(f"{path}.checkpoints", self.checkpoints, "must be True or False")
        if not isinstance(self.progress_server, bool):
            refuse(f"{path}.progress_server", self.progress_server, "must be True or False")
        if self.max_interruptions is not None:
            check_int(self.max_interruptions, f"{path}.max_interruptions", 0, _MOST_RETRIES)
        if self.stall_after is not None:
            check_seconds(self.stall_after, f"{path}.stall_after", above=0)
        if self.on_stall not in ON_STALL:
            refuse(f"{path}.on_stall", self.on_stall, f"must be one of {list(ON_STALL)}")
        self.stall_signal = signal_name(self.stall_signal, f"{path}.stall_signal")
        same = self.notice is not None and self.notice.signal == self.stall_signal
        if same and self.on_stall == "dump":
            refuse(
                f"{path}.stall_signal",
                self.stall_signal,
                "must be another signal than that of the notice",
            )

    def _check_texts(self, path: str) -> None:
        self.args = as_list(self.args, f"{path}.args")
        for index, arg in enumerate(self.args):
            check_str(arg, f"{path}.args[{index}]")
        size = sum(map(len, self.args))
        if size > LARGEST_ARGS:
            refuse(
                f"{path}.args",
                "…",
                f"have {size:,} characters; at most {LARGEST_ARGS:,}: keep data in files",
            )
        check_dict(self.env, f"{path}.env")
        check_dict(self.secrets, f"{path}.secrets")
        for name, value in self.env.items():
            _check_env_name(name, f"{path}.env")
            if looks_secret(name) and (not isinstance(value, str) or "\x00" in value):
                refuse(
                    f"{path}.env[{name!r}]",
                    "…",
                    "must be a str without NUL (its value is not shown)",
                )
            check_str(value, f"{path}.env[{name!r}]")
        for name, source in self.secrets.items():
            _check_env_name(name, f"{path}.secrets")
            check_source(source, f"{path}.secrets[{name!r}]")
            if name in self.env:
                refuse(f"{path}.secrets", name, "is also in env: give it once")

    def _check_parts(self, path: str) -> None:
        try:
            self.retry_policy = RetryPolicy(self.retry_policy)
        except ValueError:
            refuse(
                f"{path}.retry_policy",
                self.retry_policy,
                f"must be one of {[item.value for item in RetryPolicy]}",
            )
        if not isinstance(self.resource, Resource):
            refuse(f"{path}.resource", self.resource, "must be a Resource")
        self.resource.check(f"{path}.resource")
        check_dict(self.port_map, f"{path}.port_map")
        for name, port in self.port_map.items():
            check_int(port, f"{path}.port_map[{name!r}]", 0, 65535)
        check_json_dict(self.metadata, f"{path}.metadata")
        self.mounts = as_list(self.mounts, f"{path}.mounts")
        for index, mount in enumerate(self.mounts):
            if not isinstance(mount, (BindMount, VolumeMount, DeviceMount, JobMount)):
                refuse(
                    f"{path}.mounts[{index}]",
                    mount,
                    "must be a BindMount, VolumeMount, DeviceMount or JobMount",
                )
            mount.check(f"{path}.mounts[{index}]")
        if self.workspace is not None:
            if not isinstance(self.workspace, Workspace):
                refuse(f"{path}.workspace", self.workspace, "must be a Workspace or None")
            self.workspace.check(f"{path}.workspace")
        self.environment = as_environment(self.environment, f"{path}.environment")

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        """Return the request to go on with.

        Subclasses may override it. It is kept for those who come from TorchX.
        """
        return dryrun_info


def as_environment(value: object, path: str) -> Environment | None:
    """Return an environment, which may be given as a text. None stays None.

    Raises:
        SpecError: for another type, or a wrong value.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return Environment.from_str(value, path)
    if not isinstance(value, Environment):
        refuse(path, value, "must be an Environment, the name of a file, or None")
    value.check(path)
    return value


def _check_env_name(name: str, path: str) -> None:
    check_str(name, f"{path} name")
    if not name or "=" in name or "\x00" in name:
        refuse(f"{path} name", name, "must not be empty or contain '=' or NUL")


@dataclass
class AppDef:
    """A job of one or more roles that run together.

    Args:
        name: what people call it.
        roles: its roles, whose names are unique.
        metadata: anything about the job as a whole.
        timeout: seconds that the whole job may take, retries included. None means no limit.
        arguments: what the component was called with, from name to JSON value. What looks secret is
            masked. They are kept for those who compare runs, and are no part of the `digest`.
        segment: seconds that the queue gives at a time. The work goes on in the next segment until
            it has ended, or ``timeout`` is over. None means all at once.
        environment: the packages that must be installed where roles run that name none themselves
            (see `Role`). It becomes those roles' own.

    Raises:
        SpecError: for a wrong value, with its path and what is allowed.
    """

    name: str
    roles: list[Role] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    timeout: float | None = field(default=None, kw_only=True)
    arguments: dict[str, Any] = field(default_factory=dict, kw_only=True)
    segment: float | None = field(default=None, kw_only=True)
    environment: InitVar[Environment | str | None] = field(default=None, kw_only=True)

    WHEN_SET = ("segment",)

    def __post_init__(self, environment: Environment | str | None) -> None:
        self.check()
        given = as_environment(environment, "environment")
        if given is not None:
            for role in self.roles:
                role.environment = role.environment or copy.copy(given)

    def check(self) -> None:
        """Refuse wrong values. It is called when constructed, and wherever the definition is used.

        Raises:
            SpecError: with the path, the value and what is allowed.
        """
        check_name(self.name, "name")
        self.roles = as_list(self.roles, "roles")
        seen: dict[str, int] = {}
        for index, role in enumerate(self.roles):
            if not isinstance(role, Role):
                refuse(f"roles[{index}]", role, "must be a Role")
            role.check(f"roles[{index}]")
            if role.name in seen:
                refuse(
                    f"roles[{index}].name",
                    role.name,
                    f"is taken by roles[{seen[role.name]}]; names must differ",
                )
            seen[role.name] = index
        total = sum(role.num_replicas for role in self.roles)
        if total > MOST_REPLICAS:
            refuse("roles", "…", f"have {total:,} replicas together; at most {MOST_REPLICAS:,}")
        check_json_dict(self.metadata, "metadata")
        check_json_dict(self.arguments, "arguments")
        if self.timeout is not None:
            check_seconds(self.timeout, "timeout", above=0)
        check_against_limits(self)

    def check_runnable(self) -> None:
        """Refuse missing roles and entrypoints, which `check` allows to be given later.

        Raises:
            SpecError: with the path and what is missing.
        """
        self.check()
        if not self.roles:
            refuse("roles", self.roles, "must hold at least one Role")
        for index, role in enumerate(self.roles):
            if role.entrypoint == MISSING:
                refuse(f"roles[{index}].entrypoint", role.entrypoint, "must be given")

    def masked(self) -> AppDef:
        """Return a copy in which secret-looking variables, arguments and metadata are masked."""
        shown = copy.copy(self)
        shown.metadata = masked_values(self.metadata)
        shown.arguments = masked_values(self.arguments)
        shown.roles = [copy.copy(role) for role in self.roles]
        for role in shown.roles:
            role.env = masked_env(role.env)
            role.args = masked_args(role.args)
            role.metadata = masked_values(role.metadata)
        return shown

    def to_dict(self) -> dict[str, Any]:
        """Return the definition as JSON values, with a ``schema`` number.

        Secrets stay references.

        Raises:
            SpecError: if the definition is wrong.
        """
        from transload.specs.serialization import SCHEMA, to_value

        self.check()
        return {"schema": SCHEMA, **to_value(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text.

        Args:
            indent: spaces of each level. None gives one line.

        Raises:
            SpecError: if the definition is wrong.
        """
        from transload.specs.serialization import dump

        return dump(self.to_dict(), indent)

    @staticmethod
    def from_json(text: str | bytes) -> AppDef:
        """Read what `to_json` wrote, in this version or an older one.

        Raises:
            SpecError: for text that is not JSON, an unknown field or a newer schema.
        """
        from transload.specs.serialization import load

        return AppDef.from_dict(load(text, "AppDef"))

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> AppDef:
        """Read what `to_dict` returned. Errors as in `from_json`."""
        from transload.specs.serialization import build, check_schema

        data = check_schema(values, "AppDef")
        roles = data.get("roles", [])
        if isinstance(roles, list):
            data["roles"] = [_role(role, f"roles[{index}]") for index, role in enumerate(roles)]
        return build(AppDef, data, "AppDef")

    def serialize(self) -> dict[str, Any]:
        """Return `to_dict`.

        Orchestrators that pass values from task to task look for this name.
        """
        return self.to_dict()

    @staticmethod
    def deserialize(data: Mapping[str, Any], version: int = 0) -> AppDef:
        """Read what `serialize` returned.

        Args:
            data: the values, which name their own schema.
            version: not used.

        Raises:
            SpecError: as in `from_dict`.
        """
        return AppDef.from_dict(data)

    def digest(self) -> str:
        """Return ``sha256:…`` of the definition.

        It is equal on every machine for equal definitions, whatever the order of dict keys.

        Raises:
            SpecError: if the definition is not valid.
        """
        from transload.specs.serialization import canonical, sha256

        return f"sha256:{sha256(canonical(replace(self, arguments={})).encode())}"


def _role(data: Any, path: str) -> Role:
    from transload.specs.serialization import build

    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    data = dict(data)
    kinds = (
        ("resource", Resource),
        ("workspace", Workspace),
        ("notice", Notice),
        ("environment", Environment),
    )
    for name, kind in kinds:
        if isinstance(data.get(name), dict):
            data[name] = build(kind, data[name], f"{path}.{name}")
    if isinstance(data.get("mounts"), list):
        data["mounts"] = [
            mount_from(mount, f"{path}.mounts[{index}]")
            for index, mount in enumerate(data["mounts"])
        ]
    return build(Role, data, path)


def mount_from(data: Any, path: str) -> Mount:
    """Return the mount that a JSON object describes.

    Args:
        data: the JSON object.
        path: where it stands, which begins the message.

    Raises:
        SpecError: for a wrong value.
    """
    from transload.specs.serialization import build

    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    data = dict(data)
    kind = data.pop("type", None)
    kinds: dict[Any, type[Mount]] = {
        cls.JSON_TYPE: cls for cls in (BindMount, VolumeMount, DeviceMount, JobMount)
    }
    if not isinstance(kind, str) or kind not in kinds:
        refuse(f"{path}.type", kind, "must be one of bind, volume, device, job")
    return build(kinds[kind], data, path)
