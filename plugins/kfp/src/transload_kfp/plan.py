"""An app as one component: which of its texts wait for run time, what goes in, what comes out. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from transload.components import Component, Parameter, as_component
from transload.errors import SpecError
from transload.pipelines import Launch
from transload.specs import AppDef, Role, macros
from transload_kfp.arguments import check_arguments, refuse_missing, settled_of
from transload_kfp.fields import get_field, in_command, set_field
from transload_kfp.marks import has_mark, mark, pieces
from transload_kfp.names import port_names
from transload_kfp.ports import (
    ARTIFACT,
    FINAL_STATUS,
    KFP_TYPES,
    InputPort,
    OutputPort,
    can_be_default,
    default_text,
    output_ports,
)
from transload_kfp.refusals import refuse_inexpressible
from transload_kfp.samples import TYPES, app_with_marks, ways_out

TRACKER: Final = "tracker_base"
RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
IDENTITY: Final = ("transload_job_id", "transload_job_name", "transload_task_name")
"""Inputs that take what Kubeflow Pipelines knows of the task; a backend resolves it only as a whole input."""


@dataclass
class Plan:
    """A component to be.

    Args:
        title: the app's own name.
        app: the app; marks in its texts stand for inputs.
        inputs: what goes in, run-time identity not counted.
        outputs: output parameters.
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
        """Whether ``python3`` in the image starts the program: for results, or for variables of run time."""
        return self.declared or bool(self.late_env)

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
    args: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | Mapping[str, Any] | None = None,
    artifacts: Sequence[str] = (),
    results: Mapping[str, type] | Sequence[str] | None = None,
    final_status: str | None = None,
) -> Plan:
    """Return the plan of a component.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        name: name of the component to be.
        args: arguments of the component function that are settled now.
        inputs: see `transload_kfp.component_from_app`.
        artifacts: inputs that take an artifact and give its path.
        results: see `transload_kfp.component_from_app`.
        final_status: likewise.

    Raises:
        SpecError: for a wrong source, argument or input.
    """
    outputs = output_ports(results, ("results", "metrics"))
    launch = Launch.of(source)
    if launch.component is not None:
        settled = settled_of(launch.args, args)
        plan = _of_component(as_component(launch.component), settled, inputs or (), tuple(artifacts), final_status)
    else:
        if args:
            raise SpecError(f"args={dict(args)!r}: only a component function takes arguments; for an AppDef see inputs")
        plan = _of_app(launch.build(), inputs, tuple(artifacts), final_status)
    refuse_inexpressible(plan.app)
    plan.outputs, plan.declared = outputs, results is not None
    plan.title = name or plan.title
    return plan


# -- a component function


def _of_component(
    found: Component,
    settled: dict[str, Any],
    inputs: Sequence[str] | Mapping[str, Any],
    artifacts: tuple[str, ...],
    final_status: str | None,
) -> Plan:
    system = (final_status,) if final_status else ()
    check_arguments(found, settled, inputs, artifacts=artifacts, final_status=system)
    known = {item.name: item for item in found.parameters}
    types = dict(inputs) if isinstance(inputs, Mapping) else {each: known[each].annotation for each in inputs}
    for each, kind in types.items():
        if kind not in TYPES or known[each].kind == "varargs":
            shown = repr(kind) if isinstance(inputs, Mapping) else known[each].type_name
            raise SpecError(
                f"inputs: argument {each!r} of {found.name} is {shown}: only str, int and float can be inputs of a "
                f"component; {ways_out(each)}"
            )
    paths = dict.fromkeys((*artifacts, *system), str)
    for each in paths:
        if known[each].annotation is not str:
            raise SpecError(
                f"argument {each!r} of {found.name} is {known[each].type_name}: must be a str, for a path or a status "
                "as JSON"
            )
    if TRACKER in known and TRACKER not in settled:
        paths[TRACKER] = str
    late = {**types, **paths}
    refuse_missing(found, {*settled, *late})
    app = with_macros(app_with_marks(found, settled, late, paths))
    ports = port_names(each for each in late if each != TRACKER)
    made = [
        InputPort(each, port, _special(each, artifacts, final_status) or "", help=known[each].help)
        if each in paths
        else _input(known[each], port, late[each])
        for each, port in ports.items()
    ]
    return Plan(app.name, app, made, description=found.description.strip())


