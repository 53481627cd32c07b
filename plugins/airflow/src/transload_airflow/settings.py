"""The settings of this provider in airflow.cfg, section ``[transload]``."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import conf

from transload.errors import ConfigError


def setting(name: str, default: str) -> str:
    """Return a setting as text."""
    return str(conf.get("transload", name, fallback=default) or default)


def default_deferrable() -> bool:
    """Tell whether operators wait in the triggerer where they do not say."""
    return bool(conf.getboolean("operators", "default_deferrable", fallback=False))


def triggerer_on_same_machine() -> bool:
    """Tell whether triggers run where the workers run; ``auto``: if LocalExecutor is the only
    executor.

    Raises:
        ConfigError: for a setting that is none of auto, true, false.
    """
    value = setting("triggerer_on_same_machine", "auto").strip().lower()
    if value in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        return value in ("true", "yes", "on", "1")
    if value != "auto":
        raise ConfigError(
            f"[transload] triggerer_on_same_machine={value!r}: must be 'auto', 'true' or 'false'"
        )
    executors = {
        each.strip().rsplit(".", 1)[-1].split(":")[-1]
        for each in str(conf.get("core", "executor")).split(",")
    }
    return executors <= {"LocalExecutor", "SequentialExecutor"}
