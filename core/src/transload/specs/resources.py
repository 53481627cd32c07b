"""Describe the resources and mounts of a role.

Mounts are also read from options such as ``type=bind,src=/a,dst=/b,readonly``.
"""

from __future__ import annotations

import os
import re
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from transload.errors import SpecError
from transload.specs.checks import (
    check_dict,
    check_int,
    check_json_dict,
    check_number,
    check_str,
    nearest,
    refuse,
)

_MOST_CORES = 1_000_000
"""The largest number of cores, GPUs or devices of a replica."""
_MOST_MB = 1 << 43
"""The largest memory of a replica, 8 EiB."""


@dataclass
class Resource:
    """What each replica of a role needs.

    Args:
        cpu: logical CPU cores. A fraction is allowed where the scheduler can express it. −1 means
            unset.
        gpu: number of GPUs. −1 means unset.
        memMB: main memory in MB. −1 means unset.
        capabilities: further demands, read by the scheduler.
        devices: named devices and how many of each.
        tags: free-form labels of the resource itself, ignored by schedulers.

    Raises:
        SpecError: for a number below −1 or not finite, or a value of the wrong type.
    """

    cpu: float
    gpu: int
    memMB: int  # noqa: N815 - the field's established name
    capabilities: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.check("Resource")

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the resource stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        if self.cpu != -1:
            check_number(self.cpu, f"{path}.cpu", high=_MOST_CORES)
            if self.cpu < 0:
                refuse(f"{path}.cpu", self.cpu, "must be 0 or more, or -1 for unset")
        for name, most in (("gpu", _MOST_CORES), ("memMB", _MOST_MB)):
            value = getattr(self, name)
            if isinstance(value, int) and value < -1:
                refuse(f"{path}.{name}", value, "must be 0 or more, or -1 for unset")
            check_int(value, f"{path}.{name}", -1, most)
        check_json_dict(self.capabilities, f"{path}.capabilities")
        check_dict(self.devices, f"{path}.devices")
        for name, count in self.devices.items():
            check_int(count, f"{path}.devices[{name!r}]", 0, _MOST_CORES)
        check_json_dict(self.tags, f"{path}.tags")

    @staticmethod
    def copy(original: Resource, **capabilities: object) -> Resource:
        """Return a copy of ``original`` with ``capabilities`` added to (or replacing) its own."""
        return replace(deepcopy(original), capabilities={**original.capabilities, **capabilities})


NULL_RESOURCE: Resource = Resource(cpu=-1, gpu=-1, memMB=-1)
"""A resource of which nothing is set."""


def null_resource() -> Resource:
    """Return a fresh resource of which nothing is set (a default factory)."""
    return Resource(cpu=-1, gpu=-1, memMB=-1)


class MountType(str, Enum):
    """The kinds of mounts."""

    BIND = "bind"
    VOLUME = "volume"
    DEVICE = "device"


class _Mount:
    """The base of the kinds of mounts. None of their texts may be empty."""

    def __post_init__(self) -> None:
        self.check(type(self).__name__)

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the mount stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        for name, value in vars(self).items():
            if name != "read_only":
                check_str(value, f"{path}.{name}", empty=False)
            elif not isinstance(value, bool):
                refuse(f"{path}.{name}", value, "must be True or False")


@dataclass
class BindMount(_Mount):
    """A path of the host, mounted into the replica.

    Args:
        src_path: path on the host.
        dst_path: path inside the replica.
        read_only: True to forbid writes.
    """

    JSON_TYPE = "bind"

    src_path: str
    dst_path: str
    read_only: bool = False


@dataclass
class VolumeMount(_Mount):
    """A persistent volume, mounted into the replica.

    Args:
        src: name or id of the volume.
        dst_path: path inside the replica.
        read_only: True to forbid writes.
    """

    JSON_TYPE = "volume"

    src: str
    dst_path: str
    read_only: bool = False


