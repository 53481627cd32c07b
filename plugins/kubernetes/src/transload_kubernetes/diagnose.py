"""What ``transload doctor`` tells of a cluster: can it be reached, as whom, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.names import JOBSET_API

Check = tuple[str, bool, str]
Rights = Mapping[tuple[str, str], tuple[str, ...]]
OBSERVE: Final[Rights] = {
    ("batch", "jobs"): ("list", "watch"),
    ("", "configmaps"): ("list",),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("", "events"): ("list", "watch"),
    (JOBSET_API[0], "jobsets"): ("list", "watch"),
}
"""What it takes to see jobs and to read their logs: API group and resource → verbs."""
SUBMIT: Final[Rights] = {
    ("batch", "jobs"): ("create", "get", "patch", "delete"),
    ("", "configmaps"): ("create", "get", "patch", "delete"),
    ("", "pods"): ("patch",),
    ("", "services"): ("create", "get", "delete"),
    ("", "secrets"): ("create", "get", "delete"),
    (JOBSET_API[0], "jobsets"): ("create", "get", "patch", "delete"),
}
"""What it takes besides to submit, cancel, delete, and look after jobs while waiting for them."""


def diagnose(cluster: Cluster, namespace: str) -> list[Check]:
    """Return ``(check, ok, details)`` of all that must work; nothing is changed on the cluster."""
    try:
        import kubernetes
    except ImportError as exc:
        return [("client", False, f"the Python client of kubernetes cannot be imported: {exc}")]
    checks = [("client", True, f"kubernetes {kubernetes.__version__}")]
    try:
        version = cluster.version()
    except ConfigError as exc:
        return [*checks, ("cluster", False, f"{exc}; set KUBECONFIG, or run inside of a cluster")]
    except (SchedulerUnavailable, ClusterError) as exc:
        return [*checks, ("cluster", False, f"{exc}; check KUBECONFIG and the current context")]
    digits = [
        int("".join(filter(str.isdigit, version.get(key, ""))) or 0) for key in ("major", "minor")
    ]
    old = (
        ": Jobs with a limit of failures for each index need 1.29 or newer"
        if tuple(digits) < (1, 29)
        else ""
    )
    checks.append(("cluster", not old, f"{cluster.url}: {version.get('gitVersion', '?')}{old}"))
    try:
        checks.append(("user", True, f"as {cluster.user() or 'nobody in particular'}"))
        installed = cluster.has_jobsets(namespace)
        for what, rights in (("observe", OBSERVE), ("submit", SUBMIT)):
            missing = _missing(cluster, namespace, rights, installed)
            details = f"in namespace {namespace} this user may {f'not: {missing}' if missing else 'do what that needs'}"
            checks.append((what, not missing, details))
    except (SchedulerUnavailable, ClusterError) as exc:
        return [
            *checks,
            ("rights", False, f"the cluster does not tell what this user may do: {exc}"),
        ]
    return [
        *checks,
        (
            "jobset",
            True,
            "installed" if installed else "not installed, or not to be seen by this user",
        ),
    ]


def _missing(cluster: Cluster, namespace: str, rights: Rights, jobsets: bool) -> str:
    """Return the rights that the user does not have, as text; on JobSets only if there are some."""
    found: dict[str, list[str]] = {}
    for (group, resource), verbs in rights.items():
        if jobsets or group != JOBSET_API[0]:
            found[resource] = [
                verb for verb in verbs if not cluster.may(namespace, verb, group, resource)
            ]
    return "; ".join(f"{', '.join(verbs)} {resource}" for resource, verbs in found.items() if verbs)
