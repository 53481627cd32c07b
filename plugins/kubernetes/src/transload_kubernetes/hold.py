"""Hold Jobs and JobSets until their submit is complete. Pure.

They are created suspended, so that an incomplete submit starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transload_kubernetes import names
from transload_kubernetes.plan import Facts

LONG_S: Final = 10.0
"""Seconds after which the status of a held job says that its submit did not finish."""
LEFT: Final = "it was not started: its submit gave up just before"
OFF: Final = {"metadata": {"annotations": {names.ANNOTATION_HELD: None}}, "spec": {"suspend": True}}
"""Change that suspends a Job or JobSet, and keeps every submit from starting it."""
FINISH: Final = {
    "metadata": {"annotations": {names.ANNOTATION_HELD: None}},
    "spec": {"suspend": False, "parallelism": 0, "activeDeadlineSeconds": 1},
}
"""Change that makes a Job fail within a second, without pods. One that is suspended never ends."""
_KINDS: Final = ("Job", "JobSet")
_PATH: Final = f"/metadata/annotations/{names.ANNOTATION_HELD.replace('/', '~1')}"


def on_hold(item: dict[str, Any], uid: str) -> dict[str, Any]:
    """Return an object in the form in which it is created before its submit is complete.

    Args:
        item: the object. It is returned unchanged if a queue or the user suspends it.
        uid: that of the job's record.
    """
    if item["kind"] not in _KINDS or item["spec"].get("suspend"):
        return item
    metadata = item["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_HELD: uid}
    return {
        **item,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**item["spec"], "suspend": True},
    }


def is_held(thing: Mapping[str, Any]) -> bool:
    """Tell whether a Job or JobSet waits for its submit. One in a queue waits for the queue."""
    metadata = thing.get("metadata") or {}
    if names.QUEUE in (metadata.get("labels") or {}):
        return False
    return names.ANNOTATION_HELD in (metadata.get("annotations") or {}) and bool(
        thing["spec"].get("suspend")
    )


def goes_by_itself(thing: Mapping[str, Any]) -> bool:
    """Tell whether the cluster is to delete a Job or JobSet a while after its end."""
    return thing["spec"].get("ttlSecondsAfterFinished") is not None


def is_finishing(job: Mapping[str, Any]) -> bool:
    """Tell whether a Job was changed by `FINISH`."""
    return bool(job["spec"].get("parallelism") == 0)


def held(facts: Facts) -> list[tuple[str, str]]:
    """Return the kind and the name of each held object of a job."""
    things = [("Job", job) for job in facts.jobs]
    if facts.jobset is not None:
        things = [("JobSet", facts.jobset)]
    return [(kind, thing["metadata"]["name"]) for kind, thing in things if is_held(thing)]


def off(uid: str) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) that resumes an object held for this record.

    The patch fails if the object was cancelled or suspended in the meantime.
    """
    return [
        {"op": "test", "path": _PATH, "value": uid},
        {"op": "remove", "path": _PATH},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
