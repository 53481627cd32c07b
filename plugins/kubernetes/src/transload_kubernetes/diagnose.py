"""Check for ``transload doctor`` whether a cluster answers, and what the user may do there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes import advice
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.names import JOBSET_API, KUEUE_API

_OLDEST: Final = (1, 29)
_REACH: Final = "; check KUBECONFIG and the current context; in a pod, check its network"

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
"""Verbs of each API group and resource, as rights to see jobs and to read their logs."""
QUEUE: Final[Rights] = {(KUEUE_API[0], "workloads"): ("list",)}
"""A right with which a status says why a Kueue queue does not start a job."""
SUBMIT: Final[Rights] = {
    ("batch", "jobs"): ("create", "get", "patch", "delete"),
    ("", "configmaps"): ("create", "get", "patch", "delete"),
    ("", "services"): ("create", "get", "delete"),
    ("", "secrets"): ("create", "get", "delete"),
    (JOBSET_API[0], "jobsets"): ("create", "get", "patch", "delete"),
}
"""More rights, to submit, cancel and delete jobs, and to reconcile them while waiting."""
EXEC: Final[Rights] = {("", "pods"): ("get",), ("", "pods/exec"): ("get", "create")}
"""More rights, to run commands in pods and to send them signals."""


def diagnose(cluster: Cluster, namespace: str) -> list[Check]:
    """Return ``(check, ok, details)`` for each requirement, without changing the cluster."""
    try:
        import kubernetes
    except ImportError as exc:
        return [("client", False, f"cannot import the kubernetes client: {exc}")]
    checks = [("client", True, f"kubernetes {kubernetes.__version__}")]
    try:
        version = cluster.version()
    except ConfigError as exc:
        return [*checks, ("cluster", False, f"{exc}; set KUBECONFIG, or run inside of a cluster")]
    except (SchedulerUnavailable, ClusterError) as exc:
        return [*checks, ("cluster", False, f"{exc}{_REACH}")]
    checks.append(_version_check(cluster, version))
    try:
        user = cluster.user()
        checks.append(("user", True, f"as {user or 'an unnamed user'}"))
        installed = cluster.has_jobsets(namespace)
        for what, rights in (("observe", OBSERVE), ("submit", SUBMIT)):
            missing = _missing(cluster, namespace, rights, installed)
            details = f"this user has all rights for it in namespace {namespace}"
            if missing:
                details = f"this user lacks rights in namespace {namespace}: {missing}"
                details += advice.on_rights(user, namespace, f"transload-{what}")
            checks.append((what, not missing, details))
    except (SchedulerUnavailable, ClusterError) as exc:
        unknown = f"the cluster does not say what this user may do: {exc}"
        return [*checks, ("rights", False, unknown)]
    jobset = "not installed, or this user may not see it"
    if installed:
        jobset = "installed"
    return [*checks, ("jobset", True, jobset)]


def _version_check(cluster: Cluster, version: Mapping[str, str]) -> Check:
    """Return the check of the server's version."""
    details = f"{cluster.url}: {version.get('gitVersion', '?')}"
    number = (_digits_of(version.get("major", "")), _digits_of(version.get("minor", "")))
    is_new_enough = number >= _OLDEST
    if not is_new_enough:
        details += "; Jobs with a failure limit for each index need Kubernetes 1.29 or newer"
    return "cluster", is_new_enough, details


def _digits_of(text: str) -> int:
    """Return the number in a text such as ``29+``, or 0 if there is none."""
    digits = "".join(filter(str.isdigit, text))
    return int(digits or 0)


def _missing(cluster: Cluster, namespace: str, rights: Rights, jobsets: bool) -> str:
    """Return the rights that the user lacks, as text. With ``jobsets``, those on JobSets count."""
    found: dict[str, list[str]] = {}
    for (group, resource), verbs in rights.items():
        if jobsets or group != JOBSET_API[0]:
            found[resource] = [
                verb for verb in verbs if not cluster.may(namespace, verb, group, resource)
            ]
    return "; ".join(f"{', '.join(verbs)} {resource}" for resource, verbs in found.items() if verbs)
