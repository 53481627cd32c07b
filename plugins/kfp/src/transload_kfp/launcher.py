"""Make the launcher, a component whose small task submits a job of any size through a scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args, get_origin

from transload.components import Component, Parameter, as_component
from transload.errors import ConfigError, PluginError, SpecError
from transload.pipelines import (
    SETTINGS,
    ExecutionSettings,
    Launch,
    OverrideOptions,
    read_settings,
)
from transload.plugins import get_plugins
from transload.runner import Cluster
from transload.specs import CfgVal, Environment, InvalidRunConfigException, Workspace, nearest
from transload.specs.checks import check_given, shorten
from transload_kfp.convert import found_here, with_arguments
from transload_kfp.fields import field_input, field_of
from transload_kfp.launch_spec import LaunchSpec
from transload_kfp.names import port_names
from transload_kfp.pod import use_secrets
from transload_kfp.ports import (
    FILES,
    HANDLE,
    IDENTITY,
    KEY,
    KFP_TYPES,
    METRICS,
    PARENT,
    PATH,
    RESULTS,
    InputPort,
    Inputs,
    Results,
    can_be_default,
    default_text,
    need_input_type,
    output_ports,
)

if TYPE_CHECKING:
    from transload_kfp.component import AppComponent

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


OPTIONS: Final = [each for each in ExecutionSettings.__annotations__ if each != "resubmit_on"]
"""What a user may say of how a job is run."""
_LAUNCH: Final = ("cfg", "tracker_base", "workspace", "pass_env", "environment", "overrides")
_OWN_INPUTS: Final = (
    InputPort(source="key", name=KEY, default="", optional=True),
    InputPort(source=PARENT, name=PARENT, default="", optional=True),
)
_OWN_OUTPUTS: Final = (HANDLE, RESULTS, METRICS)
_WHERE_THE_LAUNCHER_IS: Final = (None, "local", "local_cwd")
"""Schedulers whose jobs see the launcher's files. For None its image decides."""


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
    options: dict[str, Any] = dict(settings)
    inherit_env = options.pop("inherit_env", False)
    launched: dict[str, Any] = {each: options.pop(each) for each in _LAUNCH if each in options}
    refuse_unknown(options, (*_LAUNCH, "inherit_env", "component_args"))
    where, secrets = cluster_of(cluster)
    kind = scheduler
    if where is not None:
        if scheduler not in (None, where["name"]):
            raise ConfigError(
                f"scheduler={scheduler!r}, cluster={where['name']!r}: give one of them"
            )
        scheduler = where["name"]
        kind = str(where["kind"])
    launched["scheduler"] = scheduler
    check_given(name=name, **launched)
    if command is not None:
        source = Launch(command=command, app=source)
    launch = Launch.of(source, **{key: value for key, value in launched.items() if value})
    launch = with_arguments(launch, component_args)
    read_settings(launch.overrides)  # a component is built when the pipeline runs: too late
    check_run_options(launch.cfg, kind)
    if launch.component is None:
        # the JSON of a command does not tell its name
        launch = replace(launch, app=launch.build(), command=None, overrides={})
        ports = _field_inputs(launch, inputs)
        if kind not in _WHERE_THE_LAUNCHER_IS:
            _refuse_unseen_artifacts(ports, scheduler)
    else:
        ports = _argument_inputs(launch, inputs)
    spec = LaunchSpec(
        launch=launch.to_dict(),
        options=options,
        inputs=ports,
        outputs=output_ports(results, [RESULTS, METRICS, FILES, HANDLE]),
        cluster=where,
        inherit_env=inherit_env,
    )
    container = program("launch", spec.encode(), launcher_image(image, packages), packages)
    container["args"] += [port.placeholder for port in spec.artifacts]
    container["args"] += [port.placeholder for port in ports if port.is_artifact]
    from transload_kfp.component import AppComponent

    return AppComponent(
        name or launch.name,
        container,
        [*_OWN_INPUTS, *ports],  # an input of the job that is called key is meant by that name
        [*_OWN_OUTPUTS, *spec.outputs],
        identity=(*IDENTITY, PATH),
        prepare=partial(use_secrets, secrets=secrets),
        show=partial(_shown, spec),
    )


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


def _refuse_unseen_artifacts(ports: Sequence[InputPort], scheduler: str | None) -> None:
    """Refuse an artifact for a job that runs elsewhere, as its path is one of the launcher's pod.

    A component function could read it in the launcher. Any other job cannot.
    """
    for port in ports:
        if port.is_artifact:
            raise SpecError(
                f"inputs[{port.source!r}]: a {port.type} is a path in the launcher's pod, which a "
                f"job on scheduler {scheduler!r} does not see; let the upstream task return the "
                f"artifact's address (`-> str`, `return data.uri`), and give inputs="
                f"{{{port.source!r}: str}}"
            )


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


