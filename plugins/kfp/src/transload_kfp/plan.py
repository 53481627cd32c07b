"""Plan a job as one component.

The plan says which of the job's texts wait for run time, what goes in, and what comes out. This is
pure.
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
from transload_kfp.fields import field_at, in_command, option_path, place_and_type
from transload_kfp.names import port_names
from transload_kfp.ports import (
    KFP_TYPES,
    InputPort,
    OutputPort,
    Results,
    default_text,
    has_mark,
    input_type,
    mark,
    output_ports,
    pieces,
)
from transload_kfp.refusals import refuse_inexpressible, refuse_submit_fields

TRACKER: Final = "tracker_base"
FILES: Final = "transload_output_dir"
RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
IDENTITY: Final = ("transload_job_id", "transload_job_name", "transload_task_name")
"""Inputs that take what Kubeflow Pipelines knows of the task.

A backend resolves it only as a whole input.
"""

Inputs = Mapping[str, Any] | Sequence[str]
"""Input → path of a text of the job, type, or both."""


@dataclass
class Plan:
    """A component to be.

    Args:
        title: the job's own name.
        app: the app definition, in whose texts marks stand for inputs.
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
        """Whether ``python3`` in the image starts the program.

        It does for results, files, or variables of run time.
        """
        return self.declared or bool(self.late_env) or FILES in self.marks

    @property
    def marks(self) -> set[str]:
        """Names of all run-time values in the texts."""
        texts = [self.role.entrypoint, *self.role.args, *self.role.env.values()]
        return {piece[0] for text in texts for piece in pieces(text) if isinstance(piece, tuple)}

    @property
    def has_results(self) -> bool:
        """Whether there is an artifact that is the job's tracker base."""
        return self.wrapped or TRACKER in self.marks

    @property
    def identity(self) -> list[str]:
        """Inputs that take what Kubeflow Pipelines knows of the task, where the job uses its id."""
        return [name for name in IDENTITY if name in self.marks]


def make_plan(
    source: Any,
    *,
    name: str | None = None,
    component_args: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    results: Results | None = None,
) -> Plan:
    """Return the plan of a component.

    The arguments are those of `transload_kfp.component_from_app`.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
    """
    outputs = output_ports(results)
    launch = with_arguments(Launch.of(found_here(source)), component_args)
    refuse_submit_fields(launch)
    app = with_macros(launch.build({TRACKER: mark(TRACKER)}))
    refuse_inexpressible(app)
    description = ""
    parameters: dict[str, Parameter] = {}
    helps: dict[str, str] = {}
    if launch.component is not None:
        found = as_component(launch.component)
        description = found.description.strip()
        parameters = {parameter.name: parameter for parameter in found.parameters}
        helps = found.helps
    given = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs or ())
    wanted = {each: _wanted(each, value, parameters.get(each)) for each, value in given.items()}
    names = port_names(wanted)
    ports = []
    for each, (path, kind) in wanted.items():
        port = _input(app, each, names[each], path, kind)
        if each in parameters:
            port = replace(port, help=helps.get(each, ""))
        ports.append(port)
    return Plan(
        title=name or app.name,
        app=app,
        inputs=ports,
        outputs=outputs,
        declared=results is not None,
        description=description,
    )


def found_here(source: Any, folder: str | None = None) -> Any:
    """Return a component's name. A relative path in it is looked for beside the pipeline's file.

    Args:
        source: a component, or what is none.
        folder: in place of that of the pipeline's file.
    """
    if not isinstance(source, str) or not source.partition(":")[0].endswith(".py"):
        return source
    path = os.path.join(folder or caller_folder("transload_kfp") or "", source)
    file = path.rpartition(".py")[0] + ".py"
    return path if os.path.exists(file) else source


def with_arguments(launch: Launch, args: Mapping[str, Any] | None) -> Launch:
    """Return a launch with more arguments of its component, which are fixed now.

    Raises:
        SpecError: if it has no component, or its own arguments are no mapping.
    """
    if not args:
        return launch
    if not isinstance(launch.args, Mapping):
        raise SpecError(f"args={launch.args!r}: must be a mapping, name → value")
    return replace(launch, args={**launch.args, **args})


def _wanted(name: str, given: Any, parameter: Parameter | None) -> tuple[str | None, Any]:
    """Return where an input's text stands, and its type.

    Args:
        name: the input.
        given: a path, a type, a pair of both, or None.
        parameter: the component's parameter of that name.

    Returns:
        A path, or None for the program's option of that name, and the type.
    """
    path, kind = place_and_type(given)
    if kind is None:
        kind = str
        if path is None and parameter is not None and parameter.annotation in KFP_TYPES:
            kind = parameter.annotation
    if input_type(kind) is None or not (path is None or in_command(path)):
        raise SpecError(
            f"inputs[{name!r}]={given!r}: must be 'args[2]', 'args[--lr]' or 'env[NAME]', a type "
            "(str, int, float, bool, list, dict, an artifact of kfp.dsl), or a pair of both; "
            "launcher_from_app takes more"
        )
    return path, kind


def _input(app: AppDef, name: str, port: str, path: str | None, kind: Any) -> InputPort:
    """Put a mark in the place of a text of the job, and return the input for that place."""
    where = f"inputs[{name!r}]"
    try:
        before = str(field_at(app, path or option_path(app, name), mark(name)))
    except SpecError as exc:
        text = f"{where}: {exc}"
        if not path:
            text += (
                "; where a value decides more than a text, use launcher_from_app, which builds "
                "the job when it runs"
            )
        raise SpecError(text) from exc
    if has_mark(before):
        raise SpecError(f"{where}={path!r}: two inputs for one text, or a macro in it")
    called = input_type(kind) or ""
    if kind not in KFP_TYPES:
        return InputPort(name, port, called)
    try:
        value = _read(before, kind)
    except ValueError as exc:
        raise SpecError(f"{where}: its text is {before!r}, which is no {kind.__name__}") from exc
    return InputPort(name, port, called, default=default_text(value, where), optional=True)


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
    """Return a copy of an app definition with its macros replaced.

    Marks stand for the job's id, which only the run knows.
    """
    values = macros.Values("", "-".join(map(mark, IDENTITY)), "0", RANK0_ENV, mark(FILES))
    replaced = copy.copy(app)
    replaced.roles = []
    for role in app.roles:
        texts = [*role.args, *role.env.values()]
        uses_rank0 = any(macros.rank0_env in text for text in texts)
        role = values.apply(role)
        if uses_rank0:
            role.env.setdefault(RANK0_ENV, "localhost")
        replaced.roles.append(role)
    return replaced
