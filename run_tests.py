#!/usr/bin/env python3
"""Install what the tests need, and run them.

Usage: python3 run_tests.py [arguments of nox, such as -s main, -s unit, -l, -R; after -- pytest's]

Nothing is installed outside .venv and .nox.
"""

import os
import sys

from quickstart import ROOT, call, prepare


def main(argv: "list[str]") -> None:
    """Become nox, in the environment of quickstart.py."""
    programs = prepare(ROOT / ".venv")
    tools = ["uv", "pip", "install", "-q", "nox>=2025.2.9", "-c", "tests/constraints/typing.txt"]
    call(tools, "the indexes that were asked are in: .venv/bin/pip config list")
    os.chdir(ROOT)
    os.execv(programs / "nox", ["nox", *argv])


if __name__ == "__main__":
    main(sys.argv[1:])
