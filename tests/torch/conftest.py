"""A Slurm cluster, its login node and an image, for the trainings of several hosts."""

from __future__ import annotations

import os
import runpy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLURM = Path(__file__).parents[1] / "slurm"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Start a Slurm cluster of three nodes, which this process asks."""
    if os.geteuid() != 0:
        pytest.skip(
            "not run: slurm: the fake GPUs of the test cluster are device files, which root alone "
            "can make"
        )
    made = runpy.run_path(str(SLURM / "cluster.py"))["Cluster"]()
    try:
        made.start()
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        monkeypatch.setenv("PATH", made.env["PATH"])
        monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "slurm"))
        yield made
    finally:
        made.stop()


@pytest.fixture
def login(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Its login node, which this process reaches by ssh alone."""
    base = Path(tempfile.mkdtemp(prefix="tlsh-", dir="/tmp"))
    made = runpy.run_path(str(SLURM / "login.py"))["Login"](
        base, {**cluster.env, "SLURM_CONF": str(cluster.conf)}
    )
    try:
        made.start()
        for name, value in made.leads.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("SLURM_CONF")
        yield made
    finally:
        made.stop()
        shutil.rmtree(base)


@pytest.fixture
def empty_image(tmp_path: Path) -> str:
    """A folder that is an image with nothing but places to mount to."""
    root = tmp_path / "image"
    for folder in (
        "bin",
        "dev",
        "proc",
        "sys",
        "tmp",
        "etc",
        "usr",
        "lib",
        "lib64",
        "root",
        "home",
        "mnt",
    ):
        (root / folder).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    return str(root)
