"""Make the launcher, a component whose small task submits a job of any size through a scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args, get_origin

from transload.components import Component, Parameter, as_component
from transload.errors import ConfigError, SpecError
from transload.pipelines import (
    SETTINGS,
    ExecutionSettings,
    Launch,
    OverrideOptions,
    read_settings,
)
from transload.specs import AppDef, CfgVal, Environment, Workspace, nearest
from transload.specs.checks import check_given, shorten
from transload_kfp.fields import field_at, field_type, option_path, place_and_type
from transload_kfp.launch_spec import (
    IDENTITY,
    KEY,
    OPTIONS,
    PARENT,
    LaunchSpec,
    check_run_options,
    cluster_of,
)
from transload_kfp.names import component_name, port_names
from transload_kfp.plan import Inputs, found_here, with_arguments
from transload_kfp.pod import use_secrets
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

if TYPE_CHECKING:
    from transload.runner import Cluster
    from transload_kfp.component import AppComponent

HANDLE: Final = "handle"
PUBLIC: Final = "python:3.11-slim"
"""An image with Python, for tasks that install all they need."""


class LauncherSettings(ExecutionSettings, total=False):
    """Settings of a launcher: of the launch, and of how the job is run."""

    cfg: Mapping[str, CfgVal]
    tracker_base: str | None
    workspace: str | Workspace | None
    pass_env: Sequence[str]
    environment: Environment | str | None
    overrides: OverrideOptions | None
    inherit_env: bool


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
        image: of the launcher, with transload, this adapter and the scheduler's. Must be given,
            unless ``packages`` bring this adapter, or ``kfp.local`` runs tasks in this Python.
        packages: installed when a task starts.
        settings: of the launch, and of how the job is run. Those of the launch are ``cfg``,
            ``tracker_base``, ``workspace``, ``pass_env``, ``environment`` and ``overrides`` of
            `transload.pipelines.Launch`, and ``inherit_env``. The file of ``environment`` is in the
            launcher's image. What ``overrides`` has is set over what the job says, as
            ``{"image": …, "gpu": 1, "mem": "8G"}`` (`transload.pipelines.OverrideOptions`). For the
            others see `transload.pipelines.ExecutionOptions`.

    Raises:
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option or setting.
    """
    title, spec, secrets = _planned(
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
    where = launcher_image(image, packages)
    from transload_kfp.component import AppComponent

    names = {"key": KEY, **{port.source: port.name for port in spec.inputs}}
    content = _content(spec, name or title, program("launch", spec.encode(), where, packages))
    prepare = partial(use_secrets, secrets=secrets)
    return AppComponent(content, names, IDENTITY, prepare, show=partial(_shown, spec))


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
        "scheduler's plugin: image='my/launcher:1'; "
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
) -> tuple[str, LaunchSpec, dict[str, str]]:
    """Return the job's name, what the component carries, and the secrets of its tasks."""
    options: dict[str, Any] = dict(settings)
    inherit_env = options.pop("inherit_env", False)
    launched: dict[str, Any] = {name: options.pop(name) for name in _LAUNCH if name in options}
    refuse_unknown(options, (*_LAUNCH, "inherit_env", "component_args"))
    where_to, secrets = cluster_of(cluster)
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
    spec = LaunchSpec(
        launch=launch.to_dict(),
        options=options,
        inputs=ports,
        paths=paths,
        outputs=output_ports(results, [HANDLE]),
        cluster=where_to,
        inherit_env=inherit_env,
    )
    return launch.name, spec, secrets


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


def refuse_unknown(given: Mapping[str, Any], others: Sequence[str]) -> None:
    """Refuse what is no option of how a job is run, and say where it goes.

    Args:
        given: the options.
        others: what the user may give besides, for the message.

    Raises:
        ConfigError: with the nearest name.
    """
    for name, value in given.items():
        if name in OPTIONS:
            continue
        if name in SETTINGS:
            raise ConfigError(
                f"{name}={shorten(value)}: is set in the job: overrides={{{name!r}: "
                f"{shorten(value)}}}; or in the task that launches it, by KFP's own calls on what "
                "the component returns, such as task.set_retry(2)"
            )
        meant = "component_args" if name == "args" else name
        raise ConfigError(f"unknown setting {name!r}: {nearest(meant, [*OPTIONS, *others])}")


def _shown(spec: LaunchSpec, arguments: Mapping[str, Any]) -> str:
    """Return the request that a launcher would submit, and its inputs and outputs, without values."""
    from transload_kfp.task import step_of

    named = {port.source: port.name for port in spec.inputs}
    values = {named.get(name, name): value for name, value in arguments.items()}
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
    path, kind = place_and_type(given)
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


# -- the component


EXECUTOR: Final = "kfp.dsl.executor_main"
"""KFP's own program for the tasks of Python functions, for which ours stands in.

It is named in the command, since KFP's runner without containers takes no other component.
"""


def program(task: str, text: str, image: str, packages: Sequence[str]) -> dict[str, Any]:
    """Return the container that runs ``python3 -m transload_kfp`` for a task.

    Args:
        task: which part of this adapter it is.
        text: what it carries.
        image: where it runs.
        packages: installed before.
    """
    command = ["python3", "-m", "transload_kfp"]
    if packages:
        install = "python3 -m pip install --quiet --disable-pip-version-check"
        line = f'{install} {shlex.join(packages)} && exec {shlex.join(command)} "$@"'
        command = ["sh", "-c", line, "sh"]
    return {"image": image, "command": [*command, task, text, EXECUTOR], "args": ["{{$}}"]}


def _content(spec: LaunchSpec, title: str, container: dict[str, Any]) -> dict[str, Any]:
    """Return a launcher as component YAML has it."""
    own = [InputPort(each, each) for each in IDENTITY]
    own += [InputPort(each, each, default="", optional=True) for each in (KEY, PARENT)]
    container["args"] += [made_path(name) for name in spec.made_artifacts]
    container["args"] += [port.placeholder for port in spec.inputs if port.is_artifact]
    outputs = [{"name": HANDLE, "type": "String", "description": "the job's handle"}]
    outputs += [port.to_dict() for port in spec.outputs if not port.is_artifact]
    outputs += [{"name": name, "type": kind} for name, kind in spec.made_artifacts.items()]
    return {
        "name": component_name(title),
        "inputs": [port.to_dict() for port in (*spec.inputs, *own)],
        "outputs": outputs,
        "implementation": {"container": container},
    }


def made_path(name: str) -> str:
    """Return what stands for the path of an artifact that comes out."""
    return f"{{{{$.outputs.artifacts['{name}'].path}}}}"
