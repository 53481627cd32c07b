"""The options of a scheduler: a dataclass whose fields are all that is known of them.

``-c NAME=VALUE``, the tables of settings files, help and pages come from the fields, which are read by
`transload.specs.values.read`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NewType, get_args

from transload.errors import ConfigError, SpecError
from transload.specs.checks import LARGEST_INT, closest, nearest, shorten
from transload.specs.text import split_pairs

if TYPE_CHECKING:
    from typing_extensions import Self

# The reader is imported where it is used: on a login node, whose Python may be old, nothing is read.

__all__ = [
    "CfgVal",
    "Connection",
    "InvalidRunConfigException",
    "LocalPath",
    "Option",
    "OptionFields",
    "Options",
    "RunOptions",
    "UnknownSchedulerException",
    "option",
]

CfgVal = str | int | float | bool | list[str] | dict[str, str] | None
"""What a run option may hold."""


class InvalidRunConfigException(ConfigError):
    """A run option is unknown, missing or of the wrong type.

    Attributes:
        cfg_key: name of the option.
    """

    def __init__(self, invalid_reason: str, cfg_key: str, cfg: Mapping[str, CfgVal]) -> None:
        super().__init__(invalid_reason)
        self.cfg_key = cfg_key
        self.cfg = dict(cfg)


class UnknownSchedulerException(ConfigError):
    """No scheduler of that name is installed.

    Args:
        scheduler_backend: the name.
        known: the names that there are.
        hint: what to do about it. If it is empty, the message names the nearest scheduler.

    Attributes:
        meant: the name that was probably meant, or None if none is like it.
    """

    def __init__(
        self, scheduler_backend: str, known: list[str] | None = None, hint: str = ""
    ) -> None:
        if not hint:
            hint = nearest(scheduler_backend, known or [])
        super().__init__(
            f"scheduler {scheduler_backend!r} is not installed or configured here: {hint}"
        )
        self.scheduler_backend = scheduler_backend
        self.meant = closest(scheduler_backend, known or [])


LocalPath = NewType("LocalPath", str)
"""A path of the machine that submits. In a settings file it is relative to that file."""


def option(help: str, default: Any = None, *, required: bool = False) -> Any:
    """Return the field of an option.

    Args:
        help: what it is for. It says what no value means, if that is not plain.
        default: its value when not given.
        required: it must be given. Then there is no default.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyOptions(Options):
        ...     partition: str = option("where to run", "main")
        >>> MyOptions.read({"partition": "gpu"}).partition
        'gpu'
    """
    metadata = {"help": help}
    if required:
        return field(metadata=metadata)
    if isinstance(default, (list, dict)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """What is known of an option.

    Args:
        name: its name.
        type: its type, without the None of an optional one.
        help: what it is for.
        default: its value when not given.
        is_required: it must be given.
        is_local_path: see `LocalPath`.
    """

    name: str
    type: Any
    help: str
    default: CfgVal
    is_required: bool
    is_local_path: bool

    @property
    def type_name(self) -> str:
        """Return its type for display, such as ``list[str]``."""
        from transload.specs.values import type_name

        return type_name(self.type)


@dataclass(frozen=True, kw_only=True)
class OptionFields:
    """The fields of options, and how they are read. `Options` and `Connection` are the two kinds."""

    WHAT: ClassVar[str] = "option"

    @classmethod
    def table(cls) -> Mapping[str, Option]:
        """Return name → option, in the order of the fields."""
        own: Any = cls  # which mypy does not take for hashable
        return _table(own)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that values of JSON, or texts, say. One that is None is not given.

        Raises:
            InvalidRunConfigException: for an unknown option (the nearest valid name is suggested),
                a missing one that is required, an empty text, or a value of the wrong type.
        """
        values = {
            key: cls.read_one(key, value) for key, value in given.items() if value is not None
        }
        for key in given:
            cls.check_name(key)
        for key, opt in cls.table().items():
            if opt.is_required and key not in values:
                reason = f"{cls.WHAT} {key!r} must be given: {opt.help}"
                raise InvalidRunConfigException(reason, key, given)
        return cls(**values)

    @classmethod
    def read_one(cls, name: str, value: Any, where: str = "") -> Any:
        """Return the value of one option.

        Args:
            name: the option.
            value: a value of JSON, or a text.
            where: the place of the value, for messages.

        Raises:
            InvalidRunConfigException: for an unknown option or a wrong value.
        """
        cls.check_name(name)
        place = where or f"{cls.WHAT} {name}"
        if value == "":
            reason = f"{place}='': must not be empty (is a variable not set?)"
            raise InvalidRunConfigException(reason, name, {name: value})
        from transload.specs.values import read

        try:
            found = read(value, cls.table()[name].type, place)
        except SpecError as exc:
            raise InvalidRunConfigException(str(exc), name, {name: value}) from exc
        if isinstance(found, (int, float)) and not -LARGEST_INT <= found <= LARGEST_INT:  # nor NaN
            reason = f"{place}={shorten(value)}: must be {LARGEST_INT} or less"
            raise InvalidRunConfigException(reason, name, {name: value})
        return found

    @classmethod
    def read_texts(cls, texts: Iterable[str]) -> dict[str, CfgVal]:
        """Return what texts of a command line say, such as ``a=1,list=a,b;c=2``, for `read`.

        Lists and dicts grow. Of all other options the last value counts. A duration or a size stays
        the text, which has the unit.

        Raises:
            InvalidRunConfigException: for an unknown option, or a value that does not parse.
        """
        found: dict[str, CfgVal] = {}
        for text in texts:
            for key, value in cls._pairs(text).items():
                before = found.get(key)
                if isinstance(before, list) and isinstance(value, list):
                    found[key] = [*before, *value]
                elif isinstance(before, dict) and isinstance(value, dict):
                    found[key] = {**before, **value}
                else:
                    found[key] = value
        return found

    @classmethod
    def _pairs(cls, text: str) -> dict[str, CfgVal]:
        """Return what one text says."""
        from transload.specs.values import rule_of

        try:
            pairs = split_pairs(text)
        except SpecError as exc:
            raise InvalidRunConfigException(f"{cls.WHAT}s: {exc}", "", {}) from exc
        found: dict[str, CfgVal] = {}
        for key, spelled in pairs.items():
            of_dict = next((name for name in found if isinstance(found[name], dict)), None)
            if key not in cls.table() and of_dict is not None:
                reason = f"unknown {cls.WHAT} {key!r}: {cls.hint(key)}"
                more = f"if it is one of {of_dict}: -c {of_dict}={key}={spelled}"
                raise InvalidRunConfigException(f"{reason}; {more}", key, {})
            value = cls.read_one(key, spelled)
            found[key] = spelled if rule_of(cls.table()[key].type) else value
        return found

    @classmethod
    def check_name(cls, name: str) -> None:
        """Refuse an option that there is not.

        Raises:
            InvalidRunConfigException: with the nearest option.
        """
        if name not in cls.table():
            reason = f"unknown {cls.WHAT} {name!r}: {cls.hint(str(name))}"
            raise InvalidRunConfigException(reason, name, {})

    @classmethod
    def hint(cls, name: str, more: Iterable[str] = ()) -> str:
        """Return the end of the message about an option that does not exist.

        Args:
            name: the option.
            more: other names that are allowed where it stands.
        """
        return nearest(name, [*cls.table(), *more])

    def to_dict(self) -> dict[str, CfgVal]:
        """Return name → value."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Connection(OptionFields):
    """The settings that say which cluster a scheduler is, such as a context or a host."""

    WHAT: ClassVar[str] = "connection setting"


@dataclass(frozen=True, kw_only=True)
class RunOptions(OptionFields):
    """Run options, of a job or of a role. `Options` are those of a scheduler."""

    WHAT: ClassVar[str] = "run option"

    @classmethod
    def hint(cls, name: str, more: Iterable[str] = ()) -> str:
        """Return the nearest option, or the option of ``run`` if a setting of the job is nearest."""
        from transload.specs.settings import SETTINGS

        known = [*cls.table(), *more]
        for each in known:
            if _plain(each) == _plain(name):
                return f"did you mean {each!r}?"
        meant = closest(_plain(name), [*SETTINGS, *known])
        if meant is not None and meant in SETTINGS:
            setting = SETTINGS[meant]
            return f"use run {setting.option(meant)} {setting.metavar}".rstrip()
        return nearest(name, known)


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """The run options of a scheduler. Every scheduler has these, which the runner carries out."""

    tracker_base: str | None = option(
        "where the job reports results: a folder or fsspec URL; may hold ${app_id}"
    )
    pass_env: list[str] = option("variables of the submitter to pass on, by patterns: HF_*", [])
    environment: str | None = option(
        "what jobs need installed: requirements.txt, uv.lock, a script, or none"
    )

    @classmethod
    def of_record(cls, cfg: Mapping[str, CfgVal]) -> Self:
        """Return the options in the record of a job, without those that are not known here."""
        return cls.read({name: value for name, value in cfg.items() if name in cls.table()})

    def cfg(self) -> dict[str, CfgVal]:
        """Return name → value of the scheduler's own options, which records of jobs have."""
        common = Options.table()
        return {name: value for name, value in self.to_dict().items() if name not in common}


