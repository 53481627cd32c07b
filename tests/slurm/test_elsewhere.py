"""Programs with a network and a disk of their own reach the cluster by ssh alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = ("-q", "-x", "-n", "4", "-p", "no:cacheprovider", "--timeout=200")


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_scheduler_suite(cluster: Any, login_at: Any, outside: Any, tmp_path: Path) -> None:
    """The suite for schedulers passes there."""
    login = login_at(outside.address)
    hidden = [str(cluster.base), str(login.home)]
    suite = str(Path(__file__).with_name("elsewhere.py"))
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "PYTEST_"))
    }
    env.update(login.leads)
    env.update(
        NOT_HERE=":".join(hidden), FAR_HOME=str(login.home), TRANSLOAD_SLURM_DIR=f"{tmp_path}/none"
    )
    command = outside.command(hidden, cluster.env["PATH"])
    done = subprocess.run(
        [
            *command,
            sys.executable,
            "-m",
            "pytest",
            suite,
            *_OPTIONS,
            f"--basetemp={tmp_path}/suite",
        ],
        env=env,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
