"""The usage of containers is read from real ones, and from a stub of control groups."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload_docker.usage import Meter, usage

VERSION_2 = {
    "memory.peak": "104857600\n",
    "memory.stat": "anon 1000\nfile 2000\ninactive_file 4857600\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
}
VERSION_1 = {
    "memory.max_usage_in_bytes": "104857600\n",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 4857600\n",
    "cpuacct.usage": "2500000000\n",
    "cpuacct.stat": "user 200\nsystem 50\n",
}


def group(folder: Path, files: dict[str, str]) -> str:
    """Make a control group, and return its path."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    return str(folder)


@pytest.mark.parametrize("files", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
def test_what_a_group_tells(tmp_path: Path, files: dict[str, str]) -> None:
    """A group's usage is its peak without the unused file cache, and its time, as far as known."""
    assert usage([group(tmp_path / "a", files)]) == {"peak_memory": 100_000_000, "cpu_seconds": 2.5}
    old = {
        name: text
        for name, text in files.items()
        if name not in ("memory.peak", "memory.max_usage_in_bytes")
    }
    assert usage([group(tmp_path / "b", old)]) == {"cpu_seconds": 2.5}
    with pytest.raises(OSError, match="stat"):
        usage([str(tmp_path / "removed")])


@pytest.mark.parametrize("missed", ["nothing", "all", "the peak"])
@pytest.mark.parametrize("place", ["system.slice/docker-abc.scope", "docker/abc"])
def test_a_container_is_read_when_its_program_ends(
    tmp_path: Path,
    place: str,
    missed: str,
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The usage of a container is known at its end, or a moment before if that was missed.

    That of an unknown container is not.
    """
    monkeypatch.setattr("transload_docker.usage.SAMPLE_S", 0.05)
    meter = Meter(str(tmp_path))
    meter.follow("abc")
    with subprocess.Popen(["sleep", "60"]) as program:
        path = group(tmp_path / place, {**VERSION_2, "cgroup.procs": f"{program.pid}\n"})
        meter.follow("abc")
        meter.follow("abc")
        Path(path, "memory.peak").write_text("204857600\n", encoding="ascii")
        found = {"abc": {"peak_memory": 200_000_000, "cpu_seconds": 2.5}}
        eventually(lambda: meter.used == found)
        if missed == "all":
            shutil.rmtree(path)
        elif missed == "the peak":
            Path(path, "memory.peak").unlink()
        else:
            Path(path, "memory.peak").write_text("304857600\n", encoding="ascii")
            found["abc"]["peak_memory"] = 300_000_000
        program.kill()
        eventually(lambda: not meter._watched)
    assert meter.used == found
