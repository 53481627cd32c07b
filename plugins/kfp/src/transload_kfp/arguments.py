"""Arguments of a component function: which are settled when compiling, which become inputs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from transload.components import Component
from transload.errors import SpecError


def check_arguments(
    found: Component, settled: Collection[str], inputs: Iterable[str], **special: Iterable[str]
) -> None:
    """Refuse arguments that are not there, or are settled and open at once.

    Args:
        found: the component.
        settled: arguments that have their value.
        inputs: arguments that become inputs.
        special: inputs of other kinds, by the option that names them.

    Raises:
        SpecError: by name.
    """
    known = {item.name for item in found.parameters}
    asked = {"args": settled, "inputs": tuple(inputs), **{what: tuple(names) for what, names in special.items()}}
    for what, names in asked.items():
        for each in names:
            if each not in known:
                listed = ", ".join(item.name for item in found.parameters) or "none"
                raise SpecError(f"{what}: {found.name} has no argument {each!r}; it has {listed}")
    both = [each for what, names in asked.items() if what != "args" for each in names if each in settled]
    if both:
        raise SpecError(f"inputs: {', '.join(map(repr, both))}: settled with args, so that nothing is left to be given")


def refuse_missing(found: Component, given: Collection[str]) -> None:
    """Refuse a component function with a required argument that nobody gives.

    Args:
        found: the component.
        given: arguments that are settled, or become inputs.

    Raises:
        SpecError: by name.
    """
    missing = [item.name for item in found.parameters if item.required and item.name not in given]
    if missing:
        raise SpecError(f"{found.name}: missing: {', '.join(missing)}: neither an input nor settled with args")


def settled_of(launched: Any, args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settled arguments: those of a launch, and others that go before.

    Args:
        launched: arguments of the launch.
        args: the others.

    Raises:
        SpecError: if those of the launch are no mapping.
    """
    if not isinstance(launched, Mapping):
        raise SpecError(f"args={launched!r}: must be a mapping, name → value")
    return {**launched, **(args or {})}
