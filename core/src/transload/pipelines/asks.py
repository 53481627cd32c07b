"""Distinguish the jobs that one unit of work asks for in turn.

An *ask* is what one of them is to run, and where. Two different asks never share a job.

The identity that an orchestrator gives names the unit of work (a task of a run). Most of them start
one job. But a user's code may start several in turn under one identity. The first one has the
identity to itself. Each further ask for something else gets a separate name, made from the ask
itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import TransloadError
from transload.specs import AppDef, Workspace, looks_secret
from transload.specs.serialization import to_value

if TYPE_CHECKING:
    from transload.runner import Launch, Runner

__all__ = ["FIRST_UNIT", "ask_of", "unit_of"]

FIRST_UNIT: Final = ""
"""The unit of the first ask."""

_LENGTH: Final = 20
"""Hexadecimal digits of an ask, which hold 80 bits."""


def ask_of(launch: Launch, runner: Runner, context_args: Mapping[str, Any] | None = None) -> str:
    """Return a digest of what is asked for, and where it is to run.

    It is equal on every machine for equal asks. A component that is given by name is not called,
    since its name and arguments determine the ask.

    Args:
        launch: what to run.
        runner: knows the settings.
        context_args: what the orchestrator knows of the component's arguments.
    """
    asked = {
        "what": _what(launch, runner, context_args or {}),
        "args": launch.args,
        "scheduler": launch.scheduler or runner.settings.scheduler,
        "cfg": {name: value for name, value in launch.cfg.items() if not looks_secret(name)},
        "workspace": launch.workspace,
        "parent_run_id": launch.parent_run_id,
        "tracker_base": launch.tracker_base,
    }
    if launch.environment is not None:  # what was asked for before this was known stays as it is
        asked["environment"] = str(launch.environment)
    if launch.overrides:
        asked["overrides"] = to_value(launch.overrides)
    text = json.dumps(_plain(asked), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def unit_of(ask: str, kept: Sequence[str], *, asked_before: bool) -> str:
    """Return which unit an ask is, `FIRST_UNIT` or one named by the ask itself.

    If the earlier tries asked for one job only, a later try means that job even if its ask differs.
    Its definition may have been edited, or may hold a part that is new on each try.

    Args:
        ask: from `ask_of`.
        kept: all earlier asks of this unit of work, in its earlier tries too, oldest first.
        asked_before: this try has asked before.
    """
    if ask in kept:
        return FIRST_UNIT if ask == kept[0] else ask
    edited = len(kept) == 1 and not asked_before
    return FIRST_UNIT if not kept or edited else ask


def _what(launch: Launch, runner: Runner, context_args: Mapping[str, Any]) -> Any:
    """Return values that distinguish one definition, component or command from another."""
    if launch.command is not None:
        return ["command", list(launch.command)]
    if launch.component is None:
        return ["app", launch.app]
    component = launch.component
    if isinstance(component, str):
        return ["component", component]
    try:
        found = launch.resolve_component()
        # this base depends on the id that is to be made from these values
        if not launch.declares("tracker_base"):
            return [
                "app",
                launch.build(context_args, runner.settings.component_defaults(found)).digest(),
            ]
        return ["component", _of_function(found.fn)]
    except TransloadError:  # the submit says what is wrong with it
        return ["component", _of_function(component)]


def _plain(value: Any) -> Any:
    """Return JSON values for any value, which are equal for equal values in each process."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, AppDef):
        return value.digest()
    if isinstance(value, Workspace):
        return _plain(value.projects)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(each) for each in value]
    if callable(value):
        return _of_function(value)
    return str(value)


def _of_function(value: object) -> str:
    """Return a text for a function, which two lambdas or closures of one module do not share."""
    name = getattr(value, "__qualname__", type(value).__name__)
    text = f"{getattr(value, '__module__', '')}:{name}"
    code = getattr(value, "__code__", None)
    if code is None or "<" not in name:  # its name alone says which one it is
        return text
    cells = getattr(value, "__closure__", None) or ()
    parts = [
        code.co_code.hex(),
        code.co_names,
        [each for each in code.co_consts if not hasattr(each, "co_code")],
        getattr(value, "__defaults__", None),
        [_content(cell) for cell in cells],
    ]
    digest = hashlib.sha256(json.dumps(_plain(parts)).encode("utf-8", "surrogatepass"))
    return f"{text}:{digest.hexdigest()[:_LENGTH]}"


def _content(cell: Any) -> Any:
    """Return what a closure holds by a name, as far as it is the same in each process."""
    try:
        value = cell.cell_contents
    except ValueError:  # it is not set yet
        return None
    if isinstance(value, (AppDef, bool, int, float, str, list, tuple, dict)):
        return value
    return getattr(value, "__qualname__", type(value).__name__)