def cluster_of(
    given: Cluster | Mapping[str, Any] | None,
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """Return a cluster as JSON values, and its Kubernetes secrets, which are variables of the task.

    Returns:
        The cluster, if one is given, and variable → ``k8s:SECRET/KEY``.

    Raises:
        ConfigError: for what is no cluster, or a secret that names no key.
    """
    if given is None:
        return None, {}
    found = given if isinstance(given, Cluster) else Cluster.from_dict(given)
    sources = dict(found.secrets)
    variables: dict[str, str] = {}
    for setting, source in found.secrets.items():
        kind, _, place = source.partition(":")
        if kind != "k8s":
            continue
        if not place.partition("/")[2]:
            raise ConfigError(
                f"cluster {found.name!r}: secrets[{setting!r}]={source!r}: must be k8s:SECRET/KEY"
            )
        variable = f"TRANSLOAD_CLUSTER_{setting.upper()}"
        sources[setting] = f"env:{variable}"
        variables[variable] = source
    return replace(found, secrets=sources).to_dict(), variables


def check_run_options(cfg: Mapping[str, CfgVal], scheduler: str | None) -> None:
    """Check run options by what their scheduler takes, where its plugin is installed here.

    What else the launcher's image has, such as settings, is not known here.

    Args:
        cfg: the run options.
        scheduler: its kind, or None if the launcher's image decides.

    Raises:
        ConfigError: for an unknown option, or a value of the wrong type.
    """
    plugins = get_plugins()
    if not cfg or scheduler not in plugins.names("schedulers"):
        return
    try:
        made = plugins.get("schedulers", scheduler)("kfp")
    except PluginError:
        return  # a broken plugin here says nothing about the launcher's image
    try:
        made.options.read(cfg)
    except InvalidRunConfigException as exc:
        if exc.cfg_key in cfg:  # one that is missing may be among the settings there
            raise ConfigError(f"cfg: scheduler {scheduler!r}: {exc}") from exc
    finally:
        made.close()


def _shown(spec: LaunchSpec, arguments: Mapping[str, Any]) -> str:
    """Return the request that a launcher would submit, and its inputs and outputs, without values."""
    from transload_kfp.task import step_of

    named = {port.source: port.name for port in spec.inputs}
    values = {named.get(name, name): value for name, value in arguments.items()}
    missing = [port.name for port in spec.inputs if not port.optional and port.name not in values]
    if missing:
        shown = f"the job is built when the pipeline runs: {', '.join(missing)} must be given"
    else:
        shown = repr(step_of(spec, {"run": "dry-run"}, values).plan())
    # without values, which may be secret
    lines = [
        f"input {port.name}: {port.type}{' (required)' * (port.name in missing)}"
        for port in spec.inputs
    ]
    lines += [f"output {port.name}: {port.type}" for port in (*spec.outputs, HANDLE)]
    return "\n".join([shown, *lines])


# -- inputs


def _port_names(names: Iterable[str]) -> dict[str, str]:
    """Return input → its name in KFP, which is none of the launcher's own inputs and outputs."""
    own = [port.name for port in (*_OWN_INPUTS, *_OWN_OUTPUTS, FILES)]
    return port_names([*IDENTITY, PATH, *own, *names])


def _field_inputs(launch: Launch, inputs: Inputs | None) -> list[InputPort]:
    """Return the inputs that set fields of a job."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise SpecError(
            f"inputs={inputs!r}: of an AppDef or a command they are a mapping: name → what it sets, "
            "such as {'rate': ('args[1]', float), 'n': 'num_replicas'}"
        )
    app = launch.build()
    names = _port_names(inputs or ())
    places = []
    ports = []
    for each, given in (inputs or {}).items():
        try:
            port = field_input(app, each, given, names[each])
        except SpecError as exc:
            raise SpecError(f"inputs[{each!r}]: {exc}") from exc
        place = field_of(app, port.path).place
        if place in places:
            raise SpecError(f"inputs[{each!r}]={port.path!r}: another input sets it already")
        places.append(place)
        ports.append(port)
    return ports


def _argument_inputs(launch: Launch, inputs: Inputs | None) -> list[InputPort]:
    """Return the inputs that are arguments of a component function.

    Those that are fixed now are none. Without a word about inputs, all others are.
    """
    found = as_component(found_here(launch.component, launch.folder))
    given = launch.args
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
    names = _port_names(wanted)
    ports = []
    for each in wanted:
        if each != PARENT:
            port = _argument_input(known[each], types.get(each), names[each])
            ports.append(replace(port, help=found.helps.get(each, "")))
    return ports


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


def _argument_input(item: Parameter, asked: Any, port: str) -> InputPort:
    """Return the input that gives an argument.

    Args:
        item: the argument.
        asked: the type that the user wants, or None for what the annotation says.
        port: the name of the input in KFP.
    """
    kind = list if item.kind == "varargs" else asked or _kind(item.annotation)
    try:
        made = InputPort(source=item.name, name=port, type=need_input_type(kind))
    except SpecError as exc:
        raise SpecError(f"inputs[{item.name!r}]={exc}") from exc
    if kind not in KFP_TYPES:
        if _kind(item.annotation) is not str:
            raise SpecError(
                f"inputs: argument {item.name!r} is {item.type_name}: must be a str, for a path"
            )
        return made
    default = None
    is_plain = kind in (str, int, float, bool) and type(item.default) is kind
    if is_plain and not item.required and can_be_default(item.default):
        default = default_text(item.default, f"default of {item.name}")
    return replace(made, default=default, optional=not item.required)


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
