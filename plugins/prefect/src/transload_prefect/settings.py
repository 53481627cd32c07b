"""The settings of a job in a flow, apart from Prefect's own."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError
from transload.pipelines import (
    JOB_SETTINGS,
    ExecutionOptions,
    Launch,
    caller_folder,
    split_overrides,
)
from transload.specs import nearest
from transload.specs.checks import check_given

if TYPE_CHECKING:
    from transload_prefect.cluster import TransloadCluster

OWN: Final = ("cluster", "inherit_env", "key", "artifacts", "events", "assets", "stderr_level")
"""Settings that are the adapter's own."""

_NOT_OF_LAUNCH: Final = {"app", "component", "command", "args", "checkpoints", "overrides"}
"""Arguments of `Launch` that are taken in another way, or by another name."""


@dataclass(frozen=True)
class AppSpec:
    """What runs, and how.

    Args:
        launch: the app definition or component, and where it goes.
        options: of `transload.pipelines.ExecutionOptions`.
        cluster: where it goes, in place of a scheduler: a block, or the name of a saved one.
        inherit_env: give the job the whole environment of the flow's process.
        key: names the job in its flow run, in place of what it is and where it is asked for.
        artifacts: write artifacts.
        events: emit an event at each change of state.
        assets: with True, each artifact that the job's tracker knows is an asset that the task
            made. Else their URIs.
        stderr_level: name of the level that lines of stderr are logged with. None means what a line
            says of itself (``WARNING:root:…``), else INFO.
    """

    launch: Launch
    options: ExecutionOptions = field(default_factory=ExecutionOptions)
    cluster: TransloadCluster | str | None = None
    inherit_env: bool = False
    key: str | None = None
    artifacts: bool = True
    events: bool = True
    assets: bool | list[str] = False
    stderr_level: str | None = None

    def __post_init__(self) -> None:
        check_given(cluster=self.cluster, key=self.key)
        if self.cluster is not None and self.launch.scheduler is not None:
            raise ConfigError(
                f"cluster={self.cluster!r}: cannot be given beside "
                f"scheduler={self.launch.scheduler!r}"
            )
        if self.stderr_level not in (None, *logging.getLevelNamesMapping()):
            allowed = ", ".join(sorted(logging.getLevelNamesMapping()))
            raise ConfigError(f"stderr_level={self.stderr_level!r}: must be one of {allowed}")

    @property
    def digest(self) -> str:
        """A text that differs between jobs, for cache keys."""
        try:
            described = replace(self.launch, folder=None).to_dict()
        except SpecError:  # a function that is in no module
            described = {each.name: getattr(self.launch, each.name) for each in fields(self.launch)}
            described["component"] = described["component"] and _described(described["component"])
        return sha256(repr(described).encode()).hexdigest()[:16]


def _described(function: Callable[..., Any]) -> list[Any]:
    """Return what tells a function from others.

    That is its code, its defaults, and what it refers to around it.
    """
    try:
        code = inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt
        code = repr(getattr(function, "__code__", function))
    around = []
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # nothing was assigned yet
            around.append(cell.cell_contents)
    return [
        code,
        getattr(function, "__defaults__", None),
        getattr(function, "__kwdefaults__", None),
        around,
    ]


def read_spec(
    source: object,
    command: Sequence[str] | None,
    launch: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    others: Sequence[str] = (),
) -> tuple[AppSpec, dict[str, Any]]:
    """Return what is to run, and how, with the settings that are not of a job.

    Args:
        source: an AppDef, its JSON, a component (name or function), or None with a command.
        command: a program and its arguments.
        launch: arguments of `transload.pipelines.Launch`. What ``settings`` say goes before it.
        settings: of a launch, of `ExecutionOptions`, of `JobSettings`, of `AppSpec`, and others.
        others: names of settings that are left for Prefect.

    Raises:
        SpecError: for a wrong source, or an unknown name in ``overrides``.
        ConfigError: for a wrong or unknown setting.
    """
    made = _launch(source, command, launch or {})
    if made.folder is None:
        made = replace(made, folder=caller_folder("transload_prefect"))
    overrides, settings = split_overrides(settings)
    options = {each.name for each in fields(ExecutionOptions)}
    of_launch = {each.name for each in fields(Launch)} - _NOT_OF_LAUNCH | {"component_args"}
    known = [*options, *others, *of_launch, *OWN]
    for name, value in settings.items():
        if name not in known:
            names = [*known, *JOB_SETTINGS, "overrides"]
            hint = nearest("component_args" if name == "args" else name, names)
            raise ConfigError(f"{name}={value!r}: no setting of a task or of a job; {hint}")
    _check_checkpoints(settings.get("checkpoints"))
    changes = {name: settings[name] for name in settings if name in of_launch}
    if "component_args" in changes:
        changes["args"] = changes.pop("component_args")
    spec = AppSpec(
        replace(made, **changes).with_overrides(overrides),
        ExecutionOptions(**{name: settings[name] for name in settings if name in options}),
        **{name: settings[name] for name in settings if name in OWN},
    )
    return spec, {name: settings[name] for name in settings if name in others}


def _launch(source: object, command: Sequence[str] | None, more: Mapping[str, Any]) -> Launch:
    if command is not None and source is not None:
        raise SpecError(f"command={command!r}: cannot be given beside a source, {source!r}")
    made = Launch.of(source) if command is None else Launch(command=command)
    return launch_with(made, more)


def launch_with(launch: Launch, more: object) -> Launch:
    """Return a launch with other arguments.

    Args:
        launch: the launch.
        more: arguments of `transload.pipelines.Launch` by name, or None. The results of an upstream
            may be its parent run.

    Raises:
        ConfigError: if it holds something else.
    """
    if more is None:
        return launch
    wrong = f"launch={more!r}: must hold arguments of transload.pipelines.Launch, by name"
    if not isinstance(more, Mapping):
        raise ConfigError(wrong)
    changes = dict(more)
    handle = getattr(changes.get("parent_run_id"), "handle", None)
    if handle:
        changes["parent_run_id"] = handle
    try:
        return replace(launch, **changes).with_script_as_command()
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{wrong}: {exc}") from exc


def _check_checkpoints(value: object) -> None:
    """Refuse the handle of an ended job where only a choice is allowed, and say where it goes."""
    if isinstance(value, str) and "://" in value:
        raise ConfigError(
            f"checkpoints={value!r}: must be 'keep' or 'new'; "
            f"launch={{'checkpoints': {value!r}}} begins with those of an ended job"
        )
