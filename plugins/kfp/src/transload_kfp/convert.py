"""From an app to a component of Kubeflow Pipelines. Pure: nothing runs, and KFP is imported only where it is used."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from transload.errors import ConfigError
from transload.pipelines import AdapterCapabilities, ExecutionOptions, Launch
from transload.specs import masked_env, nearest
from transload_kfp.command import container_of
from transload_kfp.names import component_name
from transload_kfp.plan import Plan, make_plan
from transload_kfp.ports import InputPort
from transload_kfp.settings import TaskSettings
from transload_kfp.states import STATES

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

    from transload_kfp.component import AppComponent
    from transload_search import Search

Results = Mapping[str, type] | Sequence[str]


def component_spec_from_app(
    source: Any,
    *,
    name: str | None = None,
    args: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | Mapping[str, Any] | None = None,
    artifacts: Sequence[str] = (),
    results: Results | None = None,
    final_status: str | None = None,
    python: str = "python3",
) -> str:
    """Return the component YAML of an app; ``kfp.components.load_component_from_text`` takes it.

    The YAML holds image, command, arguments, variables, inputs and outputs. Resources, retries, mounts and labels are
    settings of a task, for which component YAML has no place: `component_from_app` applies them.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        name: name of the component; default: the app's.
        args: arguments of the component function that are settled now.
        inputs: of a component function: the arguments that become inputs, with their defaults: name → ``str``, ``int``
            or ``float``, or names alone (as annotated). The function may put their values into texts of entrypoint,
            args and env, and nothing else. Of an AppDef: name → ``"args[2]"``, ``"args[--lr]"`` or ``"env[NAME]"``, or
            a pair of that and ``str``, ``int``, ``float``, ``bool``; what stands there is the default.
        artifacts: arguments (or inputs of an AppDef) that take an artifact and give the program its path.
        results: results that become output parameters: name → ``str``, ``int`` or ``float``, or names alone (float).
            ``"final/accuracy"`` is the result ``accuracy`` of key ``final``. With results, even none (``{}``), the
            program is started by a few lines of Python, and there is a Metrics artifact.
        final_status: argument (or input of an AppDef) that takes how the tasks of a ``dsl.ExitHandler`` ended, as JSON
            with ``state``, ``pipeline_task_name`` and ``error``: for its exit task.
        python: the interpreter in the image that runs these lines, 3.7 or later.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
    """
    plan = make_plan(
        source, name=name, args=args, inputs=inputs, artifacts=artifacts, results=results, final_status=final_status
    )
    return component_yaml(_component(plan, python))


def component_from_app(
    source: Any,
    *,
    name: str | None = None,
    args: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | Mapping[str, Any] | None = None,
    artifacts: Sequence[str] = (),
    results: Results | None = None,
    final_status: str | None = None,
    python: str = "python3",
    **settings: Any,
) -> AppComponent:
    """Return a component that runs an app as its container.

    Args:
        source: as the arguments that follow, see `component_spec_from_app`.
        name: name of the component.
        args: arguments that are settled now.
        inputs: what becomes an input.
        artifacts: inputs that take an artifact.
        results: results that become output parameters.
        final_status: argument that takes the final status, in the task of an exit handler.
        python: the interpreter in the image.
        settings: of each task that is made from it; see `TaskSettings`.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong setting.
    """
    plan = make_plan(
        source, name=name, args=args, inputs=inputs, artifacts=artifacts, results=results, final_status=final_status
    )
    made = TaskSettings.of(plan.app, **settings)
    component = _component(plan, python, made)
    from transload_kfp.component import AppComponent, component_spec_of

    ports = {port.source: port.name for port in plan.inputs}
    return AppComponent(component_spec_of(component), ports, plan.identity, made)


def container_from_app(source: Any, *, arguments: Mapping[str, Any] | None = None, **options: Any) -> PipelineTask:
    """Run an app inside a pipeline function; return the task.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        arguments: input → value: of a pipeline's parameter, of an upstream task, or a constant.
        options: those of `component_from_app`, settings included.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong setting.
    """
    return component_from_app(source, **options)(**dict(arguments or {}))


def _component(plan: Plan, python: str, settings: TaskSettings | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": component_name(plan.title)}
    if plan.description:
        made["description"] = plan.description
    identity = [InputPort(each, each, help="what Kubeflow Pipelines calls this task") for each in plan.identity]
    ports = [*plan.inputs, *identity]
    if ports:
        made["inputs"] = [port.to_dict() for port in ports]
    outputs: list[dict[str, str]] = [port.to_dict() for port in plan.outputs]
    if plan.has_results:
        outputs.append({"name": "results", "type": "Artifact", "description": "the app's tracker base, a folder"})
    if plan.wrapped:
        outputs.append({"name": "metrics", "type": "Metrics", "description": "the numbers among the app's results"})
    if outputs:
        made["outputs"] = outputs
    variables = () if settings is None else (*settings.env, *settings.secrets)
    made["implementation"] = {"container": container_of(plan, python, variables)}
    return made


def component_yaml(component: Mapping[str, Any]) -> str:
    """Return a component as YAML text, its programs as blocks that people can read."""
    import yaml  # type: ignore[import-not-found,import-untyped,unused-ignore]

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, which people can read."""

    def text(dumper: Any, value: str) -> Any:
        # other ways to end a line would be read as the usual one
        odd = not value.replace("\n", "").replace("\t", "").isprintable()
        style = '"' if odd else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return str(yaml.dump(dict(component), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))


