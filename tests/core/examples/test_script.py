"""A script is one file that names its packages in its header."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "examples" / "script" / "README.md"


def test_commands_of_the_page(transload_home: Path, tmp_path: Path) -> None:
    """The commands of the page run from the repository's folder, as the header says."""
    block = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    commands = [line.removeprefix("$ ") for line in block[1].splitlines()]
    # a folder whose `transload` is this one: the environment's Python goes before the submitter's
    (tmp_path / "transload").write_text(f'#!/bin/sh\nexec {sys.executable} -m transload "$@"\n')
    (tmp_path / "transload").chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    outputs = [
        subprocess.run(
            shlex.split(command),
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        for command in commands
    ]
    assert all("degree 5: error 0.0922" in each.stdout for each in outputs)
    assert re.search(r"local://transload/fit-\w+", outputs[1].stderr)
