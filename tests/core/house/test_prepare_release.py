"""A release changes addresses, links and notes before it builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REPOSITORY = "https://example.org/owner/transload"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the script reads, as distributions without their sources, and the pages."""
    skip = shutil.ignore_patterns("src", "__pycache__", "_build", ".nox")
    for name in ("core", "plugins", "docs", "examples", ".ci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    for name in (
        "SECURITY.md",
        "CONTRIBUTING.md",
        "README.md",
        "LICENSE",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _prepare(checkout: Path) -> subprocess.CompletedProcess[str]:
    script = checkout / ".ci" / "prepare_release.py"
    return subprocess.run(
        [sys.executable, str(script), REPOSITORY, "v0.1.0", str(checkout / "notes.md")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_distribution_is_ready(checkout: Path) -> None:
    """Each has addresses, and a README without links into a folder. The notes are the changelog's."""
    done = _prepare(checkout)
    assert done.returncode == 0, done.stderr
    notes = (checkout / "notes.md").read_text()
    assert notes.startswith("- `transload`: ")
    folders = [checkout / "core", *checkout.glob("plugins/[!_]*")]
    for folder in folders:
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        urls = project["urls"]
        assert set(urls) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
        assert all(url.startswith(REPOSITORY) for url in urls.values())
        links = re.findall(r"\]\(([^)\s]+)\)", (folder / "README.md").read_text())
        assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []


def test_a_version_without_changes_is_refused(checkout: Path) -> None:
    """A changelog that does not speak of the version ends the release, and is named."""
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## 0.1.0", "## 0.0.9"))
    done = _prepare(checkout)
    assert done.returncode == 1
    assert done.stderr == "CHANGELOG.md: no section of v0.1.0\n"
