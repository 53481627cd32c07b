"""The examples of README.md, run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text()
JOB, PROGRAM = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def folder(plain_folder: str) -> Path:
    """A current directory that holds the README's component as `hello.py`."""
    (Path(plain_folder) / "hello.py").write_text(JOB)
    return Path(plain_folder)


def test_the_job_in_twenty_lines_runs(folder: Path, transload_home: Path) -> None:
    """The first command shows what both replicas say, and ends well."""
    lines = [line.partition("#")[0].split() for line in README.splitlines() if line.startswith("$ transload run hello")]
    program = [sys.executable, "-m", *lines[0][1:]]
    result = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "greeter/0 hello world from replica 0",
        "greeter/1 hello world from replica 1",
    ]


def test_the_program_runs(folder: Path, transload_home: Path) -> None:
    """The lines of Python print the state."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout == "SUCCEEDED\n", result.stderr


def test_it_is_twenty_lines() -> None:
    """The heading does not lie by much."""
    assert len([line for line in JOB.splitlines() if line.strip()]) <= 20


def test_it_promises_no_plugin_that_is_empty() -> None:
    """A plugin that the table calls working has an entry point."""
    works = [line for line in README.splitlines() if line.startswith("|") and "works" in line]
    root = Path(__file__).parents[3]
    for path in root.glob("plugins/[!_]*/pyproject.toml"):
        if "[project.entry-points.transload]" not in path.read_text():
            assert not any(f"`{path.parent.name}`" in line.lower() for line in works), path.parent.name
