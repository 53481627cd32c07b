"""Describe what a launcher component carries, as one word of its command.

That is the launch, its options, and what goes in and out. Nothing runs here, and no KFP is
imported.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError
from transload.pipelines import ExecutionOptions, Launch
from transload.specs import AppState
from transload_kfp.fields import field_of
from transload_kfp.inline import typed
from transload_kfp.ports import METRICS, RESULTS, InputPort, OutputPort

if TYPE_CHECKING:
    from transload.runner import AppResults

SCHEMA: Final = 1


@dataclass
class LaunchSpec:
    """What a launcher does.

    Args:
        launch: `Launch.to_dict` of what is known when compiling.
        options: arguments of `ExecutionOptions`.
        inputs: what goes in, of the job.
        outputs: declared results and files.
        cluster: `Cluster.to_dict` of where the job runs, where it is defined here, or None if the
            launcher's image knows it.
        inherit_env: give the job the launcher's whole environment.
    """

    launch: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    inputs: list[InputPort] = field(default_factory=list)
    outputs: list[OutputPort] = field(default_factory=list)
    cluster: dict[str, Any] | None = None
    inherit_env: bool = False

    def __post_init__(self) -> None:
        self.execution_options()

    @property
    def files(self) -> list[OutputPort]:
        """The declared files."""
        return [port for port in self.outputs if port.is_artifact]

    @property
    def artifacts(self) -> list[OutputPort]:
        """All artifacts that come out, in the order of their paths in the command."""
        return [RESULTS, METRICS, *self.files]

    def encode(self) -> str:
        """Return the spec as one word that nothing on its way reads as something else.

        Raises:
            SpecError: for arguments, options or ``cfg`` that are no JSON values.
        """
        data = {"schema": SCHEMA, **_json(self)}
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
            data["inputs"] = [InputPort(**each) for each in data["inputs"]]
            data["outputs"] = [OutputPort(**each) for each in data["outputs"]]
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
        given = [(ports[name], value) for name, value in arguments.items() if value is not None]
        given = [
            (port, _whole(value) if port.type in ("Integer", "List", "Dict") else value)
            for port, value in given
        ]
        if launch.component is not None:
            args = dict(launch.args) if isinstance(launch.args, Mapping) else {}
            args.update({port.source: value for port, value in given})
            return replace(launch, args=args)
        app = launch.build()
        for port, value in given:
            field_of(app, port.path).set(value, port.path)
        app.check_runnable()
        return replace(launch, app=app, command=None)

    def values(self, results: AppResults) -> dict[str, Any]:
        """Return output → value of the declared results.

        Raises:
            SpecError: for a result of another type.
            TransloadError: if one was not reported. The message says what was.
        """
        found = {}
        for port in self.outputs:
            if port.is_artifact:
                continue
            value = results.value(port.source, port.key)
            try:
                found[port.name] = typed(value, port.type, port.source)
            except LookupError as exc:
                raise SpecError(exc.args[0]) from exc
        return found


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


def _whole(value: Any) -> Any:
    """Return a value with its whole numbers as ints again, which KFP has made floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    return value
