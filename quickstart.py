#!/usr/bin/env python3
"""Install transload into .venv, then train a real model on this machine.

Usage:
  python3 quickstart.py [arguments of the example, such as --replicas 2 --epochs 50; or --help]
  python3 quickstart.py --with airflow,report     # install these plugins as well, and stop there
  python3 quickstart.py --host prefect            # the same training inside a workflow host: airflow, ax, kfp, prefect

Nothing is installed outside the folder .venv next to this file. Delete it to be rid of everything. The hosts' own
files go to the folder everywhere-HOST.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
EXAMPLE = "examples/digits/component.py"
HOSTS = ["airflow", "ax", "kfp", "prefect"]


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
        install = _make(folder)
        subprocess.run([*install, "--quiet", *arguments], cwd=ROOT, check=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"could not install into {folder}: see above (exit code {error.returncode})") from error
    done.write_text(state)
    return programs


def _make(folder: Path) -> list[str]:
    """Make the environment and return the command that installs into it.

    Where uv is on the PATH it does both, in seconds. Some systems ship Python without `ensurepip`: then the system's
    pip, if there is one, installs into the environment.
    """
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv is not None:
        if "PIP_FIND_LINKS" in os.environ:
            os.environ.setdefault("UV_FIND_LINKS", ",".join(os.environ["PIP_FIND_LINKS"].split()))
        if not python.exists():
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        return [uv, "pip", "install", "--python", str(python)]
    bundled = importlib.util.find_spec("ensurepip") is not None
    if not python.exists():
        without = [] if bundled else ["--without-pip"]
        subprocess.run([sys.executable, "-m", "venv", "--clear", *without, str(folder)], check=True)
    if subprocess.run([str(python), "-c", "import pip"], capture_output=True, check=False).returncode == 0:
        return [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    if importlib.util.find_spec("pip") is None:
        raise SystemExit("Python's venv module is incomplete here: install it first (Debian: apt install python3-venv)")
    return [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]


def _digest(path: Path) -> str:
    """Return a file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wanted(argv: list[str]) -> tuple[list[str], str, list[str]]:
    """Return the plugins to be installed, the host to be shown (or nothing), and what is left of the command line.

    Raises:
        SystemExit: There is no such plugin or host; the message names those that there are.
    """
    if not argv or argv[0].partition("=")[0] not in ("--with", "--host"):
        return [], "", argv
    option, _, value = argv[0].partition("=")
    value, rest = (value, argv[1:]) if value else (argv[1] if argv[1:] else "", argv[2:])
    there = sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
    allowed, names = (HOSTS, [value]) if option == "--host" else (there, value.replace(" ", "").split(","))
    for name in names:
        if name not in allowed:
            raise SystemExit(f"{option} {value or '(nothing)'}: there is no {name!r}; there are: {', '.join(allowed)}")
    return names, value if option == "--host" else "", rest


def distributions(names: list[str]) -> list[str]:
    """Return the folders to install for these plugins: with those of this repository that they need themselves."""
    folders = {"core": None}
    for name in names:
        text = (ROOT / "plugins" / name / "pyproject.toml").read_text()
        needed = [each.name for each in ROOT.glob("plugins/[!_]*") if f'"transload-{each.name}>=' in text]
        folders |= dict.fromkeys(f"plugins/{each}" for each in [*needed, name])
    return list(folders)


def main(argv: list[str]) -> None:
    """Install, then become `transload run` on the example, or its twin in a host."""
    plugins, host, rest = wanted(argv)
    requirements = ROOT / "examples" / "digits" / "requirements.txt"
    folders = distributions(plugins)
    pins = [path for name in plugins if (path := ROOT / "tests" / name / "constraints.txt").exists()]
    arguments = [word for folder in folders for word in ("--editable", f"./{folder}")]
    arguments += ["--requirement", str(requirements.relative_to(ROOT))]
    arguments += [word for path in pins for word in ("--constraint", str(path.relative_to(ROOT)))]
    sources = (requirements, *pins, *(ROOT / folder / "pyproject.toml" for folder in folders))
    programs = environment(ROOT / ".venv", *arguments, changes_with=sources)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    os.chdir(ROOT)
    if host:
        command = [str(programs / "python"), "examples/everywhere/show.py", host, *rest]
    elif plugins:
        print(f"installed: transload, {', '.join(plugins)}. Next:\n  . .venv/bin/activate\n  transload info")
        return
    else:
        command = [str(programs / "transload"), "run", EXAMPLE, *(rest or ["--replicas", "3"])]
    print(f"$ {Path(command[0]).name} {' '.join(command[1:])}", flush=True)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
