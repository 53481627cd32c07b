"""Folders for checkpoints, which are parts of a claim that all attempts of a job mount.

The folder of a role is ``transload-checkpoints/NAME/ROLE`` of the claim. It goes with the last job
that names it. It is removed from here if the claim is mounted here too, else by a small Job.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SchedulerUnavailable, UnsupportedFeature
from transload.runtime.liveness import newest_change
from transload.schedulers.api import CheckpointFolder
from transload.schedulers.local.store import size_of
from transload.specs import AppDef, CfgVal, Role
from transload_kubernetes import names, plan, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.plan import Facts, Plan

if TYPE_CHECKING:
    from transload.runtime.tracking import Store

_log = logging.getLogger("transload.kubernetes")
ROOT: Final = "/transload/checkpoints"
"""Where the checkpoints of all names are in a container."""
ENV: Final = "TRANSLOAD_CHECKPOINT_DIR"
_OWN: Final = "transload-checkpoints"
_VOLUME: Final = "transload-checkpoints"
_SHARED: Final = "ReadWriteMany"
_WRITABLE: Final = (_SHARED, "ReadWriteOnce", "ReadWriteOncePod")
_REMOVAL_S: Final = 60.0
_PAUSE_S: Final = 0.2
_ALIKE: Final = (
    "securityContext",
    "serviceAccountName",
    "priorityClassName",
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
)
"""Fields of a job's pods that the pod which removes its checkpoints needs too."""


def folder_of(name: str, role: str) -> str:
    """Return the folder of the checkpoints of a role, as its program sees it."""
    return f"{ROOT}/{name}/{role}"


def refuse_without_claim(role: Role, cfg: Mapping[str, CfgVal], path: str) -> None:
    """Raise an UnsupportedFeature if a role asks for checkpoints, and no claim is named."""
    if role.checkpoints and not cfg.get("checkpoint_claim"):
        raise UnsupportedFeature(
            f"{path}: a pod keeps nothing; name a claim for them, which all nodes of the role can "
            "mount (run option checkpoint_claim)",
            path,
        )


def add_folder(role: Role, spec: dict[str, Any], claim: str) -> None:
    """Mount the folder of a role's checkpoints into its program, if the role asks for them."""
    folder = role.env.get(ENV, "")
    if not role.checkpoints or not folder.startswith(f"{ROOT}/"):
        return
    main = spec["containers"][0]
    inner = f"{_OWN}/{folder.removeprefix(f'{ROOT}/')}"
    mount = {"name": _VOLUME, "mountPath": folder, "subPath": inner}
    main["volumeMounts"] = [*main["volumeMounts"], mount]
    source = {"persistentVolumeClaim": {"claimName": claim}}
    spec["volumes"] = [*spec["volumes"], {"name": _VOLUME, **source}]


