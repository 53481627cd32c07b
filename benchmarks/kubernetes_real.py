"""What apps cost a real Kubernetes cluster: requests, and CPU and memory of this side; prints JSON.

Requests are counted where they leave: each is one answer of the API server, or one connection that
stays open. A namespace is made and removed. Usage: KUBECONFIG=... python
benchmarks/kubernetes_real.py [IMAGE], which the nodes have
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transload.runner import log_lines
from transload.schedulers.api import LogQuery, Stream, Submission
from transload.specs import AppDef, Role
from transload_kubernetes.cluster import Cluster
from transload_kubernetes.scheduler import create_scheduler

APPS, REPLICAS, IDLE_S = 500, 64, 30.0
NAMESPACE = f"transload-cost-{uuid.uuid4().hex[:6]}"
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "transload-test:1"
CFG = {"namespace": NAMESPACE, "image_pull_policy": "IfNotPresent"}
LIMITS = {
    "submit one role": 5,
    "submit three roles as a JobSet": 5,
    f"watch {APPS} apps": 8,
    "look again": 0,
}

sent: list[tuple[str, str]] = []
rows: list[dict[str, Any]] = []


def counted() -> None:
    """Note each request of this process."""
    call = Cluster._call

    def noted(self: Any, verb: str, path: str, *args: Any, **options: Any) -> Any:
        sent.append((verb, path))
        return call(self, verb, path, *args, **options)

    Cluster._call = noted  # type: ignore[method-assign]


def resident_mb() -> float:
    """Return what this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Add a row: requests, seconds, CPU seconds and growth of memory (MB) of what is done
    within.
    """
    before, cpu, wall = len(sent), time.process_time(), time.monotonic()
    memory = resident_mb()
    yield
    row: dict[str, Any] = {"what": what, "requests": len(sent) - before}
    row["seconds"] = round(time.monotonic() - wall, 2)
    row["cpu_seconds"] = round(time.process_time() - cpu, 3)
    row["memory_mb"] = round(resident_mb() - memory, 1)
    if what in LIMITS:
        row["at_most"] = LIMITS[what]
    rows.append(row)


def submit(scheduler: Any, name: str, roles: dict[str, int], command: str, **more: Any) -> str:
    """Submit an app of a shell command; return its id."""
    cfg = scheduler.run_opts().resolve({**CFG, **more})
    made = [
        Role(each, IMAGE, entrypoint="sh", args=["-c", command], num_replicas=k)
        for each, k in roles.items()
    ]
    app = AppDef(name, made)
    scheduler.submit(
        scheduler.convert(app, cfg),
        f"{NAMESPACE}:{name}",
        Submission(app, app.digest(), "cost", cfg),
    )
    return f"{NAMESPACE}:{name}"


def submits(scheduler: Any) -> None:
    """Measure submits of a few kinds of apps."""
    scheduler._cluster.has_jobsets(NAMESPACE)  # asked once for a namespace
    for what, roles in (("one role", {"main": 1}), ("three replicas", {"main": 3})):
        with measured(f"submit {what}"):
            submit(scheduler, what.replace(" ", "-"), roles, "true", jobset="auto")
    with measured("submit three roles as a JobSet"):
        submit(scheduler, "three-roles", {"a": 1, "b": 1, "c": 1}, "true", jobset="auto")


def watches(scheduler: Any) -> None:
    """Measure many apps that wait in a queue: no pod runs, so that the cluster does not count."""
    with measured(f"submit {APPS} apps"):
        ids = [
            submit(scheduler, f"w{number}", {"main": 1}, "true", queue="cost")
            for number in range(APPS)
        ]
    watch = scheduler.watch()
    with measured(f"watch {APPS} apps"):
        watch.update(ids)
        end = time.monotonic() + IDLE_S
        while (left := end - time.monotonic()) > 0:
            watch.wait(left)
    watch.close()
    with measured(f"describe {APPS} apps"):
        assert len(scheduler.describe_many(ids)) == APPS


def follows(scheduler: Any) -> None:
    """Measure following the logs of many replicas, and looking again while nothing comes."""
    app_id = submit(scheduler, "logs", {"main": REPLICAS}, "echo up; sleep 3000")
    deadline = time.monotonic() + 900
    while True:
        replicas = scheduler.describe(app_id).status.roles[0].replicas
        if all(each.state.name == "RUNNING" for each in replicas):
            break
        assert time.monotonic() < deadline, f"{REPLICAS} replicas do not run"
        time.sleep(2)
    cursors: dict[int, Any] = {}
    with measured(f"open the logs of {REPLICAS} replicas"):
        quiet = 0
        while quiet < 2:  # a round without a request: each has its stream
            before = len(sent)
            for k in range(REPLICAS):
                cursors[k] = scheduler.log_read(
                    app_id, LogQuery("main", k, Stream.COMBINED, cursors.get(k))
                ).cursor
            quiet = quiet + 1 if len(sent) == before else 0
    rows[-1]["threads"] = threading.active_count()
    with measured("look again"):
        for _ in range(20):
            for k in range(REPLICAS):
                cursors[k] = scheduler.log_read(
                    app_id, LogQuery("main", k, Stream.COMBINED, cursors[k])
                ).cursor
    assert next(iter(log_lines(scheduler, app_id, "main", 0))) == "up\n"


def main() -> None:
    """Print the figures; exit code 1 if one is over its limit."""
    counted()
    scheduler = create_scheduler("cost")
    cluster = scheduler._cluster
    cluster._json("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    load = os.getloadavg()[0]
    try:
        while not cluster._json("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"]:
            time.sleep(0.1)
        submits(scheduler)
        watches(scheduler)
        follows(scheduler)
    finally:
        scheduler.close()
        cluster._json("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", gracePeriodSeconds=0)
        cluster._json("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        cluster.close()
    over = [row["what"] for row in rows if row["requests"] > row.get("at_most", row["requests"])]
    print(
        json.dumps(
            {"date": time.strftime("%Y-%m-%d"), "load": round(load, 1), "rows": rows, "over": over},
            indent=1,
        )
    )
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
