"""Run programs in containers on the nodes.

A command before the program runs it in its role's image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transload.errors import UnsupportedFeature

BINDS_WRITABLE: Final = frozenset({"charliecloud"})
"""Kinds that cannot bind a folder for reading only."""

Bind = tuple[str, str, bool]
"""Path on the node, path in the container, whether it is for reading only."""


def binds_of(mounts: Sequence[Any], path: str, kind: str) -> list[Bind]:
    """Return the binds of a role's mounts.

    Args:
        mounts: all of them `BindMount`.
        path: the role's path, for messages, such as ``roles[0]``.
        kind: see the option ``container``.

    Raises:
        UnsupportedFeature: for a mount that this kind cannot make.
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
    """Return the command that goes before the program.

    It is empty if ``srun`` puts the step into the container.
    """
    flags = [f"--bind={_bind_text(bind)}" for bind in binds]
    if kind == "charliecloud":
        return ["ch-run", *flags, f"--cd={cwd}", image, "--"]
    if kind == "apptainer":
        flags.append(f"--pwd={cwd}")
        if gpus:
            flags.append("--nv")
        return ["apptainer", "exec", *flags, image]
    return []


def step_flags(kind: str, image: str, binds: Sequence[Bind], cwd: str) -> list[str]:
    """Return the options of ``srun`` that put the whole step into the container."""
    if kind != "pyxis":
        return []
    mounts = ",".join(map(_bind_text, binds))
    return [
        f"--container-image={image}",
        f"--container-mounts={mounts}",
        f"--container-workdir={cwd}",
    ]


def _bind_text(bind: Bind) -> str:
    source, target, only_read = bind
    if only_read:
        return f"{source}:{target}:ro"
    return f"{source}:{target}"
