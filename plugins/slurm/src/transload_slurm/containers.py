"""Containers on the nodes: what stands before a program so that it runs in its role's image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transload.errors import UnsupportedFeature

KINDS: Final = ("none", "apptainer", "charliecloud", "pyxis")

BINDS_WRITABLE: Final = frozenset({"charliecloud"})
"""Those that bind for reading and writing only."""

Bind = tuple[str, str, bool]
"""Path on the node, path in the container, whether only to be read."""


def binds_of(mounts: Sequence[Any], path: str, kind: str) -> list[Bind]:
    """Return the binds of a role's mounts, all of them `BindMount`.

    Raises:
        UnsupportedFeature: for one that this kind cannot make.
    """
    found: list[Bind] = []
    for number, mount in enumerate(mounts):
        field = f"{path}.mounts[{number}]"
        for place in (mount.src_path, mount.dst_path):
            if not place.startswith("/") or ":" in place or "," in place:
                raise UnsupportedFeature(
                    f"{field}: {place!r}: must be an absolute path without ':' and ','", field
                )
        if mount.read_only and kind in BINDS_WRITABLE:
            raise UnsupportedFeature(
                f"{field}.read_only: {kind} binds for reading and writing only", field
            )
        found.append((mount.src_path, mount.dst_path, mount.read_only))
    return found


def command(kind: str, image: str, binds: Sequence[Bind], cwd: str, gpus: bool) -> list[str]:
    """Return the command that stands before the program; empty if the step is in the container."""
    if kind == "apptainer":
        flags = [
            f"--bind={source}:{target}{':ro' if only_read else ''}"
            for source, target, only_read in binds
        ]
        return ["apptainer", "exec", *flags, f"--pwd={cwd}", *(["--nv"] if gpus else []), image]
    if kind == "charliecloud":
        flags = [f"--bind={source}:{target}" for source, target, _ in binds]
        return ["ch-run", *flags, f"--cd={cwd}", image, "--"]
    return []


def step_flags(kind: str, image: str, binds: Sequence[Bind], cwd: str) -> list[str]:
    """Return the options of ``srun`` that put the whole step into the container."""
    if kind != "pyxis":
        return []
    mounts = [
        f"{source}:{target}{':ro' if only_read else ''}" for source, target, only_read in binds
    ]
    return [
        f"--container-image={image}",
        f"--container-mounts={','.join(mounts)}",
        f"--container-workdir={cwd}",
    ]