@dataclass
class DeviceMount(_Mount):
    """A device of the host, made visible inside the replica.

    Args:
        src_path: path on the host.
        dst_path: path inside the replica.
        permissions: any of ``r`` (read), ``w`` (write), ``m`` (make node).
    """

    JSON_TYPE = "device"

    src_path: str
    dst_path: str
    permissions: str = "rwm"

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the mount stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        super().check(path)
        if set(self.permissions) - set("rwm"):
            refuse(f"{path}.permissions", self.permissions, "must be made of the letters r, w, m")


_OUTPUTS: Final = ":outputs"


@dataclass
class JobMount(_Mount):
    """The files that another job of the same scheduler has made, for reading.

    Args:
        job: the job's handle.
        dst_path: path inside the replica. Where nothing is mounted (local, Slurm without a
            container), the true folder takes its place in arguments and variables.
    """

    JSON_TYPE = "job"

    job: str
    dst_path: str

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the mount stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        super().check(path)
        if not re.fullmatch(r"[^/:]+://[^/]*/.+", self.job):
            refuse(
                f"{path}.job", self.job, "must be a handle, such as local://transload/train-x1y2"
            )
        if not self.dst_path.startswith("/") or not self.dst_path.strip("/"):
            refuse(f"{path}.dst_path", self.dst_path, "must be an absolute path, and not / itself")


Mount = BindMount | VolumeMount | DeviceMount | JobMount

_OPTIONS: Final = {name: name for name in ("type", "src", "dst", "readonly", "perm", "job")}
_OPTIONS.update(source="src", destination="dst", target="dst", read_only="readonly")


def parse_mounts(opts: list[str]) -> list[Mount]:
    """Return the mounts that a list of options spells.

    Each mount starts with its ``type``. Several may follow one another: ``["type=bind",
    "src=/host", "dst=/job", "readonly", "type=volume", "src=data", "dst=/data"]``.

    Args:
        opts: ``type=bind|volume|device|job``, ``src=…``, ``dst=…``, ``readonly``, ``perm=rwm``
            (devices only). ``job=HANDLE:outputs`` means ``type=job``, ``src=HANDLE:outputs``.

    Raises:
        SpecError: for an unknown option or type, or a missing one.
    """
    if isinstance(opts, str):
        raise SpecError(f"mounts={opts!r}: must be a list of options, not a str")
    groups: list[dict[str, str]] = []
    for opt in opts:
        key, _, value = opt.partition("=")
        name = _OPTIONS.get(key.strip())
        if name is None:
            raise SpecError(f"mounts: unknown option {key!r}: {nearest(key, list(_OPTIONS))}")
        if name == "job":
            groups.append({"type": "job", "src": value})
            continue
        if name == "type":
            groups.append({})
        elif not groups:
            kinds = "type=bind, type=volume, type=device or job=HANDLE:outputs"
            raise SpecError(f"mounts: {opt!r}: the type must come first ({kinds})")
        groups[-1][name] = value
    return [_mount(group) for group in groups]


def _mount(group: dict[str, str]) -> Mount:
    kind = group["type"]
    if kind not in {JobMount.JSON_TYPE, *(item.value for item in MountType)}:
        raise SpecError(f"mounts: type={kind!r}: must be one of bind, device, job, volume")
    src = group.get("src")
    dst = group.get("dst")
    if not src:
        raise SpecError(f"mounts: type={kind}: src is missing")
    if kind == MountType.DEVICE:
        return DeviceMount(src_path=src, dst_path=dst or src, permissions=group.get("perm", "rwm"))
    if not dst:
        raise SpecError(f"mounts: type={kind},src={src}: dst is missing")
    if kind == JobMount.JSON_TYPE:
        if not src.endswith(_OUTPUTS):
            raise SpecError(
                f"mounts: job={src}: must end with {_OUTPUTS}, as in job=HANDLE{_OUTPUTS}"
            )
        return JobMount(job=src.removesuffix(_OUTPUTS), dst_path=dst)
    read_only = "readonly" in group
    if kind == MountType.VOLUME:
        return VolumeMount(src=src, dst_path=dst, read_only=read_only)
    return BindMount(src_path=os.path.expanduser(src), dst_path=dst, read_only=read_only)