def _special(name: str, artifacts: tuple[str, ...], final_status: str | None) -> str | None:
    """Return the type of an input that is no ordinary parameter; None for one that is."""
    return ARTIFACT if name in artifacts else FINAL_STATUS if name == final_status else None


def _input(item: Parameter, port: str, kind: type) -> InputPort:
    given = item.required or not can_be_default(item.default)
    value = float(item.default) if kind is float and not given else item.default
    default = None if given else default_text(value, f"default of {item.name}")
    return InputPort(item.name, port, KFP_TYPES[kind], default, default is not None, item.help)


def with_macros(app: AppDef) -> AppDef:
    """Return a copy of the app with its macros replaced: the app's id by marks, for only the run knows it."""
    values = macros.Values("", "-".join(map(mark, IDENTITY)), "0", RANK0_ENV)
    app = copy.copy(app)
    uses_rank0 = [any(macros.rank0_env in text for text in (*role.args, *role.env.values())) for role in app.roles]
    app.roles = [values.apply(role) for role in app.roles]
    for role, uses in zip(app.roles, uses_rank0, strict=True):
        if uses:
            role.env.setdefault(RANK0_ENV, "localhost")
    return app


# -- a given app


def _of_app(
    app: AppDef,
    inputs: Sequence[str] | Mapping[str, Any] | None,
    artifacts: tuple[str, ...],
    final_status: str | None,
) -> Plan:
    if inputs is not None and not isinstance(inputs, Mapping):
        raise SpecError("inputs: of an AppDef they are a mapping: name → 'args[2]', 'args[--lr]' or 'env[NAME]'")
    app = with_macros(app)
    refuse_inexpressible(app)
    chosen = dict(inputs or {})
    for each in (*artifacts, *((final_status,) if final_status else ())):
        if each not in chosen:
            raise SpecError(f"{each!r} is no input; inputs says which text it replaces")
    ports = port_names(chosen)
    made = []
    for each, given in chosen.items():
        path, kind = given if isinstance(given, tuple) else (given, str)
        if kind not in KFP_TYPES:
            raise SpecError(f"inputs[{each!r}]: type {kind!r}: must be str, int, float, bool, list or dict")
        before = _replace(app, each, path)
        if has_mark(before):
            raise SpecError(f"inputs[{each!r}]={path!r}: two inputs for one text, or a macro in it")
        special = _special(each, artifacts, final_status)
        if special is not None:
            made.append(InputPort(each, ports[each], special))
        else:
            made.append(InputPort(each, ports[each], KFP_TYPES[kind], _default(before, kind, each), True))
    return Plan(app.name, app, made)


def _default(text: str, kind: type, name: str) -> str:
    """Return the text that an input replaces as its default."""
    try:
        value: Any = text if kind is str else _read(text, kind)
    except ValueError as exc:
        raise SpecError(f"inputs[{name!r}]: {text!r} is no {kind.__name__}") from exc
    return default_text(value, f"inputs[{name!r}]")


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


def _replace(app: AppDef, name: str, path: Any) -> str:
    """Put a mark in the place of a text of the role; return what stood there."""
    if not in_command(path):
        raise SpecError(
            f"inputs[{name!r}]={path!r}: must be 'args[2]', 'args[--lr]' or 'env[NAME]'; launcher_from_app takes more"
        )
    try:
        before = str(get_field(app, path))
        set_field(app, path, mark(name))
    except SpecError as exc:
        raise SpecError(f"inputs[{name!r}]: {exc}") from exc
    return before
