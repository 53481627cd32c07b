"""Folders for checkpoints, which are parts of a claim that all attempts of a job mount.

The folder of a role is ``transload-checkpoints/NAME/ROLE`` of the claim. It stays when its jobs are
deleted, since the claim is somebody else's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, UnsupportedFeature
from transload.keeper.signs import newest_change
from transload.schedulers.api import CheckpointFolder
from transload.schedulers.folder.store import size_of
from transload.specs import AppDef, CfgVal, Role
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.plan import Plan

if TYPE_CHECKING:
    from transload.runtime.tracking import Store

ROOT: Final = "/transload/checkpoints"
"""Where the checkpoints of all names are in a container."""
ENV: Final = "TRANSLOAD_CHECKPOINT_DIR"
_OWN: Final = "transload-checkpoints"
_VOLUME: Final = "transload-checkpoints"
_SHARED: Final = "ReadWriteMany"
_WRITABLE: Final = (_SHARED, "ReadWriteOnce", "ReadWriteOncePod")


def folder_of(name: str, role: str) -> str:
    """Return the folder of the checkpoints of a role, as its program sees it."""
    return f"{ROOT}/{name}/{role}"


def refuse_without_claim(role: Role, opts: KubernetesOptions, path: str) -> None:
    """Raise an UnsupportedFeature if a role asks for checkpoints, and no claim is named."""
    if role.checkpoints and not opts.checkpoint_claim:
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


def _here(made: Plan, role: str) -> str:
    """Return the path of a role's checkpoints on this machine, or ``""`` if that is not known."""
    mounted = str(made.cfg.get("checkpoint_mount") or "")
    if not mounted or made.checkpoints is None:
        return ""
    return os.path.join(mounted, _OWN, made.checkpoints, role)
