"""What the page about environments shows works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from transload_testing.packages import PackageIndex

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "environments.md"


def test_what_the_page_shows_works(
    index: PackageIndex, scripts: Path, transload_home: Path
) -> None:
    """The page's script runs by both commands, here and on the cluster `hpc`, with its packages."""
    index.add("numpy", "2.0", code="def zeros(n): return [0.0] * n\n")
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (script,) = [block for kind, block in blocks if kind == "python"]
    (scripts / "train.py").write_text(script, encoding="utf-8")
    (scripts / "transload.toml").write_text('[schedulers.hpc]\nkind = "local"\n')
    program = scripts / "bin" / "transload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m transload "$@"\n')
    program.chmod(0o755)
    variables = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    outputs = []
    for kind, block in blocks:
        for line in block.splitlines() if kind == "console" else ():
            done = subprocess.run(
                line.removeprefix("$ "),
                shell=True,
                env=variables,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, (line, done.stderr)
            outputs.append(done.stdout)
    here, cluster = outputs
    assert "[0." in here
    assert "[0." in cluster
