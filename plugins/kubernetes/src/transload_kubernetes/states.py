"""Translate a cluster's words for Jobs and pods. The table covers all phases of a pod.

Unknown words are tolerated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from transload.specs import AppState
from transload_kubernetes import names

PHASES: Final = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}
"""Phase of a pod → state of the replica.

A Failed pod that its Job will replace is shown as PENDING.
"""

_MAX_SIGNAL: Final = 64
_ENDS: Final = ("Error", "Completed", "OOMKilled", "")
"""Reasons of programs that ran. With any other reason, the message is the container runtime's."""
_USUAL: Final = frozenset({"ContainerCreating", "PodInitializing", "Completed", ""})


def pod_state(pod: dict[str, Any]) -> AppState:
    """Return the state of a pod, or UNKNOWN for an unknown phase."""
    return PHASES.get((pod.get("status") or {}).get("phase", "Pending"), AppState.UNKNOWN)


def condition(thing: dict[str, Any], *kinds: str, status: str = "True") -> dict[str, Any] | None:
    """Return the first condition of these types that has the status."""
    for each in (thing.get("status") or {}).get("conditions") or ():
        if each.get("type") in kinds and each.get("status") == status:
            found: dict[str, Any] = each
            return found
    return None


def is_finished(job: dict[str, Any]) -> bool:
    """Tell whether a Job or JobSet has ended, so that none of its pods runs or will run."""
    return condition(job, "Complete", "Completed", "Failed") is not None


def is_suspended(thing: dict[str, Any]) -> bool:
    """Tell whether a Job or JobSet is suspended, and its controller has seen that."""
    return condition(thing, "Suspended") is not None and bool(thing["spec"].get("suspend"))


def is_active(pod: dict[str, Any]) -> bool:
    """Tell whether a container of a pod may still run."""
    return (pod.get("status") or {}).get("phase", "Pending") not in ("Succeeded", "Failed")


def set_restarts(jobset: dict[str, Any]) -> int:
    """Return how often the controller has restarted a JobSet."""
    return int((jobset.get("status") or {}).get("restarts") or 0)


def resumed(jobset: dict[str, Any]) -> float | None:
    """Return when the queue resumed a JobSet, or when it was created if that never happened."""
    end_of_wait = condition(jobset, "Suspended", status="False")
    if end_of_wait:
        return seconds(end_of_wait.get("lastTransitionTime"))
    return seconds(jobset["metadata"].get("creationTimestamp"))


def exit_code(code: int | None) -> int | None:
    """Return an exit code in the form of `ReplicaStatus`, which is −N for signal N.

    Container runtimes report signal N as 128 + N. A program that exits with such a code looks the
    same.
    """
    if code is not None and 128 < code <= 128 + _MAX_SIGNAL:
        return 128 - code
    return code


def program(pod: Mapping[str, Any], state: str, name: str = names.MAIN) -> dict[str, Any]:
    """Return a container's status in a state such as ``running``, or {} if it is in another."""
    status = pod.get("status") or {}
    for each in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        if each.get("name") == name:
            return (each.get("state") or {}).get(state) or {}
    return {}


def attempt_of_program(pod: Mapping[str, Any], name: str = names.MAIN) -> int | None:
    """Return the ``TRANSLOAD_RETRY`` that a pod's program sees, or None if it is unknown."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    main: Mapping[str, Any] = next((each for each in containers if each.get("name") == name), {})
    variables = {each.get("name"): each for each in main.get("env") or ()}
    found = variables.get("TRANSLOAD_RETRY") or {}
    text = str(found.get("value", ""))
    field = ((found.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
    if field.startswith("metadata.annotations['"):
        annotations = pod["metadata"].get("annotations") or {}
        text = str(annotations.get(field.partition("'")[2].rpartition("'")[0], ""))
    if not text.isdigit():
        return None
    return int(text)


def has_begun(pod: Mapping[str, Any]) -> bool:
    """Tell whether the program of a pod has started. Before that, its kubelet may not know the pod."""
    return bool(program(pod, "running") or program(pod, "terminated"))


def grace_of(pods: Iterable[Mapping[str, Any]]) -> float:
    """Return the longest time in seconds that pods have between SIGTERM and SIGKILL."""
    seconds = [pod["spec"].get("terminationGracePeriodSeconds") or 0 for pod in pods]
    return float(max(seconds, default=0))


def still_running(pod: dict[str, Any]) -> list[str]:
    """Return the containers of a pod that still run although its program has ended.

    Native sidecars are left out, because they end by themselves. A pod that is being deleted has
    none, because all its containers end.
    """
    if (
        not is_active(pod)
        or not program(pod, "terminated")
        or pod["metadata"].get("deletionTimestamp")
    ):
        return []
    reports = (pod.get("status") or {}).get("containerStatuses") or ()
    return [each["name"] for each in reports if "terminated" not in (each.get("state") or {})]


def other_failure(pod: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the other container that made a pod fail, and the status of its end.

    The name is ``""`` if the pod has not failed, or its program made it fail.
    """
    status = pod.get("status") or {}
    main = program(pod, "terminated")
    if is_active(pod) or main.get("exitCode"):
        return "", {}
    reports = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    ends = [(each["name"], (each.get("state") or {}).get("terminated") or {}) for each in reports]
    bad = [(name, end) for name, end in ends if end.get("exitCode")]
    return min(bad, key=lambda each: each[1].get("finishedAt") or "", default=("", {}))


