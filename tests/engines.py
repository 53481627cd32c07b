"""Engines that some tests start, or use, and what is missing of them. `.ci/run` installs them."""

from __future__ import annotations

import os
import shutil
from typing import Final

ENGINES: Final = {
    "apptainer": ("apptainer", "busybox"),
    "charliecloud": ("ch-run", "busybox"),
    "chromium": ("chromium",),
    "docker": ("dockerd", "busybox", "iptables", "nsenter", "setpriv", "unshare"),
    "kubernetes": (),
    "registry": ("docker-registry",),
    "slurm": ("slurmctld", "slurmd", "sbatch", "munged"),
    "slurmdbd": ("slurmdbd", "mariadbd", "mariadb-install-db"),
    "sshd": ("sshd", "ssh-keygen"),
}
"""Engine → the programs that must be installed."""
_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def missing(engine: str) -> str:
    """Return why an engine cannot be used here, or ``""``."""
    path = f"{os.environ.get('PATH', '')}:{_FOLDERS}"
    absent = [each for each in ENGINES[engine] if shutil.which(each, path=path) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    if engine in ("docker", "slurm") and os.geteuid() != 0:
        return "only root can start one for the tests"
    if engine == "kubernetes" and "REAL_KUBECONFIG" not in os.environ:
        return "REAL_KUBECONFIG names no cluster"
    return ""
