#!/usr/bin/env python3
"""Install transload into .venv, then train a real model on this machine.

Nothing is installed outside that folder. Jobs are kept in ~/.local/state/transload. An
orchestrator's own files go to the folder everywhere-HOST.
"""
# Here and in run_tests.py, no newer syntax than that of Python 3.6: an old Python is to read as far
# as the line that says which one is needed.

import argparse
import ast
import hashlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - this file runs before anything is installed
    raise SystemExit(
        f"{sys.argv[0]} needs Python 3.11 or newer, and {sys.executable} is "
        f"{sys.version.split()[0]}. "
        f"Three ways to get one: `module load python/3.12` (`module avail python` lists them), "
        f"`uv run --no-project --python 3.12 {sys.argv[0]}`, or `conda create -n py312 "
        "python=3.12`."
    )

ROOT = Path(__file__).resolve().parent
EXAMPLE = "examples/digits/component.py"
HOSTS = ["airflow", "ax", "kfp", "prefect"]
PROMPT = "  "

# -- the environment


def environment(folder: Path, *arguments: str, changes_with: tuple[Path, ...] = ()) -> Path:
    """Make a virtual environment and install into it, unless just that was done before.

    Args:
        folder: Where the environment is, or shall be.
        arguments: What `pip install` is given, from the root of the repository.
        changes_with: Files whose change asks for another installation.

    Returns:
        The folder of the environment's programs.

    Raises:
        SystemExit: It cannot be made; the message says what is missing.
    """
    if sys.platform == "win32":
        raise SystemExit(
            "Linux is needed (macOS should work, but was not tried); on Windows, use WSL"
        )
    _lead_uv(_settings_of_pip())
    programs, done = folder / "bin", folder / ".installed"
    state = "\n".join([sys.version, *arguments, *(_digest(path) for path in changes_with)])
    if done.exists() and done.read_text() == state and (programs / "python").exists():
        return programs
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise SystemExit(
            f"{folder}: it is not empty, and no virtual environment; name a new folder, or delete "
            "it"
        )
    try:
        _install(_make(folder), folder, arguments)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"could not install into {folder}: see above (exit code {error.returncode})"
        ) from error
    done.write_text(state)
    return programs


def _install(ways: list[list[str]], folder: Path, arguments: tuple[str, ...]) -> None:
    """Install by the first of these commands that can; what it says is shown, so that nobody waits
    in silence.
    """
    wanted = ", ".join(word for word in arguments if not word.startswith("--"))
    for number, way in enumerate(ways, start=1):
        tool = "pip" if "-m" in way else "uv"
        _say(f"installing {wanted} into {folder.name}, with {tool} ...")
        try:
            subprocess.run([*way, *arguments], cwd=ROOT, stdout=sys.stderr.fileno(), check=True)
            return
        except subprocess.CalledProcessError:
            if number == len(ways):
                raise


def _make(folder: Path) -> list[list[str]]:
    """Make the environment; return the commands that install into it, the best first.

    uv does it in seconds: the one of the PATH, else one that pip fetches. Where neither can be had,
    pip does it.
    """
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv is not None and _runs(uv, "--version"):
        if not python.exists():
            _say(f"making the environment {folder.name} ...")
            subprocess.run(
                [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
                check=True,
            )
        return [[uv, "pip", "install", "--python", str(python)]]
    if not python.exists():
        _say(f"making the environment {folder.name} ...")
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True
        )
    pip = _pip_for(python)
    by_pip = [*pip, "install", "--disable-pip-version-check"]
    fetched = _fetch_uv(by_pip, folder / ".uv")
    if fetched is None:
        return [by_pip]
    return [[fetched, "pip", "install", "--python", str(python)], by_pip]


