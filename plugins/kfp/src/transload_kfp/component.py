"""Give components the form of objects of KFP.

A component gives each of its tasks its settings and its identity. A pipeline may be made of one
component.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Optional

from kfp import compiler, dsl, kubernetes
from kfp.dsl import structures
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_context import Pipeline

from transload.errors import SpecError
from transload.specs import masked_args, masked_env
from transload_kfp.loops import is_equal_in_a_loop
from transload_kfp.names import component_name
from transload_kfp.ports import IDENTITY, KEY, KFP_TYPES, InputPort, OutputPort, read_as_placeholder
from transload_kfp.step import EACH_TASK, NODE, NODE_FIELD

_KNOWN: Final = (
    dsl.PIPELINE_JOB_ID_PLACEHOLDER,
    dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
    dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
)
PLACEHOLDERS: Final = dict(zip(IDENTITY, _KNOWN, strict=True))
"""What a backend replaces by the value of an input, only where it is the whole of the input."""


class AppComponent(BaseComponent):
    """A component made from a job, or a search.

    Call it in a pipeline function, with the job's own argument names. KFP's own calls on the task
    that it returns set all else: ``task.set_retry(3)``, ``kubernetes.add_toleration(task, …)``.

    Args:
        title: its name, in any letters.
        container: image, command, args and env, as component YAML has them.
        inputs: what goes in.
        outputs: what comes out.
        identity: further inputs, which take what KFP knows of the task.
        prepare: called with each task.
        constants: value of each input, unless the call gives another.
        show: returns what `dry_run` does, from the arguments. None means the component as YAML.
        description: what it is.
    """

    def __init__(
        self,
        title: str,
        container: Mapping[str, Any],
        inputs: Sequence[InputPort],
        outputs: Sequence[OutputPort],
        *,
        identity: Sequence[str],
        prepare: Callable[[dsl.PipelineTask], object],
        constants: Mapping[str, Any] | None = None,
        show: Callable[[Mapping[str, Any]], str] | None = None,
        description: str = "",
    ) -> None:
        known = "what Kubeflow Pipelines calls this task"
        own = [InputPort(source=name, name=name, help=known) for name in identity]
        content = {
            "name": component_name(title),
            "description": description,
            "inputs": [port.to_dict() for port in (*inputs, *own)],
            "outputs": [port.to_dict() for port in outputs],
            "implementation": {"container": container},
        }
        self._content = {key: value for key, value in content.items() if value}
        # to write and read it as YAML takes four times as long as all the rest
        read: Any = SimpleNamespace(to_dict=lambda: self._content)
        super().__init__(component_spec=structures.ComponentSpec.from_v1_component_spec(read))
        self.ports = {port.source: port.name for port in inputs}
        self.identity = list(identity)
        self.constants = dict(constants or {})
        self._prepare = prepare
        self._show = show
        program = json.dumps(container, sort_keys=True)
        self._digest = hashlib.sha256(program.encode()).hexdigest()[:16]

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
            named.setdefault(name, PLACEHOLDERS.get(name) or self._path())
        task = super().__call__(*args, **named)
        if Pipeline.get_default_pipeline() is None:
            return task  # it has run already, with kfp.local
        if self.identity:
            task.set_caching_options(False)  # what a run knows of itself is never the same again
        if KEY in self._component_inputs:
            kubernetes.use_field_path_as_env(task, NODE, NODE_FIELD)
        self._prepare(task)
        return task

    def dry_run(self, **arguments: Any) -> str:
        """Return what would run, as text for a person. Nothing outside of this process is touched.

        Of a launcher it is the request that it would submit, and what goes in and out. While an
        input without a default is open, the job cannot be built, and the latter is all there is.
        Of another component it is its YAML, in which values that look secret are masked.

        Args:
            arguments: value of each argument.

        Raises:
            SpecError: for a wrong argument.
            ConfigError: for an unknown scheduler or option.
        """
        if self._show is None:
            return shown_component(self._content)
        return self._show(arguments)

    def _path(self) -> str:
        """Return what tells this call from others in the pipeline, made when compiling."""
        pipeline = Pipeline.get_default_pipeline()
        if pipeline is None:
            return self._digest
        return f"{pipeline.name}/{len(pipeline.tasks)}/{self._digest}"

    @cached_property
    def _alone(self) -> Any:
        """The component as a pipeline of one task.

        That fills in what only a run knows of itself, and has the settings of the job.
        """
        return _pipeline_of(self)

    @property
    def pipeline_spec(self) -> Any:
        """The component as a compiler writes it, with all that its task is given."""
        return self._alone.pipeline_spec

    @property
    def platform_spec(self) -> Any:
        """What a compiler writes of the pod."""
        return self._alone.platform_spec

    def execute(self, **kwargs: Any) -> Any:
        """Refuse, since a job runs as a container.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a job runs as a container: call the component in a pipeline")


