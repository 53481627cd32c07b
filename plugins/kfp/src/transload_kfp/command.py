"""The command of a component: the app's own, or the same inside a few lines that collect its results. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from transload_kfp.plan import FILES as OUTPUT_DIR
from transload_kfp.plan import TRACKER, Plan
from transload_kfp.ports import InputPort, pieces
from transload_kfp.refusals import refuse_reinterpreted

RESULTS = "{{$.outputs.artifacts['results'].path}}"
FILES = "{{$.outputs.artifacts['files'].path}}"
EXECUTOR_INPUT = "{{$}}"


def container_of(plan: Plan, python: str, variables: Iterable[str] = ()) -> dict[str, Any]:
    """Return the container of a component as component YAML has it.

    Args:
        plan: the plan.
        python: the interpreter in the image that runs the wrapper.
        variables: names of variables that the container has besides the role's.

    Raises:
        UnsupportedFeature: for a text that KFP would read as something else.
    """
    role = plan.role
    refuse_reinterpreted(role, wrapped=plan.wrapped, variables=variables)
    made: dict[str, Any] = {"image": role.image}
    if plan.wrapped:
        made["command"] = [python, "-c", inline_source(), _encoded(plan)]
        outputs = [port.placeholder for port in plan.outputs]
        made["args"] = [EXECUTOR_INPUT, RESULTS, FILES, *outputs, *_values(plan).values()]
    else:
        places = {**_values(plan), TRACKER: RESULTS}
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
    return {**places, **{name: InputPort(name, name).placeholder for name in plan.identity}}


def _text(text: str, places: dict[str, str]) -> str:
    return "".join(piece if isinstance(piece, str) else places[piece[0]] for piece in pieces(text))


def _encoded(plan: Plan) -> str:
    order = [*_values(plan), TRACKER, OUTPUT_DIR]

    def encode(text: str) -> list[str | int]:
        return [piece if isinstance(piece, str) else order.index(piece[0]) for piece in pieces(text)]

    role = plan.role
    spec = {
        "argv": [encode(text) for text in (role.entrypoint, *role.args)],
        "env": {name: encode(role.env[name]) for name in plan.late_env},
        "outputs": [[port.source, port.key, port.type] for port in plan.outputs if not port.is_artifact],
        "files": [[port.source, port.name, port.type] for port in plan.outputs if port.is_artifact],
    }
    return base64.b64encode(json.dumps(spec, sort_keys=True).encode()).decode()
