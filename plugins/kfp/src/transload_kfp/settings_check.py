"""Which settings of a task no pod can have: each refused in one line, by name, before anything is compiled."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError
from transload_kfp.ports import read_as_placeholder

if TYPE_CHECKING:
    from transload_kfp.settings import TaskSettings

LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
_TOLERATION: Final = ("key", "operator", "value", "effect", "toleration_seconds")
_ABOVE: Final[Mapping[str, tuple[str, float]]] = {
    "backoff": ("a number of seconds, 0 or more", 0.0),
    "backoff_factor": ("a number, 1 or more", 1.0),
    "backoff_max": ("a number of seconds, 0 or more", 0.0),
    "timeout": ("a number of seconds above 0", math.ulp(0.0)),
}
"""Setting that is a number or None → what it must be, and its least value."""


def check_settings(settings: TaskSettings) -> None:
    """Refuse values that no pod can have.

    Raises:
        ConfigError: by name.
    """
    _check_numbers(settings)
    _check_placement(settings)
    _check_texts(settings)


def _check_numbers(settings: TaskSettings) -> None:
    if isinstance(settings.retries, bool) or not isinstance(settings.retries, int) or settings.retries < 0:
        raise ConfigError(f"retries={settings.retries!r}: must be an int, 0 or more")
    if not _is_number(settings.cpu):
        raise ConfigError(f"cpu={settings.cpu!r}: must be a number of cores")
    if not _is_number(settings.mem_mb) or settings.mem_mb % 1:
        raise ConfigError(f"mem_mb={settings.mem_mb!r}: must be a whole number of MB")
    for name, (what, least) in _ABOVE.items():
        value = getattr(settings, name)
        if value is not None and not (_is_number(value) and value >= least):
            raise ConfigError(f"{name}={value!r}: must be {what}")
    for kind, count in settings.accelerators.items():
        if not isinstance(kind, str) or isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"accelerators[{kind!r}]={count!r}: must be an int, 0 or more")
    kinds = [kind for kind, count in settings.accelerators.items() if count]
    if len(kinds) > 1:
        raise ConfigError(f"accelerators: only one kind can be asked for, not {', '.join(kinds)}; 0 takes one away")


def _check_placement(settings: TaskSettings) -> None:
    for what in ("labels", "node_selector"):
        for name, value in getattr(settings, what).items():
            valid = isinstance(name, str) and LABEL.match(name) and isinstance(value, str) and LABEL_VALUE.match(value)
            if not valid:
                raise ConfigError(
                    f"{what}[{name!r}]={value!r}: name and value must be at most 63 letters, digits, '-', '_', '.'"
                )
    if isinstance(settings.tolerations, (str, Mapping)) or not hasattr(settings.tolerations, "__iter__"):
        raise ConfigError(f"tolerations={settings.tolerations!r}: must be a list of mappings")
    for index, each in enumerate(settings.tolerations):
        unknown = [key for key in each if key not in _TOLERATION] if isinstance(each, Mapping) else [each]
        if unknown:
            raise ConfigError(f"tolerations[{index}]: {unknown[0]!r}: must be a mapping of {', '.join(_TOLERATION)}")


def _check_texts(settings: TaskSettings) -> None:
    for name, value in settings.env.items():
        _check_pair("env", name, value)
        found = read_as_placeholder(value)
        if found is not None:
            raise ConfigError(
                f"env[{name!r}]={value!r}: would be read as a placeholder of Kubeflow Pipelines ({found!r})"
            )
    for what in ("annotations", "claims"):
        for name, value in getattr(settings, what).items():
            _check_pair(what, name, value)
    for name, pair in settings.secrets.items():
        if not _is_secret(pair):
            raise ConfigError(f"secrets[{name!r}]={pair!r}: must be a pair, (name of a secret, key in it)")
    if settings.caching not in (None, True, False):
        raise ConfigError(f"caching={settings.caching!r}: must be True, False or None")
    if settings.display_name is not None and not isinstance(settings.display_name, str):
        raise ConfigError(f"display_name={settings.display_name!r}: must be a str")


def _check_pair(what: str, name: Any, value: Any) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise ConfigError(f"{what}[{name!r}]={value!r}: must be a str")


def _is_secret(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(each, str) and each for each in value)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
