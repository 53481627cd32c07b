"""Describe the arguments of a job task.

They are those of its component, all left open, and the adapter's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from prefect import unmapped
from prefect.futures import PrefectFuture
from prefect.utilities.annotations import allow_failure, opaque, quote
from prefect.utilities.collections import isiterable

from transload.errors import SpecError
from transload_prefect.units import Caller

if TYPE_CHECKING:
    from transload.pipelines import Launch

CALL: Final = "transload_call"
LAUNCH: Final = "launch"
_LONGEST_NAME: Final = 200  # characters of a job's name


@dataclass(frozen=True)
class LeftOpen:
    """Stands for an argument that the caller left open.

    Its value is not known before the job is built.
    """

    default: str = ""  # the component's, as text

    def __str__(self) -> str:
        return self.default

    def __format__(self, spec: str) -> str:
        return self.default


@dataclass(frozen=True)
class Call:
    """A call of a task: the arguments that it gives itself, and what makes it.

    Prefect's parameters of a call also hold the arguments that the caller leaves open, with the
    component's values. So names of task runs, cache keys and hooks see these.

    Args:
        given: names of the arguments.
        caller: the code of the flow run, or None outside of one.
        unit: which job of the flow run it is, where the task has a key.
    """

    given: tuple[str, ...] = ()
    caller: Caller | None = None
    unit: str | None = None

    @staticmethod
    def of(given: Iterable[str], key: str | None) -> Call:
        """Return the call that the code around makes of a task, which may have a key."""
        caller = Caller.here()
        unit = None
        if caller is not None and key is not None:
            unit = caller.keyed(key)
        return Call(tuple(given), caller, unit)


def description_of(launch: Launch) -> str:
    """Return what a task that runs this says of itself."""
    if launch.component is None:
        return f"Runs the job {launch.name}."
    return launch.resolve_component().description


def signature_of(launch: Launch) -> inspect.Signature:
    """Return the component's signature, all of it left open, with the adapter's own arguments."""
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    if launch.component is not None:
        for each in launch.resolve_component().parameters:
            default = LeftOpen()
            if not each.required and each.kind != "varargs":
                default = LeftOpen(str(each.default))
            made = inspect.Parameter(
                each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default
            )
            # what a component takes as *args is one argument here, a list: `positional_as_list`
            if each.kind in ("keyword", "varargs") or last:
                last.append(made.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            else:
                parameters.append(made)
    taken = {each.name for each in parameters + last}
    last += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in (LAUNCH, CALL)
        if name not in taken
    ]
    return inspect.Signature(parameters + last)


def positional_as_list(
    launch: Launch, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional arguments of a call, and by its name what is for ``*args``.

    The first part is without what is for the component's ``*args``.

    Raises:
        SpecError: if these are given by name as well.
    """
    if launch.component is None:
        return args, {}
    rest = launch.resolve_component().varargs
    if rest is None:
        return args, {}
    ahead = sum(each.kind == "positional" for each in launch.resolve_component().parameters)
    if not args[ahead:]:
        return args, {}
    if rest.name in kwargs:
        raise SpecError(f"{rest.name}: given by position, and by name: give it once")
    return args[:ahead], {rest.name: args[ahead:]}


def columns_as_lists(values: tuple[Any, ...]) -> Any:
    """Return the ``*args`` of each job of a map, from what ``map`` was given for them.

    Each of these is an iterable, or one value.

    Raises:
        SpecError: if iterables have different lengths.
    """
    columns = [_column(value) for value in values]
    lengths = sorted({len(column) for column in columns if isinstance(column, list)})
    if len(lengths) > 1:
        raise SpecError(f"map: arguments of different lengths: {', '.join(map(str, lengths))}")
    if not lengths:
        return unmapped(columns)
    return [_row(columns, row) for row in range(lengths[0])]


def _row(columns: list[Any], number: int) -> list[Any]:
    """Return the values of one call, one from each list."""
    return [column[number] if isinstance(column, list) else column for column in columns]


