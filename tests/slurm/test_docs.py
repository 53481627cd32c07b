"""What the pages show is so: their code is run as it stands there, on a real cluster."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def test_what_the_page_shows_works(docs_page: str, cluster: Any, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, in a cluster that has the partition which the
    pages name.
    """
    docs_reader.read(docs_page)


def test_a_cluster_to_try(needs_slurm: None, transload_home: Path) -> None:
    """The page's packages are those that a public runner installs, and its program ends in a shell
    for its lines.
    """
    text = (ROOT / "docs" / "try-a-cluster.md").read_text().partition("## Kubernetes")[0]
    install, _, activate, start, *inside = [
        line[2:] for line in text.splitlines() if line.startswith("$ ")
    ]
    engines = runpy.run_path(str(ROOT / "tests" / "engines.py"))["ENGINES"]
    assert install.split() == ["apt-get", "install", *engines["slurm"].packages["apt-get"]]
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
