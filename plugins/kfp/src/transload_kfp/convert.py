"""Convert a job to a component of Kubeflow Pipelines.

This is pure. Nothing runs, and KFP is imported only where it is used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from transload_kfp.names import component_name
from transload_kfp.plan import FILES, TRACKER, Inputs, Plan, make_plan
from transload_kfp.pod import give, metadata_of
from transload_kfp.ports import InputPort, Results, pieces
from transload_kfp.refusals import refuse_reinterpreted

if TYPE_CHECKING:
    from transload_kfp.component import AppComponent

_RESULTS = "{{$.outputs.artifacts['results'].path}}"
_FILES = "{{$.outputs.artifacts['files'].path}}"


def component_from_app(
    source: Any,
    *,
    name: str | None = None,
    component_args: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    results: Results | None = None,
    python: str = "python3",
) -> AppComponent:
    """Return a component that runs a job as its container.

    The job is built now. Inputs are texts of its command. A task gets the resources, retries,
    mounts, secrets and labels of the job. KFP's own calls on the task change them.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        name: name of the component, by default the job's.
        component_args: arguments of the component function.
        inputs: input → which text of the job it replaces (``"args[2]"``, ``"args[--lr]"``,
            ``"env[NAME]"``), its type (``str``, ``int``, ``float``, ``bool``, ``list``, ``dict``, a
            class of artifacts of ``kfp.dsl``, which gives the program a path, or
            ``PipelineTaskFinalStatus``), or a pair of both. A type, or a name alone, is the
            program's option of that name: ``{"lr": float}`` is ``args[--lr]``. What stands there is
            the default.
        results: results that become output parameters: name → ``str``, ``int`` or ``float``, or
            names alone (float). ``"final/accuracy"`` is the result ``accuracy`` of key ``final``.
            With a class of artifacts of ``kfp.dsl`` (``{"model.pt": Model}``) it is a file that the
            program writes below ``TRANSLOAD_OUTPUT_DIR``. With results, even none (``{}``), the
            program is started by a few lines of Python, and there is a Metrics artifact.
        python: the interpreter in the image that runs these lines, 3.7 or later.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
    """
    plan = make_plan(
        source, name=name, component_args=component_args, inputs=inputs, results=results
    )
    prepare = partial(give, app=plan.app, metadata=metadata_of(plan.app))
    from transload_kfp.component import AppComponent

    ports = {port.source: port.name for port in plan.inputs}
    return AppComponent(_component(plan, python), ports, plan.identity, prepare)


def _component(plan: Plan, python: str) -> dict[str, Any]:
    """Return the component as component YAML has it."""
    made: dict[str, Any] = {"name": component_name(plan.title)}
    if plan.description:
        made["description"] = plan.description
    ports = list(plan.inputs)
    for name in plan.identity:
        ports.append(InputPort(name, name, help="what Kubeflow Pipelines calls this task"))
    if ports:
        made["inputs"] = [port.to_dict() for port in ports]
    outputs = [port.to_dict() for port in plan.outputs]
    if plan.has_results:
        outputs.append(_output("results", "Artifact", "the job's tracker base, a folder"))
    if plan.wrapped:
        outputs.append(_output("metrics", "Metrics", "the numbers among the job's results"))
        outputs.append(_output("files", "Artifact", "the job's folder for files"))
    if outputs:
        made["outputs"] = outputs
    made["implementation"] = {"container": _container(plan, python)}
    return made


def _output(name: str, kind: str, description: str) -> dict[str, str]:
    return {"name": name, "type": kind, "description": description}


def _container(plan: Plan, python: str) -> dict[str, Any]:
    """Return the job's own command.

    If its results are collected, a few lines of Python run the command.
    """
    role = plan.role
    refuse_reinterpreted(role, wrapped=plan.wrapped)
    made: dict[str, Any] = {"image": role.image}
    if plan.wrapped:
        made["command"] = [python, "-c", inline_source(), _encoded(plan)]
        outputs = [port.placeholder for port in plan.outputs]
        made["args"] = ["{{$}}", _RESULTS, _FILES, *outputs, *_values(plan).values()]
    else:
        places = {**_values(plan), TRACKER: _RESULTS}
        made["command"] = [_text(role.entrypoint, places)]
        made["args"] = [_text(arg, places) for arg in role.args]
    env = {name: value for name, value in role.env.items() if name not in plan.late_env}
    if env:
        made["env"] = env
    return {key: value for key, value in made.items() if value != []}


def inline_source() -> str:
    """Return the program that runs another one and collects its results."""
    return resources.files("transload_kfp").joinpath("inline.py").read_text(encoding="utf-8")


def _values(plan: Plan) -> dict[str, str]:
    """Return name of a run-time value → what stands for it in a command, in a fixed order."""
    places = {port.source: port.placeholder for port in plan.inputs}
    for name in plan.identity:
        places[name] = InputPort(name, name).placeholder
    return places


def _text(text: str, places: Mapping[str, str]) -> str:
    """Return a text with placeholders at its marks."""
    parts = []
    for piece in pieces(text):
        if isinstance(piece, str):
            parts.append(piece)
        else:
            parts.append(places[piece[0]])
    return "".join(parts)


def _encoded(plan: Plan) -> str:
    """Return what the program that runs another one needs to know, as one word."""
    order = [*_values(plan), TRACKER, FILES]
    role = plan.role
    values = [port for port in plan.outputs if not port.is_artifact]
    files = [port for port in plan.outputs if port.is_artifact]
    spec = {
        "argv": [_numbered(text, order) for text in (role.entrypoint, *role.args)],
        "env": {name: _numbered(role.env[name], order) for name in plan.late_env},
        "outputs": [[port.source, port.key, port.type] for port in values],
        "files": [[port.source, port.name, port.type] for port in files],
    }
    return base64.b64encode(json.dumps(spec, sort_keys=True).encode()).decode()


def _numbered(text: str, order: Sequence[str]) -> list[str | int]:
    """Return a text's pieces. A mark becomes the place of its value in an order."""
    found: list[str | int] = []
    for piece in pieces(text):
        if isinstance(piece, str):
            found.append(piece)
        else:
            found.append(order.index(piece[0]))
    return found
