"""The launcher as a component: an app of any size, submitted through a scheduler by a small task of its own."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import transload
from transload.components import Component, Parameter, as_component
from transload.errors import ConfigError, SpecError
from transload.pipelines import Launch
from transload.specs import AppDef
from transload_kfp.arguments import check_arguments, refuse_missing, settled_of
from transload_kfp.convert import Results
from transload_kfp.fields import field_type, get_field
from transload_kfp.generated import python_component
from transload_kfp.launch_spec import IDENTITY, KEY, PARENT, LaunchSpec
from transload_kfp.names import component_name, port_names
from transload_kfp.ports import ARTIFACT, KFP_TYPES, InputPort, can_be_default, default_text, output_ports
from transload_kfp.settings import TaskSettings

if TYPE_CHECKING:
    from transload_kfp.component import AppComponent

Form = Literal["python", "container"]
OUTPUTS: Final = ("handle", "results", "metrics")
_SIMPLE: Final = {str: "str", int: "int", float: "float", bool: "bool", list: "list", dict: "dict"}


def launcher_from_app(
    source: Any,
    *,
    scheduler: str | None = None,
    cfg: Mapping[str, Any] | None = None,
    name: str | None = None,
    args: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | Mapping[str, Any] | None = None,
    artifacts: Sequence[str] = (),
    results: Results | None = None,
    tracker_base: str | None = None,
    workspace: str | None = None,
    options: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    form: Form = "container",
    image: str | None = None,
    packages: Sequence[str] = (),
    dry_run: bool = False,
    **settings: Any,
) -> AppComponent:
    """Return a component that submits an app through a scheduler, waits for its end and reports its results.

    The app may have any number of roles and replicas. It is built when the pipeline runs, so an upstream's output can
    set anything in it: replicas, image, resources. Restarted, the task finds its app again; a cancelled one stays so.

    Args:
        source: an AppDef, its JSON, or a component: a name or function that the launcher's image can import.
        scheduler: where the app runs; None: the one configured in the launcher's image, else ``local``.
        cfg: run options of the scheduler.
        name: name of the component; default: the app's.
        args: arguments of the component function that are settled now.
        inputs: of a component function: the arguments that become inputs, names alone or name → type; None: all. Of an
            AppDef: name → path of a field: ``"roles[trainer].num_replicas"``, ``"image"``, ``"resource.cpu"``,
            ``"args[--lr]"``, ``"env[A]"``.
        artifacts: inputs that take an artifact and give its path in the launcher.
        results: results that become output parameters; see `component_from_app`.
        tracker_base: where the app reports; None: where the scheduler says.
        workspace: folder in the launcher's image that travels with the app.
        options: of `transload.pipelines.ExecutionOptions`: ``on_kill``, ``patience``, ``retries_by`` …
        inherit_env: give the job the launcher's whole environment.
        form: ``container`` (the image needs transload, this adapter and the scheduler's) or ``python``, a lightweight
            Python component (the image needs KFP as well, and KFP's local subprocess runner can run it).
        image: of the launcher; None: the one that ``TRANSLOAD_IMAGE`` names.
        packages: installed when the Python form starts.
        dry_run: print what would be submitted, submit nothing; such a component has no output parameters.
        settings: of the launcher's own tasks; see `TaskSettings`.

    Raises:
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option or setting.
    """
    if form not in get_args(Form):
        raise ConfigError(f"form={form!r}: must be 'container' or 'python'")
    known: dict[str, Any] = {"args": args, "inputs": inputs, "artifacts": artifacts, "results": results}
    known |= {"scheduler": scheduler, "cfg": cfg, "tracker_base": tracker_base, "workspace": workspace}
    launch, spec = _planned(source, options=options, inherit_env=inherit_env, dry_run=dry_run, **known)
    made = TaskSettings(retries=0).updated(**settings)
    where = launcher_image(image, packages if form == "python" else ())
    return _assembled(spec, name or launch.name, form, where, packages, made)


def launcher_image(image: str | None, packages: Sequence[str] = ()) -> str:
    """Return the image for tasks that launch apps: the given one, else the one that ``TRANSLOAD_IMAGE`` names.

    Args:
        image: what the user gave.
        packages: what is installed when the task starts: any image with Python will do then.

    Raises:
        SpecError: if there is none: no image that everybody has holds transload.
    """
    found = image or os.environ.get("TRANSLOAD_IMAGE") or (transload.IMAGE if packages else "")
    if not found:
        raise SpecError(
            "image: must be given (or TRANSLOAD_IMAGE be set): an image that holds transload, this adapter and the "
            "scheduler's plugin; plugins/kfp/Dockerfile makes one"
        )
    return found


def _assembled(
    spec: LaunchSpec, title: str, form: Form, image: str, packages: Sequence[str], settings: TaskSettings
) -> AppComponent:
    from transload_kfp.component import AppComponent, component_spec_of

    names = {port.source: port.name for port in spec.inputs}
    if "key" not in names:
        names["key"] = KEY
    if form == "container":
        made = component_spec_of(_container(spec, title, image))
    else:
        made = _python(spec, title, image, packages).component_spec
    return AppComponent(made, names, IDENTITY, settings)


def _planned(
    source: Any,
    *,
    args: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | Mapping[str, Any] | None = None,
    artifacts: Sequence[str] = (),
    results: Results | None = None,
    options: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    dry_run: bool = False,
    **given: Any,
) -> tuple[Launch, LaunchSpec]:
    """Return the launch, and what the component carries; the arguments are those of `launcher_from_app`."""
    launch = Launch.of(source, **{key: value for key, value in given.items() if value})
    if launch.app is not None:
        launch = Launch.of(launch, app=launch.build())  # its JSON does not tell its name
    ports, paths = _ports(launch, dict(args or {}), inputs, tuple(artifacts))
    if args:
        launch = Launch.of(launch, args=settled_of(launch.args, args))
    outputs = output_ports(results, OUTPUTS)
    return launch, LaunchSpec(
        launch.to_dict(),
        dict(options or {}),
        ports,
        paths,
        [] if dry_run else outputs,
        inherit_env=inherit_env,
        dry_run=dry_run,
    )


def dry_run_launcher(source: Any, *, arguments: Mapping[str, Any] | None = None, **options: Any) -> str:
    """Return what a launcher would submit, as text for a person; nothing outside of this process is touched.

    Below it are the component's inputs and outputs. While an input without a default is open, the app cannot be built:
    then these are all there is.

    Args:
        source: an AppDef, its JSON, or a component (name or function).
        arguments: input → value.
        options: arguments of `launcher_from_app`.

    Raises:
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option.
    """
    from transload_kfp.launcher import Place, execution_of

    known = inspect.signature(launcher_from_app).parameters
    TaskSettings().updated(**{name: value for name, value in options.items() if name not in known})
    planned = (*inspect.signature(_planned).parameters, "scheduler", "cfg", "tracker_base", "workspace")
    used = {name: value for name, value in options.items() if name in planned}
    _, spec = _planned(source, **{**used, "dry_run": False})
    named = {port.source: port.name for port in spec.inputs}
    given = {named.get(name, name): value for name, value in (arguments or {}).items()}
    missing = [port.name for port in spec.inputs if not port.optional and port.name not in given]
    if missing:
        shown = f"the app is built when the pipeline runs: {', '.join(missing)} must be given"
    else:
        shown = execution_of(spec, given, Place()).dry_run()
    return f"{shown}\n{_interface(spec, given)}"


def _interface(spec: LaunchSpec, given: Mapping[str, Any]) -> str:
    """Return inputs and outputs for a person; without values, which may be secret."""
    needed = {port.name: " (required)" for port in spec.inputs if not port.optional and port.name not in given}
    lines = [f"input {port.name}: {port.type}{needed.get(port.name, '')}" for port in spec.inputs]
    lines += [f"output {port.name}: {port.type}" for port in spec.outputs]
    return "\n".join([*lines, "output handle: String"])


# -- inputs


def _ports(
    launch: Launch, args: dict[str, Any], inputs: Sequence[str] | Mapping[str, Any] | None, artifacts: tuple[str, ...]
) -> tuple[list[InputPort], dict[str, str]]:
    if launch.component is not None:
        return _component_ports(as_component(launch.component), settled_of(launch.args, args), inputs, artifacts), {}
    if args:
        raise SpecError(f"args={args!r}: only a component function takes arguments; for an AppDef see inputs")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise SpecError("inputs: of an AppDef they are a mapping: name → path of a field, such as 'num_replicas'")
    app, chosen = launch.build(), dict(inputs or {})
    _refuse_chosen(chosen, artifacts)
    names = port_names([*_RESERVED, *chosen])
    ports = [_field_port(app, each, names[each], path, each in artifacts) for each, path in chosen.items()]
    return ports, {names[each]: path for each, path in chosen.items()}


def _refuse_chosen(chosen: Mapping[str, str], artifacts: Sequence[str]) -> None:
    """Refuse artifacts that are no inputs, and two inputs for one field."""
    for each in artifacts:
        if each not in chosen:
            raise SpecError(f"artifacts: {each!r} is no input; inputs says which field it sets")
    of_path: dict[str, str] = {}
    for each, path in chosen.items():
        other = of_path.setdefault(str(path), each)
        if other != each:
            raise SpecError(f"inputs[{each!r}]={path!r}: {other!r} sets it already")


_RESERVED: Final = (*IDENTITY, KEY, PARENT, *OUTPUTS)


def _field_port(app: AppDef, source: str, port: str, path: str, artifact: bool) -> InputPort:
    try:
        kind, before = field_type(path), get_field(app, path)
    except SpecError as exc:
        raise SpecError(f"inputs[{source!r}]: {exc}") from exc
    if artifact:
        return InputPort(source, port, ARTIFACT)
    default = None if before is None else default_text(kind(before), f"inputs[{source!r}]")
    return InputPort(source, port, KFP_TYPES[kind], default, True)


def _component_ports(
    found: Component,
    settled: Mapping[str, Any],
    inputs: Sequence[str] | Mapping[str, Any] | None,
    artifacts: tuple[str, ...],
) -> list[InputPort]:
    check_arguments(found, settled, inputs or (), artifacts=artifacts)
    types = inputs if isinstance(inputs, Mapping) else {}
    for each, kind in types.items():
        if kind not in tuple(KFP_TYPES):
            raise SpecError(f"inputs[{each!r}]={kind!r}: must be str, int, float, bool, list or dict")
    known = {item.name: item for item in found.parameters}
    wanted = [name for name in known if name not in settled and (inputs is None or name in (*inputs, *artifacts))]
    if inputs is None and "tracker_base" in wanted:
        wanted.remove("tracker_base")  # the launch's own business
    refuse_missing(found, {*settled, *wanted})
    names = port_names([*_RESERVED, *(name for name in wanted if name != PARENT)])
    return [
        _argument_port(known[name], types.get(name), names.get(name, name), name in artifacts)
        for name in wanted
        if name != PARENT
    ]


def _argument_port(item: Parameter, asked: type | None, port: str, artifact: bool) -> InputPort:
    if artifact:
        if _kind(item.annotation) is not str:
            raise SpecError(f"artifacts: argument {item.name!r} is {item.type_name}: must be a str, for a path")
        return InputPort(item.name, port, ARTIFACT, help=item.help)
    kind = list if item.kind == "varargs" else asked or _kind(item.annotation)
    plain = kind in (str, int, float, bool) and type(item.default) is kind and can_be_default(item.default)
    plain = plain and not item.required
    default = default_text(item.default, f"default of {item.name}") if plain else None
    return InputPort(item.name, port, KFP_TYPES[kind], default, not item.required, item.help)


def _kind(annotation: Any) -> type:
    """Return what an argument of that annotation travels as; whatever has no type in KFP travels as text."""
    if annotation in _SIMPLE:
        return annotation  # type: ignore[no-any-return]
    origin = get_origin(annotation)
    if origin in (list, tuple, Sequence):
        return list
    if origin in (dict, Mapping):
        return dict
    alternatives = [each for each in get_args(annotation) if each is not type(None)]
    if origin is not Literal and len(alternatives) == 1 and len(get_args(annotation)) == 2:
        return _kind(alternatives[0])  # Optional
    return str


# -- the container form


def _container(spec: LaunchSpec, title: str, image: str) -> dict[str, Any]:
    own = [InputPort(each, each) for each in IDENTITY]
    own += [InputPort(each, each, default="", optional=True) for each in (KEY, PARENT)]
    paths = [port.placeholder for port in spec.inputs if port.type == ARTIFACT]
    outputs = [port.to_dict() for port in spec.outputs]
    if not spec.dry_run:
        outputs.append({"name": "handle", "type": "String", "description": "the app's handle"})
    outputs += [{"name": "results", "type": "Artifact"}, {"name": "metrics", "type": "Metrics"}]
    return {
        "name": component_name(title),
        "inputs": [port.to_dict() for port in (*spec.inputs, *own)],
        "outputs": outputs,
        "implementation": {
            "container": {
                "image": image,
                "command": ["python3", "-m", "transload_kfp", spec.encode()],
                "args": ["{{$}}", "{{$.outputs.artifacts['results'].path}}", *paths],
            }
        },
    }


# -- the Python form


def _python(spec: LaunchSpec, title: str, image: str, packages: Sequence[str]) -> Any:
    function = component_name(title).replace("-", "_")
    if iskeyword(function):
        function = f"{function}_app"
    return python_component(_source(spec, function), function, image, packages)


def _source(spec: LaunchSpec, function: str) -> str:
    required = [port for port in spec.inputs if not port.optional]
    optional = [port for port in spec.inputs if port.optional]
    lines = [f"    {name}: str," for name in IDENTITY]
    lines += [f"    {port.name}: {_annotation(port)}," for port in required]
    lines += ["    results: dsl.Output[dsl.Artifact],", "    metrics: dsl.Output[dsl.Metrics],"]
    lines += [f"    {port.name}: {_annotation(port)} = {_default(port)}," for port in optional]
    lines += [f'    {name}: str = "",' for name in (KEY, PARENT)]
    outputs = [] if spec.dry_run else [("handle", "str"), *((port.name, _PYTHON[port.type]) for port in spec.outputs)]
    fields = ", ".join(f'("{name}", {kind})' for name, kind in outputs)
    returned = f'NamedTuple("Outputs", [{fields}])'
    given = ", ".join(f'"{port.name}": {port.name}{".path" if port.type == ARTIFACT else ""}' for port in spec.inputs)
    place = ", ".join(f'"{name.removeprefix("transload_")}": {name}' for name in (*IDENTITY, KEY))
    body = [
        # names of its own begin with "_", which no input's does
        "    from transload_kfp.launcher import launch_in_component as _launch",
        f'    _place = {{{place}, "parent": {PARENT}}}',
        f"    _given = {{{given}}}",
        f'    _found = _launch("{spec.encode()}", _given, _place, results, metrics)',
    ]
    if outputs:
        names = ", ".join(name for name, _ in outputs)
        body.append("    from collections import namedtuple as _tuple")
        body.append(f'    return _tuple("Outputs", "{names}")(**_found)')
    arrow = f" -> {returned}" if outputs else ""
    return "\n".join([f"def {function}(", *lines, f"){arrow}:", *body]) + "\n"


_PYTHON: Final = {KFP_TYPES[kind]: name for kind, name in _SIMPLE.items()}


def _annotation(port: InputPort) -> str:
    if port.type == ARTIFACT:
        return "dsl.Input[dsl.Artifact]"
    return f"Optional[{_PYTHON[port.type]}]" if port.optional and port.default is None else _PYTHON[port.type]


def _default(port: InputPort) -> str:
    if port.default is None:
        return "None"
    if port.type == "String":
        return repr(port.default)
    return {"true": "True", "false": "False"}.get(port.default, port.default)