def check_claim(cluster: Cluster, namespace: str, app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
    """Refuse a claim that does not exist, or that not all replicas of a role can write to.

    A user who may not get claims finds out when the pods wait.

    Raises:
        ConfigError: if there is no such claim.
        UnsupportedFeature: if only one node can write to it, or none.
    """
    wanted = [(index, role) for index, role in enumerate(app.roles) if role.checkpoints]
    claim = str(cfg.get("checkpoint_claim") or "")
    if not wanted or not claim:
        return
    try:
        found = cluster.get("PersistentVolumeClaim", namespace, claim)
    except ClusterError as exc:
        if exc.status == 403:
            return
        raise
    option = f"run option checkpoint_claim={claim!r}"
    if found is None:
        raise ConfigError(
            f"{option}: namespace {namespace} has no such claim; see kubectl get pvc -n {namespace}"
        )
    modes = (found.get("spec") or {}).get("accessModes") or [_SHARED]
    for index, role in wanted:
        path = f"roles[{index}].checkpoints"
        if not any(mode in _WRITABLE for mode in modes):
            raise UnsupportedFeature(f"{path}: {option} cannot be written: {modes}", path)
        if role.num_replicas > 1 and _SHARED not in modes:
            raise UnsupportedFeature(
                f"{path}: {option} is one node's ({', '.join(modes)}), and the "
                f"{role.num_replicas} replicas of role {role.name!r} may run on several; name a "
                f"claim with {_SHARED}",
                path,
            )


def found(made: Plan) -> Sequence[CheckpointFolder]:
    """Return the folders of a job. Size and age are known if the claim is mounted here."""
    folders: list[CheckpointFolder] = []
    for role in made.roles:
        if not role.checkpoints or made.checkpoints is None:
            continue
        path = folder_of(made.checkpoints, role.name)
        here = _here(made, role.name)
        if not os.path.isdir(here):
            folders.append(CheckpointFolder(role.name, path))
            continue
        _, changed = newest_change(here)
        folders.append(CheckpointFolder(role.name, path, size_of(here), changed or None))
    return folders


def store(made: Plan, role: str) -> Store | None:
    """Return the checkpoints of a role, or None if the claim is not mounted here."""
    here = _here(made, role)
    if not os.path.isdir(here):
        return None
    from transload.runtime.tracking import open_store

    return open_store(here)


def _here(made: Plan, role: str = "") -> str:
    """Return the path of a job's checkpoints on this machine, or ``""`` if that is not known."""
    mounted = str(made.cfg.get("checkpoint_mount") or "")
    if not mounted or made.checkpoints is None:
        return ""
    return os.path.join(mounted, _OWN, made.checkpoints, role).rstrip("/")


def remove_unused(
    cluster: Cluster, namespace: str, facts: Facts, others: Sequence[dict[str, Any]]
) -> None:
    """Remove the checkpoints of a job that was deleted, unless another job names them.

    What cannot be removed stays, with a warning that says where.

    Args:
        cluster: the cluster.
        namespace: that of the job.
        facts: those of the job before it was deleted.
        others: the records of the namespace that may name the same checkpoints.
    """
    made = facts.plan
    if made is None or made.checkpoints is None:
        return
    claim = made.cfg.get("checkpoint_claim")
    for record in others:
        other = Facts(record)
        if other.kind == plan.APP and other.unreadable:
            return  # it may name them
        if other.plan is not None and other.plan.app_id != made.app_id:
            same_claim = other.plan.cfg.get("checkpoint_claim") == claim
            if same_claim and other.plan.checkpoints == made.checkpoints:
                return
    here = _here(made)
    if here and os.path.isdir(here):
        shutil.rmtree(here, ignore_errors=True)
        return
    why = _remove_by_job(cluster, namespace, facts, made.checkpoints)
    if why:
        _log.warning(
            "the checkpoints of job %s stay in claim %s (%s/%s): %s",
            made.app_id,
            claim,
            _OWN,
            made.checkpoints,
            why,
        )


def _remove_by_job(cluster: Cluster, namespace: str, facts: Facts, name: str) -> str:
    """Remove checkpoints by a Job that mounts their claim. Return why that failed, or ``""``."""
    job = removal(facts, name)
    if job is None:
        return "its pods, which say how to mount it, are gone"
    try:
        cluster.create(job, namespace)
        why = _wait_for(cluster, namespace, job["metadata"]["name"])
        cluster.delete("Job", namespace, job["metadata"]["name"])
    except (ClusterError, SchedulerUnavailable) as exc:
        return str(exc)
    return why


def _wait_for(cluster: Cluster, namespace: str, name: str) -> str:
    deadline = time.monotonic() + _REMOVAL_S
    while time.monotonic() < deadline:
        found = cluster.get("Job", namespace, name)
        if found is None or states.condition(found, "Failed"):
            return "the Job that removes them has failed"
        if states.condition(found, "Complete"):
            return ""
        time.sleep(_PAUSE_S)
    return f"the Job that removes them took longer than {_REMOVAL_S:g} s"


def removal(facts: Facts, name: str) -> dict[str, Any] | None:
    """Return the Job that removes the checkpoints of a job, or None if its pods are not known."""
    pods = _pods_with_claim(facts)
    if pods is None:
        return None
    main = pods["containers"][0]
    volume = next(each for each in pods["volumes"] if each["name"] == _VOLUME)
    limits = {"cpu": "50m", "memory": "64Mi"}
    image = (facts.plan and facts.plan.cfg.get("helper_image")) or main["image"]
    container: dict[str, Any] = {
        "name": names.MAIN,
        "image": image,
        "command": ["rm", "-rf", f"{ROOT}/{name}"],
        "volumeMounts": [{"name": _VOLUME, "mountPath": ROOT, "subPath": _OWN}],
        "resources": {"requests": limits, "limits": limits},
    }
    for field in ("securityContext", "imagePullPolicy"):
        if field in main:
            container[field] = main[field]
    spec: dict[str, Any] = {field: pods[field] for field in _ALIKE if field in pods}
    spec |= {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    record = (facts.record or {})["metadata"]["name"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{record}-gone-{os.urandom(3).hex()}"},
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            "backoffLimitPerIndex": 0,
            "activeDeadlineSeconds": 300,
            "ttlSecondsAfterFinished": 300,
            "template": {"spec": spec},
        },
    }


def _pods_with_claim(facts: Facts) -> dict[str, Any] | None:
    """Return the spec of pods of a job that mount its checkpoints."""
    jobs = [*facts.jobs]
    if facts.plan is not None:
        jobs += facts.plan.jobs
    if facts.jobset is not None:
        jobs += [each["template"] for each in facts.jobset["spec"]["replicatedJobs"]]
    for job in jobs:
        spec: dict[str, Any] = job["spec"]["template"]["spec"]
        if any(each["name"] == _VOLUME for each in spec.get("volumes") or ()):
            return spec
    return None
