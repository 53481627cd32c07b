"""Who writes: the replica that this process belongs to, by its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Writer"]


class Writer(NamedTuple):
    """A replica of an app, in one of its attempts.

    Args:
        run: handle of the app.
        role: its role.
        replica: its number within the role.
        attempt: how often it was started before.
        roles: names of the app's roles.
        alone: no other replica belongs to the app.
    """

    run: str
    role: str
    replica: int
    attempt: int
    roles: tuple[str, ...]
    alone: bool

    @classmethod
    def from_env(cls) -> Writer | None:
        """Return the writer that this process is; None outside of a job."""
        env = os.environ
        run = env.get("TRANSLOAD_JOB_ID")
        if not run:
            return None
        roles = tuple(filter(None, env.get("TRANSLOAD_ROLES", "").split(",")))
        replica, attempt = (_number(env.get(f"TRANSLOAD_{name}", "")) for name in ("REPLICA_ID", "RETRY"))
        alone = env.get("TRANSLOAD_NUM_REPLICAS") == "1" and len(roles) < 2
        return cls(run, env.get("TRANSLOAD_ROLE", ""), replica, attempt, roles, alone)

    @property
    def key(self) -> str:
        """The key of this replica: its number, with several roles ``role/number``."""
        return f"{self.role}/{self.replica}" if len(self.roles) > 1 else str(self.replica)

    def fields(self) -> dict[str, object]:
        """Return what a file says of who wrote it."""
        return {"run": self.run, "writer": {"role": self.role, "replica": self.replica, "attempt": self.attempt}}

    def other(self, run: str | None, writer: Mapping[str, object] | None) -> str | None:
        """Return ``role/replica`` of a writer that is another replica of the same app, else None."""
        if run != self.run or writer is None:
            return None
        role, replica = writer.get("role"), writer.get("replica")
        return None if (role, replica) == (self.role, self.replica) else f"{role}/{replica}"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
