"""Define the built-in named resources, which are generic sizes and AWS instance types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transload.specs.resources import Resource, null_resource

ResourceFactory = Callable[[], Resource]

GiB: Final = 1024
"""MB in a GiB."""

# what is left of a GiB for the job after the machine's own share
_AWS_USABLE: Final = int(1024 * 0.96)
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_EFA: Final = "vpc.amazonaws.com/efa"
_NEURON: Final = "aws.amazon.com/neurondevice"

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

# instance type: (cpu, gpu, memory in GiB, EFA devices, Neuron devices)
_AWS: Final[dict[str, tuple[int, int, int, int, int]]] = {
    "t3.medium": (2, 0, 4, 0, 0),
    "m5.2xlarge": (8, 0, 32, 0, 0),
    "p3.2xlarge": (8, 1, 61, 0, 0),
    "p3.8xlarge": (32, 4, 244, 0, 0),
    "p3.16xlarge": (64, 8, 488, 0, 0),
    "p3dn.24xlarge": (96, 8, 768, 1, 0),
    "p4d.24xlarge": (96, 8, 1152, 4, 0),
    "p4de.24xlarge": (96, 8, 1152, 4, 0),
    "p5.48xlarge": (192, 8, 2048, 32, 0),
    "g4dn.xlarge": (4, 1, 16, 0, 0),
    "g4dn.2xlarge": (8, 1, 32, 0, 0),
    "g4dn.4xlarge": (16, 1, 64, 0, 0),
    "g4dn.8xlarge": (32, 1, 128, 1, 0),
    "g4dn.12xlarge": (48, 4, 192, 1, 0),
    "g4dn.16xlarge": (64, 1, 256, 1, 0),
    "g4dn.metal": (96, 8, 384, 1, 0),
    "g5.xlarge": (4, 1, 16, 0, 0),
    "g5.2xlarge": (8, 1, 32, 0, 0),
    "g5.4xlarge": (16, 1, 64, 0, 0),
    "g5.8xlarge": (32, 1, 128, 1, 0),
    "g5.12xlarge": (48, 4, 192, 1, 0),
    "g5.16xlarge": (64, 1, 256, 1, 0),
    "g5.24xlarge": (96, 4, 384, 1, 0),
    "g5.48xlarge": (192, 8, 768, 1, 0),
    "trn1.2xlarge": (8, 0, 32, 0, 1),
    "trn1.32xlarge": (128, 0, 512, 8, 16),
}


def _generic(name: str) -> ResourceFactory:
    cpu, gpu, memory = _GENERIC[name]
    return lambda: Resource(cpu=cpu, gpu=gpu, memMB=memory)


def _aws(name: str) -> ResourceFactory:
    cpu, gpu, memory, efa, neuron = _AWS[name]
    devices = {key: count for key, count in ((_EFA, efa), (_NEURON, neuron)) if count}
    return lambda: Resource(
        cpu=cpu,
        gpu=gpu,
        memMB=memory * _AWS_USABLE,
        capabilities={_INSTANCE_TYPE: name},
        devices=dict(devices),
    )


def builtin_named_resources() -> dict[str, ResourceFactory]:
    """Return the built-in named resources.

    They are generic sizes (``cpu.small``), AWS instance types (``aws_p4d.24xlarge``), ``NULL`` and
    ``MISSING``.
    """
    return {
        **{name: _generic(name) for name in _GENERIC},
        **{f"aws_{name}": _aws(name) for name in _AWS},
        "NULL": null_resource,
        "MISSING": null_resource,
    }
