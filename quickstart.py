#!/usr/bin/env python3
"""Install transload into .venv, then train a real model with three replicas on this machine.

Usage: python3 quickstart.py [arguments of the example, such as --replicas 2 --epochs 50; or --help]

Nothing is installed outside the folder .venv next to this file. Delete it to be rid of everything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
EXAMPLE = "examples/digits/component.py"


def environment(folder: Path, *arguments: str, changes_with: tuple[Path, ...] = ()) -> Path:
    """Make a virtual environment and install into it, unless just that was done before.

    Args:
        folder: Where the environment is, or shall be.
        arguments: What `pip install` is told, from the root of the repository.
        changes_with: Files whose change asks for another installation.

    Returns:
        The folder of the environment's programs.

    Raises:
        SystemExit: It cannot be made; the message says what is missing.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs before anything is installed
        raise SystemExit(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}")
    if sys.platform == "win32":
        raise SystemExit("Linux or macOS is needed; on Windows, use WSL")
    programs, done = folder / "bin", folder / ".installed"
    state = "\n".join([sys.version, *arguments, *(_digest(path) for path in changes_with)])
    if done.exists() and done.read_text() == state and (programs / "python").exists():
        return programs
    print(f"installing into {folder.name} ...", file=sys.stderr, flush=True)
    try:
        pip = _make(folder)
        subprocess.run([*pip, "install", "--quiet", "--disable-pip-version-check", *arguments], cwd=ROOT, check=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"could not install into {folder}: see above (exit code {error.returncode})") from error
    done.write_text(state)
    return programs


def _make(folder: Path) -> list[str]:
    """Make the environment and return the command that is its pip.

    Some systems ship Python without `ensurepip`: then the system's pip, if there is one, installs into the environment.
    """
    python = folder / "bin" / "python"
    bundled = importlib.util.find_spec("ensurepip") is not None
    if not python.exists():
        without = [] if bundled else ["--without-pip"]
        subprocess.run([sys.executable, "-m", "venv", "--clear", *without, str(folder)], check=True)
    if subprocess.run([str(python), "-c", "import pip"], capture_output=True, check=False).returncode == 0:
        return [str(python), "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        raise SystemExit("Python's venv module is incomplete here: install it first (Debian: apt install python3-venv)")
    return [sys.executable, "-m", "pip", "--python", str(python)]


def _digest(path: Path) -> str:
    """Return a file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: list[str]) -> None:
    """Install, then become `transload run` on the example."""
    requirements = ROOT / "examples" / "digits" / "requirements.txt"
    programs = environment(
        ROOT / ".venv",
        *("--editable", "./core", "--requirement", str(requirements.relative_to(ROOT))),
        changes_with=(ROOT / "core" / "pyproject.toml", requirements),
    )
    os.chdir(ROOT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(programs / "transload"), "run", EXAMPLE, *(argv or ["--replicas", "3"])]
    print(f"$ transload {' '.join(command[1:])}", flush=True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
