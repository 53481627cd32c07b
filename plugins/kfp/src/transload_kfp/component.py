"""Give components the form of objects of KFP.

A component gives each of its tasks its settings and its identity. A pipeline may be made of one
component.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Optional

from kfp import compiler, dsl, kubernetes
from kfp.dsl import structures
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.utils import sanitize_component_name, sanitize_executor_label

from transload.errors import SpecError
from transload_kfp.launch_spec import KEY
from transload_kfp.loops import is_equal_in_a_loop
from transload_kfp.names import component_name
from transload_kfp.ports import read_as_placeholder
from transload_kfp.settings import TaskSettings
from transload_kfp.step import EACH_TASK, NODE, NODE_FIELD

PLACEHOLDERS: Final = {
    "transload_job_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
    "transload_job_name": dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
    "transload_task_name": dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
}
"""What a backend replaces by the value of an input, only where it is the whole of the input."""


class AppComponent(BaseComponent):
    """A component made from a job, or a search.

    Call it in a pipeline function, with the job's own argument names.

    Args:
        component_spec: the component as KFP has it, or as the content of component YAML.
        ports: name of the input of each argument.
        identity: inputs that take what KFP knows of the task.
        settings: of each task.
        constants: value of each input, unless the call gives another.
    """

    def __init__(
        self,
        component_spec: structures.ComponentSpec | Mapping[str, Any],
        ports: Mapping[str, str],
        identity: Sequence[str],
        settings: TaskSettings,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(
            component_spec, Mapping
        ):  # to write and read it as YAML takes four times as long as all the rest
            read: Any = SimpleNamespace(to_dict=lambda content=component_spec: content)
            component_spec = structures.ComponentSpec.from_v1_component_spec(read)
        super().__init__(component_spec=component_spec)
        self.ports = dict(ports)
        self.identity = list(identity)
        self.settings = settings
        self.constants = dict(constants or {})

    def __call__(self, *args: Any, **arguments: Any) -> dsl.PipelineTask:
        """Return a task.

        Args:
            args: none, since KFP takes arguments by name.
            arguments: value of each argument.

        Raises:
            SpecError: for a constant that KFP would read as a placeholder, or a key that does not
                tell the items of a loop apart.
        """
        for name, value in arguments.items():
            found = read_as_placeholder(value)
            if found is not None:
                raise SpecError(
                    f"{name}={value!r}: would be read as a placeholder of Kubeflow Pipelines "
                    f"({found!r})"
                )
        named = {self.ports.get(name, name): value for name, value in arguments.items()}
        named = {**self.constants, **named}
        if KEY in self._component_inputs and is_equal_in_a_loop(named):
            if named.get(KEY):
                raise SpecError(
                    f"{self.name}: key={named[KEY]!r}: is equal for the items of a ParallelFor "
                    "around it: give it the item (key=item), or no key"
                )
            named[KEY] = EACH_TASK
        for name in self.identity:
            named.setdefault(name, PLACEHOLDERS.get(name) or self._key())
        try:
            task = super().__call__(*args, **named)
        except RuntimeError as exc:
            if "SubprocessRunner only supports" in str(exc):
                exc.add_note(
                    "A launcher runs there with launcher_from_app(…, form='python'). The container "
                    "of a job runs with kfp.local.DockerRunner()."
                )
            raise
        if Pipeline.get_default_pipeline() is None:
            return task  # it has run already, with kfp.local
        if self.identity:
            task.set_caching_options(False)  # what a run knows of itself is never the same again
        if KEY in self._component_inputs:
            kubernetes.use_field_path_as_env(task, NODE, NODE_FIELD)
        return self.settings.apply(task)

    @property
    def pipeline_spec(self) -> Any:
        """The component as a separate pipeline, as a compiler writes it.

        Whoever loads it need not know of identity. KFP takes a pipeline for the component in it,
        with all its inputs, if both have one name.
        """
        spec = super().pipeline_spec
        if not self.identity:
            return spec
        program = spec.deployment_spec.SerializeToString(deterministic=True)
        path = f"{self.name}/{hashlib.sha256(program).hexdigest()[:16]}"
        for task in spec.root.dag.tasks.values():
            for name in self.identity:
                del spec.root.input_definitions.parameters[name]
                value = PLACEHOLDERS.get(name, path)
                task.inputs.parameters[name].runtime_value.constant.string_value = value
            task.caching_options.Clear()
            _rename_component(spec, task, f"{self.name}-task")
        return spec

    def _key(self) -> str:
        """Return what tells this call from others in the pipeline, made when compiling."""
        pipeline = Pipeline.get_default_pipeline()
        return "" if pipeline is None else f"{pipeline.name}/{len(pipeline.tasks)}"

    def execute(self, **kwargs: Any) -> Any:
        """Refuse, since a job runs as a container.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError


def _rename_component(spec: Any, task: Any, name: str) -> None:
    """Give the component of a task another name in a compiled pipeline."""
    before = task.component_ref.name
    after = sanitize_component_name(name)
    spec.components[after].CopyFrom(spec.components[before])
    del spec.components[before]
    executors = spec.deployment_spec["executors"]
    label = sanitize_executor_label(name)
    executors[label] = executors[spec.components[after].executor_label]
    del executors[spec.components[after].executor_label]
    spec.components[after].executor_label = label
    task.component_ref.name = after


def python_component(source: str, function: str, image: str, packages: Sequence[str] = ()) -> Any:
    """Return a lightweight Python component.

    KFP takes a function's source, so the function is written and compiled.

    Args:
        source: the text of one function, which itself imports what it needs.
        function: its name.
        image: the image that runs it, which needs KFP.
        packages: installed when it starts.
    """
    source = "from typing import *\n" + source
    file = f"<transload component {function} {len(source)}-{zlib.crc32(source.encode())}>"
    linecache.cache[file] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        file,
    )  # where inspect looks for it
    scope: dict[str, Any] = {"dsl": dsl, "__name__": f"transload_kfp.generated.{function}"}
    # not inherited: annotations must be types for KFP, not texts as in this module
    exec(compile(source, file, "exec", dont_inherit=True), scope)  # noqa: S102 - our own text
    return dsl.component(
        scope[function],
        base_image=image,
        packages_to_install=list(packages) or None,
        install_kfp_package=False,
    )


_PARAMETERS = {
    "String": str,
    "Integer": int,
    "Float": float,
    "Boolean": bool,
    "List": list,
    "Dict": dict,
}
_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD


def pipeline_from_component(component: AppComponent, name: str | None = None) -> Any:
    """Return a pipeline that runs one component, whose inputs are the pipeline's parameters.

    Args:
        component: what to run. Its inputs must be parameters, for nothing upstream makes artifacts.
        name: name of the pipeline, by default the component's.

    Raises:
        SpecError: if an input is an artifact.
    """
    parameters = []
    hidden = {*component.identity, KEY}
    for each, spec in (component.component_spec.inputs or {}).items():
        if each in hidden:
            continue
        kind = _PARAMETERS.get(spec.type)
        if kind is None:
            raise SpecError(
                f"input {each!r} takes an artifact, which a pipeline of one job has none of"
            )
        default = inspect.Parameter.empty if not spec.optional else spec.default
        # KFP knows no other form of it
        annotation = kind if default is not None else Optional[kind]  # noqa: UP045
        parameters.append(inspect.Parameter(each, _BY_NAME, default=default, annotation=annotation))

    def run(*values: Any) -> None:
        component(**{each.name: value for each, value in zip(parameters, values, strict=True)})

    parameters.sort(
        key=lambda each: each.default is not inspect.Parameter.empty
    )  # as a signature must have them
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
