"""Offer the named resources of AWS as functions, such as ``aws_p4d_24xlarge()``.

The names are those of TorchX.
"""

from __future__ import annotations

from collections.abc import Mapping

from transload.specs.sizes import ResourceFactory, builtin_named_resources

NAMED_RESOURCES: Mapping[str, ResourceFactory] = {
    name: factory for name, factory in builtin_named_resources().items() if name.startswith("aws_")
}
"""Name → factory, for example ``aws_p4d.24xlarge``."""

_FUNCTIONS = {name.replace(".", "_"): factory for name, factory in NAMED_RESOURCES.items()}


def __getattr__(name: str) -> ResourceFactory:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FUNCTIONS[name]