def _plain(name: str) -> str:
    """Return the name of an option in the form that is compared, without its spelling of ``_``."""
    return name.strip("-_").replace("-", "_").lower()


@lru_cache(maxsize=None)
def _table(cls: Any) -> Mapping[str, Option]:
    if "__dataclass_fields__" not in vars(cls):
        raise TypeError(f"{cls.__name__}: must be @dataclass(frozen=True, kw_only=True)")
    from transload.specs.values import fields_of

    found = {}
    hints = fields_of(cls)
    if issubclass(cls, Options):  # what all schedulers have comes last
        base: Any = Options
        common = fields_of(base)
        hints = {**{name: hint for name, hint in hints.items() if name not in common}, **common}
    for name, (item, hint) in hints.items():
        inner = _without_none(hint)
        default = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        found[name] = Option(
            name=name,
            type=inner,
            help=item.metadata.get("help", ""),
            default=None if default is MISSING else default,
            is_required=default is MISSING,
            is_local_path=inner is LocalPath,
        )
    return found


def _without_none(tp: Any) -> Any:
    """Return the type of an optional value."""
    from transload.specs.values import kind_of

    if kind_of(tp) != "union":
        return tp
    members = [each for each in get_args(tp) if each is not type(None)]
    return members[0] if len(members) == 1 else tp
