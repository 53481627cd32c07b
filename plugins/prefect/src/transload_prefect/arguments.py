"""The arguments of an app task: those of its component, all left open, and the adapter's own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transload.pipelines import Launch

UNIT: Final = "transload_unit"
LAUNCH: Final = "launch"


@dataclass(frozen=True)
class LeftOpen:
    """Stands for an argument that the caller left to the component, its settings, or the adapter.

    Args:
        default: the component's default as text; ``""`` if it has none.
    """

    default: str = ""

    def __str__(self) -> str:
        return self.default


def description_of(launch: Launch) -> str:
    """Return what a task that runs this says of itself."""
    if launch.component is None:
        return f"Runs the app {launch.name}."
    from transload.components import as_component

    return as_component(launch.component).description


def signature_of(launch: Launch) -> inspect.Signature:
    """Return the component's signature, with everything left open, and the adapter's own arguments."""
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    if launch.component is not None:
        from transload.components import as_component

        for each in as_component(launch.component).parameters:
            if each.kind == "varargs":
                last.append(inspect.Parameter(each.name, inspect.Parameter.VAR_POSITIONAL))
                continue
            only = each.kind == "keyword" or bool(last)
            kind = inspect.Parameter.KEYWORD_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
            default = LeftOpen("" if each.required else str(each.default))
            parameter = inspect.Parameter(each.name, kind, default=default)
            (last if only else parameters).append(parameter)
    taken = {each.name for each in parameters + last}
    last += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (LAUNCH, UNIT)
        if name not in taken
    ]
    return inspect.Signature(parameters + last)
