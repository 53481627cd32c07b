"""Make the launcher, a component whose small task submits a job of any size through a scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args, get_origin

from transload.components import Component, Parameter, as_component
from transload.errors import ConfigError, SpecError
from transload.pipelines import (
    JOB_SETTINGS,
    ExecutionSettings,
    Launch,
    OverrideOptions,
    read_settings,
)
from transload.specs import AppDef, CfgVal, Environment, Workspace
from transload.specs.checks import check_given, shorten
from transload_kfp.fields import field_at, field_type, option_path
from transload_kfp.launch_spec import (
    IDENTITY,
    KEY,
    PARENT,
    LaunchSpec,
    check_run_options,
    how_and_where,
)
from transload_kfp.names import component_name, port_names
from transload_kfp.plan import Inputs, found_here, with_arguments
from transload_kfp.ports import (
    KFP_TYPES,
    OUTPUTS,
    InputPort,
    Results,
    can_be_default,
    default_text,
    input_type,
    output_ports,
)
from transload_kfp.settings import TaskOptions, TaskSettings

if TYPE_CHECKING:
    from transload.runner import Cluster
    from transload_kfp.component import AppComponent

Form = Literal["python", "container"]
HANDLE: Final = "handle"
PUBLIC: Final = "python:3.11-slim"
"""An image with Python, for tasks that install all they need."""


class LauncherSettings(ExecutionSettings, TaskOptions, total=False):
    """Settings of a launcher, for the launch, how the job is run, and the launcher's own tasks."""

    cfg: Mapping[str, CfgVal]
    tracker_base: str | None
    workspace: str | Workspace | None
    pass_env: Sequence[str]
    environment: Environment | str | None
    overrides: OverrideOptions | None
    inherit_env: bool
    dry_run: bool


class LauncherOptions(LauncherSettings, total=False):
    """The arguments of `launcher_from_app` beside what is to run, described there."""

    command: Sequence[str] | None
    scheduler: str | None
    cluster: Cluster | Mapping[str, Any] | None
    name: str | None
    component_args: Mapping[str, Any] | None
    inputs: Inputs | None
    results: Results | None
    form: Form
    image: str | None
    packages: Sequence[str]


