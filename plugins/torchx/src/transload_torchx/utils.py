"""TorchX's components ``utils.copy`` and ``utils.touch``."""

from __future__ import annotations

import transload
from transload import specs

__all__ = ["copy", "touch"]

_SMALL = specs.Resource(cpu=1, gpu=0, memMB=1024)


def copy(src: str, dst: str, image: str = transload.IMAGE) -> specs.AppDef:
    """Copy one file between two places that fsspec supports. Folders are not copied.

    Args:
        src: source, a path or a URL
        dst: destination, a path or a URL
        image: image to run in, which must contain transload-torchx
    """
    args = ["-m", "transload_torchx.copy_main", "--src", src, "--dst", dst]
    role = specs.Role(
        "transload-utils-copy", image, entrypoint="python", args=args, resource=_SMALL
    )
    return specs.AppDef(role.name, [role])


def touch(file: str, image: str = transload.IMAGE) -> specs.AppDef:
    """Create an empty file, or set the time of a file to now (runs ``touch``).

    Args:
        file: the file
        image: image to run in
    """
    role = specs.Role("touch", image, entrypoint="touch", args=[file], resource=_SMALL)
    return specs.AppDef(role.name, [role])
