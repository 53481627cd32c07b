"""The arguments of an app task: those of its component, all left open, and the adapter's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError

if TYPE_CHECKING:
    from transload.pipelines import Launch

UNIT: Final = "transload_unit"
LAUNCH: Final = "launch"


@dataclass(frozen=True)
class LeftOpen:
    """Stands for an argument that the caller left to the component, its settings, or the adapter."""

    default: str = ""  # the component's, as text

    def __str__(self) -> str:
        return self.default


def description_of(launch: Launch) -> str:
    """Return what a task that runs this says of itself."""
    if launch.component is None:
        return f"Runs the app {launch.name}."
    return launch.found().description


def signature_of(launch: Launch) -> inspect.Signature:
    """Return the component's signature, with everything left open, and the adapter's own arguments."""
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    if launch.component is not None:
        for each in launch.found().parameters:
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


def launch_of(launch: Launch, call: inspect.BoundArguments) -> tuple[Launch, str | None]:
    """Return the launch with the arguments of a call, and which app of the flow run it is.

    Raises:
        SpecError: if ``launch=`` holds something else than arguments of a Launch.
    """
    values = {key: value for key, value in call.arguments.items() if not isinstance(value, LeftOpen)}
    unit = values.pop(UNIT, None)
    # the component may have an argument of that name itself
    more = values.pop(LAUNCH, None) if call.signature.parameters[LAUNCH].default is None else None
    if more is not None:
        if not isinstance(more, Mapping):
            raise SpecError(f"launch={more!r}: must hold arguments of transload.pipelines.Launch, by name")
        handle = getattr(more.get("parent_run_id"), "handle", None)  # an upstream's results
        try:
            launch = replace(launch, **{**more, "parent_run_id": handle} if handle else dict(more))
        except (TypeError, ValueError) as exc:
            raise SpecError(f"launch={more!r}: must hold arguments of transload.pipelines.Launch: {exc}") from exc
    if values and isinstance(launch.args, Mapping):
        given = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        launch = replace(launch, args={**launch.args, **given})
    elif values:
        raise SpecError(f"{launch.name}: args={launch.args!r}: a list leaves no arguments to the call")
    return launch, unit
