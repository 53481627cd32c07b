"""`transload run` on a Slurm cluster of three nodes."""

from __future__ import annotations

import os
import sys

import row

sys.path.insert(0, str(row.TESTS / "slurm"))

from cluster import Cluster

cluster = Cluster()
try:
    cluster.start()
    os.environ.update(SLURM_CONF=str(cluster.conf), PATH=cluster.env["PATH"])
    os.environ["TRANSLOAD_SLURM_DIR"] = os.environ["TRANSLOAD_HOME"] + "/slurm"
    row.by_command_line("slurm", lambda said: cluster.tool("squeue", "-h", "-t", "all", "-o", "%T").strip())
finally:
    cluster.stop()