def _pip_for(python: Path) -> list[str]:
    """Return the command of a pip that works on an environment: its own, this Python's, or one that
    is put into it.
    """
    own = [str(python), "-m", "pip"]
    if _runs(*own, "--version"):
        return own
    outside = [sys.executable, "-m", "pip", "--python", str(python)]
    if importlib.util.find_spec("pip") is not None and _runs(*outside, "--version"):
        return outside
    if importlib.util.find_spec("ensurepip") is None:
        raise SystemExit(
            "Python's venv module is incomplete here: install it first (Debian: apt install "
            "python3-venv)"
        )
    subprocess.run(
        [str(python), "-m", "ensurepip", "--default-pip"], stdout=sys.stderr.fileno(), check=True
    )
    return own


def _fetch_uv(by_pip: list[str], folder: Path) -> "str | None":
    """Have pip install uv into a folder of its own; return the program, or None where that cannot
    be.
    """
    uv = folder / "bin" / "uv"
    if not uv.exists():
        _say("fetching uv, which installs in seconds what takes pip minutes ...")
        subprocess.run(
            [*by_pip, "--quiet", "--target", str(folder), "uv>=0.6"],
            stdout=sys.stderr.fileno(),
            check=False,
        )
    return str(uv) if _runs(str(uv), "--version") else None


def _settings_of_pip() -> dict[str, str]:
    """Return what pip is configured to, by its files and by variables: option → value.

    Without a pip, that is what the variables say.
    """
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    ).stdout
    settings = {
        name[4:].lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name[:4] == "PIP_"
    }
    for line in said.splitlines():
        name, _, value = line.partition("=")
        try:
            settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
        except (SyntaxError, ValueError):
            continue
    return settings


def _lead_uv(settings: dict[str, str]) -> None:
    """Have uv, which does not read pip's settings, look where pip looks, unless it has settings of
    its own.
    """
    names = {
        "cert": "SSL_CERT_FILE",
        "constraint": "UV_CONSTRAINT",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "index-url": "UV_DEFAULT_INDEX",
        "no-index": "UV_NO_INDEX",
        "trusted-host": "UV_INSECURE_HOST",
    }
    # pip takes the best version of all indexes, uv by default that of the first that has any
    os.environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    for option, name in names.items():
        if settings.get(option):
            between = "," if name == "UV_FIND_LINKS" else " "
            os.environ.setdefault(name, between.join(settings[option].split()))


