"""Where replica 0 of the first role is to be found by the others."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any


class Rank0:
    """The address of the node of replica 0 of the first role, which is the node that runs this.

    It is asked for while steps start.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._name = os.environ.get("SLURMD_NODENAME", "")
        self._known = ""
        self._asked: subprocess.Popen[bytes] | None = None
        if len(plan["roles"]) == 1 and plan["roles"][0]["num_replicas"] == 1:
            self._known = os.uname().nodename
        else:
            self._ask()

    def _ask(self) -> None:
        import subprocess

        try:
            self._asked = subprocess.Popen(
                ["scontrol", "-o", "show", "node", self._name],  # noqa: S607 - Slurm's own, on PATH
                stdout=subprocess.PIPE,
            )
        except OSError:
            pass

    def host(self) -> str:
        """Return the address that Slurm itself uses, since a node's name may not resolve.

        If Slurm cannot say, it is the name, and Slurm is asked again the next time.
        """
        if self._known:
            return self._known
        if self._asked is None:
            self._ask()
        asked, self._asked = self._asked, None
        if asked is not None:
            import subprocess

            try:
                shown = asked.communicate(timeout=30)[0].decode()
                self._known = next((w[9:] for w in shown.split() if w.startswith("NodeAddr=")), "")
            except subprocess.TimeoutExpired:
                asked.kill()
                asked.communicate()
        return self._known or self._name or os.uname().nodename
