#!/usr/bin/env python3
"""Install what the tests need, and run them.

Usage: python3 run_tests.py [arguments of nox, such as -s core, -s slow, -l, -R; after -- those of pytest]

Nothing is installed outside .nox-bootstrap and .nox, unless the variable TRANSLOAD_REQUIRE names engines (sshd, slurm,
docker; commas between them): those are installed with the system's package manager, and fail the run if still missing.
Without it, an engine that is not here is listed at the end as "not run", with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys

from quickstart import ROOT, environment

ENGINES = [sys.executable, str(ROOT / "tests" / "engines.py")]


def main(argv: list[str]) -> int:
    """Run nox in an environment of its own; return its exit code."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every process of every test compiles everything anew
    failed = subprocess.run([*ENGINES, "install"], check=False).returncode
    if failed:
        return failed
    programs = environment(ROOT / ".nox-bootstrap", "nox>=2025.2.9", "uv>=0.6")
    code = subprocess.run([str(programs / "nox"), *argv], cwd=ROOT, check=False).returncode
    sys.stdout.flush()
    subprocess.run([*ENGINES, "report"], check=False)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
