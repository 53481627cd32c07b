"""Notices to containers. Each gets one, whichever process looks after its job.

A notice is noted on the engine before its signals are sent, and once more when all were. So if a
supervisor is killed in between, its successor sends the missing ones.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from transload_docker import names
from transload_docker.decide import is_alive, latest_containers
from transload_docker.engine import Engine, in_parallel
from transload_docker.plan import DELIVERED, NOTICE, Container, Facts, Notice, Plan


def send(
    engine: Engine, plan: Plan, containers: Sequence[Container], cause: str, owner: str
) -> None:
    """Send a notice to containers that had none. The job's lock is held.

    Args:
        engine: where they are.
        plan: of their job.
        containers: which.
        cause: as in `Notice`.
        owner: who sends it.
    """
    if not containers:
        return
    ids = tuple(sorted(container.id[: Notice.ID_LENGTH] for container in containers))
    key = names.short_hash(" ".join(ids), 16)
    notice = Notice(key, ids, time.time(), cause, owner)
    if engine.note(plan.app_id, NOTICE + key, notice.to_text(), uuid.uuid4().hex):
        _deliver(engine, plan, containers, key)


def send_missing(engine: Engine, facts: Facts, owner: str) -> None:
    """Send the signals of notices whose sender may have died before. The job's lock is held."""
    assert facts.plan is not None
    for notice in facts.undelivered(owner):
        mine = [each for each in facts.containers if notice.is_for(each) and is_alive(each)]
        _deliver(engine, facts.plan, mine, notice.key)


def _deliver(engine: Engine, plan: Plan, containers: Sequence[Container], key: str) -> None:
    for error in in_parallel(
        lambda each: engine.signal(each.id, f"SIG{plan.role(each.role).notice_signal}"), containers
    ):
        raise error
    engine.note(plan.app_id, DELIVERED + key, "{}", plan.uid)


def forget_past(engine: Engine, app_id: str, facts: Facts) -> None:
    """Forget the notices to containers of attempts that others have followed."""
    latest = latest_containers(facts.containers)
    for notice in facts.notices:
        if not any(notice.is_for(container) for container in latest.values()):
            engine.forget(app_id, NOTICE + notice.key)
            engine.forget(app_id, DELIVERED + notice.key)
