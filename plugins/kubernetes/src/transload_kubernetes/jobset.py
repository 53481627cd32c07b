"""Make a JobSet in place of one Job for each role. Pure.

The controller of the JobSet ends and restarts its roles together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transload.errors import UnsupportedFeature
from transload.specs import AppDef, RetryPolicy, Role
from transload_kubernetes import names
from transload_kubernetes.interruptions import is_shared
from transload_kubernetes.options import KubernetesOptions


def is_wanted(app: AppDef) -> bool:
    """Tell whether a job needs a JobSet, which ends or restarts its roles together."""
    together = len(app.roles) > 1 or any(
        role.num_replicas > 1
        and role.retry_policy is not RetryPolicy.REPLICA
        and (role.max_retries or is_shared(role))
        for role in app.roles
    )
    try:
        refuse(app)
    except UnsupportedFeature:
        return False
    return together


def refuse(app: AppDef) -> None:
    """Raise an UnsupportedFeature for the first field that a JobSet cannot express."""
    limits: set[int] = set()
    alone = len(app.roles) == 1
    for index, role in enumerate(app.roles):
        path, several, policy = f"roles[{index}]", role.num_replicas > 1, role.retry_policy
        again = role.max_retries > 0 and (several or not alone)
        native = not again or policy is RetryPolicy.REPLICA
        if role.min_replicas not in (None, role.num_replicas) and not (alone and native):
            reason = "a JobSet ends or restarts as soon as one replica has failed for good"
            _refuse(f"{path}.min_replicas", f"={role.min_replicas}", reason)
        if again and policy is RetryPolicy.ROLE and several and not alone:
            _refuse(
                f"{path}.retry_policy",
                "=ROLE",
                "a JobSet can restart all roles together, or single replicas, but not one role",
            )
        limits |= {role.max_retries} if again and policy is RetryPolicy.APPLICATION else set()
        if len(limits) > 1:
            reason = "a JobSet has one retry limit for all roles with the policy APPLICATION"
            _refuse(f"{path}.max_retries", f"={role.max_retries}", reason)


def _refuse(path: str, value: str, reason: str) -> None:
    raise UnsupportedFeature(f"{path}{value}: not possible with run option jobset: {reason}", path)


def jobset(
    app_id: str,
    base: str,
    roles: list[Role],
    jobs: list[dict[str, Any]],
    labels: Mapping[str, str],
    options: KubernetesOptions,
) -> dict[str, Any]:
    """Return the JobSet of a job.

    Each role must have the policy that its Job follows.
    """
    several = sum(role.num_replicas for role in roles) > 1
    for job in jobs:  # the JobSet names them
        del job["apiVersion"], job["kind"], job["metadata"]["name"]
    spec: dict[str, Any] = {
        "network": {
            "enableDNSHostnames": several,
            "subdomain": base,
            "publishNotReadyAddresses": True,
        },
        "successPolicy": {"operator": "All"},
        "failurePolicy": _failure_policy(roles),
        "replicatedJobs": [
            {"name": names.role_label(role.name), "replicas": 1, "template": job}
            for role, job in zip(roles, jobs, strict=True)
        ],
    }
    spec.update(options.of_the_whole())
    labels = {**labels, **options.queue_labels()}
    metadata = {"name": base, "labels": labels, "annotations": {names.ANNOTATION_APP_ID: app_id}}
    return {
        "apiVersion": "/".join(names.JOBSET_API),
        "kind": "JobSet",
        "metadata": metadata,
        "spec": spec,
    }


def _failure_policy(roles: list[Role]) -> dict[str, Any]:
    """Return the failure policy of a JobSet, which is to restart everything, or to fail."""
    again = [
        role for role in roles if role.max_retries and role.retry_policy is RetryPolicy.APPLICATION
    ]
    interrupted = {
        "name": "interrupted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    rules: list[dict[str, Any]] = []
    if any(map(is_shared, roles)):
        rules.append(interrupted)
    if not again and not rules:
        return {"maxRestarts": 0}
    rules.append(
        {"name": "tookTooLong", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    )
    if not again:
        return {"maxRestarts": 0, "restartStrategy": "BlockingRecreate", "rules": rules}
    if others := [names.role_label(role.name) for role in roles if role not in again]:
        rules.append({"name": "notRetried", "action": "FailJobSet", "targetReplicatedJobs": others})
    # an attempt starts only after all objects of the earlier one are gone
    return {
        "maxRestarts": again[0].max_retries,
        "restartStrategy": "BlockingRecreate",
        "rules": rules,
    }
