"""The environment variables that tell a job who it is and which trackers it has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from transload.errors import ConfigError
from transload.runtime.tracking import ENV_TRANSLOAD_TRACKER_BASE

__all__ = [
    "ENV_TRANSLOAD_JOB_ID",
    "ENV_TRANSLOAD_PARENT_RUN_ID",
    "ENV_TRANSLOAD_TRACKERS",
    "ENV_TRANSLOAD_TRACKER_BASE",
    "injected_environment",
    "tracker_config_env_var_name",
    "trackers_in_environ",
]

ENV_TRANSLOAD_TRACKERS = "TRANSLOAD_TRACKERS"
"""Names of the job's trackers, separated by commas."""

ENV_TRANSLOAD_PARENT_RUN_ID = "TRANSLOAD_PARENT_RUN_ID"
"""The run that the job came from."""

ENV_TRANSLOAD_JOB_ID = "TRANSLOAD_JOB_ID"
"""The handle of the app that the job belongs to; it is the run id."""


def tracker_config_env_var_name(entrypoint_key: str) -> str:
    """Return the name of the variable that holds a tracker's configuration.

    Example:
        >>> tracker_config_env_var_name("mlflow")
        'TRANSLOAD_TRACKER_MLFLOW_CONFIG'
    """
    return f"TRANSLOAD_TRACKER_{re.sub('[^A-Z0-9_]', '_', entrypoint_key.upper())}_CONFIG"


def injected_environment(
    trackers: Mapping[str, str | None],
    *,
    job_id: str | None = None,
    parent_run_id: str | None = None,
    tracker_base: str | None = None,
) -> dict[str, str]:
    """Return the variables that a job must get so that ``AppRun.run_from_env()`` finds its trackers.

    Args:
        trackers: tracker name, or ``module:factory``, → configuration text or None.
        job_id: the app handle.
        parent_run_id: the run that the app came from.
        tracker_base: where results are reported.

    Raises:
        ConfigError: a name cannot be passed on, or two names share one variable.
    """
    variables: dict[str, str] = {}
    for name, config in trackers.items():
        if not name or "," in name or name != name.strip():
            raise ConfigError(f"tracker {name!r}: a name has no comma, and no blank at its ends")
        variable = tracker_config_env_var_name(name)
        clash = [other for other in trackers if other != name and tracker_config_env_var_name(other) == variable]
        if clash:
            raise ConfigError(f"trackers {name!r} and {clash[0]!r} would share the variable {variable}; rename one")
        if config is not None:
            variables[variable] = config
    found = {
        ENV_TRANSLOAD_TRACKERS: ",".join(trackers) or None,
        ENV_TRANSLOAD_JOB_ID: job_id,
        ENV_TRANSLOAD_PARENT_RUN_ID: parent_run_id,
        ENV_TRANSLOAD_TRACKER_BASE: tracker_base,
    }
    return {**{name: value for name, value in found.items() if value}, **variables}


def trackers_in_environ(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the trackers that the environment names, with their configurations."""
    values = os.environ if environ is None else environ
    names = [name.strip() for name in values.get(ENV_TRANSLOAD_TRACKERS, "").split(",")]
    return {name: values.get(tracker_config_env_var_name(name)) for name in names if name}
