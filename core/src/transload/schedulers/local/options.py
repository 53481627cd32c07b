"""The options of the local scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from transload.specs import Connection, LocalPath, Options, option
from transload.specs.values import Amount


@dataclass(frozen=True, kw_only=True)
class LocalConnection(Connection):
    """The settings that say where the jobs of a local scheduler are kept."""

    state_folder: LocalPath | None = option(
        "folder of its jobs, on a local disk; default: by name, in TRANSLOAD_HOME"
    )


@dataclass(frozen=True, kw_only=True)
class LocalOptions(Options):
    """The run options of the local scheduler."""

    log_dir: LocalPath | None = option(
        "folder of the logs (<log_dir>/<app_id>/<role>/<replica>/); default: the job's own"
    )
    working_dir: LocalPath | None = option(
        "where jobs without a folder as image work; default: the current directory"
    )
    prepend_cwd: bool = option("put the working directory first on PATH", False)
    auto_set_cuda_visible_devices: bool = option(
        "give each replica its Resource.gpu GPUs (CUDA_VISIBLE_DEVICES), and wait until they are "
        "free",
        True,
    )
    python: str | None = option(
        "interpreter of jobs that need packages, as uv takes it; default: what uv finds"
    )
    max_log_size: Amount = option("MB kept of each stream of a replica; 0: all", 0.0)