def launcher_from_app(
    source: Any = None,
    *,
    command: Sequence[str] | None = None,
    scheduler: str | None = None,
    cluster: Cluster | Mapping[str, Any] | None = None,
    name: str | None = None,
    component_args: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    results: Results | None = None,
    form: Form = "container",
    image: str | None = None,
    packages: Sequence[str] = (),
    **settings: Unpack[LauncherSettings],
) -> AppComponent:
    """Return a component that submits a job through a scheduler, and reports its results.

    It waits for the job's end. The job may have any number of roles and replicas. It is built when
    the pipeline runs, so an upstream's output can set anything in it, such as replicas, image or
    resources. A task that is started again reattaches to its job. A cancelled job stays cancelled.

    Args:
        source: an AppDef, its JSON, or a component, which is a name or function that the launcher's
            image can import.
        command: in place of ``source``, a program and its arguments, to be run as they are.
        scheduler: where the job runs. With None it is the one configured in the launcher's image,
            else ``local``.
        cluster: in place of ``scheduler``, a `transload.runner.Cluster`, or its JSON form. Its
            secrets are Kubernetes secrets of the pipeline's namespace (``{"kubeconfig":
            "k8s:SECRET/KEY"}``). Others are the launcher's own.
        name: name of the component, by default the job's.
        component_args: arguments of the component function that are fixed now.
        inputs: of a component function, the arguments that become inputs, by names alone or with a
            type for each (a class of artifacts of ``kfp.dsl`` gives the function a path in the
            launcher). With None, all do. Of an AppDef or a command, for each name the path of a
            field (``"roles[trainer].num_replicas"``, ``"resource.cpu"``, ``"args[--lr]"``,
            ``"env[A]"``), a type (of the program's option of that name), or a pair of both.
        results: results, and files, that become outputs, as in `component_from_app`.
        form: ``container`` (the image needs transload, this adapter and the scheduler's) or
            ``python``, a lightweight Python component (the image needs KFP as well, and KFP's local
            subprocess runner can run it).
        image: of the launcher. Must be given, unless ``packages`` of the Python form bring this
            adapter, or ``kfp.local`` runs tasks in this Python.
        packages: installed when the Python form starts.
        settings: of the launch, of how the job is run, and of the launcher's own tasks. Those of
            the launch are ``cfg``, ``tracker_base``, ``workspace``, ``pass_env``, ``environment``
            and ``overrides`` of `transload.pipelines.Launch`, and ``inherit_env``. The file of
            ``environment`` is in the launcher's image. What ``overrides`` has is set over what the
            job says, as ``{"image": …, "gpu": 1, "mem": "8G"}``
            (`transload.pipelines.OverrideOptions`). With ``dry_run`` the launcher only prints
            what would be submitted. For the others see `transload.pipelines.ExecutionOptions` and
            `TaskSettings`.

    Raises:
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option or setting.
    """
    if form not in get_args(Form):
        raise ConfigError(f"form={form!r}: must be 'container' or 'python'")
    if packages and form == "container":
        raise ConfigError(
            f"packages={list(packages)!r}: the container form installs nothing: give form='python'"
        )
    title, spec, made = _planned(
        source,
        command=command,
        scheduler=scheduler,
        cluster=cluster,
        component_args=component_args,
        inputs=inputs,
        results=results,
        **settings,
    )
    check_given(name=name)
    title = name or title
    if form == "container" and not image and _runs_in_this_python():
        raise ConfigError(
            "form='container': kfp.local runs tasks in this Python here (SubprocessRunner), and no "
            "containers: give form='python', which needs no image here"
        )
    where = launcher_image(image, packages)
    from transload_kfp.component import AppComponent

    names = {"key": KEY, **{port.source: port.name for port in spec.inputs}}
    if form == "container":
        component = _container(spec, title, where)
    else:
        component = _python(spec, title, where, packages).component_spec
    return AppComponent(component, names, IDENTITY, made)


def launcher_image(
    image: str | None, packages: Sequence[str] = (), needs: Sequence[str] = ("kfp",)
) -> str:
    """Return the image for tasks that launch jobs.

    It is the given one, else a public one where ``packages`` bring the rest, or none is used.

    Args:
        image: what the user gave.
        packages: what is installed when the task starts.
        needs: what must be among them: plugins, or extras, of this project.

    Raises:
        SpecError: if there is none: no image that everybody has holds transload.
    """
    if image:
        return image
    missing = [need for need in needs if not _is_among(need, packages)]
    if not missing or _runs_in_this_python():
        return PUBLIC
    lacks = ""
    if packages:
        lacks = f" (transload-{missing[0]} is not in packages={list(packages)!r})"
    raise SpecError(
        f"image: must be given{lacks}: an image that holds transload, this adapter and the "
        "scheduler's plugin: image='my/launcher:1', on the command line --image my/launcher:1; "
        "in a checkout, plugins/kfp/Dockerfile makes one: docker build -t my/launcher:1 plugins/kfp"
    )


def _runs_in_this_python() -> bool:
    """Tell whether ``kfp.local.init`` was called with the runner that takes no containers."""
    from kfp import local
    from kfp.local.config import LocalExecutionConfig

    chosen = LocalExecutionConfig.instance
    return chosen is not None and isinstance(chosen.runner, local.SubprocessRunner)


def _is_among(need: str, packages: Sequence[str]) -> bool:
    """Tell whether a plugin, or extra, of this project is among packages to install."""
    return any(re.search(f"transload.*{need}", package, re.I) for package in packages)


