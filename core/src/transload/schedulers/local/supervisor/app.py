"""What an app is doing, and what follows from a replica's end: retries, the gang, success. No system calls here."""

from __future__ import annotations

import os
import signal

from . import layout
from .ending import Replica

TYPE_CHECKING = False  # typing itself would cost the spawner its speed
if TYPE_CHECKING:
    from typing import Any

_DONE = ("SUCCEEDED", "FAILED", "CANCELLED")


def exit_text(code: int) -> str:
    """Return ``exit code 3`` or ``killed by SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class App:
    """The replicas of an app and the rules.

    Args:
        request: what the client sent.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.roles = request["roles"]
        self.replicas = [Replica(i, k) for i, role in enumerate(self.roles) for k in range(len(role["replicas"]))]
        self.by_pid: dict[int, Replica] = {}
        self.state = "SUBMITTED"
        self.msg = ""
        self.restarts = 0
        self.app_restarts = 0
        self.role_restarts = [0] * len(self.roles)
        self.cancel_requested = False
        self._host = os.uname().nodename

    def name(self, replica: Replica) -> str:
        """Return ``role 'trainer', replica 2``."""
        return f"role {self.roles[replica.role]['name']!r}, replica {replica.k}"

    def launched(self, replica: Replica, pid: int, started: int) -> None:
        """Note that an attempt of a replica runs."""
        replica.pid, replica.started = pid, started
        replica.state, replica.stopping = "RUNNING", False
        replica.exit_code = replica.end_time = None
        replica.start_time = layout.now()
        self.by_pid[pid] = replica

    def ended(self, pid: int, code: int) -> Replica | None:
        """Note the end of a process; return the replica if it *failed* on its own account."""
        replica = self.by_pid.pop(pid, None)
        if replica is None:
            return None  # an orphan of some replica
        replica.pid = replica.started = 0
        replica.exit_code, replica.end_time = code, layout.now()
        if replica.unstarted:
            replica.state, replica.exit_code = "FAILED", None  # the code is that of our own child before its exec
            return None
        if code == 0:
            replica.state = "SUCCEEDED"
            return None
        replica.state = "CANCELLED" if replica.stopping else "FAILED"
        return None if replica.stopping else replica

    def to_restart(self, failed: Replica) -> list[Replica]:
        """Return which replicas are started again because this one failed; none if its retries are used up."""
        role = self.roles[failed.role]
        most = role["max_retries"]
        if role["retry_policy"] == "REPLICA":
            return [failed] if failed.restarts < most else []
        if role["retry_policy"] == "ROLE":
            return [r for r in self.replicas if r.role == failed.role] if self.role_restarts[failed.role] < most else []
        return list(self.replicas) if self.app_restarts < most else []

    def count_restart(self, failed: Replica) -> None:
        """Count one use of the retries of the role of ``failed``."""
        self.restarts += 1
        policy = self.roles[failed.role]["retry_policy"]
        if policy == "ROLE":
            self.role_restarts[failed.role] += 1
        elif policy == "APPLICATION":
            self.app_restarts += 1

    def holds(self, role: int) -> bool:
        """Tell whether enough replicas of a role have not failed."""
        good = sum(1 for r in self.replicas if r.role == role and r.state not in ("FAILED", "CANCELLED"))
        return good >= self._needed(role)

    def succeeded(self) -> bool:
        """Tell whether enough replicas of every role ended well."""
        return all(
            sum(1 for r in self.replicas if r.role == i and r.state == "SUCCEEDED") >= self._needed(i)
            for i in range(len(self.roles))
        )

    def _needed(self, role: int) -> int:
        wanted: int | None = self.roles[role]["min_replicas"]
        return len(self.roles[role]["replicas"]) if wanted is None else wanted

    def refresh(self, ending: bool = False) -> None:
        """Set the app's state from its replicas', as long as it goes on.

        Args:
            ending: its end is decided, only leftovers are still being ended: nothing is pending then.
        """
        if self.by_pid:
            self.state = "RUNNING"
        elif self.state == "RUNNING" and not ending:
            self.state = "PENDING"

    def finish(self, state: str, msg: str) -> None:
        """Set the final state; replicas that never came to an end of their own get it too."""
        self.state, self.msg = state, msg
        for replica in self.replicas:
            if replica.state not in _DONE:
                replica.state = "CANCELLED" if state == "CANCELLED" else "FAILED"

    def as_json(self) -> dict[str, object]:
        """Return the state as it is written to disk: the JSON form of an AppStatus, and what only finalising needs."""
        roles = [{"role": role["name"], "replicas": []} for role in self.roles]
        for r in self.replicas:
            roles[r.role]["replicas"].append(
                {
                    "id": r.k,
                    "state": r.state,
                    "role": roles[r.role]["role"],
                    "hostname": self._host,
                    "exit_code": r.exit_code,
                    "start_time": r.start_time,
                    "end_time": r.end_time,
                    "restarts": r.restarts,
                    **({"earlier": r.earlier} if r.earlier else {}),
                }
            )
        return {
            "schema": layout.SCHEMA,
            "state": self.state,
            "num_restarts": self.restarts,
            "msg": self.msg,
            "roles": roles,
            "cancel_requested": self.cancel_requested,
            "processes": [[r.pid, r.started] for r in self.replicas if r.pid],
        }
