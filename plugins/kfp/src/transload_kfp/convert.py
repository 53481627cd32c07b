"""Convert a job to a component of Kubeflow Pipelines.

This is pure. Nothing runs, and KFP is imported only where it is used. Marks stand in the texts of
the job for values of the run, until all is known of where they come from.
"""

from __future__ import annotations

import base64
import copy
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from transload.components import as_component
from transload.errors import SpecError
from transload.pipelines import Launch, caller_folder
from transload.specs import AppDef, macros
from transload_kfp import inline
from transload_kfp.fields import field_input, field_of
from transload_kfp.names import port_names
from transload_kfp.pod import check_metadata, give
from transload_kfp.ports import (
    FILES,
    IDENTITY,
    KFP_TYPES,
    METRICS,
    RESULTS,
    InputPort,
    Inputs,
    OutputPort,
    Results,
    output_ports,
)
from transload_kfp.refusals import (
    has_mark,
    marks_in,
    refuse_inexpressible,
    refuse_reinterpreted,
    refuse_submit_fields,
)

if TYPE_CHECKING:
    from transload_kfp.component import AppComponent

RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"


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
    outputs = output_ports(results, [RESULTS, METRICS, FILES])
    launch = with_arguments(Launch.of(found_here(source)), component_args)
    refuse_submit_fields(launch)
    app = _with_macros(launch.build({"tracker_base": mark(inline.TRACKER)}))
    refuse_inexpressible(app)
    check_metadata(app)
    ports = _mark_inputs(app, launch, inputs)
    role = app.roles[0]
    late_env = {each: text for each, text in role.env.items() if has_mark(text)}
    used = marks_in(role)
    # Python in the image starts the program for results, files, or variables of the run
    is_wrapped = results is not None or bool(late_env) or inline.FILES in used
    refuse_reinterpreted(role, wrapped=is_wrapped)
    identity = [each for each in IDENTITY if each in used]
    places = {port.source: port.placeholder for port in ports}
    places.update((each, InputPort(source=each, name=each).placeholder) for each in identity)
    env = {each: text for each, text in role.env.items() if each not in late_env}
    container: dict[str, Any] = {"image": role.image}
    if is_wrapped:
        outputs += [RESULTS, METRICS, FILES]
        container |= _wrapped([role.entrypoint, *role.args], late_env, places, outputs, python)
    else:
        if inline.TRACKER in used:
            outputs.append(RESULTS)
        places[inline.TRACKER] = RESULTS.placeholder
        container["command"] = [inline.fill(role.entrypoint, places)]
        container["args"] = [inline.fill(arg, places) for arg in role.args]
    if env:
        container["env"] = env
    from transload_kfp.component import AppComponent

    return AppComponent(
        name or app.name,
        {key: value for key, value in container.items() if value != []},
        ports,
        outputs,
        identity=identity,
        prepare=partial(give, app=app),
        description=_description(launch),
    )


def _wrapped(
    argv: Sequence[str],
    env: Mapping[str, str],
    places: Mapping[str, str],
    outputs: Iterable[OutputPort],
    python: str,
) -> dict[str, Any]:
    """Return the command and the arguments by which a few lines of Python start the program.

    Args:
        argv: the program and its arguments.
        env: variables with values of the run.
        places: value of the run → what stands for it in a command.
        outputs: of the component.
        python: the interpreter.
    """
    artifacts = [port for port in outputs if port.is_artifact]
    files = [port for port in artifacts if port not in (RESULTS, METRICS, FILES)]
    values = [port for port in outputs if not port.is_artifact]
    paths = [RESULTS, FILES, *files]
    spec = {
        "argv": argv,
        "env": env,
        "artifacts": [port.name for port in paths],
        "values": list(places),
        "results": [(port.source, port.name, port.type, port.key) for port in values],
        "files": [(port.source, port.name, port.type) for port in files],
    }
    encoded = base64.b64encode(json.dumps(spec, sort_keys=True).encode()).decode()
    words = [port.placeholder for port in paths]
    return {
        "command": [python, "-c", inline_source(), encoded],
        "args": ["{{$}}", *words, *places.values()],
    }


def inline_source() -> str:
    """Return the program that runs another one and collects its results."""
    return resources.files("transload_kfp").joinpath("inline.py").read_text(encoding="utf-8")


# -- the job


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


def _description(launch: Launch) -> str:
    if launch.component is None:
        return ""
    return as_component(launch.component).description.strip()


def mark(name: str) -> str:
    """Return the text that stands for a value of the run."""
    return f"\ue000late:{name}\ue001"


def _with_macros(app: AppDef) -> AppDef:
    """Return a copy of an app definition with its macros replaced.

    Marks stand for the job's id, which only the run knows.
    """
    values = macros.Values("", "-".join(map(mark, IDENTITY)), "0", RANK0_ENV, mark(inline.FILES))
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


def _mark_inputs(app: AppDef, launch: Launch, inputs: Inputs | None) -> list[InputPort]:
    """Put a mark in the place of each text that an input replaces, and return the inputs.

    Args:
        app: the app definition.
        launch: what built it. The arguments of its component say the types of inputs.
        inputs: as of `component_from_app`.
    """
    like: dict[str, Any] = {}
    helps: Mapping[str, str] = {}
    if launch.component is not None:
        found = as_component(launch.component)
        like = {each.name: each.annotation for each in found.parameters}
        helps = found.helps
    given = inputs if isinstance(inputs, Mapping) else dict.fromkeys(inputs or ())
    names = port_names(given)
    ports = []
    for each, value in given.items():
        kind = like.get(each)
        if kind not in KFP_TYPES:
            kind = None
        try:
            port = field_input(app, each, value, names[each], kind)
            _mark_input(app, port)
        except SpecError as exc:
            raise SpecError(
                f"inputs[{each!r}]: {exc}; where a value decides more than a text of the program, "
                "use launcher_from_app, which builds the job when it runs"
            ) from exc
        ports.append(replace(port, help=helps.get(each, "")))
    return ports


def _mark_input(app: AppDef, port: InputPort) -> None:
    field = field_of(app, port.path)
    if field.key is None:
        raise SpecError(f"{port.path!r}: must be 'args[2]', 'args[--lr]' or 'env[NAME]'")
    if has_mark(field.value()):
        raise SpecError(f"{port.path!r}: two inputs for one text, or a macro in it")
    field.set(mark(port.source), port.path)
