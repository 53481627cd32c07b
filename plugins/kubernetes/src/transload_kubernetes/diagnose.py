"""What ``transload doctor`` tells of a cluster: can it be reached, as whom, what is missing."""

from __future__ import annotations

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.names import DEFAULT_NAMESPACE

Check = tuple[str, bool, str]
_NEEDED = (
    ("create", "batch", "jobs"), ("delete", "batch", "jobs"), ("watch", "batch", "jobs"),
    ("create", "", "configmaps"), ("patch", "", "configmaps"), ("update", "", "configmaps"),
    ("create", "", "services"), ("create", "", "secrets"),
    ("list", "", "pods"), ("get", "", "pods/log"), ("list", "", "events"),
)  # fmt: skip
_OLDEST = (1, 29)


def diagnose(cluster: Cluster) -> list[Check]:
    """Return ``(check, ok, details)`` of everything that must work; nothing is changed on the cluster."""
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
        missing = [
            f"{verb} {resource}" for verb, group, resource in _NEEDED
            if not cluster.may(DEFAULT_NAMESPACE, verb, group, resource)
        ]  # fmt: skip
    except (SchedulerUnavailable, ClusterError) as exc:
        return [*checks, ("rights", False, f"the cluster does not tell what this user may do: {exc}")]
    details = f"in namespace {DEFAULT_NAMESPACE} this user may not: {', '.join(missing)}" if missing else "all needed"
    return [*checks, ("rights", not missing, details), ("jobset", True, _jobset(cluster))]


def _user(cluster: Cluster) -> str:
    try:
        return f"as {cluster.user() or 'nobody in particular'}"
    except (SchedulerUnavailable, ClusterError) as exc:
        return f"not told: {exc}"


def _jobset(cluster: Cluster) -> str:
    try:
        found = cluster.has_jobsets(DEFAULT_NAMESPACE)
    except (SchedulerUnavailable, ClusterError) as exc:
        return f"not known: {exc}"
    return "installed" if found else "not installed, or not to be seen by this user: run option jobset will not work"


def _version(cluster: Cluster, version: dict[str, str]) -> Check:
    text = f"{cluster.url}: {version.get('gitVersion', '?')}"
    digits = [int("".join(filter(str.isdigit, version.get(key, ""))) or 0) for key in ("major", "minor")]
    if tuple(digits) < _OLDEST:
        return "cluster", False, f"{text}: Jobs with a limit of failures for each index need 1.29 or newer"
    return "cluster", True, text
