"""`transload run` on this machine."""

from __future__ import annotations

from typing import Any

from row import by_command_line


def host_state(said: dict[str, Any]) -> str:
    """Return what the processes ended with."""
    codes = [str(replica["exit_code"]) for role in said["status"]["roles"] for replica in role["replicas"]]
    return f"exit {', '.join(codes)}"


by_command_line("local", host_state)
