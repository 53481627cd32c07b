"""Name the instance types of AWS as resources, such as ``aws_p4d.24xlarge``, as TorchX does.

Each is a function, too, such as ``aws_p4d_24xlarge()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from transload.specs import Resource

# what is left of a GiB for the job after the machine's own share
_AWS_USABLE: Final = int(1024 * 0.96)
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_EFA: Final = "vpc.amazonaws.com/efa"
_NEURON: Final = "aws.amazon.com/neurondevice"

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


def _aws(name: str) -> Callable[[], Resource]:
    cpu, gpu, memory, efa, neuron = _AWS[name]
    devices = {key: count for key, count in ((_EFA, efa), (_NEURON, neuron)) if count}
    return lambda: Resource(
        cpu=cpu,
        gpu=gpu,
        memMB=memory * _AWS_USABLE,
        capabilities={_INSTANCE_TYPE: name},
        devices=dict(devices),
    )


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {f"aws_{name}": _aws(name) for name in _AWS}
"""Name → factory, for example ``aws_p4d.24xlarge``."""

_FUNCTIONS = {name.replace(".", "_"): factory for name, factory in NAMED_RESOURCES.items()}


def __getattr__(name: str) -> Callable[[], Resource]:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]
