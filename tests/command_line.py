"""Run the command line in the process of the tests, which has imported already what it needs."""

from __future__ import annotations

import io
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from transload.cli import main


def transload(
    *args: str, cwd: Path | str = ".", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder and with variables, and return what a process would."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(cwd):
        for name, value in environ.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(args))
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())
