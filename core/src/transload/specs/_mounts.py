"""Reading mounts from options such as ``type=bind,src=/a,dst=/b,readonly``."""

from __future__ import annotations

import os
from typing import Final

from transload.errors import SpecError
from transload.specs._check import nearest
from transload.specs._resource import BindMount, DeviceMount, Mount, MountType, VolumeMount

_NAMES: Final = {
    "type": "type",
    "destination": "dst",
    "dst": "dst",
    "target": "dst",
    "read_only": "readonly",
    "readonly": "readonly",
    "source": "src",
    "src": "src",
    "perm": "perm",
}


def parse_mounts(opts: list[str]) -> list[Mount]:
    """Return the mounts that a list of options spells.

    Each mount starts with its ``type``; several may follow one another:
    ``["type=bind", "src=/host", "dst=/job", "readonly", "type=volume", "src=data", "dst=/data"]``.

    Args:
        opts: ``type=bind|volume|device``, ``src=…``, ``dst=…``, ``readonly``, ``perm=rwm`` (devices only).

    Raises:
        SpecError: for an unknown option or type, or a missing one.
    """
    if isinstance(opts, str):
        raise SpecError(f"mounts={opts!r}: must be a list of options, not a str")
    groups: list[dict[str, str]] = []
    for opt in opts:
        key, _, value = opt.partition("=")
        name = _NAMES.get(key.strip())
        if name is None:
            raise SpecError(f"mounts: unknown option {key!r}: {nearest(key, list(_NAMES))}")
        if name == "type":
            groups.append({})
        elif not groups:
            raise SpecError(f"mounts: {opt!r}: the type must come first (type=bind, type=volume or type=device)")
        groups[-1][name] = value
    return [_mount(group) for group in groups]


def _mount(group: dict[str, str]) -> Mount:
    kind = group["type"]
    if kind not in {item.value for item in MountType}:
        raise SpecError(f"mounts: type={kind!r}: must be one of bind, device, volume")
    src, dst = group.get("src"), group.get("dst")
    if not src:
        raise SpecError(f"mounts: type={kind}: src is missing")
    if kind == MountType.DEVICE:
        return DeviceMount(src_path=src, dst_path=dst or src, permissions=group.get("perm", "rwm"))
    if not dst:
        raise SpecError(f"mounts: type={kind},src={src}: dst is missing")
    read_only = "readonly" in group
    if kind == MountType.VOLUME:
        return VolumeMount(src=src, dst_path=dst, read_only=read_only)
    return BindMount(src_path=os.path.expanduser(src), dst_path=dst, read_only=read_only)
