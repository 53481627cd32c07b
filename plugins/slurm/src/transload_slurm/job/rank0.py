"""Where replica 0 of the first role is to be found by the others."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any


class Rank0:
    """The address of the node of replica 0 of the first role: that on which this runs. Asked for while steps start."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._known = os.environ.get("SLURMD_NODENAME", "")
        self._asked: subprocess.Popen[bytes] | None = None
        if len(plan["roles"]) == 1 and plan["roles"][0]["num_replicas"] == 1:
            self._known = os.uname().nodename
            return
        import subprocess

        try:
            self._asked = subprocess.Popen(
                ["scontrol", "-o", "show", "node", self._known],  # noqa: S607 - Slurm's own, on PATH
                stdout=subprocess.PIPE,
            )
        except OSError:
            pass

    def host(self) -> str:
        """Return the address that Slurm itself uses: a node's name need not be one that resolves."""
        asked, self._asked = self._asked, None
        if asked is not None:
            import subprocess

            try:
                shown = asked.communicate(timeout=30)[0].decode()
                self._known = next((w[9:] for w in shown.split() if w.startswith("NodeAddr=")), self._known)
            except subprocess.TimeoutExpired:
                asked.kill()
                asked.communicate()
        self._known = self._known or os.uname().nodename
        return self._known
