"""What ``transload doctor`` tells of a cluster: can it be reached, as whom, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.names import JOBSET_API

Check = tuple[str, bool, str]
RIGHTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("batch", "jobs"): ("create", "get", "list", "watch", "delete"),
    ("", "configmaps"): ("create", "get", "list", "patch", "update", "delete"),
    ("", "services"): ("create", "get", "list", "delete"),
    ("", "secrets"): ("create", "get", "list", "delete"),
    ("", "pods"): ("list",),
    ("", "pods/log"): ("get",),
    ("", "events"): ("list",),
}
"""What a user needs in the app's namespace: API group and resource → verbs. The tests' cluster grants nothing else."""
JOBSET_RIGHTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    (JOBSET_API[0], "jobsets"): ("create", "get", "list", "watch", "delete"),
}
"""What run option ``jobset`` needs besides."""
_OLDEST = (1, 29)


def diagnose(cluster: Cluster, namespace: str) -> list[Check]:
    """Return ``(check, ok, details)`` of everything that must work; nothing is changed on the cluster.

    Args:
        cluster: the cluster.
        namespace: where apps go.
    """
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
    checks += [_version(cluster, version), ("user", True, _user(cluster))]
    try:
        missing = _missing(cluster, namespace, RIGHTS)
    except (SchedulerUnavailable, ClusterError) as exc:
        return [*checks, ("rights", False, f"the cluster does not tell what this user may do: {exc}")]
    details = f"in namespace {namespace} this user may {f'not: {missing}' if missing else 'do all that is needed'}"
    return [*checks, ("rights", not missing, details), ("jobset", True, _jobset(cluster, namespace))]


def _missing(cluster: Cluster, namespace: str, rights: Mapping[tuple[str, str], tuple[str, ...]]) -> str:
    """Return what of these rights the user has not, as text."""
    found = []
    for (group, resource), verbs in rights.items():
        missing = [verb for verb in verbs if not cluster.may(namespace, verb, group, resource)]
        if missing:
            found.append(f"{', '.join(missing)} {resource}")
    return "; ".join(found)


def _user(cluster: Cluster) -> str:
    try:
        return f"as {cluster.user() or 'nobody in particular'}"
    except (SchedulerUnavailable, ClusterError) as exc:
        return f"not told: {exc}"


def _jobset(cluster: Cluster, namespace: str) -> str:
    try:
        if not cluster.has_jobsets(namespace):
            return "not installed, or not to be seen by this user: run option jobset will not work"
        missing = _missing(cluster, namespace, JOBSET_RIGHTS)
    except (SchedulerUnavailable, ClusterError) as exc:
        return f"not known: {exc}"
    return f"installed, but run option jobset will not work: this user may not: {missing}" if missing else "installed"


def _version(cluster: Cluster, version: dict[str, str]) -> Check:
    text = f"{cluster.url}: {version.get('gitVersion', '?')}"
    digits = [int("".join(filter(str.isdigit, version.get(key, ""))) or 0) for key in ("major", "minor")]
    if tuple(digits) < _OLDEST:
        return "cluster", False, f"{text}: Jobs with a limit of failures for each index need 1.29 or newer"
    return "cluster", True, text
