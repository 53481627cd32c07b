"""Define the built-in named resources, which are generic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transload.specs.resources import Resource, null_resource

ResourceFactory = Callable[[], Resource]

GiB: Final = 1024
"""MB in a GiB."""

# name: (cpu, gpu, memory in MB)
_GENERIC: Final[dict[str, tuple[int, int, int]]] = {
    "cpu.nano": (1, 0, 512),
    "cpu.micro": (1, 0, 1 * GiB),
    "cpu.small": (1, 0, 2 * GiB),
    "cpu.medium": (2, 0, 4 * GiB),
    "cpu.large": (2, 0, 8 * GiB),
    "cpu.xlarge": (8, 0, 32 * GiB),
    "gpu.small": (8, 1, 32 * GiB),
    "gpu.medium": (16, 2, 64 * GiB),
    "gpu.large": (32, 4, 128 * GiB),
    "gpu.xlarge": (64, 8, 256 * GiB),
}


def _generic(name: str) -> ResourceFactory:
    cpu, gpu, memory = _GENERIC[name]
    return lambda: Resource(cpu=cpu, gpu=gpu, memMB=memory)


def builtin_named_resources() -> dict[str, ResourceFactory]:
    """Return the built-in named resources.

    They are generic sizes (``cpu.small``), ``NULL`` and ``MISSING``.
    """
    return {
        **{name: _generic(name) for name in _GENERIC},
        "NULL": null_resource,
        "MISSING": null_resource,
    }
