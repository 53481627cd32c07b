"""A job goes on from its checkpoint after the cluster has evicted its pod."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
COMMAND = """\
cd "$TRANSLOAD_CHECKPOINT_DIR" || exit 4
trap 'touch saved; exit 75' TERM
echo "$TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"
if [ -e saved ]; then exit 0; fi
while :; do sleep 0.5; done
"""


@pytest.fixture
def claim(cluster: Any, namespace: str, tmp_path: Path) -> Iterator[str]:
    """A claim of the namespace, which is a folder of the node."""
    volume = f"{namespace}-kept"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(tmp_path)}}
    cluster.ask("POST", "/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
    asked = {**common, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}
    cluster.ask(
        "POST",
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        {"metadata": {"name": "kept"}, "spec": asked},
    )
    yield "kept"
    cluster.ask("DELETE", f"/api/v1/persistentvolumes/{volume}")


def test_a_job_that_is_evicted_goes_on(
    cluster: Any, namespace: str, claim: str, transload_home: Path
) -> None:
    """An evicted job saves at the notice and ends with 75. The next attempt finds that.

    No retry is spent.
    """
    from transload_kubernetes.scheduler import create_scheduler

    role = Role("main", IMAGE, entrypoint="sh", args=["-c", COMMAND], notice=Notice(20))
    role.checkpoints = True
    cfg = {
        "namespace": namespace,
        "image_pull_policy": "IfNotPresent",
        "jobset": "never",
        "checkpoint_claim": claim,
    }
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        job = runner.job(runner.run(AppDef("evicted", [role]), "kubernetes", cfg))
        ends: list[Any] = []
        owner = threading.Thread(target=lambda: ends.append(job.wait(timeout=120)))
        owner.start()
        assert next(iter(job.logs())) == "0 0\n"
        (pod,) = [
            each["metadata"]["name"]
            for each in cluster.items(namespace, "pods")
            if each["metadata"]["name"].startswith("evicted-")
        ]
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        cluster.ask("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction)
        owner.join()
        (status,) = ends
        assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 0), status
        (replica,) = status.roles[0].replicas
        assert replica.interruptions == 1
        assert list(job.logs()) == ["0 1\n"]
        job.delete()
