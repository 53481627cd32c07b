"""What a backend gives to the container of a component, and takes from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
"""What a real backend (2.17) gave a launcher, and said of it."""
IDENTITY = ("job_id", "job_name", "task_name", "path", "key")


def request_of(made: Any, folder: Path, **inputs: Any) -> dict[str, Any]:
    """Return a real backend's executor input, with all outputs in a folder of this machine.

    Args:
        made: the component.
        folder: where its outputs go.
        inputs: of the component. What KFP knows of a task goes without ``transload_``.
    """
    request: dict[str, Any] = json.loads((RECORDED / "executor_input.json").read_text())
    given = request["inputs"]["parameterValues"]
    given |= {f"transload_{name}" if name in IDENTITY else name: inputs[name] for name in inputs}
    outputs = made.component_spec.outputs
    names = [name for name, each in outputs.items() if not each.type.startswith("system.")]
    request["outputs"]["parameters"] = {
        name: {"outputFile": str(folder / "values" / name)} for name in names
    }
    artifacts = request["outputs"]["artifacts"]
    for name in outputs:
        if name not in names:
            artifacts.setdefault(name, {"artifacts": [{"name": name}]})
    for name, each in artifacts.items():
        each["artifacts"][0]["uri"] = str(folder / name)
    request["outputs"]["outputFile"] = str(folder / "executor_output.json")
    return request


def words_of(made: Any, folder: Path, **inputs: Any) -> list[str]:
    """Return the words of a launcher's command after ``python3 -m transload_kfp``."""
    container = made.component_spec.implementation.container
    paths = [word.split("'")[1] for word in container.args if ".outputs.artifacts[" in word]
    request = json.dumps(request_of(made, folder, **inputs))
    return [*container.command[3:], request, *(str(folder / name) for name in paths)]


def value_of(folder: Path, name: str) -> str:
    """Return the text of an output."""
    return (folder / "values" / name).read_text(encoding="utf-8")


def metadata_of(folder: Path, name: str) -> dict[str, Any]:
    """Return the metadata of an artifact that came out."""
    output = json.loads((folder / "executor_output.json").read_text())
    found: dict[str, Any] = output["artifacts"][name]["artifacts"][0].get("metadata", {})
    return found
