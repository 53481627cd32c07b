"""Write what this machine's release of Slurm says of jobs, as words, lines and JSON.

python record.py     # → tests/slurm/releases/<version>.json
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from cluster import Cluster

FOLDER = Path(__file__).with_name("releases")
RECORD = ("-n", "-P", "-c", "-o", "JobID,JobName,State,NodeList")
LINE = "%i|%j|%T|%r|%N|%S|%k"
JOBS = {
    "runs": ["--wrap=sleep 1000"],
    "waits": ["--wrap=true", "--begin=now+1hour"],
    "needs a node for itself": ["--wrap=true", "-N3", "--exclusive"],
    "fails": ["--wrap=exit 3"],
    "succeeds": ["--wrap=true"],
    "is cancelled": ["--wrap=sleep 1000"],
    "is suspended": ["--wrap=sleep 1000"],
    "is requeued": ["--wrap=sleep 1000", "--requeue"],
    "runs too long": ["--wrap=sleep 1000", "--time=0:01"],
    "depends on a failure": ["--wrap=true", "--kill-on-invalid-dep=no"],
    "has two parts": ["-n1", ":", "-n1", "--mem=10", "--wrap=sleep 1000"],
}
KEPT = (
    "job_state",
    "state_reason",
    "name",
    "het_job_id",
    "start_time",
    "comment",
    "nodes",
)


def main() -> None:
    """Play jobs of all kinds, and write what is said of them."""
    cluster = Cluster()
    try:
        cluster.start()
        ids = {}
        for name, options in JOBS.items():
            more = (
                [f"--dependency=afterok:{ids['fails']}"] if name == "depends on a failure" else []
            )
            words = [
                "-J",
                name.replace(" ", "-"),
                "--comment=its comment",
                "-o",
                "/dev/null",
                "--mem=10",
                *more,
                *options,
            ]
            ids[name] = cluster.tool("sbatch", "--parsable", *words).strip()
        started = {ids[name] for name in ("is cancelled", "is suspended", "is requeued", "runs")}
        cluster.until(
            lambda: started <= set(cluster.tool("squeue", "-h", "-t", "R", "-o", "%i").split()),
            "they run",
        )
        cluster.tool("scancel", ids["is cancelled"])
        cluster.tool("scontrol", "suspend", ids["is suspended"])
        cluster.tool("scontrol", "requeue", ids["is requeued"])
        cluster.until(
            lambda: "COMPLETING" not in cluster.tool("squeue", "-h", "-o", "%T"), "all have settled"
        )
        time.sleep(1)
        told: dict[str, Any] = {}
        listed = {
            each["job_id"]: each for each in json.loads(cluster.tool("squeue", "--json"))["jobs"]
        }
        for name, job in ids.items():
            line = ["-h", "-t", "all", "-o", LINE, "-j", job]
            of_json = {
                key: value for key, value in listed.get(int(job or 0), {}).items() if key in KEPT
            }
            told[name] = {
                "squeue": cluster.tool("squeue", *line).splitlines(),
                "json": of_json,
                "record": cluster.tool("sacct", *RECORD, "-j", job).splitlines(),
            }
        version = cluster.tool("sinfo", "-V").split()[1]
        complaint = _complaint(cluster, "-t", "nonsense")
        words = re.findall(r"[A-Z_]+", complaint.partition("include:")[2].upper())
        answer = {
            "version": version,
            "words": words,
            "unknown": _complaint(cluster, "-j", "99999"),
            "jobs": told,
        }
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{'.'.join(version.split('.')[:2])}.json").write_text(
            json.dumps(answer, indent=1) + "\n"
        )
    finally:
        cluster.stop()


def _complaint(cluster: Cluster, *options: str) -> str:
    command = ["squeue", "-h", *options]
    return subprocess.run(
        command, env=cluster.env, capture_output=True, text=True, check=False
    ).stderr.strip()


if __name__ == "__main__":
    main()
