"""Describe what a launcher component carries.

That is the launch, its options, and the fields that inputs set.

Nothing runs here, and no KFP is imported.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, PluginError, SpecError
from transload.pipelines import ExecutionOptions, Launch
from transload.plugins import get_plugins
from transload.runner import Cluster
from transload.specs import AppState, InvalidRunConfigException
from transload_kfp.fields import field_at
from transload_kfp.ports import InputPort, OutputPort

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload.specs import CfgVal

SCHEMA: Final = 1
IDENTITY: Final = (
    "transload_job_id",
    "transload_job_name",
    "transload_task_name",
    "transload_path",
)
KEY: Final = "transload_key"
PARENT: Final = "parent_run_id"


@dataclass
class LaunchSpec:
    """What a launcher does.

    Args:
        launch: `Launch.to_dict` of what is known when compiling.
        options: arguments of `ExecutionOptions`.
        inputs: what goes in.
        paths: field of the AppDef that each input sets. It is empty for a component function.
        outputs: declared results.
        cluster: `Cluster.to_dict` of where the job runs, where it is defined here, or None if the
            launcher's image knows it.
        inherit_env: give the job the launcher's whole environment.
    """

    launch: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    inputs: list[InputPort] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)
    outputs: list[OutputPort] = field(default_factory=list)
    cluster: dict[str, Any] | None = None
    inherit_env: bool = False

    def __post_init__(self) -> None:
        self.execution_options()

    @property
    def made_artifacts(self) -> dict[str, str]:
        """The class of each artifact that comes out, by name."""
        made = {"results": "Artifact", "metrics": "Metrics"}
        made.update({port.name: port.type for port in self.outputs if port.is_artifact})
        return made

    def encode(self) -> str:
        """Return the spec as one word that nothing on its way reads as something else.

        Raises:
            SpecError: for arguments, options or ``cfg`` that are no JSON values.
        """
        data = {
            "schema": SCHEMA,
            "launch": _json(self.launch),
            "options": self.options,
            "inputs": [[port.source, port.name, port.type] for port in self.inputs],
            "paths": self.paths,
            "outputs": [[port.source, port.name, port.type, port.key] for port in self.outputs],
            "cluster": self.cluster,
            "inherit_env": self.inherit_env,
        }
        try:
            return base64.b64encode(json.dumps(data, sort_keys=True).encode()).decode()
        except TypeError as exc:
            raise SpecError(
                f"launcher: what is fixed now must be JSON values, for it travels as text: {exc}"
            ) from exc

    @staticmethod
    def decode(text: str) -> LaunchSpec:
        """Read what `encode` returned.

        Raises:
            SpecError: for anything else, or a newer schema.
        """
        try:
            data = json.loads(base64.b64decode(text, validate=True))
            if data.pop("schema") > SCHEMA:
                raise SpecError(
                    "launcher: its component was compiled by a newer transload-kfp (reads schema "
                    f"{SCHEMA})"
                )
            data["inputs"] = [InputPort(*each) for each in data["inputs"]]
            data["outputs"] = [OutputPort(*each) for each in data["outputs"]]
            return LaunchSpec(**data)
        except (ValueError, KeyError, TypeError) as exc:
            if isinstance(exc, SpecError):
                raise
            raise SpecError(f"launcher: not a spec that this adapter has made: {exc!r}") from exc

    def execution_options(self) -> ExecutionOptions:
        """Return how the job is run.

        A failed job is answered by a new attempt, and a cancelled one stays cancelled.

        Raises:
            ConfigError: for a wrong option.
        """
        made = ExecutionOptions(**self.options)
        # a restarted pod is no person's wish: what somebody cancelled stays so
        after = frozenset() if made.retries_by == "scheduler" else frozenset({AppState.FAILED})
        return replace(made, resubmit_on=after)

    def launch_with(self, arguments: Mapping[str, Any]) -> Launch:
        """Return the launch with the inputs' values in it.

        Args:
            arguments: value of each input, or None if not given.

        Raises:
            SpecError: for a value that the job cannot have.
        """
        launch = Launch.from_dict(self.launch)
        ports = {port.name: port for port in self.inputs}
        given = {}
        for name, value in arguments.items():
            if value is None:
                continue
            has_whole_numbers = ports[name].type in ("Integer", "List", "Dict")
            given[name] = _whole(value) if has_whole_numbers else value
        if launch.component is not None:
            args = dict(launch.args) if isinstance(launch.args, Mapping) else {}
            args.update({ports[name].source: value for name, value in given.items()})
            return replace(launch, args=args)
        app = launch.build()
        for name, value in given.items():
            field_at(app, self.paths[name], value)
        app.check_runnable()
        return replace(launch, app=app, command=None)

    def output_values(self, results: AppResults) -> dict[str, Any]:
        """Return output → value of the declared results.

        Raises:
            SpecError: for a result of another type.
            TransloadError: if one was not reported. The message says what was.
        """
        values = [port for port in self.outputs if not port.is_artifact]
        return {port.name: _typed(port, results.value(port.source, port.key)) for port in values}


OPTIONS: Final = [each.name for each in fields(ExecutionOptions) if each.name != "resubmit_on"]
"""What a user may say of how a job is run."""


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


def _json(value: Any) -> Any:
    """Return a value as JSON has it.

    Choices are written by name, paths as text, dataclasses as mappings.
    """
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, PurePath):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_json(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value


def _typed(port: OutputPort, value: Any) -> Any:
    if port.type == "String":
        return str(value)
    broken = isinstance(value, float) and not value.is_integer()  # NaN and infinities too
    if isinstance(value, str) or (port.type == "Integer" and broken):
        raise SpecError(f"result {port.source!r} is {value!r}, declared as {port.type}")
    try:
        return int(value) if port.type == "Integer" else float(value)
    except OverflowError as exc:
        raise SpecError(
            f"result {port.source!r}: a whole number that is too large for a {port.type}"
        ) from exc


def _whole(value: Any) -> Any:
    """Return a value with its whole numbers as ints again, which KFP has made floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    return value
