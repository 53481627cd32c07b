"""What can be set in a job from outside of its definition. This is the one list of it.

The options of ``transload run``, the keywords of `transload.run` and of every adapter, the header of
a script and the tables of ``transload.toml`` are made from it and read with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, TypedDict, cast, get_type_hints

from transload.errors import SpecError
from transload.specs.app import AppDef, Role, mount_from
from transload.specs.checks import (
    check_given,
    check_name,
    check_number,
    check_str,
    nearest,
    shorten,
)
from transload.specs.interruptions import MOST_INTERRUPTIONS, Notice, signal_name
from transload.specs.resources import Mount, parse_mounts
from transload.specs.secrets import check_source, looks_secret
from transload.specs.text import parse_number
from transload.specs.values import Count, Delay, Rule, Seconds, Size, at_least, read

__all__ = [
    "JOB_SETTINGS",
    "SETTINGS",
    "JobSettings",
    "OverrideOptions",
    "Setting",
    "check_names",
    "read_settings",
    "read_table",
    "split_overrides",
    "with_settings",
]

_UNSET: Final = -1
"""The value of a resource's fields that are not set."""


@dataclass(frozen=True)
class Setting:
    """How one setting is read, and what it sets.

    Args:
        field: what it sets: ``app.timeout``, ``role.image``, ``resource.gpu`` …
        type: how a user's value is read (see `transload.specs.values.read`).
        help: what it does, in one sentence. Options, forms and pages show it.
        metavar: stands for its value there. It is ``""`` for an option without a value.
        adds: it is added to what the job has already.
        always_chosen: whoever makes a job chooses it, so that its default is no sign that it is
            open.
    """

    field: str
    type: Any
    help: str
    metavar: str = "N"
    adds: bool = False
    always_chosen: bool = False

    def option(self, name: str) -> str:
        """Return the option of commands for it. One that adds to several is in the singular."""
        if self.adds:
            name = name.removesuffix("s")
        return f"--{name.replace('_', '-')}"


def _read_name(value: Any, where: str) -> Any:
    check_name(value, where)
    check_given(**{where: value})
    return value


def _read_text(value: Any, where: str) -> Any:
    check_str(value, where)
    check_given(**{where: value})
    return value


