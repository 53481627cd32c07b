"""Look up named resources, which are sizes that have a name, built in or from plugins."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from transload.errors import SpecError
from transload.specs.checks import nearest
from transload.specs.resources import Resource
from transload.specs.sizes import ResourceFactory, builtin_named_resources


class UnknownNamedResource(SpecError, KeyError):
    """No resource of that name is registered."""

    def __str__(self) -> str:
        return str(self.args[0])


class NamedResources:
    """The registered resources by name. Each look-up returns a new `Resource`.

    Plugins add names through the hook ``transload_named_resources``.
    """

    def __getitem__(self, key: str) -> Resource:
        factories = builtin_named_resources()
        if key not in factories:  # plugins are loaded only now
            factories = _all()
        if key not in factories:
            raise UnknownNamedResource(
                f"no named resource {key!r}: {nearest(str(key), list(factories))}"
            )
        return factories[key]()

    def __contains__(self, key: str) -> bool:
        return key in _all()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_all()))


def _all() -> dict[str, ResourceFactory]:
    # the plugins import this package, so they are found by name, and not before somebody asks for
    # them
    factories: dict[str, ResourceFactory] = (
        import_module("transload.plugins").get_plugins().named_resources()
    )
    return factories


named_resources = NamedResources()
"""The registered resources by name."""


def get_named_resources(res: str) -> Resource:
    """Return the resource registered as ``res``, as ``named_resources[res]`` does.

    Raises:
        UnknownNamedResource: if there is none (a SpecError and a KeyError).
    """
    return named_resources[res]


def resource(
    cpu: float | None = None,
    gpu: int | None = None,
    memMB: int | None = None,  # noqa: N803 - the field's established name
    h: str | None = None,
) -> Resource:
    """Return a resource from numbers, or from a name that takes precedence.

    Args:
        cpu: logical cores. None means 2, and 0 asks for none.
        gpu: number of GPUs. None means 0.
        memMB: main memory in MB. None means 1024.
        h: a registered name.

    Raises:
        UnknownNamedResource: if ``h`` is not registered.
    """
    if h:
        return get_named_resources(h)
    cores = 2 if cpu is None else cpu
    memory = 1024 if memMB is None else memMB
    return Resource(cpu=cores, gpu=gpu or 0, memMB=memory)
