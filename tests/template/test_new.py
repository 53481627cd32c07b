"""A plugin made from the template has another name everywhere, and passes the suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NEW = Path(__file__).parents[2] / "plugins" / "_template" / "new.py"


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the generator."""
    return subprocess.run(
        [sys.executable, str(NEW), *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "chosen",
    ["test_success or test_failure", pytest.param("test_", marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_made_plugin_passes_the_suite(tmp_path: Path, chosen: str) -> None:
    """Nothing is left of the invented host's name, and the tests that come along are green."""
    folder = tmp_path / "made"
    assert make("flyte", str(folder)).returncode == 0
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if "tinyflow" in (path.name + path.read_text()).lower()]
    command = [sys.executable, "-m", "pytest", "tests", "-q", "-k", chosen]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_refused(tmp_path: Path) -> None:
    """A name that is none, and a folder that is there, are one line each, and nothing is made."""
    bad = make("My-Host", str(tmp_path / "a"))
    assert bad.returncode == 1 and "'My-Host'" in bad.stderr and "small letters" in bad.stderr
    there = make("flyte", str(tmp_path))
    assert there.returncode == 1 and str(tmp_path) in there.stderr
    assert not list(tmp_path.iterdir())
