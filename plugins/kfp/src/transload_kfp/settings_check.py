"""Which settings of a task no pod can have: each refused in one line, by name, before anything is compiled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError
from transload_kfp.ports import read_as_placeholder

if TYPE_CHECKING:
    from transload_kfp.settings import TaskSettings

LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
_TOLERATION: Final = ("key", "operator", "value", "effect", "toleration_seconds")


def _number(value: Any, least: float = -math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= least


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value, 0)


def _text(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


_RULES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "retries": (_count, "an int, 0 or more"),
    "cpu": (_number, "a number of cores"),
    "mem_mb": (lambda value: _number(value) and not value % 1, "a whole number of MB"),
    "backoff": (lambda value: value is None or _number(value, 0), "a number of seconds, 0 or more"),
    "backoff_factor": (lambda value: value is None or _number(value, 1), "a number, 1 or more"),
    "backoff_max": (lambda value: value is None or _number(value, 0), "a number of seconds, 0 or more"),
    "timeout": (lambda value: value is None or _number(value, math.ulp(0.0)), "a number of seconds above 0"),
    "tolerations": (lambda value: isinstance(value, list | tuple), "a list of mappings"),
    "caching": (lambda value: value in (None, True, False), "True, False or None"),
    "display_name": (lambda value: value is None or _text(value), "a str"),
}
"""Setting → what tells whether a value will do, and what it must be."""

_LABEL_RULE: Final = (
    lambda name, value: _text(name, value) and bool(LABEL.match(name) and LABEL_VALUE.match(value)),
    "at most 63 letters, digits, '-', '_', '.', and its name too",
)
_ENTRIES: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "labels": _LABEL_RULE,
    "node_selector": _LABEL_RULE,
    "annotations": (_text, "a str"),
    "claims": (_text, "a str"),
    "env": (_text, "a str"),
    "accelerators": (lambda name, count: _text(name) and _count(count), "an int, 0 or more"),
    "secrets": (
        lambda _, pair: isinstance(pair, list | tuple) and len(pair) == 2 and _text(*pair) and all(pair),
        "a pair, (name of a secret, key in it)",
    ),
}
"""Setting that is a mapping → the same for each of its entries."""


def check_settings(settings: TaskSettings) -> None:
    """Refuse values that no pod can have.

    Raises:
        ConfigError: by name.
    """
    for name, (fits, what) in _RULES.items():
        value = getattr(settings, name)
        if not fits(value):
            raise ConfigError(f"{name}={value!r}: must be {what}")
    for name, (fits_entry, what) in _ENTRIES.items():
        for key, value in getattr(settings, name).items():
            if not fits_entry(key, value):
                raise ConfigError(f"{name}[{key!r}]={value!r}: must be {what}")
    kinds = [kind for kind, count in settings.accelerators.items() if count]
    if len(kinds) > 1:
        raise ConfigError(f"accelerators: only one kind can be asked for, not {', '.join(kinds)}; 0 takes one away")
    for index, each in enumerate(settings.tolerations):
        unknown = [key for key in each if key not in _TOLERATION] if isinstance(each, Mapping) else [each]
        if unknown:
            raise ConfigError(f"tolerations[{index}]: {unknown[0]!r}: must be a mapping of {', '.join(_TOLERATION)}")
    for name, value in settings.env.items():
        found = read_as_placeholder(value)
        if found is not None:
            raise ConfigError(
                f"env[{name!r}]={value!r}: would be read as a placeholder of Kubeflow Pipelines ({found!r})"
            )
