"""Say why a Kueue queue does not start a job, in Kueue's own words. Pure.

Kueue keeps a Workload beside each Job or JobSet in a queue, and says there what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transload_kubernetes import states

LABEL_OF_JOB: Final = "kueue.x-k8s.io/job-uid"
"""Label of a Workload with the uid of its Job or JobSet."""
_EVICTIONS: Final = {
    "Preempted": "preempted",
    "Deactivated": "deactivated",
    "ClusterQueueStopped": "stopped",
    "LocalQueueStopped": "stopped",
}
"""Reason of the condition ``Evicted`` → why Kueue took a job out again that had been started."""
EXCEEDS_ALL: Final = "ExceedsMaxQuota"
"""Reason of a Workload that asks for more than its queue has in all."""


def why_it_waits(workload: Mapping[str, Any]) -> str:
    """Return why a queue does not start a job, or ``""`` if its Workload does not say."""
    item = dict(workload)
    waits = states.condition(item, "QuotaReserved", status="False")
    waits = waits or states.condition(item, "Admitted", status="False") or {}
    text = str(waits.get("message") or "")
    if waits.get("reason") == EXCEEDS_ALL:
        text = f"{EXCEEDS_ALL}: {text}"
    evicted = states.condition(item, "Evicted") or {}
    reason = str(evicted.get("reason") or "")
    if not reason:
        return text
    return f"{_EVICTIONS.get(reason, reason)}: {text or evicted.get('message', '')}"
