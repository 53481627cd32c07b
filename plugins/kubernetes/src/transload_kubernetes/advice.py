"""What a person can do about an answer of the cluster, as the end of a message."""

from __future__ import annotations

import re
from typing import Any, Final

from transload_kubernetes import kueue
from transload_kubernetes.cluster import NO_GROUP, NO_RESOURCE, ClusterError

POD_SECURITY: Final = (
    "; set run option pod_security=restricted, which gives pods what such a namespace requires"
)
_JOBSET: Final = (
    "; run option jobset needs JobSet on the cluster (jobset.x-k8s.io/v1alpha2); "
    "install it, or set jobset=never"
)
_ROLE: Final = "transload-submit"
_PAGE: Final = "docs/schedulers/kubernetes.md#rights"
_FORBIDDEN: Final = re.compile(r'User "([^"]+)" cannot .* in the namespace "([^"]+)"')
_NO_NAMESPACE: Final = re.compile(r'namespaces "([^"]+)" not found')
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):([^:]+)\Z")
_IMAGE: Final = (
    "; name an image that the cluster can pull, or credentials by run option image_pull_secrets"
)
_LESS: Final = "; ask for less by --cpu, --mem or --gpu"
_NEVER: Final = f"so it can never start{_LESS}"
_TOO_LARGE: Final = (
    r"0/(?P<all>\d+) nodes are available: (\d+ Insufficient \S+(, )?)+\. (.|\n)*"
    r"\b(?P=all) Preemption is not helpful for scheduling"
)
"""What a cluster's scheduler says if no node could take a pod even if it were empty.

It finds nobody whose end would help, although only room is missing."""
_ON_WAITING: Final = {
    "PodSecurity": POD_SECURITY,
    "ErrImagePull|ImagePullBackOff|Failed to pull image": _IMAGE,
    "error looking up service account": (
        "; create that service account, or name another one by run option service_account"
    ),
    "image will run as root": (
        "; name an image with another user, or give one by an overlay: -c overlay='{spec: "
        "{template: {spec: {securityContext: {runAsUser: 1000}}}}}'"
    ),
    _TOO_LARGE: f"; no node has that much at all, {_NEVER}",
    f"{kueue.EXCEEDS_ALL}|> maximum capacity": f"; its queue has less in all, {_NEVER}",
    "maximum (cpu|memory) usage per (Container|Pod) is": _LESS,  # of a LimitRange
    "(minimum|maximum) .* usage per (Container|Pod) is": "",
    "InvalidImageName|ErrImageNeverPull|CreateContainer(Config)?Error|Failed: Error": "",
    "FailedMount|FailedAttachVolume": "",
    # of Kueue
    "(LocalQueue|ClusterQueue|WorkloadPriorityClass) |deactivated": "",
}
"""What a cluster says of a job that waits, if time does not cure it → what to do about it."""
_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<name>\S+), requested: (?P<asked>\S+), used: \S+, limited: (?P<most>\S+)"
)


def on_error(exc: Exception) -> str:
    """Return what to do about a cluster's error, or ``""`` if that is unknown."""
    text = str(exc)
    if "PodSecurity" in text:
        return POD_SECURITY
    if not isinstance(exc, ClusterError):
        return ""
    if NO_GROUP in text or NO_RESOURCE in text:
        return _JOBSET
    missing = _NO_NAMESPACE.search(text)
    if exc.status == 404 and missing:
        create = f"kubectl create namespace {missing[1]}"
        return f"; name another one by run option namespace, or create it: {create}"
    if exc.status == 403 and " cannot " in text:
        found = _FORBIDDEN.search(text)
        if found:
            return on_rights(found[1], found[2])
        return f"; ask the cluster's administrator for the rights in {_PAGE}"
    return ""


def on_rights(user: str, namespace: str, role: str = _ROLE) -> str:
    """Return how a user of the cluster gets the rights of a documented Role in a namespace."""
    documented = f"the Role {role} of {_PAGE}"
    account = _ACCOUNT.match(user)
    if account is None:
        return f"; ask the cluster's administrator for {documented}"
    bind = f"kubectl create rolebinding {role}-{account[2]} -n {namespace} --role={role}"
    return f"; apply {documented}, then: {bind} --serviceaccount={account[1]}:{account[2]}"


def on_waiting(why: str) -> str | None:
    """Return what to do so that a waiting job starts, or None if time may cure why it waits.

    The text is ``""`` if only the one who reads the reason can know.
    """
    for said, remedy in _ON_WAITING.items():
        if re.search(said, why):
            return remedy
    return _on_quota(why)


def _on_quota(why: str) -> str | None:
    """Return what to do if a pod asks for more than a quota has in all, else None."""
    found = _QUOTA.search(why)
    if found is None:
        return None
    from kubernetes.utils import parse_quantity

    quantity: Any = parse_quantity
    most = dict(part.split("=") for part in found["most"].split(","))
    for part in found["asked"].split(","):
        resource, _, asked = part.partition("=")
        if resource in most and quantity(asked) > quantity(most[resource]):
            has = f"{resource}={most[resource]}"
            return f"; quota {found['name']} has {has} in all, {_NEVER}"
    return None