def _planned(
    source: Any,
    *,
    command: Sequence[str] | None = None,
    scheduler: str | None = None,
    cluster: Cluster | Mapping[str, Any] | None = None,
    component_args: Mapping[str, Any] | None = None,
    inputs: Inputs | None = None,
    results: Results | None = None,
    **settings: Unpack[LauncherSettings],
) -> tuple[str, LaunchSpec, TaskSettings]:
    """Return the job's name, what the component carries, and the settings of its tasks."""
    given: dict[str, Any] = dict(settings)
    inherit_env = given.pop("inherit_env", False)
    dry_run = given.pop("dry_run", False)
    launched: dict[str, Any] = {name: given.pop(name) for name in _LAUNCH if name in given}
    _refuse_settings_of_jobs(given)
    options, where_to, made = how_and_where(given, cluster)
    if where_to is not None:
        if scheduler not in (None, where_to["name"]):
            raise ConfigError(
                f"scheduler={scheduler!r}, cluster={where_to['name']!r}: give one of them"
            )
        scheduler = where_to["name"]
    launched["scheduler"] = scheduler
    check_given(**launched)
    if command is not None:
        source = Launch(command=command, app=source)
    launch = Launch.of(source, **{key: value for key, value in launched.items() if value})
    launch = with_arguments(launch, component_args)
    read_settings(launch.overrides)  # a component is built when the pipeline runs: too late
    check_run_options(launch.cfg, _kind_of(launch.scheduler, where_to))
    paths: dict[str, str] = {}
    if launch.component is None:
        # the JSON of a command does not tell its name
        launch = replace(launch, app=launch.build(), command=None, overrides={})
        ports, paths = _field_ports(launch.build(), inputs)
        _refuse_unseen_artifacts(ports, scheduler, where_to)
    else:
        component = as_component(found_here(launch.component, launch.folder))
        ports = _argument_ports(component, launch.args, inputs)
    outputs = []
    if not dry_run:
        outputs = output_ports(results, [HANDLE])
    spec = LaunchSpec(
        launch=launch.to_dict(),
        options=options,
        inputs=ports,
        paths=paths,
        outputs=outputs,
        cluster=where_to,
        inherit_env=inherit_env,
        dry_run=dry_run,
    )
    return launch.name, spec, made


_WHERE_THE_LAUNCHER_IS: Final = (None, "local", "local_cwd")
"""Schedulers whose jobs see the launcher's files. For None its image decides."""


def _kind_of(scheduler: str | None, cluster: Mapping[str, Any] | None) -> str | None:
    """Return the kind of the scheduler of a job, which may be that of a cluster defined here."""
    return scheduler if cluster is None else str(cluster["kind"])


def _refuse_unseen_artifacts(
    ports: Sequence[InputPort], scheduler: str | None, cluster: Mapping[str, Any] | None
) -> None:
    """Refuse an artifact for a job that runs elsewhere, as its path is one of the launcher's pod.

    Args:
        ports: the inputs of a job that is no component function, which could read the artifact.
        scheduler: where the job runs.
        cluster: that scheduler, if it is defined here.
    """
    if _kind_of(scheduler, cluster) in _WHERE_THE_LAUNCHER_IS:
        return
    for port in ports:
        if port.is_artifact:
            raise SpecError(
                f"inputs[{port.source!r}]: a {port.type} is a path in the launcher's pod, which a "
                f"job on scheduler {scheduler!r} does not see; let the upstream task return the "
                f"artifact's address (`-> str`, `return data.uri`), and give inputs="
                f"{{{port.source!r}: str}}"
            )


_LAUNCH: Final = ("cfg", "tracker_base", "workspace", "pass_env", "environment", "overrides")


