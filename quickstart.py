#!/usr/bin/env python3
"""Install transload into .venv, then train a real model on this machine, or in an orchestrator.

Nothing is installed outside that folder. Jobs are kept in ~/.local/state/transload. An
orchestrator's own files go to the folder everywhere-HOST.
"""
# Here and in run_tests.py, no newer syntax than that of Python 3.6: an old Python is to read as far
# as the line that says which one is needed.

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    raise SystemExit(
        f"{sys.argv[0]}: Python 3.11, 3.12 or 3.13 is needed, and {sys.executable} is "
        f"{sys.version.split()[0]}: type `uv run --no-project --python 3.12 {sys.argv[0]}`, or "
        "`module load python/3.12`, or `conda create -n py312 python=3.12`"
    )

ROOT = Path(__file__).resolve().parent
HOSTS = ["airflow", "ax", "kfp", "prefect"]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
HOST_PACKAGES = {
    "airflow": "apache-airflow",
    "ax": "ax-platform",
    "kfp": "kfp",
    "mlflow": "mlflow",
    "prefect": "prefect",
}
UV_CALLS_IT = {
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}


def prepare(folder: Path) -> Path:
    """Make an environment with uv in it, as far as it is missing; return its folder of programs.

    From here on uv works on it, and looks where pip looks.
    """
    programs, python = folder / "bin", folder / "bin" / "python"
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise SystemExit(f"{folder}: holds other files, no environment: name another by --venv")
    if not runs(programs / "uv", "--version"):
        print(f"making the environment {folder} ...", file=sys.stderr, flush=True)
        if not runs(python, "-m", "pip", "--version"):
            ours = folder == ROOT / ".venv"  # another one is somebody's, with packages in it
            if ours or not runs(python, "--version"):
                make = [sys.executable, "-m", "venv", "--clear", folder]
            else:
                make = [python, "-m", "ensurepip"]
            call(make, "if there is no venv (Debian), type: apt install python3-venv")
        fetch = [python, "-m", "pip", "install", "--disable-pip-version-check", "uv>=0.6"]
        call(fetch, "name an index that is reached: export PIP_INDEX_URL=…")
    os.environ.update(VIRTUAL_ENV=str(folder), PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("UV_CACHE_DIR", str(folder / "cache"))
    # pip takes the best version of all indexes, uv by default that of the first that has any
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    for name, value in settings_of_pip(python).items():
        between = "," if name == "UV_FIND_LINKS" else " "
        os.environ.setdefault(name, between.join(value.split()))
    return programs


def settings_of_pip(python: Path) -> dict[str, str]:
    """Return what pip is told by its files and by variables, in uv's words."""
    listing = [python, "-m", "pip", "config", "list"]
    said = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=False).stdout
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in said.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in found and option in UV_CALLS_IT:
            found[section][UV_CALLS_IT[option]] = str(ast.literal_eval(value))
    return {**found["global"], **found["install"], **found[":env:"]}


def runs(*command: "str | Path") -> bool:
    """Tell whether a command is there and ends well."""
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode
    except OSError:
        return False


def call(command: "list[str | Path]", remedy: str) -> None:
    """Run a command, from the root of the repository; where it fails, the last line is a remedy.

    What uv writes is shown, since it may take a minute.
    """
    shown = command[0] == "uv"
    output = {"stdout": sys.stderr if shown else subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=ROOT, text=True, check=False, **output)
    if done.returncode:
        why = "uv failed, see above" if shown else done.stdout.strip().rpartition("\n")[2]
        raise SystemExit(f"{why}: {remedy}")


def install(plugins: list[str]) -> None:
    """Install transload, plugins with those that they need, and what the example needs."""
    text = "".join((ROOT / "plugins" / name / "pyproject.toml").read_text() for name in plugins)
    needed = [name for name in PLUGINS if name in plugins or f'"transload-{name}>=' in text]
    words = ["uv", "pip", "install", "-r", "examples/digits/requirements.txt", "pip"]
    for folder in ("core", *(f"plugins/{name}" for name in needed)):
        words += ["-e", f"./{folder}"]
    tried = [ROOT / "tests" / "constraints" / f"{name}.txt" for name in plugins]
    tried = [path for path in tried if path.exists()] or [ROOT / "tests/constraints/main.txt"]
    if len(tried) == 1:  # several hosts were never tried together
        words += ["-c", str(tried[0])]
    call(words, "the indexes that were asked are in: .venv/bin/pip config list")


def held_back(plugins: list[str]) -> list[str]:
    """Return a line for each host that is older here than where it is installed alone.

    Hosts in one environment share the versions of what they both need, so uv may choose an old
    host, and says nothing of it.
    """
    lines = []
    for name in plugins if len(plugins) > 1 else []:
        package = HOST_PACKAGES.get(name)
        if package is None:
            continue
        # alone: what it needs is not asked for, nor what the others need
        words = ["uv", "pip", "install", "--dry-run", "--no-deps", "--upgrade", package]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
        old, new = (re.search(rf"^ {sign} {package}==(\S+)", said, re.M) for sign in ("-", r"\+"))
        if old and new:
            lines.append(
                f"note: {package} is {old[1]} here, since the others need what is old; alone it "
                f"would be {new[1]}: python3 quickstart.py --with {name} --venv .venv-{name}"
            )
    return lines


def wanted(argv: list[str]) -> argparse.Namespace:
    """Return what the command line asks for; end where that makes no sense."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--with NAMES | --host NAME [--keep]] [--venv FOLDER] [arguments of the example]",
        description=__doc__,
        epilog="Any other argument is the example's: --replicas 2 --epochs 50. Its own help: -- --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = f"install these plugins (commas between them), and stop there: {', '.join(PLUGINS)}"
    parser.add_argument("--with", dest="names", metavar="NAMES", help=names)
    parser.add_argument("--host", choices=HOSTS, help="run the same training in an orchestrator")
    parser.add_argument("--keep", action="store_true", help="leave the host's server up")
    parser.add_argument("--venv", default=ROOT / ".venv", metavar="FOLDER", help="default: .venv")
    end = argv.index("--") if "--" in argv else len(argv)
    given, unknown = parser.parse_known_args(argv[:end])
    given.rest = [*unknown, *argv[end + 1 :]]
    given.plugins = given.names.replace(" ", "").split(",") if given.names else []
    for name in given.plugins:
        if name not in PLUGINS:
            parser.error(f"--with {name}: no such plugin; there are: {', '.join(PLUGINS)}")
    if bool(given.names) + bool(given.host) + bool(given.rest) > 1:
        parser.error("--with, --host and arguments of the example: only one of them")
    given.venv = Path(given.venv).expanduser().absolute()
    return given


def main(argv: list[str]) -> None:
    """Install, say how to go on, and become the example, so that what ends this ends that."""
    given = wanted(argv)
    programs = prepare(given.venv)
    install(given.plugins or [given.host] * bool(given.host))
    print(f"to go on in this environment:\n  . {shlex.quote(str(programs / 'activate'))}")
    if given.names:
        for line in held_back(given.plugins):
            print(line)
        return
    command = ["transload", "run", "examples/digits/component.py", *given.rest]
    if given.host:
        command = ["python", "examples/everywhere/show.py", given.host, *["--keep"] * given.keep]
    elif not given.rest:
        command += ["--replicas", "3"]
    print(f"$ {shlex.join(command)}", flush=True)
    os.chdir(ROOT)
    os.execv(programs / command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
