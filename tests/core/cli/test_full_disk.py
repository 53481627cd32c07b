"""What can be done where the disk of the state folder is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLOODS = 'yes "$(printf "%01000d")" | head -c 9000000'
"""Writes more than the disk can hold."""


@pytest.fixture
def small_disk(transload_home: Path) -> Iterator[Path]:
    """The state folder on a disk of 3 MB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(transload_home)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        yield transload_home
    finally:
        subprocess.run(["umount", "-l", str(transload_home)], check=True)


@pytest.mark.parametrize("given", [True, False], ids=["given id", "made id"])
def test_a_job_is_deleted_where_the_disk_is_full(
    invoke: Any, small_disk: Path, given: bool
) -> None:
    """To remove a job needs no room, whoever made its id."""
    options = ["--app-id", "mine"] if given else []
    invoke("run", *options, "--", "sh", "-c", FLOODS)
    (job,) = invoke("list", "--json").json["apps"]
    (small_disk / "filler").write_bytes(b"")
    with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(b"x" * 4096)

    deleted = invoke("delete", job["handle"])
    assert (deleted.code, deleted.err) == (0, "")
    assert invoke("list", "--json").json["apps"] == []
    assert not list((small_disk / "local" / "apps").iterdir())


def test_the_id_of_a_job_that_was_deleted_so_stays_taken(invoke: Any, small_disk: Path) -> None:
    """An id that was given is known after a delete on a full disk, too."""
    invoke("run", "--app-id", "mine", "--", "sh", "-c", FLOODS)
    assert invoke("delete", "mine").code == 0
    again = invoke("run", "--app-id", "mine", "--", "true")
    assert again.code != 0
    assert "mine" in again.err
