"""Resources and mounts of a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from transload.specs._check import check_dict, check_int, check_json, check_number, check_str, refuse


@dataclass
class Resource:
    """What each replica of a role needs.

    Args:
        cpu: logical CPU cores; a fraction is allowed where the scheduler can express it. −1: unset.
        gpu: number of GPUs. −1: unset.
        memMB: main memory in MB. −1: unset.
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
        """Refuse wrong values; ``path`` starts the message."""
        if self.cpu != -1:
            check_number(self.cpu, f"{path}.cpu")
            if self.cpu < 0:
                refuse(f"{path}.cpu", self.cpu, "must be 0 or more, or -1 for unset")
        for name in ("gpu", "memMB"):
            value = getattr(self, name)
            if isinstance(value, int) and value < -1:
                refuse(f"{path}.{name}", value, "must be 0 or more, or -1 for unset")
            check_int(value, f"{path}.{name}", -1)
        check_dict(self.capabilities, f"{path}.capabilities")
        check_json(self.capabilities, f"{path}.capabilities")
        check_dict(self.devices, f"{path}.devices")
        for name, count in self.devices.items():
            check_int(count, f"{path}.devices[{name!r}]", 0)
        check_dict(self.tags, f"{path}.tags")
        check_json(self.tags, f"{path}.tags")

    @staticmethod
    def copy(original: Resource, **capabilities: Any) -> Resource:
        """Return a copy of ``original`` with ``capabilities`` added to (or replacing) its own."""
        return Resource(
            cpu=original.cpu,
            gpu=original.gpu,
            memMB=original.memMB,
            capabilities={**original.capabilities, **capabilities},
            devices=dict(original.devices),
            tags=dict(original.tags),
        )


Resources = Resource
"""The older name of `Resource`, kept for those who come from TorchX."""

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


@dataclass
class BindMount:
    """A path of the host, mounted into the replica.

    Args:
        src_path: path on the host.
        dst_path: path inside the replica.
        read_only: True to forbid writes.
    """

    JSON_TYPE: ClassVar = "bind"

    src_path: str
    dst_path: str
    read_only: bool = False

    def __post_init__(self) -> None:
        self.check("BindMount")

    def check(self, path: str) -> None:
        """Refuse wrong values; ``path`` starts the message."""
        check_str(self.src_path, f"{path}.src_path", empty=False)
        check_str(self.dst_path, f"{path}.dst_path", empty=False)
        _check_flag(self.read_only, f"{path}.read_only")


@dataclass
class VolumeMount:
    """A persistent volume, mounted into the replica.

    Args:
        src: name or id of the volume.
        dst_path: path inside the replica.
        read_only: True to forbid writes.
    """

    JSON_TYPE: ClassVar = "volume"

    src: str
    dst_path: str
    read_only: bool = False

    def __post_init__(self) -> None:
        self.check("VolumeMount")

    def check(self, path: str) -> None:
        """Refuse wrong values; ``path`` starts the message."""
        check_str(self.src, f"{path}.src", empty=False)
        check_str(self.dst_path, f"{path}.dst_path", empty=False)
        _check_flag(self.read_only, f"{path}.read_only")


@dataclass
class DeviceMount:
    """A device of the host, made visible inside the replica.

    Args:
        src_path: path on the host.
        dst_path: path inside the replica.
        permissions: any of ``r`` (read), ``w`` (write), ``m`` (make node).
    """

    JSON_TYPE: ClassVar = "device"

    src_path: str
    dst_path: str
    permissions: str = "rwm"

    def __post_init__(self) -> None:
        self.check("DeviceMount")

    def check(self, path: str) -> None:
        """Refuse wrong values; ``path`` starts the message."""
        check_str(self.src_path, f"{path}.src_path", empty=False)
        check_str(self.dst_path, f"{path}.dst_path", empty=False)
        check_str(self.permissions, f"{path}.permissions", empty=False)
        if set(self.permissions) - set("rwm"):
            refuse(f"{path}.permissions", self.permissions, "must be made of the letters r, w, m")


def _check_flag(value: object, path: str) -> None:
    if not isinstance(value, bool):
        refuse(path, value, "must be True or False")


Mount = BindMount | VolumeMount | DeviceMount
