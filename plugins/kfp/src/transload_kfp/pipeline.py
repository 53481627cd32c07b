"""Pipelines of one component, and their text."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any, Optional

from kfp import compiler, dsl

from transload_kfp.component import AppComponent
from transload_kfp.names import component_name

_PARAMETERS = {"String": str, "Integer": int, "Float": float, "Boolean": bool, "List": list, "Dict": dict}


_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def pipeline_from_component(component: AppComponent, name: str | None = None) -> Any:
    """Return a pipeline that runs one component; the component's inputs are its parameters.

    Args:
        component: what to run; its inputs must be parameters, for nothing upstream makes artifacts.
        name: name of the pipeline; default: the component's.

    Raises:
        SpecError: if an input is an artifact.
    """
    from transload.errors import SpecError

    parameters = []
    hidden = {*component.identity, "transload_key"}
    for each, spec in (component.component_spec.inputs or {}).items():
        if each in hidden:
            continue
        kind = _PARAMETERS.get(spec.type)
        if kind is None:
            raise SpecError(f"input {each!r} takes an artifact, which a pipeline of one app has none of")
        default = inspect.Parameter.empty if not spec.optional else spec.default
        # KFP knows no other form of it
        annotation = kind if default is not None else Optional[kind]  # noqa: UP045
        parameters.append(inspect.Parameter(each, _BY_NAME, default=default, annotation=annotation))

    def run(*values: Any) -> None:
        component(**{each.name: value for each, value in zip(parameters, values, strict=True)})

    parameters.sort(key=lambda each: each.default is not inspect.Parameter.empty)  # as a signature must have them
    run.__name__ = "run"
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return dsl.pipeline(run, name=component_name(name or component.name))


def pipeline_text(pipeline: Any) -> str:
    """Return the YAML of a pipeline."""
    with tempfile.TemporaryDirectory(prefix="transload-kfp-") as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return path.read_text(encoding="utf-8")
