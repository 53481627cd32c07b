"""Components as objects of KFP: a loaded component that gives each of its tasks its settings and its identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kfp import dsl
from kfp.dsl import structures
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.types import type_utils

from transload.errors import SpecError
from transload_kfp.ports import ARTIFACTS, FINAL_STATUS, read_as_placeholder
from transload_kfp.settings import TaskSettings

PLACEHOLDERS: Final = {
    "transload_job_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
    "transload_job_name": dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
    "transload_task_name": dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
}
"""Input → what a backend replaces by the value; only where it is the whole of an input."""


class AppComponent(BaseComponent):
    """A component made from an app, or a search. Call it in a pipeline function, with the app's own argument names.

    Args:
        component_spec: the component as KFP has it.
        ports: name of an argument → name of its input.
        identity: inputs that take what KFP knows of the task.
        settings: of each task.
        constants: input → value, unless the call gives another.
    """

    def __init__(
        self,
        component_spec: structures.ComponentSpec,
        ports: Mapping[str, str],
        identity: Sequence[str],
        settings: TaskSettings,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(component_spec=component_spec)
        self.ports = dict(ports)
        self.identity = list(identity)
        self.settings = settings
        self.constants = dict(constants or {})

    def __call__(self, *args: Any, **arguments: Any) -> dsl.PipelineTask:
        """Return a task.

        Args:
            args: none; KFP takes arguments by name.
            arguments: argument → value.

        Raises:
            SpecError: for a constant that KFP would read as a placeholder.
        """
        _refuse_placeholders(arguments)
        named = {self.ports.get(name, name): value for name, value in arguments.items()}
        named = {**self.constants, **named}
        for name in self.identity:
            named.setdefault(name, PLACEHOLDERS.get(name) or self._key())
        task = super().__call__(*args, **named)
        if Pipeline.get_default_pipeline() is None:
            return task  # it has run already, with kfp.local
        if self.identity:
            task.set_caching_options(False)  # what a run knows of itself is never the same again
        return self.settings.apply(task)

    def _key(self) -> str:
        """Return what tells this call from others in the pipeline, made when compiling."""
        pipeline = Pipeline.get_default_pipeline()
        return "" if pipeline is None else f"{pipeline.name}/{len(pipeline.tasks)}"

    def execute(self, **kwargs: Any) -> Any:
        """Not possible: an app runs as a container."""
        raise NotImplementedError


def _refuse_placeholders(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        found = read_as_placeholder(value)
        if found is not None:
            raise SpecError(f"{name}={value!r}: would be read as a placeholder of Kubeflow Pipelines ({found!r})")


def component_spec_of(component: Mapping[str, Any]) -> structures.ComponentSpec:
    """Return what KFP makes of a component YAML with this content, without writing and reading it.

    Args:
        component: the content.
    """
    container = component["implementation"]["container"]
    return structures.ComponentSpec(
        name=component["name"],
        description=component.get("description"),
        inputs={
            each["name"]: structures.InputSpec(
                type=_type(each["type"]),
                default=type_utils.deserialize_v1_component_yaml_default(each["type"], each.get("default")),
                optional=each.get("optional", False) or each["type"] == FINAL_STATUS,
            )
            for each in component.get("inputs", ())
        },
        outputs={
            each["name"]: structures.OutputSpec(type=_type(each["type"])) for each in component.get("outputs", ())
        },
        implementation=structures.Implementation(
            container=structures.ContainerSpecImplementation(
                image=container["image"],
                command=list(container.get("command", ())),
                args=list(container.get("args", ())),
                env=dict(container.get("env", {})),
            )
        ),
    )


def _type(name: str) -> str:
    """Return a type of component YAML as KFP has it in memory."""
    if name not in ARTIFACTS:
        return name
    kind = getattr(dsl, name)
    return str(type_utils.create_bundled_artifact_type(kind.schema_title, kind.schema_version))