def said(end: dict[str, Any]) -> str:
    """Return what an ended program wrote into its message file."""
    if end.get("reason", "") not in _ENDS:
        return ""
    return str(end.get("message") or "")


def lost_node(pod: dict[str, Any]) -> str:
    """Return why a pod whose phase is Running may not run, or ``""`` if nothing is wrong.

    The pods of a node that does not answer keep their phase. The cluster only reports that they
    are not ready.
    """
    if not program(pod, "running") or not condition(pod, "ContainersReady"):
        return ""
    ready = next(
        (each for each in pod["status"]["conditions"] if each["type"] == "Ready"),
        {"status": "True"},
    )
    if ready["status"] == "True" or ready.get("reason"):  # a kubelet says why
        return ""
    node = (pod.get("spec") or {}).get("nodeName") or "?"
    disrupted = condition(pod, "DisruptionTarget")
    text = f"its node {node} does not answer"
    if disrupted:
        text += f"; {_text(disrupted)}"
    if pod["metadata"].get("deletionTimestamp"):
        text += "; the cluster has asked that node to end the pod"
    return text


def index_of(pod: dict[str, Any]) -> int:
    """Return the number of a pod's replica, or −1 if the pod does not have it."""
    text = names.annotations_of(pod).get(names.INDEX) or names.labels_of(pod).get(names.INDEX)
    if text is None or not str(text).isdigit():
        return -1
    return int(text)


def indexes(text: str | None) -> set[int]:
    """Read the indexes in a Job's status, such as ``"0,2-4"``."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit():
            continue
        if dash and last.isdigit():
            found.update(range(int(first), int(last) + 1))
        else:
            found.add(int(first))
    return found


def seconds(text: str | None) -> float | None:
    """Convert a time of the API (RFC 3339) to seconds since the epoch, or None for 1970."""
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp() or None
    except ValueError:
        return None


def event_time(event: dict[str, Any]) -> float:
    """Return when an event was last seen, in seconds since the epoch, or 0 if it is unknown.

    The fields depend on the API through which the event was reported. The newer API keeps the time
    of a series in a field of the series.
    """
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
    )
    made = (event.get("metadata") or {}).get("creationTimestamp")
    return max(filter(None, map(seconds, times)), default=seconds(made) or 0.0)


def stuck(pod: dict[str, Any]) -> str:
    """Return the cluster's reason why a pending pod does not start, or ``""`` without one."""
    status = pod.get("status") or {}
    for each in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _USUAL:
            return _text(waiting)
    return _text(condition(pod, "PodScheduled", status="False") or {})


def _text(thing: dict[str, Any]) -> str:
    """Return the reason and the message of a part of a status."""
    reason = str(thing.get("reason", ""))
    message = thing.get("message", "")
    if not message:
        return reason
    return f"{reason}: {message}"


def why_failed(pod: dict[str, Any]) -> str:
    """Return why a pod failed, beyond its exit code, for example by an eviction."""
    disrupted = condition(pod, "DisruptionTarget")
    reason = program(pod, "terminated").get("reason", "")
    if reason == "OOMKilled":
        return "killed at its memory limit (OOMKilled)"
    if disrupted is not None:
        return _text(disrupted)
    if reason not in _ENDS:
        return _text(program(pod, "terminated"))
    status = pod.get("status") or {}
    if not status.get("reason"):
        return ""
    return _text(status)
