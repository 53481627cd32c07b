"""An earlier version of this repository's distributions, installed in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMIT = "23d8b94de5e87f8d57d8678712a8875b6d5f6a58"
"""The version whose jobs, records and deferred tasks every later one can read."""


def install(place: Path, *folders: str) -> tuple[Path, Path]:
    """Install distributions as they were at `COMMIT`, beside the same versions of all else.

    Args:
        place: an empty folder, for the sources and the environment.
        folders: of the distributions, such as ``core`` and ``plugins/airflow``.

    Returns:
        The environment's Python, and the sources.
    """
    found = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    if (
        not shutil.which("git")
        or subprocess.run(found, cwd=ROOT, stderr=subprocess.DEVNULL, check=False).returncode
    ):
        pytest.skip(f"not run: the commit {COMMIT[:7]} is not in the history that is here")
    uv = _uv()
    sources = place / "sources"
    sources.mkdir(parents=True)
    kept = subprocess.run(
        ["git", "archive", COMMIT, *folders, "tests"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(sources)], input=kept.stdout, check=True)
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(place / "env")], check=True)
    python = place / "env" / "bin" / "python"
    frozen = subprocess.run(
        [*uv, "pip", "freeze", "-q", "--python", sys.executable],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    same = [line for line in frozen.stdout.splitlines() if "transload" not in line and "==" in line]
    constraints = place / "constraints.txt"
    constraints.write_text("\n".join(same), encoding="utf-8")
    command = [*uv, "pip", "install", "-q", "--python", str(python), "-c", str(constraints)]
    own = [str(sources / folder) for folder in folders]
    subprocess.run([*command, *own, "pytest"], check=True)
    return python, sources


def run(python: Path, code: str, *arguments: str, path: str = "") -> str:
    """Run code in an environment that has that Python, and return what it wrote."""
    done = subprocess.run(
        [str(python), "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=python.parent,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _uv() -> list[str]:
    """Return the command that runs uv, as a program or as the module that nox brings along."""
    beside = ROOT / ".nox-bootstrap" / "bin" / "uv"
    found = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip("not run: uv is not here")
    return [found]
