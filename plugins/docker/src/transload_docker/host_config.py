"""Return the parts of its machine that a container gets, as limits, GPUs, devices and mounts.

This is pure.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from transload.errors import SpecError
from transload.runtime.tracking import given_base, local_path
from transload.specs import BindMount, DeviceMount, Role, VolumeMount
from transload_docker.options import DockerOptions

TRACKER_BASE: Final = "TRANSLOAD_TRACKER_BASE"
_MIB: Final = 1 << 20


class Gpus:
    """Hands out GPU ids, none twice within a job."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = list(ids)  # none means all of the machine
        self._next = 0

    def take(self, count: int, path: str) -> list[str]:
        """Return the ids of so many GPUs.

        Raises:
            SpecError: if the job needs more than are named.
        """
        first = self._next
        self._next += count
        if not self._ids:
            return [str(number) for number in range(first, self._next)]
        if self._next > len(self._ids):
            raise SpecError(
                f"{path}.resource.gpu={count}: the job needs more GPUs than gpu_ids={self._ids} "
                "names"
            )
        return self._ids[first : self._next]


def host_config(
    role: Role, path: str, opts: DockerOptions, gpus: Gpus, folder: str | None
) -> dict[str, Any]:
    """Return the ``HostConfig`` of a replica. The folder for results keeps its path."""
    # Init: without it a program is process 1, which ignores SIGTERM unless it asks for it and reaps
    # nobody
    config: dict[str, Any] = {"Init": True}
    resource = role.resource
    if resource.cpu > 0:
        config["NanoCpus"] = round(resource.cpu * 1e9)
    if resource.memMB > 0:
        # no swap on top, since a limit is a limit. Shared memory (data loaders) may take all of it.
        config["Memory"] = config["MemorySwap"] = config["ShmSize"] = resource.memMB * _MIB
    if resource.gpu > 0:
        ids = gpus.take(resource.gpu, path)
        config["DeviceRequests"] = [{"Driver": "", "DeviceIDs": ids, "Capabilities": [["gpu"]]}]
    if opts.privileged:
        config["Privileged"] = True
    mounts: list[dict[str, Any]] = []
    for mount in role.mounts:
        if isinstance(mount, DeviceMount):
            device = {"PathOnHost": mount.src_path, "PathInContainer": mount.dst_path}
            config.setdefault("Devices", []).append(
                device | {"CgroupPermissions": mount.permissions}
            )
        elif isinstance(mount, VolumeMount):
            mounts.append(mount_entry("volume", mount.src, mount.dst_path, mount.read_only))
        elif isinstance(mount, BindMount):
            mounts.append(mount_entry("bind", mount.src_path, mount.dst_path, mount.read_only))
    if folder is not None:
        mounts.append(mount_entry("bind", folder, folder, read_only=False))
    if mounts:
        config["Mounts"] = mounts
    return config


def mount_entry(kind: str, source: str, target: str, read_only: bool) -> dict[str, Any]:
    """Return a mount as the Engine API takes it."""
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}


def results_mount(role: Role) -> str | None:
    """Return the folder of results to mount at its own path, or None if there is none."""
    base = to_mount(role.env.get(TRACKER_BASE, ""))
    if base is None or covered(base, [mount.dst_path for mount in role.mounts]):
        return None
    return base


def to_mount(folder: str) -> str | None:
    """Return the folder that is mounted for a job's results, or None if it is none of this machine.

    A base given for the job counts first.
    """
    return local_folder(given_base(folder) or folder)


def local_folder(base: str) -> str | None:
    """Return a tracker base as a path if it is one of this machine."""
    path = local_path(base)
    return os.path.normpath(path) if path is not None and path.startswith("/") else None


def covered(path: str, targets: list[str]) -> bool:
    """Tell whether a path inside the container lies in a mount that the user has given."""
    normal = [os.path.normpath(target) for target in targets]
    return any(path == target or path.startswith(target.rstrip("/") + "/") for target in normal)
