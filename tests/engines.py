"""Find the engines that some tests need, say why one is missing, and install them.

Standard library only: ``tests/conftest.py`` loads it, and ``run_tests.py`` runs it before any
environment exists::

    python3 tests/engines.py install  # what TRANSLOAD_REQUIRE names, by the package manager
    python3 tests/engines.py report   # one line for each engine that is not here
    python3 tests/engines.py hide -- COMMAND  # runs it as without any engine; root only

Nothing is ever installed outside the project's environments for an engine that
``TRANSLOAD_REQUIRE`` does not name.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REQUIRE: Final = "TRANSLOAD_REQUIRE"
MAY_START: Final = "TESTS_MAY_START"
"""The engines that the running test needs, for the programs that it starts."""
LEFT_OUT: Final = "TESTS_LEFT_OUT"
"""The JSON file in which a run notes the tests that it left out, with the engines they want."""
_LEADING: Final = (REQUIRE, "DOCKER_HOST", "REAL_CLUSTER", "REAL_KUBECONFIG", "SLURM_CONF")
"""Variables that lead to an engine, or ask for one."""
_SYSTEM_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def program(name: str) -> str | None:
    """Return the path of a program, looking also where daemons live, or None."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_FOLDERS}")


def _root() -> str | None:
    """Want the rights that a test's own cluster or engine is started with."""
    return None if os.geteuid() == 0 else "only root can start one for the tests"


def _cluster() -> str | None:
    """Want a cluster that may be used, or a program that starts one, as for real_kubernetes."""
    given = os.environ.get("REAL_KUBECONFIG") or os.environ.get("REAL_CLUSTER")
    return None if given else "REAL_KUBECONFIG names no cluster"


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        programs: What must be installed. The first is the one that a test starts.
        packages: What to install, by package manager (``apt-get``, ``dnf``, ``apk``, ``brew``).
        daemons: Which of the programs only a test that needs the engine may start.
        more: Other programs that come with the engine.
        usable: Returns None where what is installed can be used, else why not, in a few words.
    """

    programs: tuple[str, ...] = ()
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    daemons: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    usable: Callable[[], str | None] = lambda: None


ENGINES: Final[Mapping[str, Engine]] = {
    "apptainer": Engine(("apptainer", "busybox"), daemons=("apptainer",)),
    "charliecloud": Engine(
        ("ch-run", "busybox"),
        {"apt-get": ("charliecloud", "busybox-static")},
        daemons=("ch-run",),
    ),
    "chromium": Engine(
        ("chromium",),
        dict.fromkeys(("apt-get", "dnf", "apk"), ("chromium",)),
        daemons=("chromium",),
    ),
    "docker": Engine(
        ("dockerd", "busybox", "iptables", "nsenter", "setpriv", "unshare"),
        {
            "apt-get": ("docker.io", "busybox-static", "iptables"),
            "dnf": ("moby-engine", "busybox", "iptables"),
            "apk": ("docker", "busybox-static", "util-linux"),
        },
        daemons=("dockerd",),
        more=("docker", "containerd", "runc"),
        usable=_root,
    ),
    "kubernetes": Engine(usable=_cluster),
    "registry": Engine(
        ("docker-registry",),
        {"apt-get": ("docker-registry",), "apk": ("docker-registry",)},
        daemons=("docker-registry",),
    ),
    "slurm": Engine(
        ("slurmctld", "slurmd", "sbatch", "munged"),
        {
            "apt-get": ("slurmctld", "slurmd", "slurm-client", "munge", "slurm-wlm-basic-plugins"),
            "dnf": ("slurm", "slurm-slurmctld", "munge"),
        },
        daemons=("slurmctld", "slurmd", "munged"),
        more=(
            "munge",
            "sacct",
            "sacctmgr",
            "salloc",
            "scancel",
            "scontrol",
            "sinfo",
            "squeue",
            "srun",
        ),
        usable=_root,
    ),
    "slurmdbd": Engine(
        ("slurmdbd", "mariadbd", "mariadb-install-db"),
        {"apt-get": ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server")},
        daemons=("slurmdbd", "mariadbd"),
    ),
    "sshd": Engine(
        ("sshd", "ssh-keygen"),
        {"apt-get": ("openssh-server",), "dnf": ("openssh-server",), "apk": ("openssh",)},
        daemons=("sshd",),
    ),
}
_STAY: Final = ("nsenter", "setpriv", "unshare")
"""Programs that an engine wants and that every machine has."""
_COMMANDS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "apt-get": (("update", "-q"), ("install", "-q", "-y", "--no-install-recommends")),
    "dnf": (("install", "-q", "-y"),),
    "apk": (("add", "--quiet"),),
    "brew": (("install", "--quiet"),),
}


def required(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the engines that ``TRANSLOAD_REQUIRE`` names (commas or blanks between them).

    Raises:
        ValueError: It names an engine that nobody here knows.
    """
    names = environ.get(REQUIRE, "").replace(",", " ").split()
    unknown = sorted(set(names) - set(ENGINES))
    if unknown:
        raise ValueError(
            f"{REQUIRE}={environ[REQUIRE]!r}: unknown {', '.join(unknown)}; known: "
            f"{', '.join(ENGINES)}"
        )
    return sorted(set(names))


