"""Have the uv of an image start a role's program with the packages that it needs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError
from transload.schedulers import environments
from transload.specs import VolumeMount

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages
    from transload.specs import Role

UV_IMAGE: Final = "ghcr.io/astral-sh/uv:python3.11-bookworm-slim"
"""Image of a role that needs packages and names none."""
_FOLDER: Final = VolumeMount("emptydir:packages", "/transload/packages")
"""The pod's own folder, which any user may write."""
_LINE: Final = "COPY --from=ghcr.io/astral-sh/uv:latest /uv /usr/local/bin/"
"""The line of a Dockerfile that puts uv into an image."""
_LONGEST: Final = 300_000
"""Characters that may travel in a pod, since an object of a cluster has at most 1.5 MB."""
_PIECE: Final = 60_000  # Linux takes at most 128 KiB for one argument
_WRITE: Final = f"""\
file=$1 count=$2
shift 2
: >"$file"
while [ "$count" -gt 0 ]; do
    printf %s "$1" >>"$file"
    shift
    count=$((count - 1))
done
command -v "$1" >/dev/null || {{
    echo "transload: the image has no uv, which its Dockerfile gets by: {_LINE}" >&2
    exit 127
}}
exec "$@"
"""
"""Writes its arguments into a file, so many pieces as it is told, and becomes the rest of them."""


def with_packages(role: Role, packages: Packages) -> Role:
    """Return a role that writes its file of requirements, and is then started by its image's uv.

    Args:
        role: the role, which is not changed.
        packages: what it needs.

    Raises:
        SpecError: if the description of the packages is too long.
    """
    text = packages.requirements
    if len(text) > _LONGEST:
        raise SpecError(
            f"environment {packages.environment}: takes {len(text):,} characters, and at most "
            f"{_LONGEST:,} travel in a pod; have the packages in the image, and switch this off by "
            "--environment none"
        )
    file = f"{_FOLDER.dst_path}/{packages.file_name}"
    changed = environments.run_by_uv(role, packages, uv="uv", file=file)
    changed.env.setdefault("UV_CACHE_DIR", f"{_FOLDER.dst_path}/uv-cache")
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    words = [file, str(len(pieces)), *pieces, changed.entrypoint, *changed.args]
    mounts = [*role.mounts, _FOLDER]
    return replace(changed, entrypoint="sh", args=["-c", _WRITE, "sh", *words], mounts=mounts)


def name_the_line(role: Role) -> None:
    """Log what an image needs that was named for a role."""
    if role.image:
        logging.getLogger("transload.kubernetes").info(
            "role %s: image %s must have uv, which its Dockerfile gets by: %s",
            role.name,
            role.image,
            _LINE,
        )