def _runs(*command: str) -> bool:
    """Return whether a command can be run and ends well; what pyenv puts on the PATH may do
    neither.
    """
    try:
        return (
            subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _digest(path: Path) -> str:
    """Return a file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- the command line


def wanted(argv: list[str]) -> argparse.Namespace:
    """Return what the command line asks for.

    Returns:
        `plugins` to be installed, the `host` to be shown or "", whether to `keep` its server, the
        folder `venv`, `rest` (the arguments of the example), and `names`, which are empty unless
        all is done once those are installed.

    Raises:
        SystemExit: Help was asked for, or something that is not there; the message names what is
            there.
    """
    there = sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
    parser = argparse.ArgumentParser(
        prog="python3 quickstart.py",
        usage="%(prog)s [--with NAMES | --host NAME [--keep]] [--venv FOLDER] [arguments of the example]",
        description=__doc__,
        epilog="Any other argument is the example's: --replicas 2 --epochs 50. Its own help: -- --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        dest="names",
        metavar="NAMES",
        help=f"install these plugins as well (commas between them), and stop there: {', '.join(there)}",
    )
    parser.add_argument(
        "--host",
        default="",
        metavar="NAME",
        help=f"run the same training in an orchestrator: {', '.join(HOSTS)}",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="with --host: leave its server up, open the page, wait for Ctrl-C",
    )
    parser.add_argument(
        "--venv",
        default=str(ROOT / ".venv"),
        metavar="FOLDER",
        help="the environment (default: .venv, next to this file)",
    )
    end = argv.index("--") if "--" in argv else len(argv)
    given, unknown = parser.parse_known_args(argv[:end])
    given.rest = [*unknown, *argv[end + 1 :]]
    given.plugins = ",".join(given.names).replace(" ", "").split(",") if given.names else []
    for name in given.plugins:
        if name not in there:
            parser.error(
                f"--with {name or '(nothing)'}: there is no {name!r}; there are: {', '.join(there)}"
            )
    if given.host and given.host not in HOSTS:
        parser.error(
            f"--host {given.host}: there is no {given.host!r}; there are: {', '.join(HOSTS)}"
        )
    if given.host and given.plugins:
        parser.error("--with and --host: only one of them")
    if given.keep and not given.host:
        parser.error("--keep is for --host")
    if given.rest and (given.host or given.plugins):
        parser.error(
            f"{' '.join(given.rest)}: the example's arguments go neither with --with nor with "
            "--host"
        )
    given.venv = Path(given.venv).expanduser().absolute()
    if given.host:
        given.plugins = [given.host]
    return given


def distributions(names: list[str]) -> list[str]:
    """Return the folders to install for these plugins: with those of this repository that they need
    themselves.
    """
    folders = {"core": None}
    for name in names:
        text = (ROOT / "plugins" / name / "pyproject.toml").read_text()
        needed = [
            each.name for each in ROOT.glob("plugins/[!_]*") if f'"transload-{each.name}>=' in text
        ]
        folders.update(dict.fromkeys(f"plugins/{each}" for each in [*needed, name]))
    return list(folders)


def install(plugins: list[str], folder: Path) -> Path:
    """Install transload, these plugins and what the example needs; return the folder of the
    environment's programs.
    """
    requirements = ROOT / "examples" / "digits" / "requirements.txt"
    folders = distributions(plugins)
    found = [ROOT / "tests" / name / "constraints.txt" for name in plugins]
    pins = [path for path in found if path.exists()]
    arguments = [word for each in folders for word in ("--editable", f"./{each}")]
    arguments += ["--requirement", str(requirements.relative_to(ROOT))]
    arguments += ["pip"]  # for what the reader adds to it; uv makes environments without
    arguments += [word for path in pins for word in ("--constraint", str(path.relative_to(ROOT)))]
    sources = (requirements, *pins, *(ROOT / each / "pyproject.toml" for each in folders))
    return environment(folder, *arguments, changes_with=sources)


def run(command: list[str]) -> int:
    """Run a program until it ends, and return its exit code as a shell would; what ends this one
    ends that one.
    """
    running = []
    asked = []

    def pass_on(number, frame):
        asked.append(number)
        for each in running:
            each.send_signal(number)

    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to both
    signal.signal(signal.SIGTERM, pass_on)
    with subprocess.Popen(command) as program:
        running.append(program)
        for number in asked:  # while the program was being started
            program.send_signal(number)
        code = program.wait()
    return code if code >= 0 else 128 - code


def main(argv: list[str]) -> int:
    """Install, then run the example, or its twin in a host, and say how to go on; return the exit
    code.
    """
    given = wanted(argv)
    programs = install(given.plugins, given.venv)
    # as the reader, who stands where this was started, has to type it
    shown = (
        os.path.relpath(given.venv) if given.venv.is_relative_to(Path.cwd()) else str(given.venv)
    )
    activate = f"{PROMPT}. {shlex.quote(f'{shown}/bin/activate')}"
    if given.names:
        print(
            f"installed: transload, {', '.join(given.plugins)}. "
            f"Next:\n{activate}\n{PROMPT}transload info"
        )
        return 0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    os.chdir(ROOT)
    if given.host:
        keep = ["--keep"] if given.keep else []
        command = [str(programs / "python"), "examples/everywhere/show.py", given.host, *keep]
    else:
        command = [
            str(programs / "transload"),
            "run",
            EXAMPLE,
            *(given.rest or ["--replicas", "3"]),
        ]
    print(f"$ {Path(command[0]).name} {' '.join(command[1:])}", flush=True)
    code = run(command)
    print(f"\nto go on in this environment:\n{activate}\n{PROMPT}transload --help")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
