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
OFF: Final = {"metadata": {"annotations": {names.ANNOTATION_HELD: None}}, "spec": {"suspend": True}}
"""Change that suspends a Job or JobSet, and keeps every submit from starting it."""
FINISH: Final = {
    "metadata": {"annotations": {names.ANNOTATION_HELD: None}},
    "spec": {"suspend": False, "parallelism": 0, "activeDeadlineSeconds": 1},
}
"""Change that makes a Job fail within a second, without pods. One that is suspended never ends."""
_KINDS: Final = ("Job", "JobSet")
_PATH: Final = f"/metadata/annotations/{names.ANNOTATION_HELD.replace('/', '~1')}"
_QUEUE: Final = f"/metadata/labels/{names.QUEUE.replace('/', '~1')}"


def on_hold(item: dict[str, Any], uid: str) -> dict[str, Any]:
    """Return an object in the form in which it is created before its submit is complete.

    No queue sees it yet, since a queue finds what it may start by a label.

    Args:
        item: the object. It is returned unchanged if the user suspends it.
        uid: that of the job's record.
    """
    metadata = item["metadata"]
    labels = dict(metadata.get("labels") or {})
    queue = labels.pop(names.QUEUE, None)
    if item["kind"] not in _KINDS or (item["spec"].get("suspend") and not queue):
        return item
    annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_HELD: uid}
    return {
        **item,
        "metadata": {**metadata, "labels": labels, "annotations": annotations},
        "spec": {**item["spec"], "suspend": True},
    }


def is_held(thing: Mapping[str, Any]) -> bool:
    """Tell whether a Job or JobSet waits for its submit."""
    return names.ANNOTATION_HELD in names.annotations_of(thing) and bool(
        thing["spec"].get("suspend")
    )


def goes_by_itself(thing: Mapping[str, Any]) -> bool:
    """Tell whether the cluster is to delete a Job or JobSet a while after its end."""
    return thing["spec"].get("ttlSecondsAfterFinished") is not None


def is_finishing(job: Mapping[str, Any]) -> bool:
    """Tell whether a Job was changed by `FINISH`."""
    return bool(job["spec"].get("parallelism") == 0)


def held(facts: Facts) -> list[dict[str, Any]]:
    """Return the held objects of a job."""
    things = facts.jobs
    if facts.jobset is not None:
        things = [facts.jobset]
    return [thing for thing in things if is_held(thing)]


def off(thing: Mapping[str, Any], facts: Facts) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) that starts an object of a job, or gives it to its queue.

    The patch fails if the object was cancelled or suspended in the meantime.
    """
    assert facts.record is not None
    assert facts.plan is not None
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": _PATH, "value": facts.record["metadata"]["uid"]},
        {"op": "remove", "path": _PATH},
    ]
    if facts.plan.queue:
        steps.append({"op": "add", "path": _QUEUE, "value": facts.plan.queue})
    elif names.QUEUE not in names.labels_of(thing):  # else a webhook gave it to a default queue
        steps.append({"op": "replace", "path": "/spec/suspend", "value": False})
    return steps
