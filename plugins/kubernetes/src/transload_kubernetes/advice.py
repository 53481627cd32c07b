"""What a person can do about an answer of the cluster, as the end of a message."""

from __future__ import annotations

import re
from typing import Final

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
    "name an image that the cluster can pull, or credentials by run option image_pull_secrets"
)
_LESS: Final = "ask for less by --cpu, --mem or --gpu"
_OF_WAITING: Final = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "Failed to pull image": _IMAGE,
    "error looking up service account": (
        "create that service account, or name another one by run option service_account"
    ),
    "image will run as root": (
        "name an image with another user, or give one by an overlay: -c overlay='{spec: {template: "
        "{spec: {securityContext: {runAsUser: 1000}}}}}'"
    ),
    "no node has that much": _LESS,
    "its queue has less in all": _LESS,
    "maximum cpu usage per": _LESS,
    "maximum memory usage per": _LESS,
}
"""Words of a message that says why a job waits → what to do about it."""


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


def on_waiting(why: str) -> str:
    """Return what to do so that a waiting job starts, or ``""`` if that is unknown."""
    for words, remedy in _OF_WAITING.items():
        if words in why:
            return remedy
    return ""
