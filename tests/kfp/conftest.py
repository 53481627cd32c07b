"""KFP's own local runner on a private engine, with an image that the tests build of this very
Python.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [
    path
    for path in (str(Path(__file__).parent), str(ROOT / "examples" / "kfp"))
    if path not in sys.path
]
BUSYBOX_APPLETS = "sh mktemp cat sleep env printf true false mkdir rm echo tr"


@pytest.fixture(scope="session")
def image(private_engine: Any) -> str:
    """Name of an image with this Python, scikit-learn, transload and this adapter, a shell, and the
    digits example.
    """
    import transload
    import transload_kfp

    site = Path(sysconfig.get_path("purelib"))
    name: str = private_engine.python_image(
        "transload-test/kfp:1",
        packages=("scikit-learn", "fsspec", "pluggy", "click"),
        folders={
            str(site / "transload"): Path(transload.__file__).parent,
            str(site / "transload_kfp"): Path(transload_kfp.__file__).parent,
            "/app/digits": ROOT / "examples" / "digits",
            "/app/kfp": ROOT / "examples" / "kfp" / "app",
        },
        applets=BUSYBOX_APPLETS,
    )
    return name


@pytest.fixture
def engine(private_engine: Any, image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the engine with DOCKER_HOST set, and leave nothing but images on it."""
    monkeypatch.setenv("DOCKER_HOST", private_engine.url)
    _keep_containers(monkeypatch)
    yield private_engine
    private_engine.sweep()


def _keep_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ended containers stay until the test is over.

    KFP's runner lets the engine remove them at once, asks for the exit code afterwards, and takes a
    container that is
    gone already for one that ended well: a failure would now and then be a success.
    """
    from docker.models.containers import ContainerCollection

    run = ContainerCollection.run

    def kept(self: Any, *args: Any, **more: Any) -> Any:
        more.pop("auto_remove", None)
        return run(self, *args, **more)

    monkeypatch.setattr(ContainerCollection, "run", kept)


@pytest.fixture
def local_kfp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return ``local_kfp(runner, **more)``, which runs KFP here and returns its folder."""
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path)
    )  # KFP leaves a folder there when a run fails
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # and its components leave one in each run
    from kfp import local
    from kfp.local import config

    root = tmp_path / "pipelines"

    def start(runner: Any, **more: Any) -> Path:
        local.init(runner=runner, pipeline_root=str(root), **more)
        return root

    yield start
    config.LocalExecutionConfig.instance = None
    with contextlib.suppress(OSError):
        root.rmdir()


@pytest.fixture
def docker_kfp(engine: Any, local_kfp: Callable[..., Path]) -> Path:
    """Start KFP's local runner on the engine, and return the folder of its artifacts."""
    from kfp import local

    return local_kfp(local.DockerRunner())
