"""The pages' code runs as it stands there, on a real cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _section(title: str) -> str:
    """Return what stands below a heading of Slurm's page, up to the next one."""
    page = (ROOT / "docs" / "schedulers" / "slurm.md").read_text()
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_what_the_page_shows_works(docs_page: str, cluster: Any, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, in a cluster that has the partition which the
    pages name.
    """
    docs_reader.read(docs_page)


@pytest.mark.usefixtures("far")  # which deletes the page's jobs afterwards
def test_from_a_laptop(login: Any, docs_reader: Any, tmp_path: Path) -> None:
    """The section's blocks run in order for a reader who has ssh alone, on a login node."""
    text = _section("From your laptop")
    mark = "<!-- run by: tests/slurm/test_docs.py::test_from_a_laptop -->\n"
    assert mark in text
    page = tmp_path / "page.md"
    page.write_text(text.replace(mark, "").replace("me@login.example", "login"))
    docs_reader.read(str(page))


def test_a_cluster_to_try(needs_slurm: None, transload_home: Path) -> None:
    """The section's program ends in a shell for its lines."""
    text = _section("A cluster to try")
    install, _, activate, start, *inside = [
        line[2:] for line in text.splitlines() if line.startswith("$ ")
    ]
    assert install.startswith("apt-get install slurmctld ")
    assert activate.split() == [".", ".venv/bin/activate"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        [sys.executable, *start.split()[1:]],
        input="\n".join(inside) + "\n",
        env={**os.environ, "SHELL": "sh", "PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.count("\nmain/") >= 3 or said.stdout.count("hostname/") >= 3, said.stdout
    assert "SUCCEEDED" in said.stderr and "NODELIST" in said.stdout, said.stdout + said.stderr


def test_first_screen_of_the_readme(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program runs by the commands for this machine and for a cluster called hpc."""
    text = (ROOT / "README.md").read_text()
    program = text.partition("```python\n# train.py")[2].partition("```")[0]
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "transload.toml").write_text('[schedulers.hpc]\nkind = "slurm"\n')
    monkeypatch.chdir(tmp_path)
    first_block = text.partition("```console\n")[2].partition("```")[0]
    here, on_slurm, on_kubernetes = [
        shlex.split(line[2:], comments=True) for line in first_block.splitlines()
    ]
    assert on_kubernetes[:4] == ["transload", "run", "-s", "kubernetes"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (here, on_slurm):
        ran = subprocess.run(
            [sys.executable, "-m", *command],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "SUCCEEDED" in ran.stderr, ran.stderr
        assert "main/0 step 0: 0.900" in ran.stdout, ran.stdout