def shown_component(component: Mapping[str, Any]) -> str:
    """Return a component as YAML for a person: values of variables whose name looks secret are masked."""
    container = dict(component["implementation"]["container"])
    if "env" in container:
        container["env"] = masked_env(container["env"])
    return component_yaml({**component, "implementation": {"container": container}})


class KfpAdapter:
    """The adapter that ``transload.pipelines.get_adapter("kfp")`` returns."""

    name = "kfp"
    state_map = STATES
    capabilities = AdapterCapabilities(
        searches=True,
        notes={
            "roles": "by launcher_from_app; a component of its own is one container",
            "replicas": "by launcher_from_app",
            "ports": "by launcher_from_app",
            "mounts": "volumes as claims; others by launcher_from_app",
            "launch_parameters": "by launcher_from_app",
            "cancel": "a launcher that gets SIGTERM does what on_kill says; a component's pod is ended by the cluster",
            "deferred": "a launcher is a small pod that waits",
        },
    )

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return a component; a launcher if ``scheduler`` or ``launcher=True`` is given; of a search a pipeline.

        Args:
            source: an AppDef, its JSON, a component, a `transload.pipelines.Launch`, or a `transload_search.Search`.
            host_options: arguments of `component_from_app`, `launcher_from_app` or `search_pipeline`; for a launcher
                also those of `transload.pipelines.ExecutionOptions`; ``launch={"args": …, "scheduler": …}`` as in every
                adapter.

        Raises:
            UnsupportedFeature: for what one component cannot express, by field name.
            SpecError: for a wrong source, argument or input.
            ConfigError: for a wrong option.
        """
        if _is_search(source):
            return _searched(source, host_options)
        source, launches = _launched(source, host_options)
        if launches:
            from transload_kfp.launcher_component import launcher_from_app

            return launcher_from_app(source, **host_options)
        return component_from_app(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return the component YAML; of a launcher, what it would submit; of a search, its pipeline.

        Args:
            source: as in `convert`.
            host_options: likewise.

        Raises:
            UnsupportedFeature: for what one component cannot express, by field name.
            SpecError: for a wrong source, argument or input.
            ConfigError: for a wrong option.
        """
        if _is_search(source):
            from transload_kfp.pipeline import pipeline_text

            return pipeline_text(self.convert(source, **host_options))
        source, launches = _launched(source, host_options)
        if launches:
            from transload_kfp.launcher_component import dry_run_launcher

            return dry_run_launcher(source, **host_options)
        planned = inspect.signature(make_plan).parameters
        plan = make_plan(source, **{name: host_options.pop(name) for name in list(host_options) if name in planned})
        python = host_options.pop("python", "python3")
        return shown_component(_component(plan, python, TaskSettings.of(plan.app, **host_options)))


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search; without transload-search, which is an extra, nothing is."""
    return type(source).__module__.startswith("transload_search.")


def _searched(search: Search, host_options: Mapping[str, Any]) -> Any:
    """Return the pipeline of a search; what it does not take is refused as a wrong setting is."""
    from transload_kfp.search import search_pipeline

    known = list(inspect.signature(search_pipeline).parameters)[1:]
    for name in host_options:
        if name not in known:
            raise ConfigError(f"unknown option {name!r} of a search: {nearest(name, known)}")
    if "tracker_base" not in host_options:
        raise ConfigError("a search needs tracker_base: where it keeps its state, and its trials report")
    return search_pipeline(search, **host_options)


_OPTIONS: Final = frozenset(each.name for each in fields(ExecutionOptions)) - {"attach"}


def _launched(source: Any, host_options: dict[str, Any]) -> tuple[Any, bool]:
    """Return the source with its ``launch``, and whether a launcher is asked for; put its options where they belong."""
    launch = host_options.pop("launch", None)
    source = source if launch is None else Launch.of(source, **launch)
    own = isinstance(source, Launch) and any((source.scheduler, source.cfg, source.workspace, source.tracker_base))
    asked = host_options.pop("launcher", None)
    launches = bool(asked) or own or any(name in host_options for name in ("scheduler", "cfg"))
    if launches:
        options = {name: host_options.pop(name) for name in list(host_options) if name in _OPTIONS}
        host_options["options"] = {**(host_options.get("options") or {}), **options}
    return source, launches
