"""The inputs and outputs of a component, with KFP's types, and marks for values of the run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from transload.errors import SpecError
from transload_kfp.names import port_names

Inputs = Mapping[str, Any] | Sequence[str]
"""Input → path of a field of the job, type, or both."""
Results = Mapping[str, Any] | Sequence[str]
"""Results, and files, that become outputs."""

KFP_TYPES: Final = {
    str: "String",
    int: "Integer",
    float: "Float",
    bool: "Boolean",
    list: "List",
    dict: "Dict",
}
ARTIFACTS: Final = (
    "Artifact",
    "Dataset",
    "Model",
    "Metrics",
    "ClassificationMetrics",
    "SlicedClassificationMetrics",
    "HTML",
    "Markdown",
)
"""Names of the classes of ``kfp.dsl`` that stand for artifacts."""
FINAL_STATUS: Final = "PipelineTaskFinalStatus"

TEMPLATE: Final = re.compile(
    r"\{\{\s*(\$|channel:|=|(?:workflow|inputs|outputs|pod|node|steps|tasks|item|retries|lastRetry)\b)"
)
"""Texts that Kubeflow Pipelines, or the engine below it, would read as their placeholders."""
STRUCT: Final = re.compile(r'\s*\{\s*"(Concat|IfPresent)"\s*:')
"""How a text begins that Kubeflow Pipelines would read as a structure of its own."""
_CHANNEL: Final = re.compile(r'\{\{channel:task=[\w\s-]*;name=[\w\s-]+;type=[\w\s{}":-]*;\}\}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What inputs and outputs have in common.

    Args:
        source: the name that the user gives it.
        name: its name in KFP.
        type: KFP's word for its type.
        help: what it is.
    """

    source: str
    name: str
    type: str = "String"
    help: str = ""

    @property
    def is_artifact(self) -> bool:
        """Whether it is an artifact, of which the program has a path."""
        return self.type in ARTIFACTS

    def to_dict(self) -> dict[str, Any]:
        """Return it as component YAML has it."""
        made: dict[str, Any] = {"name": self.name, "type": self.type}
        if self.help:
            made["description"] = self.help
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPort(Port):
    """An input of a component.

    Its type may be ``PipelineTaskFinalStatus`` too, which the system fills in, for the task of an
    exit handler.

    Args:
        path: the field of the job that it sets. Empty for an argument of a component function.
        default: default as text, or None for none.
        optional: may be left out.
    """

    path: str = ""
    default: str | None = None
    optional: bool = False

    @property
    def placeholder(self) -> str:
        """The text in a command for its value, or an artifact's path."""
        if self.is_artifact:
            return f"{{{{$.inputs.artifacts['{self.name}'].path}}}}"
        return f"{{{{$.inputs.parameters['{self.name}']}}}}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as component YAML has it."""
        made = Port.to_dict(self)
        if self.default is not None:
            made["default"] = self.default
        if self.optional:
            made["optional"] = True
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPort(Port):
    """An output, as a parameter for a reported result, or an artifact for a written file.

    Its source is the name of the result, or the file's path below the job's folder for files. Its
    type is ``String``, ``Integer``, ``Float``, or one of `ARTIFACTS`.

    Args:
        key: key that the result is reported under, or None for the only one that has it.
    """

    key: str | None = None

    @property
    def placeholder(self) -> str:
        """The text in a command for the path of an artifact."""
        return f"{{{{$.outputs.artifacts['{self.name}'].path}}}}"


def own_output(name: str, kind: str, what: str) -> OutputPort:
    """Return an output that no user declares."""
    return OutputPort(source=name, name=name, type=kind, help=what)


HANDLE: Final = own_output("handle", "String", "the job's handle")
RESULTS: Final = own_output("results", "Artifact", "the job's tracker base, a folder")
METRICS: Final = own_output("metrics", "Metrics", "the numbers among the job's results")
FILES: Final = own_output("files", "Artifact", "the job's folder for files")

IDENTITY: Final = ("transload_job_id", "transload_job_name", "transload_task_name")
"""Inputs that take what Kubeflow Pipelines knows of the task.

A backend resolves it only as a whole input.
"""
PATH: Final = "transload_path"
KEY: Final = "transload_key"
PARENT: Final = "parent_run_id"
"""Further inputs of a launcher: what tells its call from others, the user's key, and the handle of
the job that its own derives from.
"""


