"""Run programs with a network and a disk of their own, which reach here by network alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_TOOLS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sacct", "sinfo", "salloc")


def missing() -> str | None:
    """Return why there can be no such place here, or None."""
    if shutil.which("ip") is None:
        return "ip not installed"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False
    )
    return (
        f"no network namespace can be made here: {tried.stderr.strip()}"
        if tried.returncode
        else None
    )


class Outside:
    """A network namespace, until ``close``.

    Attributes:
        address: this machine, as it is seen from there.
    """

    def __init__(self) -> None:
        self._name, number = f"tl{os.getpid()}", os.getpid() % 250
        self._folder = Path(tempfile.mkdtemp(prefix="tlns-", dir="/tmp"))
        self.address, there = f"10.213.{number}.1", f"10.213.{number}.2"
        commands = (
            f"ip netns add {self._name}",
            f"ip link add {self._name}h type veth peer name {self._name}n netns {self._name}",
            f"ip addr add {self.address}/24 dev {self._name}h",
            f"ip link set {self._name}h up",
            f"ip -n {self._name} addr add {there}/24 dev {self._name}n",
            f"ip -n {self._name} link set {self._name}n up",
            f"ip -n {self._name} link set lo up",
        )
        try:
            for command in commands:
                subprocess.run(command.split(), check=True)
        except BaseException:
            self.close()
            raise

    def command(self, hidden: list[str], path: str) -> list[str]:
        """Return what goes before a command that runs there.

        Args:
            hidden: folders that are empty there.
            path: folders of programs. There, none of Slurm's tools in them can be run.
        """
        nothing = self._folder / "nothing"
        nothing.touch(0o644)
        tools = [found for tool in _TOOLS if (found := shutil.which(tool, path=path))]
        script = [
            "set -e",
            *(f"mount -t tmpfs none {folder}" for folder in hidden),
            *(f"mount --bind {nothing} {os.path.realpath(tool)}" for tool in tools),
            'exec "$@"',
        ]
        inside = [
            "ip",
            "netns",
            "exec",
            self._name,
            "unshare",
            "--mount",
            "--propagation",
            "private",
        ]
        return [*inside, "sh", "-c", "\n".join(script), "sh"]

    def close(self) -> None:
        """Remove it."""
        for command in (f"ip netns del {self._name}", f"ip link del {self._name}h"):
            subprocess.run(command.split(), check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self._folder, ignore_errors=True)
