"""The inputs and outputs of a component, with KFP's types, and marks for values of the run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

from transload.errors import SpecError
from transload_kfp.names import port_names

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
RESULT_TYPES: Final = {str: "String", int: "Integer", float: "Float"}

TEMPLATE: Final = re.compile(
    r"\{\{\s*(\$|channel:|=|(?:workflow|inputs|outputs|pod|node|steps|tasks|item|retries|lastRetry)\b)"
)
"""Texts that Kubeflow Pipelines, or the engine below it, would read as their placeholders."""
STRUCT: Final = re.compile(r'\s*\{\s*"(Concat|IfPresent)"\s*:')
"""How a text begins that Kubeflow Pipelines would read as a structure of its own."""
_CHANNEL: Final = re.compile(r'\{\{channel:task=[\w\s-]*;name=[\w\s-]+;type=[\w\s{}":-]*;\}\}')


_MARK: Final = re.compile("\ue000late:([^\ue000\ue001]*)\ue001")
Piece = str | tuple[str]
"""A literal piece of a text, or ``(name,)`` of a value that is known at run time."""


def mark(name: str) -> str:
    """Return the text that stands for the value of ``name``."""
    return f"\ue000late:{name}\ue001"


def pieces(text: str) -> tuple[Piece, ...]:
    """Split a text at its marks."""
    found: list[Piece] = []
    for index, each in enumerate(_MARK.split(text)):
        is_name = index % 2 == 1  # texts and names take turns, and a text may be empty
        if is_name:
            found.append((each,))
        elif each:
            found.append(each)
    return tuple(found)


def has_mark(text: str) -> bool:
    """Tell whether a text depends on a value that is known only when the pipeline runs."""
    return _MARK.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Port:
    """The common part of inputs and outputs."""

    source: str
    name: str
    type: str = "String"
    side: ClassVar = "inputs"
    ending: ClassVar = ""

    @property
    def is_artifact(self) -> bool:
        """Whether it is an artifact, of which the program has a path."""
        return self.type in ARTIFACTS

    @property
    def placeholder(self) -> str:
        """The text in a command for its value, its file, or an artifact's path."""
        if self.is_artifact:
            return f"{{{{$.{self.side}.artifacts['{self.name}'].path}}}}"
        return f"{{{{$.{self.side}.parameters['{self.name}']{self.ending}}}}}"


@dataclass(frozen=True, slots=True)
class InputPort(_Port):
    """An input of a component.

    Args:
        source: name of the component's argument, or the name that was asked for.
        name: its name in KFP.
        type: ``PipelineTaskFinalStatus`` is filled in by the system, for the task of an exit
            handler.
        default: default as text, or None for none.
        optional: may be left out.
        help: what it is.
    """

    default: str | None = None
    optional: bool = False
    help: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as component YAML has it."""
        made: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "description": self.help or None,
            "default": self.default,
            "optional": self.optional or None,
        }
        return {key: value for key, value in made.items() if value is not None}


@dataclass(frozen=True, slots=True)
class OutputPort(_Port):
    """An output, as a parameter for a reported result, or an artifact for a written file.

    Args:
        source: name of the result, or for an artifact the file's path below the job's folder for
            files.
        name: its name in KFP.
        type: ``String``, ``Integer``, ``Float``, or one of `ARTIFACTS`.
        key: key that the result is reported under, or None for the only one that has it.
    """

    key: str | None = None
    side = "outputs"
    ending = ".output_file"

    def to_dict(self) -> dict[str, str]:
        """Return it as component YAML has it."""
        what = "file" if self.is_artifact else "result"
        return {
            "name": self.name,
            "type": self.type,
            "description": f"{what} {self.source!r} of the job",
        }


OUTPUTS: Final = ("results", "metrics", "files")
"""Outputs of every component that collects results.

They are its tracker base, its numbers, and its folder for files.
"""


def output_ports(results: Results | None, taken: Iterable[str] = ()) -> list[OutputPort]:
    """Return an output for each declared result, parameters first.

    Args:
        results: name → ``str``, ``int`` or ``float``, or names alone (float). ``"final/accuracy"``
            is the result ``accuracy`` of the key ``final``. With a class of ``kfp.dsl``
            (``Model``), or its name, it is the file of that path below ``TRANSLOAD_OUTPUT_DIR``.
            The output is called as the file is without its ending.
        taken: names of other outputs.

    Raises:
        SpecError: for another type, or an empty name.
    """
    if results is None:
        return []
    types = _typed_results(results)
    reserved = [*OUTPUTS, *taken]
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
        return OutputPort(name, port, artifact)
    if not isinstance(kind, type) or kind not in RESULT_TYPES:
        raise SpecError(
            f"results[{name!r}]={kind!r}: must be str, int, float, or a class of artifacts of "
            "kfp.dsl"
        )
    key, slash, result = name.rpartition("/")
    if not slash or not result:
        result = name
    return OutputPort(result, port, RESULT_TYPES[kind], key or None)


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


def read_as_placeholder(value: object) -> str | None:
    """Return the part of a constant that KFP would read as a placeholder, or None.

    Args:
        value: a constant. Outputs and parameters that were formatted into its texts are none, as
            KFP finds them again.
    """
    if isinstance(value, str):
        match = TEMPLATE.search(_CHANNEL.sub("\0", value)) or STRUCT.match(value)
        return match.group() if match else None
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
    text = _yaml_text(value)
    if TEMPLATE.search(text) or STRUCT.match(text):
        raise SpecError(
            f"{path}={text!r}: a default must not look like a placeholder of Kubeflow Pipelines "
            f"({{{{$…}}}})"
        )
    return text


def _yaml_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    return str(value)
