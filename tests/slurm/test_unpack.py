"""A file of packages is unpacked once on a node, and removed with its last user."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from transload_slurm.job.unpack import Unpacked

_MANY = """\
import sys
from pathlib import Path
from transload_slurm.job.unpack import Unpacked
for _ in range(20):
    unpacked = Unpacked(sys.argv[1])
    text = Path(unpacked.venv, "bin", "tool").read_text()
    assert text == f"#!{unpacked.venv}/bin/python\\n", text
    unpacked.release()
"""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with one file of packages, where ``TMPDIR`` is the disk of the node."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
    (tmp_path / "disk").mkdir()
    venv = tmp_path / "made" / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "bin" / "tool").write_text(f"#!{venv}/bin/python\n")
    folder = tmp_path / "shared" / "key.1234"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "venv.tar", "w") as archive:
        archive.add(venv, "venv")
    (folder / "environment.json").write_text(json.dumps({"packed_from": str(venv)}))
    return folder


def test_many_come_and_go(packed: Path, tmp_path: Path) -> None:
    """Each user finds all of the packages, whoever unpacks or removes them. Nothing stays."""
    words = [sys.executable, "-c", _MANY, str(packed)]
    running = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    said = [each.communicate(timeout=60)[1] for each in running]
    assert [each.returncode for each in running] == [0] * 6, said
    assert list((tmp_path / "disk").iterdir()) == []


def test_what_a_killed_one_has_left(packed: Path, tmp_path: Path) -> None:
    """Half unpacked packages are not used, and unused ones go with the next user that ends."""
    disk = tmp_path / "disk" / f"transload-environments-{os.getuid()}"
    for name in ("key.1234", "other.5678"):
        (disk / name / "venv").mkdir(parents=True)
        (disk / f"{name}.lock").touch()
    disk.chmod(0o700)
    unpacked = Unpacked(str(packed))
    assert Path(unpacked.venv, "bin", "tool").exists()
    with open(disk / "other.5678.lock") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        unpacked.release()
        assert sorted(each.name for each in disk.iterdir()) == ["other.5678", "other.5678.lock"]
    Unpacked(str(packed)).release()
    assert not disk.exists()


def test_what_cannot_be_unpacked(packed: Path, tmp_path: Path) -> None:
    """A damaged file, and a place that is not this user's alone, are errors that name them."""
    disk = tmp_path / "disk" / f"transload-environments-{os.getuid()}"
    (packed / "venv.tar").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match=r"its packages cannot be unpacked: .*key\.1234"):
        Unpacked(str(packed))
    assert not (disk / "key.1234").exists()
    disk.chmod(0o777)
    with pytest.raises(OSError, match=r"must be a folder of yours alone: .*environments"):
        Unpacked(str(packed))
