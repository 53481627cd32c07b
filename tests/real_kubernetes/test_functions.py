"""Python functions run in pods without anything of ours or cloudpickle in their image."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import SpecError, TransloadError
from transload.runner import Runner

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.skipif(
    "REAL_CLUSTER" not in os.environ, reason="the cluster's node sees no folder of ours"
)
IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")


def squared(number: int) -> tuple[int, bool]:
    """Say what this makes of a number, and whether that was in a pod."""
    if number < 0 or "transload" in sys.modules:
        raise LookupError(number)
    return number**2, "KUBERNETES_SERVICE_HOST" in os.environ


def zeros(size: int) -> bytes:
    """Return so many bytes."""
    return bytes(size)


@pytest.fixture
def options(namespace: str, transload_home: Path, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return options of `transload.submit` that mount a shared folder and this very Python."""
    from transload_kubernetes.scheduler import create_scheduler

    folders = (str(tmp_path), sys.base_prefix)
    mounts = [
        {"name": f"shared-{number}", "mountPath": folder} for number, folder in enumerate(folders)
    ]
    volumes = [{"name": each["name"], "hostPath": {"path": each["mountPath"]}} for each in mounts]
    fetch, main = ({"name": name, "volumeMounts": mounts} for name in ("workspace", "main"))
    pod = {"initContainers": [fetch], "containers": [main], "volumes": volumes}
    cfg = {
        "namespace": namespace,
        "image": IMAGE,
        "image_pull_policy": "IfNotPresent",
        "workspace_url": f"file://{tmp_path}/code",
        "overlay": json.dumps({"spec": {"template": {"spec": pod}}}),
    }
    env = {
        "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR")),
    }
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        yield {"scheduler": "kubernetes", "runner": runner, "cfg": cfg, "env": env}


def test_functions_in_pods(options: dict[str, Any]) -> None:
    """A value, an exception, or three values in order come back. The functions' module travels."""
    good, bad = (transload.submit(squared, number, **options) for number in (5, -1))
    assert list(transload.map(squared, [2, 3, 4], parallelism=3, **options)) == [
        (4, True),
        (9, True),
        (16, True),
    ]
    assert good.result(timeout=90) == (25, True)
    with pytest.raises(LookupError, match="-1") as caught:
        bad.result(timeout=90)
    assert "in squared" in caught.value.__notes__[0]


def test_how_large_a_result_may_be(options: dict[str, Any], tmp_path: Path) -> None:
    """A status brings 4 KiB of a result, and a helper 256 KiB. More is refused with the way out."""
    helped = {**options, "cfg": {**options["cfg"], "helper_image": IMAGE}}
    base = str(tmp_path / "results")
    (tmp_path / "results").mkdir()
    too_large = transload.submit(zeros, 5_000, **options)
    by_helper = transload.submit(zeros, 200_000, **helped)
    too_large_for_it = transload.submit(zeros, 300_000, **helped)
    stored = transload.submit(zeros, 300_000, tracker_base=base, **options)
    with pytest.raises(
        SpecError, match=r"the result takes 5\d\d\d bytes, more than .*: give tracker_base"
    ):
        too_large.result(timeout=90)
    assert by_helper.result(timeout=90) == bytes(200_000)
    with pytest.raises(TransloadError, match="at most 262,144; set tracker_base"):
        too_large_for_it.result(timeout=90)
    assert stored.result(timeout=90) == bytes(300_000)