def _read_texts(value: Any, where: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise SpecError(f"{where}={shorten(value)}: must be name → value")
    for name, text in value.items():
        check_str(text, f"{where}[{name!r}]")
    return value


def _read_cores(value: Any, where: str) -> Any:
    if isinstance(value, str):
        thousandths = value.removesuffix("m")
        if thousandths != value and thousandths.isdecimal():
            raise SpecError(f"{where}={value!r}: write cores, {int(thousandths) / 1000:g}")
        try:
            value = parse_number(value, float)
        except ValueError:
            raise SpecError(
                f"{where}={shorten(value)}: must be a number of cores, such as 0.5"
            ) from None
    if value != _UNSET:
        check_number(value, where, low=0)
    return value


def _read_gpus(value: Any, where: str) -> Any:
    if isinstance(value, str):
        kind, _, count = value.removeprefix("gpu:").rpartition(":")
        if kind and count.isdecimal():
            raise SpecError(
                f"{where}={value!r}: give {count} here, and the type by -c gpu_type={kind}, which "
                "Slurm knows"
            )
    if value in (_UNSET, str(_UNSET)):
        return _UNSET
    return read(value, Count, where)


def _read_memory(value: Any, where: str) -> int:
    """Return the MiB of a size, rounded up."""
    size: int = read(value, Size, where)
    return -(-size // (1 << 20))


def _read_notice(value: Any, where: str) -> Notice:
    if isinstance(value, Mapping) and isinstance(value.get("seconds"), str):
        value = {**value, "seconds": read(value["seconds"], Seconds, f"{where}.seconds")}
    if isinstance(value, (Notice, Mapping)):
        return cast("Notice", read(value, Notice, where))
    return Notice(read(value, Seconds, where))


def _read_mounts(value: Any, where: str) -> list[Mount]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        raise SpecError(f"{where}={shorten(value)}: must be a list of mounts")
    mounts: list[Mount] = []
    words: list[str] = []
    for index, each in enumerate(value):
        if isinstance(each, str):
            words += each.split(",")
        elif isinstance(each, Mapping):
            mounts.append(mount_from(each, f"{where}[{index}]"))
        elif isinstance(each, Mount):
            mounts.append(each)
        else:
            raise SpecError(f"{where}[{index}]={shorten(each)}: must be a mount, or a text of one")
    return [*mounts, *parse_mounts(words)]


_NAME: Final = Annotated[str, Rule("str", _read_name)]
_TEXT: Final = Annotated[str, Rule("str", _read_text)]
_TEXTS: Final = Annotated[dict[str, str], Rule("dict[str, str]", _read_texts)]
_CORES: Final = Annotated[float, Rule("float", _read_cores)]
_GPUS: Final = Annotated[int, Rule("int", _read_gpus)]
_MIB: Final = Annotated[int, Rule("size", _read_memory)]
_NOTICE: Final = Annotated[Notice, Rule("duration", _read_notice)]
_SIGNAL: Final = Annotated[str, Rule("signal", signal_name)]
_MOUNTS: Final = Annotated[list[Mount], Rule("mounts", _read_mounts)]
_REPLICAS: Final = Annotated[int, at_least(1)]
_STALL: Final = Literal["note", "dump"]


class JobSettings(TypedDict, total=False):
    """The settings that every adapter takes by these names, to set over what a definition says.

    A command has no other settings than these. A duration is a text with its unit, such as ``2h``.
    A size is a text such as ``8G`` or a number of bytes. A mount may be a text such as
    ``type=bind,src=/data,dst=/data``. A number may be a text, too.
    """

    image: Annotated[
        str | None,
        Setting(
            "role.image",
            _TEXT,
            "What the job runs in: a container image, or a folder to work in.",
            "IMAGE",
        ),
    ]
    replicas: Annotated[
        int | str | None,
        Setting("role.num_replicas", _REPLICAS, "How many of each role.", always_chosen=True),
    ]
    cpu: Annotated[float | str | None, Setting("resource.cpu", _CORES, "Cores of each replica.")]
    gpu: Annotated[int | str | None, Setting("resource.gpu", _GPUS, "GPUs of each replica.")]
    mem: Annotated[
        int | str | None, Setting("resource.memMB", _MIB, "Memory of each replica (8G).", "SIZE")
    ]
    mounts: Annotated[
        Sequence[Mount | str] | str | None,
        Setting(
            "role.mounts",
            _MOUNTS,
            "Mounts, such as job=HANDLE:outputs,dst=/in (docs/guides/files.md).",
            "TEXT",
            adds=True,
        ),
    ]
    env: Annotated[
        Mapping[str, str] | None,
        Setting("role.env", _TEXTS, "Variables for the roles.", "K=V", adds=True),
    ]
    secrets: Annotated[
        Mapping[str, str] | None,
        Setting(
            "role.secrets",
            _TEXTS,
            "Variables for the roles, and where their values come from: env:NAME, file:PATH.",
            "K=SOURCE",
            adds=True,
        ),
    ]
    time_limit: Annotated[
        str | None, Setting("app.timeout", Seconds, "End the job after this long (2h).", "DURATION")
    ]
    segment: Annotated[
        str | None,
        Setting(
            "app.segment",
            Seconds,
            "Ask the queue for this long at a time (12h), and go on in the next segment.",
            "DURATION",
        ),
    ]
    notice: Annotated[
        Notice | str | None,
        Setting(
            "role.notice",
            _NOTICE,
            "Warn the job by a signal, this long before its end (5m).",
            "DURATION",
        ),
    ]
    max_interruptions: Annotated[
        int | str | None,
        Setting(
            "role.max_interruptions",
            Count,
            "How often to start again after a pre-emption or a lost node; default: "
            f"{MOST_INTERRUPTIONS} with a notice or checkpoints, else 0.",
        ),
    ]
    stall_after: Annotated[
        str | None,
        Setting(
            "role.stall_after",
            Seconds,
            "Say that the job has stalled after this long without a sign of life (20m).",
            "DURATION",
        ),
    ]
    on_stall: Annotated[
        str | None,
        Setting(
            "role.on_stall",
            _STALL,
            "note: say so; dump: send a signal as well, at which it writes its stacks.",
            "WHAT",
        ),
    ]
    stall_signal: Annotated[
        str | None,
        Setting("role.stall_signal", _SIGNAL, "The signal of dump; default: USR1.", "NAME"),
    ]
    progress_server: Annotated[
        bool | str | None,
        Setting(
            "role.progress_server", bool, "Take the progress that Hugging Face's Trainer posts.", ""
        ),
    ]


class OverrideOptions(JobSettings, total=False):
    """All settings. Some of these names mean something else to some orchestrators."""

    name: Annotated[
        str | None, Setting("app.name", _NAME, "Name of the job.", "NAME", always_chosen=True)
    ]
    retries: Annotated[
        int | str | None,
        Setting("role.max_retries", Count, "How often to start again after a failure."),
    ]
    retry_delay: Annotated[
        str | None,
        Setting(
            "role.retry_delay",
            Delay,
            "Wait this long before the first retry (10s), then twice as long.",
            "DURATION",
        ),
    ]
    checkpoints: Annotated[
        bool | str | None, Setting("role.checkpoints", bool, "Keep a folder for checkpoints.", "")
    ]
    role: Annotated[
        str | None,
        Setting("", _TEXT, "The role that these settings are about; default: all.", "NAME"),
    ]


JOB_SETTINGS: Final = tuple(JobSettings.__annotations__)
"""The names of `JobSettings`."""

SETTINGS: Final[Mapping[str, Setting]] = {
    name: next(each for each in hint.__metadata__ if isinstance(each, Setting))
    for name, hint in get_type_hints(OverrideOptions, include_extras=True).items()
}
"""Name → setting, in the order in which they are shown."""


def check_names(values: object) -> None:
    """Refuse settings that are no mapping, and unknown names.

    Raises:
        SpecError: for the first of these names, with the nearest.
    """
    if not isinstance(values, Mapping):
        raise SpecError(f"overrides={shorten(values)}: must be setting → value")
    for name in values:
        if name not in SETTINGS:
            raise SpecError(f"{name}: no setting of a job: {nearest(name, list(SETTINGS))}")


def read_settings(
    given: OverrideOptions | Mapping[str, Any], spelled: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return settings as the fields hold them that they set. One that is None is not given.

    Args:
        given: name → value.
        spelled: returns what the user calls a setting, for messages.

    Raises:
        SpecError: for an unknown name, or a value that no job can have.
    """
    check_names(given)
    return {
        name: read(value, SETTINGS[name].type, spelled(name))
        for name, value in given.items()
        if value is not None
    }


def read_table(
    table: Mapping[str, Any], where: Callable[[str], str], others: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings in a table of a header or of a settings file.

    Args:
        table: key → value. Words of a key are joined by ``-`` or ``_``.
        where: returns the place of a key, for messages.
        others: further keys that are allowed there, for the hint.

    Raises:
        SpecError: for an unknown key, a wrong value, or a secret that is not a reference.
    """
    keys: dict[str, str] = {}
    for key in table:
        other = keys.setdefault(key.replace("-", "_"), key)
        if other != key:
            raise SpecError(f"{where(key)}: sets the same as {where(other)}: leave one of them out")
    known = [name.replace("_", "-") for name in SETTINGS if name != "role"]
    for name, key in keys.items():
        if name not in SETTINGS or name == "role":
            raise SpecError(f"{where(key)}: unknown key: {nearest(key, [*known, *others])}")
    given = {name: table[key] for name, key in keys.items()}
    settings = read_settings(given, lambda name: where(keys[name]))
    for name, source in settings.get("secrets", {}).items():
        check_source(source, f"{where(name)} in secrets")
    for name in settings.get("env", {}):
        if looks_secret(name):
            raise SpecError(
                f"{where(name)} in env: looks like a secret, which must not be written in a file; "
                f'give its source, secrets = {{ {name} = "env:{name}" }}'
            )
    return settings


def split_overrides(options: Mapping[str, Any]) -> tuple[OverrideOptions, dict[str, Any]]:
    """Return the settings among an adapter's options, and its other options.

    Args:
        options: settings by the names of `JobSettings`, ``overrides`` (a mapping of any that
            `OverrideOptions` has), and others. A setting by its own name goes before the mapping.

    Raises:
        SpecError: if ``overrides`` is no mapping, or has an unknown name.
    """
    given = options.get("overrides") or {}
    check_names(given)
    overrides = cast("OverrideOptions", dict(given))
    others = {}
    for name, value in options.items():
        if name in JOB_SETTINGS:
            if value is not None:
                overrides[name] = value  # type: ignore[literal-required]
        elif name != "overrides":
            others[name] = value
    return overrides, others


def with_settings(
    app: AppDef,
    settings: Mapping[str, Any],
    *,
    only_open: bool = False,
    is_command: bool = False,
) -> AppDef:
    """Return a job in which settings are in force. The job itself is not changed.

    Args:
        app: the job.
        settings: what `read_settings` returned.
        only_open: what the job says itself stays. It does not say what is as by default.
        is_command: the job is made of a command, so that its name and number of replicas, which
            components choose, are open as well.

    Raises:
        SpecError: if it has no such role, or values do not fit together.
    """
    change = _Change(settings, only_open, is_command)
    role_name = settings.get("role")
    names = [role.name for role in app.roles]
    if role_name is not None and role_name not in names:
        hint = nearest(role_name, names)
        raise SpecError(f"role {role_name!r}: {app.name!r} has no such role: {hint}")
    roles = [change.of_role(role) if role_name in (None, role.name) else role for role in app.roles]
    changes = change.of("app", app)
    if any(new is not old for new, old in zip(roles, app.roles, strict=True)):
        changes["roles"] = roles
    return replace(app, **changes) if changes else app


@dataclass(frozen=True)
class _Change:
    """What settings change. Arguments are those of `with_settings`."""

    settings: Mapping[str, Any]
    only_open: bool
    is_command: bool

    def of(self, kind: str, record: Any) -> dict[str, Any]:
        """Return field → value for what is set in a record, but for what is added."""
        changes = {}
        for name, value in self.settings.items():
            setting = SETTINGS[name]
            place, _, field = setting.field.partition(".")
            if place != kind or setting.adds:
                continue
            if not self.only_open or self._is_open(setting, record, field):
                changes[field] = value
        return changes

    def _is_open(self, setting: Setting, record: Any, field: str) -> bool:
        if setting.always_chosen:
            return self.is_command
        default = next(each.default for each in fields(record) if each.name == field)
        value = getattr(record, field)
        return value in ("", _UNSET) if default is MISSING else value == default

    def of_role(self, role: Role) -> Role:
        """Return a role in which the settings are in force."""
        changes = {**self.of("role", role), **self._variables(role), **self._mounts(role)}
        resource = self.of("resource", role.resource)
        if resource:
            changes["resource"] = replace(role.resource, **resource)
        return replace(role, **changes) if changes else role

    def _variables(self, role: Role) -> dict[str, Any]:
        """Return the new variables of a role, of which each has a value or a source."""
        env = self.settings.get("env", {})
        secrets = self.settings.get("secrets", {})
        if self.only_open:
            taken = {*role.env, *role.secrets}
            env = {name: value for name, value in env.items() if name not in taken}
            secrets = {name: source for name, source in secrets.items() if name not in taken}
        if not env and not secrets:
            return {}
        kept_env = {name: value for name, value in role.env.items() if name not in secrets}
        kept_secrets = {name: source for name, source in role.secrets.items() if name not in env}
        return {"env": {**kept_env, **env}, "secrets": {**kept_secrets, **secrets}}

    def _mounts(self, role: Role) -> dict[str, Any]:
        """Return the new mounts of a role, one at each path."""
        given = self.settings.get("mounts", [])
        kept = role.mounts
        if self.only_open:
            taken = {mount.dst_path for mount in kept}
            given = [mount for mount in given if mount.dst_path not in taken]
        if not given:
            return {}
        replaced = {mount.dst_path for mount in given}
        return {"mounts": [*(mount for mount in kept if mount.dst_path not in replaced), *given]}
