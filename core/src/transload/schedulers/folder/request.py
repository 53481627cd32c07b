"""What a job's folder says of it, whatever engine it is on, and how its roles are kept."""

from __future__ import annotations

import os
import signal
from typing import Any

from transload.keeper import kernel, layout
from transload.schedulers.api import Submission
from transload.specs import Role

__all__ = ["record_of", "rules_of"]


def record_of(app_id: str, submission: Submission, logs: str, **more: object) -> dict[str, Any]:
    """Return the record of a job.

    Args:
        app_id: the job.
        submission: what was submitted.
        logs: the folder of its logs.
        more: what the engine adds.
    """
    # fields that are written only when set
    if submission.checkpoints:
        more["checkpoints"] = submission.checkpoints
    if submission.asked:
        more["asked"] = dict(submission.asked)
    return {
        "schema": layout.SCHEMA,
        "app_id": app_id,
        "session": submission.session,
        "app": submission.app.masked().to_dict(),
        "cfg": dict(submission.cfg),
        "digest": submission.digest,
        "tracker_base": submission.tracker_base,
        "parent_run_id": submission.parent_run_id,
        "created": layout.now(),
        "boot_id": kernel.boot_id(),
        "id_given": submission.id_given,
        "token": os.urandom(8).hex(),
        "logs": logs,
        **more,
    }


def rules_of(role: Role) -> dict[str, Any]:
    """Return how a role is kept, as `transload.keeper.rules.Gang` takes it.

    Signals are numbers of this machine's, None for none.
    """
    found: dict[str, Any] = {
        "name": role.name,
        "num_replicas": role.num_replicas,
        "min_replicas": role.min_replicas,
        "max_retries": role.max_retries,
        "retry_policy": role.retry_policy.value,
        "retry_delay": role.retry_delay,
        "max_interruptions": role.interruptions_allowed,
        "checkpoints": role.checkpoints,
        "notice": None,
        "notice_signal": None,
        "stall_after": role.stall_after,
        "stall_signal": None,
    }
    if role.notice is not None:
        found["notice"] = role.notice.seconds
        found["notice_signal"] = _signal_number(role.notice.signal)
    if role.on_stall == "dump":
        found["stall_signal"] = _signal_number(role.stall_signal)
    return found


def _signal_number(name: str) -> int:
    return int(signal.Signals[f"SIG{name}"])
