"""Engines are named, probed, and installed only when asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "engines.py"


def _run(
    tmp_path: Path, action: str, require: str, **programs: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with only these (shell) programs on its path.

    The system's folders are hidden.
    """
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    script = tmp_path / "engines.py"
    script.write_text(
        SCRIPT.read_text().replace(
            "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", ""
        )
    )
    env = {"PATH": str(folder), "TRANSLOAD_REQUIRE": require, "FOLDER": str(folder)}
    return subprocess.run(
        [sys.executable, str(script), action],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


FAKE_APT = (
    'echo "apt-get $*" >> "$FOLDER/log"\n'
    'case "$*" in *openssh-server*) for p in sshd ssh-keygen; do printf "#!/bin/sh\\n" > '
    '"$FOLDER/$p"; '
    '/bin/chmod +x "$FOLDER/$p"; done;; esac\n'
)


def test_install_uses_the_package_manager_only_for_what_is_named(tmp_path: Path) -> None:
    """A required engine is installed, an engine nobody named is not (the package manager is a
    recording one).
    """
    result = _run(tmp_path, "install", "sshd", **{"apt-get": FAKE_APT})
    assert result.returncode == 0, result.stderr
    log = (tmp_path / "bin" / "log").read_text()
    assert "openssh-server" in log
    assert "slurm" not in log and "docker" not in log


def test_nothing_named_installs_nothing(tmp_path: Path) -> None:
    """Without the variable no package manager is run."""
    result = _run(tmp_path, "install", "", **{"apt-get": FAKE_APT})
    assert result.returncode == 0
    assert not (tmp_path / "bin" / "log").exists()


def test_required_engine_that_cannot_be_installed_fails(tmp_path: Path) -> None:
    """Without a package manager that helps, the exit code is 1, with the reason."""
    result = _run(tmp_path, "install", "sshd")
    assert result.returncode == 1
    assert "required engine missing: sshd: sshd, ssh-keygen not installed" in result.stderr


def test_unknown_engine_is_a_clear_error(tmp_path: Path) -> None:
    """A misspelt engine names the known ones, exit code 2."""
    result = _run(tmp_path, "install", "slrum")
    assert result.returncode == 2
    assert (
        "unknown slrum; known: apptainer, charliecloud, chromium, docker, kubernetes, registry, "
        "slurm, " in result.stderr
    )


def test_report_lists_what_is_not_here(tmp_path: Path) -> None:
    """One line an engine, with the reason."""
    result = _run(tmp_path, "report", "")
    assert result.stdout.splitlines() == [
        "not run: apptainer: apptainer, busybox not installed",
        "not run: charliecloud: ch-run, busybox not installed",
        "not run: chromium: chromium not installed",
        "not run: docker: dockerd, busybox, iptables, nsenter, setpriv, unshare not installed",
        "not run: kubernetes: REAL_KUBECONFIG names no cluster",
        "not run: registry: docker-registry not installed",
        "not run: slurm: slurmctld, slurmd, sbatch, munged not installed",
        "not run: slurmdbd: slurmdbd, mariadbd, mariadb-install-db not installed",
        "not run: sshd: sshd, ssh-keygen not installed",
    ]


@pytest.mark.parametrize("text", ["sshd,docker", "sshd docker", " docker , sshd "])
def test_names_may_be_separated_by_commas_or_blanks(tmp_path: Path, text: str) -> None:
    """Both spellings name both engines."""
    result = _run(tmp_path, "install", text)
    assert "docker:" in result.stderr and "sshd:" in result.stderr
    assert os.linesep in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can hide programs")
def test_a_command_without_engines(tmp_path: Path) -> None:
    """What is hidden is found neither by name nor by path, everything else is as before, and so is
    its exit code.
    """
    client = tmp_path / "squeue"
    client.write_text("#!/bin/sh\nexit 0\n")
    client.chmod(0o755)
    program = (
        "import shutil, subprocess, sys\n"
        f"for name in ('squeue', {str(client)!r}):\n"
        "    try: subprocess.run([name])\n"
        "    except OSError: pass\n"
        "    else: sys.exit(f'{name} was run')\n"
        "assert shutil.which('squeue') is None\n"
        "subprocess.run(['true'], check=True)\n"
        "sys.exit(7)\n"
    )
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "DOCKER_HOST": "unix:///S",
    }
    command = [sys.executable, str(SCRIPT), "hide", "--", sys.executable, "-c", program]
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 7, said.stderr
    assert subprocess.run([str(client)], check=False).returncode == 0, (
        "it is hidden from that command alone"
    )
    reporting = [sys.executable, str(SCRIPT), "hide", "--", sys.executable, str(SCRIPT), "report"]
    said = subprocess.run(
        reporting, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    names = [line.split(": ")[1] for line in said.stdout.splitlines()]
    assert {"chromium", "docker", "registry", "slurm", "slurmdbd", "sshd"} <= set(names), (
        said.stdout
    )
