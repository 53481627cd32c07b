"""`transload run` on a Slurm cluster of three nodes."""

from __future__ import annotations

import os
import sys
from typing import Any

import row

sys.path.insert(0, str(row.TESTS / "slurm"))

from cluster import Cluster


def host_state(said: dict[str, Any]) -> str:
    """Return the job's state in Slurm, which is a little later with it than the app's own files."""
    seen: list[str] = []

    def ended() -> bool:
        seen.append(cluster.tool("squeue", "-h", "-t", "all", "-o", "%T").strip())
        return seen[-1] not in ("RUNNING", "COMPLETING")

    cluster.until(ended, "the job has ended")
    return seen[-1]


cluster = Cluster()
try:
    cluster.start()
    os.environ.update(SLURM_CONF=str(cluster.conf), PATH=cluster.env["PATH"])
    os.environ["TRANSLOAD_SLURM_DIR"] = os.environ["TRANSLOAD_HOME"] + "/slurm"
    row.by_command_line("slurm", host_state)
finally:
    cluster.stop()
