"""Apps through transload against bare ``sbatch`` and ``squeue``, on a cluster of three nodes that
this script starts.

Root only; wants slurmctld, slurmd and munge, as the tests do. Usage: python benchmarks/slurm.py
"""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import figure, interleaved, report

RUNS = 9
REPLICAS = 8
WATCHED = 200
WATCH_S = 60.0


def cluster() -> Any:
    """Return the cluster that the tests use, started."""
    path = Path(__file__).parents[1] / "tests" / "slurm" / "cluster.py"
    spec = importlib.util.spec_from_file_location("transload_slurm_bench_cluster", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    made = module.Cluster()
    made.start()
    return made


class Bench:
    """Both sides, on one cluster."""

    def __init__(self, folder: str) -> None:
        from transload import specs
        from transload.runner import Runner
        from transload_slurm import create_slurm

        self.folder, self.specs = folder, specs
        self.runner = Runner("bench", {"slurm": create_slurm})

    def submit(self, command: str, replicas: int = 1, **cfg: Any) -> str:
        """Start an app; return its handle."""
        role = self.specs.Role(
            "r", "/tmp", entrypoint="sh", args=["-c", command], num_replicas=replicas
        )
        return self.runner.run(self.specs.AppDef("bench", [role]), "slurm", cfg)

    def ours(self, replicas: int = 1, state: str = "SUCCEEDED") -> float:
        """Return the seconds from submit until the state was seen."""
        _out_of_step()
        start = time.perf_counter()
        handle = self.submit("true" if state == "SUCCEEDED" else "sleep 60", replicas)
        if state == "SUCCEEDED":
            status = self.runner.wait(handle)
        else:
            while (status := self.runner.status(handle)) is None or status.state.name != state:
                time.sleep(0.02)
        seconds = time.perf_counter() - start
        assert status is not None and status.state.name == state, status
        self.runner.delete(handle)
        return seconds

    def bare(self, replicas: int = 1, state: str = "COMPLETED") -> float:
        """Return the same of a script of one line: ``srun`` where there are several tasks, polled
        each 20 ms.
        """
        command = "true" if state == "COMPLETED" else "sleep 60"
        line = f"srun -n {replicas} {command}" if replicas > 1 else command
        _out_of_step()
        start = time.perf_counter()
        given = [
            "sbatch",
            "--parsable",
            f"--ntasks={replicas}",
            f"--output={self.folder}/bare.log",
            f"--wrap={line}",
        ]
        job = subprocess.run(given, check=True, capture_output=True, text=True).stdout.strip()
        while True:
            asked = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", job]
            word = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
            if word == state:
                break
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        subprocess.run(["scancel", job], check=False)
        return seconds

    def watching(self) -> dict[str, float]:
        """Return what it costs to watch many jobs that wait in the queue: queries and CPU seconds
        in a minute.
        """
        handles = [self.submit("true", begin="now+1hour") for _ in range(WATCHED)]
        scheduler: Any = self.runner.scheduler("slurm")
        watch = scheduler.watch()
        watch.update([handle.rpartition("/")[2] for handle in handles])
        scheduler.apps.jobs.queries = 0
        before = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        end = time.monotonic() + WATCH_S
        while (left := end - time.monotonic()) > 0:
            changed = watch.wait(left)
            if changed:
                scheduler.describe_many(changed)
        after = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        cpu = sum(
            b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime
            for a, b in zip(before, after, strict=True)
        )
        watch.close()
        minutes = WATCH_S / 60
        return {
            "jobs": WATCHED,
            "queries_per_minute": scheduler.apps.jobs.queries / minutes,
            "cpu_s_per_minute": cpu / minutes,
        }


def _out_of_step() -> None:
    """Slurm's own scheduler wakes once a second: come at any point of that second."""
    time.sleep(random.random())


def main() -> None:
    """Measure and print."""
    made = cluster()
    try:
        os.environ["SLURM_CONF"], os.environ["PATH"] = str(made.conf), made.env["PATH"]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRANSLOAD_SLURM_DIR"] = f"{folder}/apps"
            bench = Bench(folder)
            rows = []
            name = "submit → RUNNING seen"
            ours, bare = interleaved(
                RUNS, lambda: bench.ours(state="RUNNING"), lambda: bench.bare(state="RUNNING")
            )
            rows.append(figure(name, "s", ours, bare, target=1.5, peer_is="sbatch + squeue"))
            ours, bare = interleaved(RUNS, bench.ours, bench.bare)
            rows.append(
                figure(
                    "submit → SUCCEEDED seen, `true`",
                    "s",
                    ours,
                    bare,
                    target=1.5,
                    peer_is="sbatch + squeue",
                )
            )
            ours, bare = interleaved(
                RUNS, lambda: bench.ours(REPLICAS), lambda: bench.bare(REPLICAS)
            )
            name = f"submit → SUCCEEDED seen, {REPLICAS} replicas"
            rows.append(figure(name, "s", ours, bare, target=1.5, peer_is="sbatch + srun + squeue"))
            peer = "`sbatch` and `squeue`; for several replicas, `srun` too"
            report(rows, peer=peer, watching=bench.watching())
            bench.runner.close()
    finally:
        made.stop()


if __name__ == "__main__":
    main()