def output_ports(results: Results | None, taken: Iterable[OutputPort] = ()) -> list[OutputPort]:
    """Return an output for each declared result, parameters first.

    Args:
        results: name → ``str``, ``int`` or ``float``, or names alone (float). ``"final/accuracy"``
            is the result ``accuracy`` of the key ``final``. With a class of ``kfp.dsl``
            (``Model``), or its name, it is the file of that path below ``TRANSLOAD_OUTPUT_DIR``.
            The output is called as the file is without its ending.
        taken: outputs that the component has besides.

    Raises:
        SpecError: for another type, or an empty name.
    """
    if results is None:
        return []
    types = _typed_results(results)
    reserved = [port.name for port in taken]
    called: dict[str, str] = {}
    for name, kind in types.items():
        if name in reserved:
            raise SpecError(
                f"results[{name!r}]: taken by an output of every component "
                f"({', '.join(reserved)}); as 'key/{name}' it is another name"
            )
        if not isinstance(name, str) or not name:
            raise SpecError(f"results[{name!r}]: no name; as 'key/{name}' it is another name")
        called[name] = name
        if artifact_type(kind):
            stem = str(PurePosixPath(name).with_suffix(""))
            if stem not in (*reserved, *types, *called.values()):
                called[name] = stem
    names = port_names([*reserved, *called.values()])
    made = [_output(name, kind, names[called[name]]) for name, kind in types.items()]
    return sorted(made, key=lambda port: port.is_artifact)


def _typed_results(results: Results) -> dict[Any, Any]:
    """Return the type of each result. Names alone are floats."""
    if isinstance(results, Mapping):
        return dict(results)
    names = [results] if isinstance(results, str) else results
    return dict.fromkeys(names, float)


def _output(name: str, kind: Any, port: str) -> OutputPort:
    artifact = artifact_type(kind)
    if artifact is not None:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise SpecError(f"results[{name!r}]: must be a path below the job's folder for files")
        what = f"file {name!r} of the job"
        return OutputPort(source=name, name=port, type=artifact, help=what)
    if kind not in (str, int, float):
        raise SpecError(
            f"results[{name!r}]={kind!r}: must be str, int, float, or a class of artifacts of "
            "kfp.dsl"
        )
    key, slash, result = name.rpartition("/")
    if not slash or not result:
        key, result = "", name
    return OutputPort(
        source=result,
        name=port,
        type=KFP_TYPES[kind],
        key=key or None,
        help=f"result {result!r} of the job",
    )


def artifact_type(kind: object) -> str | None:
    """Return the name of a class of artifacts of ``kfp.dsl``, or None if it is none.

    Args:
        kind: the class, or its name.
    """
    if isinstance(kind, str):
        name = kind
    else:
        name = str(getattr(kind, "schema_title", "")).removeprefix("system.")
    return name if name in ARTIFACTS else None


def input_type(kind: object) -> str | None:
    """Return KFP's word for an input of a type (value, artifact, final status), if it has one."""
    if isinstance(kind, type) and kind in KFP_TYPES:
        return KFP_TYPES[kind]
    if FINAL_STATUS in (kind, getattr(kind, "__name__", "")):
        return FINAL_STATUS
    return artifact_type(kind)


def need_input_type(kind: object) -> str:
    """Return KFP's word for an input of a type.

    Raises:
        SpecError: if it has none.
    """
    found = input_type(kind)
    if found is None:
        raise SpecError(
            f"{kind!r}: must be str, int, float, bool, list, dict, or a class of artifacts of "
            "kfp.dsl"
        )
    return found


def placeholder_in(text: str) -> str | None:
    """Return the part of a text that KFP would read as a placeholder, or None."""
    match = TEMPLATE.search(text) or STRUCT.match(text)
    return match.group() if match else None


def read_as_placeholder(value: object) -> str | None:
    """Return the part of a constant that KFP would read as a placeholder, or None.

    Args:
        value: a constant. Outputs and parameters that were formatted into its texts are none, as
            KFP finds them again.
    """
    if isinstance(value, str):
        return placeholder_in(_CHANNEL.sub("\0", value))
    parts: list[object] = []
    if isinstance(value, Mapping):
        first = next(iter(value), None)
        if first in ("Concat", "IfPresent"):
            return f'{{"{first}": …}}'
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    for part in parts:
        found = read_as_placeholder(part)
        if found is not None:
            return found
    return None


def can_be_default(value: object) -> bool:
    """Tell whether KFP can have a value as a default, which None, NaN and infinities cannot be."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None


def default_text(value: object, path: str) -> str:
    """Return a default as the text that component YAML has.

    Raises:
        SpecError: for a text that KFP would read as a placeholder, or a number that it has no way
            to write.
    """
    if not can_be_default(value):
        raise SpecError(
            f"{path}={value!r}: Kubeflow Pipelines has no default that is no finite number"
        )
    text = value if isinstance(value, str) else json.dumps(value)
    if placeholder_in(text):
        raise SpecError(
            f"{path}={text!r}: a default must not look like a placeholder of Kubeflow Pipelines "
            f"({{{{$…}}}})"
        )
    return text