def _column(value: Any) -> Any:
    """Return a list of what is to be mapped, else the value."""
    if isinstance(value, unmapped):
        return value.value
    if isinstance(value, (allow_failure, opaque, quote)):
        value = value.unwrap()
    if isinstance(value, PrefectFuture):
        value = value.result()
    return list(value) if isiterable(value) else value


def values_left_open(
    launch: Launch,
    call: inspect.BoundArguments,
    context_args: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the component will get for arguments that a call leaves open.

    What is not known by now is left out.

    Args:
        launch: of the task.
        call: what the call gives.
        context_args: what the adapter knows of the component's arguments.
        defaults: text of each argument of a component, from the settings.
    """
    given = None
    if _is_ours(call.signature):
        given = call.arguments.get(LAUNCH)
    if isinstance(given, unmapped):
        given = given.value
    if isinstance(given, Mapping):
        launch = replace(launch, args=given.get("args", launch.args))
    elif given is not None:  # it comes from upstream
        return {}
    values = launch.left_open(context_args, defaults)
    return {name: value for name, value in values.items() if name not in call.arguments}


def _is_ours(signature: inspect.Signature) -> bool:
    """Tell whether ``launch`` is the adapter's argument, and not one of the component."""
    return signature.parameters[LAUNCH].default is None


def given_in(call: inspect.BoundArguments) -> dict[str, Any]:
    """Return the arguments that a call itself gives, by name, ``launch`` among them."""
    values = {
        key: value for key, value in call.arguments.items() if not isinstance(value, LeftOpen)
    }
    made = values.pop(CALL, None)
    if not isinstance(made, Call):
        return values
    return {key: value for key, value in values.items() if key in made.given}


def asked_for(launch: Launch, call: inspect.BoundArguments) -> dict[str, Any]:
    """Return what a call asks for, which tells it from other calls of its task.

    That is what the program is to do, without how it is run: a job that is given more memory is the
    same one.

    Args:
        launch: as `launch_of` returns it.
        call: what the call gives.
    """
    what: Any = launch.args
    if launch.command is not None:
        what = list(launch.command)
    elif launch.component is None:
        roles = launch.build().roles
        what = [[role.name, role.entrypoint, list(role.args), role.num_replicas] for role in roles]
    return {"what": what, LAUNCH: given_in(call).get(LAUNCH)}


def named(launch: Launch, name: str | None) -> Launch:
    """Return the launch of a job that has the name which somebody gave it in Prefect, if any.

    What a job's name may not hold is replaced. A name that the launch sets itself goes before it.
    """
    if name is None or launch.overrides.get("name") is not None:
        return launch
    safe = re.sub(r"[/\\\x00-\x1f\x7f]", "-", name)[:_LONGEST_NAME].lstrip("-. ")
    return launch.with_overrides({"name": safe}) if safe else launch


def launch_of(launch: Launch, call: inspect.BoundArguments) -> Launch:
    """Return the launch with the arguments of a call.

    Raises:
        SpecError: if ``launch=`` holds something else than arguments of a Launch.
    """
    values = given_in(call)
    more = None
    if _is_ours(call.signature):
        more = values.pop(LAUNCH, None)
    if more is not None:
        if not isinstance(more, Mapping):
            raise SpecError(
                f"launch={more!r}: must hold arguments of transload.pipelines.Launch, by name"
            )
        changes = dict(more)
        handle = getattr(more.get("parent_run_id"), "handle", None)  # an upstream's results
        if handle:
            changes["parent_run_id"] = handle
        try:
            launch = replace(launch, **changes)
        except (TypeError, ValueError) as exc:
            raise SpecError(
                f"launch={more!r}: must hold arguments of transload.pipelines.Launch: {exc}"
            ) from exc
    if values and isinstance(launch.args, Mapping):
        given = {
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        }
        launch = replace(launch, args={**launch.args, **given})
    elif values:
        raise SpecError(
            f"{launch.name}: args={launch.args!r}: a list leaves no arguments to the call"
        )
    return launch
