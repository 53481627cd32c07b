"""What it costs to watch 200 jobs on Kubernetes: requests and CPU of this side, against the tests'
fake API server.

The peer is what one would write without a watch: reading each Job once a second with the official
client. No cluster is involved, so only the client's cost is measured; ours asks everything anew
once in each 10 s, six times as often as a poller does. Usage: python
benchmarks/kubernetes_cluster.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import figure, report

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "kubernetes"))

JOBS = 200
IDLE_S = 10.0


def prepared(server: Any) -> tuple[Any, list[str]]:
    """Return a scheduler and the ids of jobs that wait in a queue: nothing runs, so nothing else
    costs CPU.
    """
    from transload.schedulers.api import Submission
    from transload.specs import AppDef, Role
    from transload_kubernetes.scheduler import create_scheduler

    os.environ["KUBECONFIG"] = str(server.kubeconfig)
    scheduler = create_scheduler("bench")
    cfg = scheduler.run_opts().resolve({"queue": "bench"})
    app = AppDef("bench", [Role("r", "a:1", entrypoint="true")])
    ids = [f"bench-{number}" for number in range(JOBS)]
    for app_id in ids:
        scheduler.submit(
            scheduler.convert(app, cfg), app_id, Submission(app, app.digest(), "bench", cfg)
        )
    return scheduler, ids


def measured(server: Any, work: Any) -> dict[str, float]:
    """Return requests per minute and CPU seconds per minute of this thread while ``work`` runs for
    a while.
    """
    requests, cpu, start = len(server.cluster.requests), time.thread_time(), time.monotonic()
    work(start + IDLE_S)
    scale = 60.0 / (time.monotonic() - start)
    return {
        "requests_per_minute": round((len(server.cluster.requests) - requests) * scale, 1),
        "cpu_seconds_per_minute": round((time.thread_time() - cpu) * scale, 3),
    }


def main() -> None:
    """Print the figures as JSON."""
    from fake_server import FakeServer

    with tempfile.TemporaryDirectory() as folder:
        server = FakeServer(Path(folder))
        scheduler, ids = prepared(server)
        watch = scheduler.watch()
        watch.update(ids)
        while watch.wait(1.0):
            scheduler.describe_many(ids)

        def ours(deadline: float) -> None:
            while (left := deadline - time.monotonic()) > 0:
                watch.wait(left)

        def peer(deadline: float) -> None:
            from kubernetes import client, config

            config.load_kube_config(str(server.kubeconfig))
            batch = client.BatchV1Api()
            while time.monotonic() < deadline:
                began = time.monotonic()
                for app_id in ids:
                    batch.read_namespaced_job_status(f"{app_id}-r", "default")
                time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))

        mine, other = measured(server, ours), measured(server, peer)
        requests, cpu = len(server.cluster.requests), time.thread_time()
        scheduler.describe_many(ids)  # what a poller does once a minute, in case a push was lost
        mine["requests_per_minute"] += len(server.cluster.requests) - requests
        mine["cpu_seconds_per_minute"] = round(
            mine["cpu_seconds_per_minute"] + time.thread_time() - cpu, 3
        )
        watch.close()
        scheduler.close()
        server.close()
    rows = [
        figure(f"watching {JOBS} jobs, {what}", unit, mine[key], other[key], target=0.1)
        for what, unit, key in (
            ("requests", "1/min", "requests_per_minute"),
            ("CPU", "s/min", "cpu_seconds_per_minute"),
        )
    ]
    report(rows, peer="each Job read once a second by the official client")


if __name__ == "__main__":
    main()
