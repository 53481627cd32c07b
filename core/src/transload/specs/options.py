"""Describe, check and parse the run options of a scheduler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from transload.errors import ConfigError, SpecError
from transload.specs.checks import LARGEST_INT, closest, nearest, shorten
from transload.specs.text import parse_bool, parse_number, split_list, split_pairs

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


_FORMS = {
    list: """: a,b or ["a", "b"]""",
    dict: """: KEY=VALUE,KEY=VALUE or {"KEY": "VALUE"}""",
}


@dataclass
class runopt:  # noqa: N801 - the field's established name
    """An option with its default, its type, whether it is required, and its purpose.

    A local path in a settings file is relative to that file.
    """

    default: CfgVal
    opt_type: Any
    is_required: bool
    help: str
    is_local_path: bool = False


def get_type_name(tp: Any) -> str:
    """Return the name of an option's type, such as ``int`` or ``list[str]``."""
    if get_origin(tp) is None and hasattr(tp, "__name__"):
        return str(tp.__name__)
    return str(tp).replace("typing.", "")


class runopts:  # noqa: N801 - the field's established name
    """The options that a scheduler takes.

    Example:
        >>> opts = runopts()
        >>> opts.add("partition", type_=str, help="where to run", default="main")
        >>> opts.resolve({"partition": "gpu"})
        {'partition': 'gpu'}
    """

    def __init__(self) -> None:
        self._opts: dict[str, runopt] = {}

    def __iter__(self) -> Iterator[tuple[str, runopt]]:
        return iter(self._opts.items())

    def __len__(self) -> int:
        return len(self._opts)

    @staticmethod
    def is_type(obj: CfgVal, tp: Any) -> bool:
        """Tell whether ``obj`` is of the option type ``tp``.

        ``list[str]`` and ``dict[str, str]`` are such types, too. A bool is not taken for an int, an
        int is taken for a float.
        """
        origin = get_origin(tp) or tp
        if origin is bool or isinstance(obj, bool):
            return origin is bool and isinstance(obj, bool)
        if origin is float:
            return isinstance(obj, (int, float))
        if not isinstance(obj, origin):
            return False
        if isinstance(obj, list):
            return not get_args(tp) or all(isinstance(item, str) for item in obj)
        if isinstance(obj, dict):
            return all(
                isinstance(key, str) and isinstance(value, str) for key, value in obj.items()
            )
        return True

    def add(
        self, cfg_key: str, type_: Any, help: str, default: CfgVal = None, required: bool = False
    ) -> None:
        """Add an option.

        Args:
            cfg_key: its name.
            type_: ``str``, ``int``, ``float``, ``bool``, ``list[str]`` or ``dict[str, str]``.
            help: what it is for.
            default: its value when not given.
            required: True if it must be given. Then there is no default.

        Raises:
            ValueError: for a required option with a default.
            TypeError: for a default of another type.
        """
        if required and default is not None:
            raise ValueError(
                f"option {cfg_key}: a required option has no default, given: {default!r}"
            )
        if default is not None and not self.is_type(default, type_):
            raise TypeError(
                f"option {cfg_key}: the default {default!r} is not of type {get_type_name(type_)}"
            )
        self._opts[cfg_key] = runopt(default, type_, required, help)

    def mark_local_paths(self, *names: str) -> None:
        """Say which options are paths of the machine that submits."""
        for name in names:
            self._opts[name].is_local_path = True

    def get(self, name: str) -> runopt | None:
        """Return the option of that name, or None."""
        return self._opts.get(name)

    def update(self, other: runopts) -> None:
        """Add all options of ``other``."""
        self._opts.update(other._opts)

    def hint(self, name: str, more: Iterable[str] = ()) -> str:
        """Return the end of the message about an option that does not exist.

        It names the nearest option, or the option of ``run`` if a setting of the job is nearest.

        Args:
            name: the option.
            more: other names that are allowed where it stands.
        """
        from transload.specs.settings import SETTINGS

        known = [*self._opts, *more]
        for each in known:
            if _plain(each) == _plain(name):
                return f"did you mean {each!r}?"
        meant = closest(_plain(name), [*SETTINGS, *known])
        if meant is not None and meant in SETTINGS:
            setting = SETTINGS[meant]
            return f"use run {setting.option(meant)} {setting.metavar}".rstrip()
        return nearest(name, known)

    def resolve(self, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        """Return ``cfg`` checked, with the defaults of what was not given.

        Raises:
            InvalidRunConfigException: for an unknown option (the nearest valid name is suggested),
                a missing one that is required, an empty text, or a value of the wrong type.
        """
        return self._resolve(cfg, "run option", self.hint)

    def resolve_connection(self, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        """Return the settings of a connection, as `resolve` returns run options."""
        return self._resolve(cfg, "connection setting", lambda key: nearest(key, list(self._opts)))

    def _resolve(
        self, cfg: Mapping[str, CfgVal], what: str, hint: Callable[[str], str]
    ) -> dict[str, CfgVal]:
        for key in cfg:
            if key not in self._opts:
                reason = f"unknown {what} {key!r}: {hint(str(key))}"
                raise InvalidRunConfigException(reason, key, cfg)
        resolved: dict[str, CfgVal] = {}
        for key, opt in self._opts.items():
            value = cfg.get(key)
            if value is None:
                if opt.is_required:
                    raise InvalidRunConfigException(
                        f"{what} {key!r} must be given: {opt.help}", key, cfg
                    )
                value = opt.default
            elif value == "":
                reason = f"{what} {key}='': must not be empty (is a variable not set?)"
                raise InvalidRunConfigException(reason, key, cfg)
            elif not self.is_type(value, opt.opt_type):
                reason = (
                    f"{what} {key}={shorten(value)}: must be of type {get_type_name(opt.opt_type)}"
                )
                raise InvalidRunConfigException(reason, key, cfg)
            resolved[key] = value
        return resolved

    def cfg_from_str(self, cfg_str: str) -> dict[str, CfgVal]:
        """Parse ``"key=value,list=a,b;other=1"`` by the types of the options.

        Defaults are not filled in. A list may be JSON, as in ``list=["a,b"]``. A dict is
        ``labels={"zone": "a"}`` or ``labels=zone=a``.

        Raises:
            InvalidRunConfigException: for an unknown option or a value that does not parse.
        """
        try:
            pairs = split_pairs(cfg_str)
        except SpecError as exc:
            raise InvalidRunConfigException(f"run options: {exc}", "", {}) from exc
        found: dict[str, CfgVal] = {}
        for key, text in pairs.items():
            of_dict = next((name for name in found if isinstance(found[name], dict)), None)
            if key not in self._opts and of_dict is not None:
                more = f"{of_dict}={key}={text}"
                reason = f"unknown run option {key!r}: {self.hint(key)}"
                raise InvalidRunConfigException(
                    f"{reason}; if it is one of {of_dict}: -c {more}", key, {}
                )
            found[key] = self.parse(key, text)
        return found

    def cfg_from_texts(self, texts: Iterable[str]) -> dict[str, CfgVal]:
        """Parse several texts, as `cfg_from_str` does.

        Lists and dicts grow. Of all other options the last value counts.

        Raises:
            InvalidRunConfigException: for an unknown option or a value that does not parse.

        Example:
            >>> opts = runopts()
            >>> opts.add("args", type_=list[str], help="more words")
            >>> opts.cfg_from_texts(["args=a", "args=b"])
            {'args': ['a', 'b']}
        """
        found: dict[str, CfgVal] = {}
        for text in texts:
            for key, value in self.cfg_from_str(text).items():
                before = found.get(key)
                if isinstance(before, list) and isinstance(value, list):
                    found[key] = [*before, *value]
                elif isinstance(before, dict) and isinstance(value, dict):
                    found[key] = {**before, **value}
                else:
                    found[key] = value
        return found

    def parse(self, key: str, text: str) -> CfgVal:
        """Parse the text of one option by its type.

        Raises:
            InvalidRunConfigException: for an unknown option or a value that does not parse.
        """
        opt = self._opts.get(key)
        if opt is None:
            raise InvalidRunConfigException(
                f"unknown run option {key!r}: {self.hint(key)}", key, {}
            )
        try:
            return _parse(text, opt.opt_type)
        except ValueError as exc:
            forms = _FORMS.get(get_origin(opt.opt_type) or opt.opt_type, "")
            reason = f"run option {key}={shorten(text)}: must be of type {get_type_name(opt.opt_type)}{forms}"
            raise InvalidRunConfigException(reason, key, {key: text}) from exc

    def __repr__(self) -> str:
        required = [(key, opt) for key, opt in self if opt.is_required]
        optional = [(key, opt) for key, opt in self if not opt.is_required]
        usage = [f"{key}={key.upper()}" for key, _ in required] + [
            f"[{key}={key.upper()}]" for key, _ in optional
        ]
        out = "    usage:\n        " + ",".join(usage)
        for title, opts in (("required", required), ("optional", optional)):
            if opts:
                out += f"\n\n    {title} arguments:"
            for key, opt in opts:
                default = "" if opt.is_required else f", {opt.default}"
                out += f"\n        {key}={key.upper()} ({get_type_name(opt.opt_type)}{default})\n            {opt.help}"
        return out


def _plain(name: str) -> str:
    """Return the name of an option in the form that is compared, without its spelling of ``_``."""
    return name.strip("-_").replace("-", "_").lower()


def _parse(text: str, tp: Any) -> CfgVal:
    origin = get_origin(tp) or tp
    if origin is bool:
        return parse_bool(text)
    if origin is list:
        return _parse_list(text)
    if origin is dict:
        return _parse_dict(text)
    if origin in (int, float):
        number: int | float = parse_number(text, origin)
        if not -LARGEST_INT <= number <= LARGEST_INT:  # nor NaN
            raise ValueError(f"must be {LARGEST_INT} or less")
        return number
    value: CfgVal = origin(text)
    return value


def _parse_list(text: str) -> list[str]:
    if not (text.strip().startswith("[") and text.strip().endswith("]")):
        return split_list(text)
    found = json.loads(text)
    if not all(isinstance(item, str) for item in found):
        raise ValueError("must be texts")
    return list(found)


def _parse_dict(text: str) -> dict[str, str]:
    if text.strip().startswith("{"):
        found = json.loads(text)
        if not all(isinstance(value, str) for value in found.values()):
            raise ValueError("must be texts")
        return dict(found)
    pairs: dict[str, str] = {}
    for part in split_list(text):
        match = re.match(r"([^=:]+)[=:](.*)\Z", part, re.DOTALL)
        if match is None:
            raise ValueError("must be key=value pairs")
        pairs[match.group(1)] = match.group(2)
    return pairs
