"""The state table of the local scheduler: what a keeper writes → `AppState`. Total; an unknown word is UNKNOWN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transload.specs import NONE, AppState, AppStatus, ReplicaAttempt, ReplicaStatus, RoleStatus

STATES: Final[Mapping[str, AppState]] = {
    "SUBMITTED": AppState.SUBMITTED,
    "PENDING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
}
"""What a keeper writes, by name. It writes no other."""


def to_state(word: object) -> AppState:
    """Return the state that a keeper's word stands for."""
    return STATES.get(str(word), AppState.UNKNOWN)


def to_status(state: Mapping[str, Any]) -> AppStatus:
    """Return the status in a ``state.json``; fields that a later version added are ignored."""
    roles = [
        RoleStatus(role["role"], [_replica(replica, role["role"]) for replica in role.get("replicas", ())])
        for role in state.get("roles", ())
    ]
    return AppStatus(
        to_state(state.get("state")),
        num_restarts=state.get("num_restarts", 0),
        msg=state.get("msg", ""),
        structured_error_msg=state.get("structured_error_msg", NONE),
        roles=roles,
        cancel_requested=state.get("cancel_requested", False),
    )


def _replica(replica: Mapping[str, Any], role: str) -> ReplicaStatus:
    return ReplicaStatus(
        id=replica["id"],
        state=to_state(replica.get("state")),
        role=role,
        hostname=replica.get("hostname", ""),
        structured_error_msg=replica.get("structured_error_msg", NONE),
        exit_code=replica.get("exit_code"),
        start_time=replica.get("start_time"),
        end_time=replica.get("end_time"),
        restarts=replica.get("restarts", 0),
        earlier=[_attempt(attempt) for attempt in replica.get("earlier", ())],
    )


def _attempt(attempt: Mapping[str, Any]) -> ReplicaAttempt:
    return ReplicaAttempt(
        to_state(attempt.get("state")), attempt.get("exit_code"), attempt.get("start_time"), attempt.get("end_time")
    )
