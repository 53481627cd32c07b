"""What follows from a replica's end: retries, the gang, success. No system calls here."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


def exit_text(code: int | None) -> str:
    """Return ``exit code 3``, ``killed by SIGKILL``, or that it was lost."""
    if code is None:
        return "lost: its task ended without a word"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class Replica:
    """One replica, and what its latest run is doing. ``run`` counts its starts, from 0."""

    def __init__(self, role: int, k: int) -> None:
        self.role, self.k = role, k
        self.state = "PENDING"
        self.active = False
        self.stopping = False
        self.host = ""
        self.code: int | None = None
        self.start: float | None = None
        self.end: float | None = None
        self.run = 0
        self.tries = 0


class App:
    """The replicas of an app, or of one array element, and the rules.

    Args:
        plan: what was submitted (``plan.json``).
        only: the number of the one replica that this array element runs; None: all.
        before: the ``state.json`` of an earlier start of the job, which Slurm has requeued; None: there was none.
    """

    def __init__(self, plan: dict[str, Any], only: int | None, before: dict[str, Any] | None) -> None:
        self.roles: list[dict[str, Any]] = plan["roles"]
        self.replicas = [
            Replica(i, k) for i, role in enumerate(self.roles) for k in range(role["num_replicas"]) if only in (None, k)
        ]
        self.alone = only is not None
        self.state, self.msg = "PENDING", ""
        before = before or {}
        counts = before.get("counts") or {}
        self.requeues: int = counts.get("requeues", 0)
        self.app_restarts: int = counts.get("app", 0)
        self.role_restarts: list[int] = list(counts.get("roles") or [0] * len(self.roles))
        self.restarts: int = counts.get("all", 0)
        self.began: float | None = before.get("began")
        self.signalled = False
        self._adopt(before)

    def _adopt(self, before: dict[str, Any]) -> None:
        """Go on counting where the job was interrupted."""
        known = {(role["role"], r["id"]): r for role in before.get("roles", ()) for r in role["replicas"]}
        for replica in self.replicas:
            old = known.get((self.roles[replica.role]["name"], replica.k))
            if old:
                replica.run = old.get("restarts", 0) + 1
                replica.tries = old.get("tries", 0)
        if before:
            self.requeues += 1
            self.restarts += 1

    def requeue_allowed(self) -> bool:
        """Tell whether the retries of some role cover that Slurm has started the job again."""
        allowed = max(int(role["max_retries"]) for role in self.roles)
        return self.requeues + self.app_restarts <= allowed

    def find(self, role: int, k: int) -> Replica:
        """Return a replica by its numbers."""
        return next(replica for replica in self.replicas if replica.role == role and replica.k == k)

    def name(self, replica: Replica) -> str:
        """Return ``role 'trainer', replica 2``."""
        return f"role {self.roles[replica.role]['name']!r}, replica {replica.k}"

    def started(self, replica: Replica, host: str, time: float) -> None:
        """Note that a run of a replica has begun."""
        replica.state, replica.host, replica.start = "RUNNING", host, time
        replica.code = replica.end = None

    def ended(self, replica: Replica, code: int | None, time: float) -> bool:
        """Note that a run has ended; tell whether it failed on its own account."""
        replica.active = False
        replica.code, replica.end = code, time
        if code == 0 and not replica.stopping:
            replica.state = "SUCCEEDED"
            return False
        replica.state = "CANCELLED" if replica.stopping else "FAILED"
        return not replica.stopping

    def to_restart(self, failed: Replica) -> list[Replica]:
        """Return whom a failure starts again; nobody, when the retries are used up."""
        role = self.roles[failed.role]
        policy, most = role["retry_policy"], role["max_retries"]
        if policy == "REPLICA":
            return [failed] if failed.tries < most else []
        if policy == "ROLE":
            again = self.role_restarts[failed.role] + self.requeues < most
            return [r for r in self.replicas if r.role == failed.role] if again else []
        return list(self.replicas) if self.app_restarts + self.requeues < most else []

    def count(self, failed: Replica) -> None:
        """Count one restart on account of a failure."""
        self.restarts += 1
        policy = self.roles[failed.role]["retry_policy"]
        if policy == "REPLICA":
            failed.tries += 1
        elif policy == "ROLE":
            self.role_restarts[failed.role] += 1
        else:
            self.app_restarts += 1

    def holds(self, role: int) -> bool:
        """Tell whether enough replicas of a role may still end well."""
        bad = sum(1 for r in self.replicas if r.role == role and r.state in ("FAILED", "CANCELLED"))
        total = sum(1 for r in self.replicas if r.role == role)
        return bool(total - bad >= self.needed(role))

    def needed(self, role: int) -> int:
        """Return how many replicas of a role must end well."""
        total = sum(1 for r in self.replicas if r.role == role)
        wanted: int | None = self.roles[role]["min_replicas"]
        return int(total if wanted is None or self.alone else wanted)

    def succeeded(self) -> bool:
        """Tell whether enough replicas of every role ended well."""
        good = [0] * len(self.roles)
        for replica in self.replicas:
            good[replica.role] += replica.state == "SUCCEEDED"
        return all(good[i] >= self.needed(i) for i in range(len(self.roles)))

    def refresh(self) -> None:
        """Draw the app's state from its replicas', while it goes on."""
        if self.state not in TERMINAL:
            self.state = "RUNNING" if any(r.state == "RUNNING" for r in self.replicas) else "PENDING"

    def as_json(self) -> dict[str, Any]:
        """Return what ``state.json`` holds."""
        roles = []
        for index, role in enumerate(self.roles):
            mine = [replica for replica in self.replicas if replica.role == index]
            roles.append({"role": role["name"], "replicas": [_replica_json(replica) for replica in mine]})
        return {
            "schema": 1,
            "state": self.state,
            "msg": self.msg,
            "num_restarts": self.restarts,
            "began": self.began,
            "signalled": self.signalled,
            "counts": {
                "requeues": self.requeues,
                "app": self.app_restarts,
                "roles": self.role_restarts,
                "all": self.restarts,
            },
            "roles": roles,
        }


def _replica_json(replica: Replica) -> dict[str, Any]:
    return {
        "id": replica.k,
        "state": replica.state,
        "hostname": replica.host,
        "exit_code": replica.code,
        "start_time": replica.start,
        "end_time": replica.end,
        "restarts": replica.run,
        "tries": replica.tries,
    }