def missing(name: str) -> str | None:
    """Return why an engine cannot be used here, or None where it can."""
    if name not in ENGINES:
        return f"unknown engine; known: {', '.join(ENGINES)}"
    engine = ENGINES[name]
    absent = [each for each in engine.programs if program(each) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    return engine.usable()


def install(names: list[str]) -> list[str]:
    """Install what is missing of these engines. Return a line for each that is still unusable."""
    for name in names:
        if missing(name) is not None:
            _install_one(name)
    return [f"{name}: {why}" for name in names if (why := missing(name)) is not None]


def _install_one(name: str) -> None:
    """Run the first package manager that knows the engine. A probe tells whether that worked."""
    for tool, packages in ENGINES[name].packages.items():
        path = program(tool)
        if path is None:
            continue
        sudo = program("sudo")
        prefix = [sudo, "-n"] if os.geteuid() != 0 and sudo and tool != "brew" else []
        *before, last = _COMMANDS[tool]
        print(f"{REQUIRE}: installing {' '.join(packages)} with {tool}", flush=True)
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in [*before, (*last, *packages)]:
            subprocess.run(
                [*prefix, path, *command], check=False, env=env, stdin=subprocess.DEVNULL
            )
        return


def started(command: Sequence[str]) -> str | None:
    """Return the engine that a command starts, also when another program starts it for that one, or
    None.
    """
    words = {os.path.basename(word) for word in command}
    for name, engine in ENGINES.items():
        if not words.isdisjoint(engine.daemons):
            return name
    return None


def check_may_start(name: str) -> None:
    """Refuse to start an engine for a test that has not said that it needs it. All else may.

    Raises:
        RuntimeError: The running test, in this process or one that started it, lacks the engine's
            fixture.
    """
    allowed = os.environ.get(MAY_START)
    if allowed is not None and name not in allowed.split():
        raise RuntimeError(refusal(name))


def refusal(name: str) -> str:
    """Return what is said to somebody whose test starts an engine without saying so."""
    fixture = f"take the fixture needs_{name}, in the test or in the fixture that starts it"
    return f"a test started {name} without saying that it needs it: {fixture}"


def hidden() -> list[str]:
    """Return the paths of all programs that are here because an engine is."""
    names = {name for engine in ENGINES.values() for name in (*engine.programs, *engine.more)} - {
        *_STAY
    }
    folders = dict.fromkeys(f"{os.environ.get('PATH', '')}:{_SYSTEM_FOLDERS}".split(":"))
    paths = [Path(folder, name) for folder in folders if folder for name in sorted(names)]
    found = dict.fromkeys(str(path.resolve()) for path in paths if path.exists())
    shell = os.path.realpath(program("sh") or "sh")  # busybox, on some systems
    return [path for path in found if path != shell]


def hide(command: Sequence[str]) -> int:
    """Run a command that finds no engine, neither by name nor by path, and return its exit code.
    Root only.

    It has a mount namespace of its own, in which each of the programs is a device: nobody can run
    that.
    """
    if os.geteuid() != 0:
        print("only root can hide programs from a command", file=sys.stderr)
        return 2
    mounts = "".join(f"mount --bind /dev/null {shlex.quote(path)}\n" for path in hidden())
    script = f'set -e\n{mounts}exec "$@"\n'
    environment = {name: value for name, value in os.environ.items() if name not in _LEADING}
    inside = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
    return subprocess.run(inside, env=environment, check=False).returncode


def main(argv: list[str]) -> int:
    """Do ``install``, ``report`` or ``hide``.

    The exit code is 1 if a required engine is missing then.
    """
    if argv[:2] == ["hide", "--"] and argv[2:]:
        return hide(argv[2:])
    try:
        wanted = required()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if argv == ["install"]:
        broken = install(wanted)
        for line in broken:
            print(f"required engine missing: {line}", file=sys.stderr)
        return 1 if broken else 0
    if argv == ["report"]:
        for name in ENGINES:
            why = missing(name)
            if why is not None:
                print(f"not run: {name}: {why}")
        return 0
    print(f"usage: {Path(__file__).name} install|report|hide -- COMMAND", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
