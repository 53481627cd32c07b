"""What a job inherits of its submitter: environment, limits, CPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

ALLOWED: Final = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "OMP_NUM_THREADS"),
        *("TRANSLOAD_HOME", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
    ]
)
"""Variables that every job gets; of others only those whose name begins as `ALLOWED_PREFIXES` say."""

ALLOWED_PREFIXES: Final = ("LC_", "CUDA", "NVIDIA_", "ROCR_", "HIP_", "NCCL_", "GLOO_")


def inherited(environ: Mapping[bytes, bytes], everything: bool) -> dict[str, str]:
    """Return what a job gets of the submitter's environment.

    Args:
        environ: ``os.environb`` of the submitter.
        everything: ``inherit_env``; else an allow-list.
    """
    env = {k.decode("utf-8", "surrogateescape"): v.decode("utf-8", "surrogateescape") for k, v in environ.items()}
    if everything:
        return env
    return {name: value for name, value in env.items() if name in ALLOWED or name.startswith(ALLOWED_PREFIXES)}


def limits() -> dict[str, Any]:
    """Return the submitter's umask, resource limits, niceness and CPUs, as the keeper gives them to replicas."""
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    rlimits = [[number, list(resource.getrlimit(number))] for number in {getattr(resource, name) for name in names}]
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "umask": _umask(),
        "rlimits": rlimits,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cpus": cpus,
    }


def _umask() -> int:
    """Return the umask without setting it, which would be seen by other threads."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
