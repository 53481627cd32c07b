"""The engines that some tests need beyond Python packages: is one here, why not, and how it is installed.

Standard library only: ``tests/conftest.py`` loads it, and ``run_tests.py`` runs it before any environment exists::

    python3 tests/engines.py install    # what TRANSLOAD_REQUIRE names, with the system's package manager
    python3 tests/engines.py report     # one line for each engine that is not here

Nothing is ever installed outside the project's environments for an engine that ``TRANSLOAD_REQUIRE`` does not name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REQUIRE: Final = "TRANSLOAD_REQUIRE"
_SYSTEM_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


def program(name: str) -> str | None:
    """Return the path of a program, looking also where daemons live, or None."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_FOLDERS}")


def _needs(*programs: str) -> Callable[[], str | None]:
    """Make a probe that wants all these programs to be installed."""

    def probe() -> str | None:
        missing = [name for name in programs if program(name) is None]
        return f"{', '.join(missing)} not installed" if missing else None

    return probe


def _docker() -> str | None:
    """Want what the tests start an engine of their own with: a private socket, namespaces that vanish with it."""
    if program("dockerd") is None:
        return "docker not installed"
    missing = [name for name in ("busybox", "iptables", "nsenter", "setpriv", "unshare") if program(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return None if os.geteuid() == 0 else "only root can start an engine for the tests"


def _cluster() -> str | None:
    """Want a cluster that may be used, or a program that starts one: see the session real_kubernetes."""
    given = os.environ.get("REAL_KUBECONFIG") or os.environ.get("REAL_CLUSTER")
    return None if given else "REAL_KUBECONFIG names no cluster"


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes:
        probe: Returns None where the engine can be used, else why not, in a few words.
        packages: What to install, by package manager (``apt-get``, ``dnf``, ``apk``, ``brew``).
    """

    probe: Callable[[], str | None]
    packages: Mapping[str, tuple[str, ...]]


ENGINES: Final[Mapping[str, Engine]] = {
    "apptainer": Engine(_needs("apptainer", "busybox"), {}),
    "charliecloud": Engine(_needs("ch-run", "busybox"), {"apt-get": ("charliecloud", "busybox-static")}),
    "chromium": Engine(_needs("chromium"), dict.fromkeys(("apt-get", "dnf", "apk"), ("chromium",))),
    "docker": Engine(
        _docker,
        {
            "apt-get": ("docker.io", "busybox-static", "iptables"),
            "dnf": ("moby-engine", "busybox", "iptables"),
            "apk": ("docker", "busybox-static", "util-linux"),
        },
    ),
    "kubernetes": Engine(_cluster, {}),
    "registry": Engine(_needs("docker-registry"), {"apt-get": ("docker-registry",), "apk": ("docker-registry",)}),
    "slurm": Engine(
        _needs("slurmctld", "slurmd", "sbatch", "munged"),
        {
            "apt-get": ("slurmctld", "slurmd", "slurm-client", "munge", "slurm-wlm-basic-plugins"),
            "dnf": ("slurm", "slurm-slurmctld", "munge"),
        },
    ),
    "slurmdbd": Engine(
        _needs("slurmdbd", "mariadbd", "mariadb-install-db"),
        {"apt-get": ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server")},
    ),
    "sshd": Engine(
        _needs("sshd", "ssh-keygen"),
        {"apt-get": ("openssh-server",), "dnf": ("openssh-server",), "apk": ("openssh",)},
    ),
}
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
        raise ValueError(f"{REQUIRE}={environ[REQUIRE]!r}: unknown {', '.join(unknown)}; known: {', '.join(ENGINES)}")
    return sorted(set(names))


def missing(name: str) -> str | None:
    """Return why an engine cannot be used here, or None where it can."""
    if name not in ENGINES:
        return f"unknown engine; known: {', '.join(ENGINES)}"
    return ENGINES[name].probe()


def install(names: list[str]) -> list[str]:
    """Install what is missing of these engines; return one line for each that is still not usable."""
    for name in names:
        if missing(name) is not None:
            _install_one(name)
    return [f"{name}: {why}" for name in names if (why := missing(name)) is not None]


def _install_one(name: str) -> None:
    """Run the first package manager that knows the engine; what came of it, the probe tells."""
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
            subprocess.run([*prefix, path, *command], check=False, env=env, stdin=subprocess.DEVNULL)
        return


def main(argv: list[str]) -> int:
    """Do ``install`` or ``report``; exit code 1 when a required engine is missing afterwards."""
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
    print(f"usage: {Path(__file__).name} install|report", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
