"""An app as one component: which of its texts wait for run time, what goes in, what comes out.
Pure.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from transload.components import Parameter, as_component
from transload.errors import SpecError
from transload.pipelines import Launch, caller_folder
from transload.specs import AppDef, Role, macros
from transload_kfp.fields import field_at, in_command, option_path
from transload_kfp.names import port_names
from transload_kfp.ports import (
    KFP_TYPES,
    InputPort,
    OutputPort,
    default_text,
    has_mark,
    input_type,
    mark,
    output_ports,
    pieces,
)
from transload_kfp.refusals import refuse_inexpressible

TRACKER: Final = "tracker_base"
FILES: Final = "transload_output_dir"
RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
IDENTITY: Final = ("transload_job_id", "transload_job_name", "transload_task_name")
"""Inputs that take what Kubeflow Pipelines knows of the task; a backend resolves it only as a whole
input."""

Inputs = Mapping[str, Any] | Sequence[str]
"""Input → path of a text of the app, type, or both."""


@dataclass
class Plan:
    """A component to be.

    Args:
        title: the app's own name.
        app: the app; marks in its texts stand for inputs.
        inputs: what goes in, run-time identity not counted.
        outputs: declared results and files.
        declared: results are declared, so that the program is wrapped.
        description: what it is.
    """

    title: str
    app: AppDef
    inputs: list[InputPort] = field(default_factory=list)
    outputs: list[OutputPort] = field(default_factory=list)
    declared: bool = False
    description: str = ""

    @property
    def role(self) -> Role:
        """The only role."""
        return self.app.roles[0]

    @property
    def late_env(self) -> list[str]:
        """Variables whose value is known only at run time."""
        return [name for name, value in self.role.env.items() if has_mark(value)]

    @property
    def wrapped(self) -> bool:
        """Whether ``python3`` in the image starts the program: for results, files, or variables of
        run time.
        """
        return self.declared or bool(self.late_env) or FILES in self.marks

    @property
    def marks(self) -> set[str]:
        """Names of all run-time values in the texts."""
        texts = [self.role.entrypoint, *self.role.args, *self.role.env.values()]
        return {piece[0] for text in texts for piece in pieces(text) if isinstance(piece, tuple)}

    @property
    def has_results(self) -> bool:
        """Whether there is an artifact that is the app's tracker base."""
        return self.wrapped or TRACKER in self.marks

    @property
    def identity(self) -> list[str]:
        """Inputs that take what Kubeflow Pipelines knows of the task, where the app uses its id."""
        return [name for name in IDENTITY if name in self.marks]


def make_plan(
    source: Any,
    *,
    name: str | None = None,
    component_args: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    results: Mapping[str, Any] | Sequence[str] | None = None,
) -> Plan:
    """Return the plan of a component. The arguments are those of
    `transload_kfp.component_from_app`.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
    """
    outputs = output_ports(results)
    launch = settled(Launch.of(found_here(source)), component_args)
    app = with_macros(launch.build({TRACKER: mark(TRACKER)}))
    refuse_inexpressible(app)
    found = None if launch.component is None else as_component(launch.component)
    known = {} if found is None else {item.name: item for item in found.parameters}
    asked = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs or ())
    chosen = {each: _wanted(each, given, known.get(each)) for each, given in asked.items()}
    ports = port_names(chosen)
    made = [_input(app, each, ports[each], path, kind) for each, (path, kind) in chosen.items()]
    made = [
        replace(port, help=known[port.source].help) if port.source in known else port
        for port in made
    ]
    description = "" if found is None else found.description.strip()
    return Plan(name or app.name, app, made, outputs, results is not None, description)


def found_here(source: Any) -> Any:
    """Return a component's name with its file's path, where it is relative to the file that defines
    the pipeline.
    """
    if not isinstance(source, str) or not source.partition(":")[0].endswith(".py"):
        return source
    path = os.path.join(caller_folder("transload_kfp") or "", source)
    return path if os.path.exists(path.rpartition(".py")[0] + ".py") else source


def settled(launch: Launch, args: Mapping[str, Any] | None) -> Launch:
    """Return a launch with arguments of its component that are settled now, besides its own.

    Raises:
        SpecError: if it has no component, or its own arguments are no mapping.
    """
    if not args:
        return launch
    if not isinstance(launch.args, Mapping):
        raise SpecError(f"args={launch.args!r}: must be a mapping, name → value")
    return replace(launch, args={**launch.args, **args})


def _wanted(name: str, given: Any, item: Parameter | None) -> tuple[str | None, Any]:
    """Return where an input's text stands (None: in the program's option of that name), and its
    type.
    """
    path, kind = (
        given if isinstance(given, tuple) else (given, None) if in_command(given) else (None, given)
    )
    if kind is None:
        kind = (
            item.annotation
            if item is not None and path is None and item.annotation in KFP_TYPES
            else str
        )
    if input_type(kind) is None:
        raise SpecError(
            f"inputs[{name!r}]={given!r}: must be 'args[2]', 'args[--lr]' or 'env[NAME]', a type "
            "(str, int, float, "
            "bool, list, dict, an artifact of kfp.dsl), or a pair of both; launcher_from_app takes "
            "more"
        )
    return path, kind


def _input(app: AppDef, name: str, port: str, path: str | None, kind: Any) -> InputPort:
    """Put a mark in the place of a text of the app; return the input that will stand there."""
    try:
        before = str(field_at(app, path or option_path(app, name), mark(name)))
    except SpecError as exc:
        more = "; where a value decides more than a text, use launcher_from_app, which builds the app when it runs"
        raise SpecError(f"inputs[{name!r}]: {exc}{'' if path else more}") from exc
    if has_mark(before):
        raise SpecError(f"inputs[{name!r}]={path!r}: two inputs for one text, or a macro in it")
    called = input_type(kind) or ""
    if kind not in KFP_TYPES:
        return InputPort(name, port, called)
    try:
        value: Any = before if kind is str else _read(before, kind)
    except ValueError as exc:
        raise SpecError(
            f"inputs[{name!r}]: {before!r} stands there, which is no {kind.__name__}"
        ) from exc
    return InputPort(name, port, called, default_text(value, f"inputs[{name!r}]"), True)


def _read(text: str, kind: type) -> Any:
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]
    if kind in (list, dict):
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(text)
        return value
    return kind(text)


def with_macros(app: AppDef) -> AppDef:
    """Return a copy of the app with its macros replaced: the app's id by marks, for only the run
    knows it.
    """
    values = macros.Values("", "-".join(map(mark, IDENTITY)), "0", RANK0_ENV, mark(FILES))
    app = copy.copy(app)
    uses_rank0 = [
        any(macros.rank0_env in text for text in (*role.args, *role.env.values()))
        for role in app.roles
    ]
    app.roles = [values.apply(role) for role in app.roles]
    for role, uses in zip(app.roles, uses_rank0, strict=True):
        if uses:
            role.env.setdefault(RANK0_ENV, "localhost")
    return app
