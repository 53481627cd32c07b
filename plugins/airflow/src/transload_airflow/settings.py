"""The settings of this provider in airflow.cfg, section ``[transload]``."""

from __future__ import annotations

import os
from typing import Final

from airflow.providers.common.compat.sdk import conf

from transload.errors import ConfigError

_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")


def setting(name: str, default: str) -> str:
    """Return a setting as text."""
    return str(conf.get("transload", name, fallback=default) or default)


def default_deferrable() -> bool:
    """Tell whether operators wait in the triggerer where they do not say."""
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def triggerer_on_same_machine() -> bool:
    """Tell whether triggers run where the workers run.

    With ``auto`` they do if workers share a machine. A worker's pod
    ends when its task is deferred, and its configuration may name LocalExecutor.

    Raises:
        ConfigError: for a setting that is none of auto, true, false.
    """
    value = setting("triggerer_on_same_machine", "auto").strip().lower()
    if value in _YES:
        return True
    if value in _NO:
        return False
    if value != "auto":
        raise ConfigError(
            f"[transload] triggerer_on_same_machine={value!r}: must be 'auto', 'true' or 'false'"
        )
    return workers_share_a_machine()


def workers_share_a_machine() -> bool:
    """Tell whether LocalExecutor is the only executor, and this is no pod."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):  # every pod has it
        return False
    executors = {_class_name(executor) for executor in str(conf.get("core", "executor")).split(",")}
    return executors <= {"LocalExecutor", "SequentialExecutor"}


def _class_name(executor: str) -> str:
    """Return the class of an executor given as ``LocalExecutor`` or ``team:module.Class``."""
    return executor.strip().rsplit(".", 1)[-1].split(":")[-1]
