#!/usr/bin/env python3
"""Run the README's two commands as somebody has them who has just cloned the repository.

The clone lies in a folder called transload below one with a blank in its name; HOME is empty, no uv
is on the PATH, and pip's file names two indexes. These are folders made here: the first has nothing
but ancient releases of a few packages, the second lacks nothing. So a first index that outvotes the
second, or a setting that reaches nobody, is seen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANCIENT = ("click", "docker", "hypothesis", "numpy", "pluggy", "pytest", "scikit-learn", "sphinx")
NEEDED = (
    ("-r", "tests/constraints/docs.txt", "-r", "tests/constraints/typing.txt", "--no-deps"),
    ("-r", "tests/requirements.txt", "-c", "tests/constraints/main.txt"),
    ("-r", "examples/digits/requirements.txt", "-c", "tests/constraints/main.txt"),
    ("-r", "tests/constraints/main.txt", "--no-deps"),
    ("uv>=0.6", "hatchling>=1.26", "editables", "pip"),
)
"""What pip is to download for the second index, call by call."""
COMMANDS = (
    ("quickstart.py", "--replicas", "2"),
    ("run_tests.py", "-s", "unit"),
    ("run_tests.py", "-s", "unit"),  # a second call is as good as the first
    ("run_tests.py", "-s", "docs"),
)


def main() -> int:
    """Run all commands; return the exit code of the first that failed."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        clone = made / "a folder" / "transload"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for package in ANCIENT:
            make_wheel(made / "ancient", package)
        for words in NEEDED:
            command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(made / "whole")]
            subprocess.run([*command, *words], cwd=ROOT, check=True)
        settings = made / "home" / ".config" / "pip" / "pip.conf"
        settings.parent.mkdir(parents=True)
        first, second = (as_index(made / folder) for folder in ("ancient", "whole"))
        settings.write_text(f"[global]\nindex-url = {first}\nextra-index-url = {second}\n")
        for words in COMMANDS:
            print(f"$ python3 {' '.join(words)}", flush=True)
            done = subprocess.run(
                [sys.executable, *words], cwd=clone, env=environment(made / "home"), check=False
            )
            if done.returncode:
                return done.returncode
    return 0


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a newcomer."""
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(each for each in folders if not shutil.which("uv", path=each))
    unset = ("UV_", "PIP_", "PYTHON", "XDG_", "VIRTUAL_ENV", "TRANSLOAD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return {**kept, "HOME": str(home), "PATH": path}


def make_wheel(folder: Path, package: str) -> None:
    """Make an empty wheel of a release that is older than any real one."""
    folder.mkdir(exist_ok=True)
    name = f"{package.replace('-', '_')}-0.0.1"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        about = f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n"
        archive.writestr(f"{name}.dist-info/METADATA", about)
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")


def as_index(folder: Path) -> str:
    """Write the pages of an index (PEP 503) for a folder of distributions; return its address."""
    for file in list(folder.iterdir()):
        package = re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower()
        page = folder / "simple" / package / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with open(page, "a") as text:
            text.write(f'<a href="../../{file.name}">{file.name}</a>\n')
    return (folder / "simple").as_uri()


if __name__ == "__main__":
    raise SystemExit(main())