def component_yaml(component: Mapping[str, Any]) -> str:
    """Return a component as YAML text, its programs as blocks that people can read."""
    import yaml  # type: ignore[import-not-found,import-untyped,unused-ignore]

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, which people can read."""

    def text(dumper: Any, value: str) -> Any:
        # other ways to end a line would be read as the usual one
        is_odd = not value.replace("\n", "").replace("\t", "").isprintable()
        style = None
        if is_odd:
            style = '"'
        elif "\n" in value:
            style = "|"
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return str(
        yaml.dump(dict(component), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    )


def shown_component(component: Mapping[str, Any]) -> str:
    """Return a component as YAML for a person.

    The values of variables whose name looks secret are masked.
    """
    container = dict(component["implementation"]["container"])
    if "env" in container:
        container["env"] = masked_env(container["env"])
    for part in ("command", "args"):
        words = container.get(part)
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            container[part] = masked_args(words)
    return component_yaml({**component, "implementation": {"container": container}})


_TYPES: Final = {name: kind for kind, name in KFP_TYPES.items()}
_BY_NAME: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _pipeline_of(component: AppComponent) -> Any:
    """Return a pipeline that runs one component, with the component's inputs and outputs."""
    parameters = []
    for each, spec in (component.component_spec.inputs or {}).items():
        if each in component.identity:
            continue
        default = inspect.Parameter.empty if not spec.optional else spec.default
        kind = _annotation(spec.type, dsl.Input)
        # KFP knows no other form of it
        annotation = kind if default is not None else Optional[kind]  # noqa: UP045
        parameters.append(inspect.Parameter(each, _BY_NAME, default=default, annotation=annotation))
    outputs = component.component_spec.outputs or {}
    fields = [(each, _annotation(spec.type)) for each, spec in outputs.items()]
    tuple_of: Any = NamedTuple  # not a literal list of fields, which a type checker wants
    made = tuple_of("Outputs", fields)

    def run(*values: Any) -> Any:
        given = {each.name: value for each, value in zip(parameters, values, strict=True)}
        task = component(**given)
        return made(**{each: task.outputs[each] for each in outputs}) if outputs else None

    parameters.sort(
        key=lambda each: each.default is not inspect.Parameter.empty
    )  # as a signature must have them
    returned = made if outputs else inspect.Signature.empty
    run.__name__ = "run"
    run.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    if outputs:
        run.__annotations__["return"] = made
    # KFP takes a pipeline for the component in it if both have one name
    return dsl.pipeline(run, name=component_name(f"run-{component.name}"))


def _annotation(kind: str, artifact: Any = None) -> Any:
    """Return the annotation of an input, or output, of a type as KFP has it."""
    if kind in _TYPES:
        return _TYPES[kind]
    found = getattr(dsl, kind.removeprefix("system.").partition("@")[0])
    return found if artifact is None else artifact[found]


def pipeline_text(pipeline: Any) -> str:
    """Return the YAML of a pipeline."""
    with tempfile.TemporaryDirectory(prefix="transload-kfp-") as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        return path.read_text(encoding="utf-8")