def _refuse_settings_of_jobs(given: Mapping[str, Any]) -> None:
    """Refuse what a job has and the task that launches it has not, and say where it goes."""
    own = TaskOptions.__annotations__
    for name, value in given.items():
        if name in JOB_SETTINGS and name not in own:
            raise ConfigError(
                f"{name}={shorten(value)}: no setting of the task that launches the job; of the "
                f"job: overrides={{{name!r}: {shorten(value)}}}"
            )


def dry_run_launcher(
    source: Any = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    **options: Unpack[LauncherOptions],
) -> str:
    """Return the request that a launcher would submit, as text for a person.

    It touches nothing outside of this process. Below it are the component's inputs and outputs.
    While an input without a default is open, the job cannot be built. Then these are all there is.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        arguments: input → value.
        options: arguments of `launcher_from_app`.

    Raises:
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option.
    """
    from transload_kfp.task import step_of

    given: dict[str, Any] = dict(options)
    for name in ("name", "form", "image", "packages", "dry_run"):
        given.pop(name, None)  # of the component, not of what it submits
    _, spec, _ = _planned(source, **given)
    named = {port.source: port.name for port in spec.inputs}
    values = {named.get(name, name): value for name, value in (arguments or {}).items()}
    missing = [port.name for port in spec.inputs if not port.optional and port.name not in values]
    if missing:
        shown = f"the job is built when the pipeline runs: {', '.join(missing)} must be given"
    else:
        shown = repr(step_of({"job_id": "dry-run"}, spec, values).plan())
    # without values, which may be secret
    lines = [
        f"input {port.name}: {port.type}{' (required)' * (port.name in missing)}"
        for port in spec.inputs
    ]
    lines += [f"output {port.name}: {port.type}" for port in spec.outputs]
    return "\n".join([shown, *lines, f"output {HANDLE}: String"])


# -- inputs

_RESERVED: Final = (*IDENTITY, KEY, PARENT, *OUTPUTS, HANDLE)


