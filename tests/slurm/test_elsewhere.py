"""A network and a disk of their own: what runs there reaches the cluster by ssh alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine("slurm"), pytest.mark.engine("sshd")]

_TOOLS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sacct", "sinfo", "salloc")


@pytest.fixture
def network() -> Iterator[tuple[str, str]]:
    """A network namespace, and the address of this machine as it is seen from there."""
    name, number = f"tl{os.getpid()}", os.getpid() % 250
    here, there = f"10.213.{number}.1", f"10.213.{number}.2"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"not run: no network namespace can be made here: {made.stderr.strip()}")
    commands = [
        f"ip link add {name}h type veth peer name {name}n netns {name}",
        f"ip addr add {here}/24 dev {name}h",
        f"ip link set {name}h up",
        f"ip -n {name} addr add {there}/24 dev {name}n",
        f"ip -n {name} link set {name}n up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield name, here
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", f"{name}h"], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.timeout(500)
def test_scheduler_suite(cluster: Any, login_at: Any, network: tuple[str, str], tmp_path: Path) -> None:
    """All of the suite for schedulers passes there."""
    name, address = network
    login = login_at(address)
    hidden = [str(cluster.base), str(login.home)]
    tools = [path for tool in _TOOLS if (path := shutil.which(tool, path=cluster.env["PATH"]))]
    script = [
        "set -e",
        *(f"mount -t tmpfs none {folder}" for folder in hidden),
        f"mkdir {tmp_path}/none; touch {tmp_path}/none/file; chmod 644 {tmp_path}/none/file",
        *(f"mount --bind {tmp_path}/none/file {os.path.realpath(tool)}" for tool in tools),
        'exec "$@"',
    ]
    suite = str(Path(__file__).with_name("elsewhere.py"))
    options = [
        "-q",
        "-x",
        "-n",
        "4",
        "--reruns=1",
        "-p",
        "no:cacheprovider",
        "--timeout=200",
        f"--basetemp={tmp_path}/suite",
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYTEST_"))}
    env.update(PATH=f"{login.client}/bin:/usr/bin:/bin", XDG_RUNTIME_DIR=str(login.client / "run"))
    env.update(NOT_HERE=":".join(hidden), FAR_HOME=str(login.home), TRANSLOAD_SLURM_DIR=f"{tmp_path}/none")
    command = ["ip", "netns", "exec", name, "unshare", "-m", "--propagation", "private", "sh", "-c", "\n".join(script)]
    done = subprocess.run(
        [*command, "sh", sys.executable, "-m", "pytest", suite, *options],
        env=env,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