def _field_ports(app: AppDef, inputs: Inputs | None) -> tuple[list[InputPort], dict[str, str]]:
    """Return the inputs that set fields of a job, and input → path of its field."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise SpecError(
            f"inputs={inputs!r}: of an AppDef or a command they are a mapping: name → what it sets, "
            "such as {'rate': ('args[1]', float), 'n': 'num_replicas'}"
        )
    names = port_names([*_RESERVED, *(inputs or {})])
    paths: dict[str, str] = {}
    ports = []
    for each, given in (inputs or {}).items():
        try:
            port, path = _field_port(app, each, names[each], given)
        except (SpecError, ValueError) as exc:
            raise SpecError(f"inputs[{each!r}]: {exc}") from exc
        if path in paths.values():
            raise SpecError(f"inputs[{each!r}]={path!r}: another input sets it already")
        ports.append(port)
        paths[port.name] = path
    return ports, paths


def _field_port(app: AppDef, name: str, port: str, given: Any) -> tuple[InputPort, str]:
    """Return an input that sets a field of a job, and the path of that field.

    Args:
        app: the app definition.
        name: the input, as the user calls it.
        port: its name in KFP.
        given: a path, a type, or a pair of both.
    """
    path: str | None = None
    kind = given
    if isinstance(given, tuple):
        path, kind = given
    elif isinstance(given, str) and input_type(given) is None:
        path = given
        kind = None
    path = path or option_path(app, name)
    kind = kind or field_type(path)
    before = field_at(app, path)
    called = _type(kind)
    has_default = kind in KFP_TYPES
    default = None
    if has_default and before is not None:
        default = default_text(kind(before), "default")
    return InputPort(name, port, called, default=default, optional=has_default), path


def _type(kind: Any, where: str = "") -> str:
    found = input_type(kind)
    if found is None:
        raise SpecError(
            f"{where}{kind!r}: must be str, int, float, bool, list, dict, or a class of artifacts "
            "of kfp.dsl"
        )
    return found


def _argument_ports(found: Component, given: Any, inputs: Inputs | None) -> list[InputPort]:
    """Return the inputs that are arguments of a component function.

    Args:
        found: the component.
        given: the arguments that are fixed now.
        inputs: the arguments that become inputs, or None for all others.
    """
    if not isinstance(given, Mapping):
        raise SpecError(f"args={given!r}: must be a mapping, name → value")
    known = {item.name: item for item in found.parameters}
    if inputs is None:
        # the launch itself sets tracker_base and the parent
        wanted = [each for each in known if each not in (*given, PARENT, "tracker_base")]
    else:
        wanted = list(inputs)
    _check_arguments(found, given, wanted)
    types = inputs if isinstance(inputs, Mapping) else {}
    names = port_names([*_RESERVED, *wanted])
    ports = [
        _argument_port(known[each], types.get(each), names[each])
        for each in wanted
        if each != PARENT
    ]
    return [replace(port, help=found.helps.get(port.source, "")) for port in ports]


def _check_arguments(found: Component, given: Mapping[str, Any], wanted: Sequence[str]) -> None:
    """Check that each argument is known, given once, and that no required one is left out."""
    known = {item.name: item for item in found.parameters}
    for what, names in (("component_args", given), ("inputs", wanted)):
        for name in names:
            if name not in known:
                raise SpecError(
                    f"{what}: {found.name} has no argument {name!r}; it has "
                    f"{', '.join(known) or 'none'}"
                )
    both = [repr(name) for name in wanted if name in given]
    if both:
        raise SpecError(
            f"inputs: {', '.join(both)}: fixed by component_args, so that nothing is left to give"
        )
    required = [name for name, item in known.items() if item.required]
    missing = [name for name in required if name not in (*given, *wanted)]
    if missing:
        raise SpecError(
            f"{found.name}: missing: {', '.join(missing)}: neither an input nor fixed by "
            "component_args"
        )


def _argument_port(item: Parameter, asked: Any, port: str) -> InputPort:
    """Return the input that gives an argument.

    Args:
        item: the argument.
        asked: the type that the user wants, or None for what the annotation says.
        port: the name of the input in KFP.
    """
    kind = list if item.kind == "varargs" else asked or _kind(item.annotation)
    called = _type(kind, f"inputs[{item.name!r}]=")
    if kind not in KFP_TYPES:
        if _kind(item.annotation) is not str:
            raise SpecError(
                f"inputs: argument {item.name!r} is {item.type_name}: must be a str, for a path"
            )
        return InputPort(item.name, port, called)
    default = None
    is_plain = kind in (str, int, float, bool) and type(item.default) is kind
    if is_plain and not item.required and can_be_default(item.default):
        default = default_text(item.default, f"default of {item.name}")
    return InputPort(item.name, port, called, default=default, optional=not item.required)


def _kind(annotation: Any) -> type:
    """Return the type that an argument of that annotation has on its way.

    An annotation for which KFP has no type travels as text.
    """
    if annotation in KFP_TYPES:
        return annotation  # type: ignore[no-any-return]
    origin = get_origin(annotation)
    if origin in (list, tuple, Sequence):
        return list
    if origin in (dict, Mapping):
        return dict
    if origin is Literal:
        return str
    alternatives = get_args(annotation)
    others = [each for each in alternatives if each is not type(None)]
    is_optional = len(alternatives) == 2 and len(others) == 1
    return _kind(others[0]) if is_optional else str


# -- the container form


def _container(spec: LaunchSpec, title: str, image: str) -> dict[str, Any]:
    own = [InputPort(each, each) for each in IDENTITY]
    own += [InputPort(each, each, default="", optional=True) for each in (KEY, PARENT)]
    given = [port.placeholder for port in spec.inputs if port.is_artifact]
    made = [f"{{{{$.outputs.artifacts['{name}'].path}}}}" for name in spec.made_artifacts]
    outputs = [port.to_dict() for port in spec.outputs if not port.is_artifact]
    outputs += [{"name": name, "type": kind} for name, kind in spec.made_artifacts.items()]
    if not spec.dry_run:
        outputs.insert(0, {"name": HANDLE, "type": "String", "description": "the job's handle"})
    return {
        "name": component_name(title),
        "inputs": [port.to_dict() for port in (*spec.inputs, *own)],
        "outputs": outputs,
        "implementation": {
            "container": {
                "image": image,
                "command": ["python3", "-m", "transload_kfp", spec.encode()],
                "args": ["{{$}}", *made, *given],
            }
        },
    }


# -- the Python form


def _python(spec: LaunchSpec, title: str, image: str, packages: Sequence[str]) -> Any:
    from transload_kfp.component import python_component

    function = component_name(title).replace("-", "_")
    if iskeyword(function):
        function = f"{function}_app"
    return python_component(_source(spec, function), function, image, packages)


def _source(spec: LaunchSpec, function: str) -> str:
    """Return the source of the Python form, which is a function that calls the launcher."""
    outputs = [(port.name, _PYTHON[port.type]) for port in spec.outputs if not port.is_artifact]
    if spec.dry_run:
        outputs = []
    else:
        outputs.insert(0, (HANDLE, "str"))
    context = {name.removeprefix("transload_"): name for name in (*IDENTITY, KEY)}
    context["parent"] = PARENT
    given = {port.name: _value_of(port) for port in spec.inputs}
    made = {name: name for name in spec.made_artifacts}
    call = f'"{spec.encode()}", {_dict_source(given)}, _context, {_dict_source(made)}'
    body = [
        # names of its own begin with "_", which no input's does
        "    from transload_kfp.task import launch_in_component as _launch",
        f"    _context = {_dict_source(context)}",
        f"    _found = _launch({call})",
    ]
    arrow = ""
    if outputs:
        names = ", ".join(name for name, _ in outputs)
        fields = ", ".join(f'("{name}", {kind})' for name, kind in outputs)
        body.append("    from collections import namedtuple as _tuple")
        body.append(f'    return _tuple("Outputs", "{names}")(**_found)')
        arrow = f' -> NamedTuple("Outputs", [{fields}])'
    head = [f"def {function}(", *_parameters_source(spec), f"){arrow}:"]
    return "\n".join([*head, *body]) + "\n"


def _parameters_source(spec: LaunchSpec) -> list[str]:
    """Return a line for each parameter of the Python form. Those with a default come last."""
    lines = [f"    {name}: str," for name in IDENTITY]
    for port in spec.inputs:
        if not port.optional:
            lines.append(f"    {port.name}: {_annotation(port)},")
    for name, kind in spec.made_artifacts.items():
        lines.append(f"    {name}: dsl.Output[dsl.{kind}],")
    for port in spec.inputs:
        if port.optional:
            lines.append(f"    {port.name}: {_annotation(port)} = {_default(port)},")
    lines += [f'    {name}: str = "",' for name in (KEY, PARENT)]
    return lines


def _dict_source(names: Mapping[str, str]) -> str:
    """Return the source of a dict from the expression of each key."""
    items = [f'"{key}": {expression}' for key, expression in names.items()]
    return f"{{{', '.join(items)}}}"


def _value_of(port: InputPort) -> str:
    """Return the expression for an input's value, or for the path of an artifact."""
    return f"{port.name}.path" if port.is_artifact else port.name


_PYTHON: Final = {called: kind.__name__ for kind, called in KFP_TYPES.items()}


def _annotation(port: InputPort) -> str:
    if port.is_artifact:
        return f"dsl.Input[dsl.{port.type}]"
    kind = _PYTHON[port.type]
    if port.optional and port.default is None:
        return f"Optional[{kind}]"
    return kind


def _default(port: InputPort) -> str:
    if port.default is None:
        return "None"
    if port.type == "String":
        return repr(port.default)
    return {"true": "True", "false": "False"}.get(port.default, port.default)
