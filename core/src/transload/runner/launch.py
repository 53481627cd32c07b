"""Define `Launch`, which is a job, a component or a command, and where it goes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from transload.components import (
    Component,
    ComponentArgumentError,
    ComponentHelpRequested,
    Parameter,
    arguments_of,
    as_component,
    build,
    command_app,
    is_file_reference,
    materialize,
    read_argument,
)
from transload.errors import SpecError
from transload.runner.config import Defaults
from transload.runner.environments import is_script, scheduler_of, script_in
from transload.runner.plan import Planning, make_plan
from transload.schedulers.environments import read_header
from transload.specs import AppDef, AppHandle, CfgVal, Environment, Workspace
from transload.specs.checks import as_list, check_given
from transload.specs.serialization import SCHEMA, reading, to_value
from transload.specs.settings import (
    OverrideOptions,
    check_names,
    read_settings,
    with_settings,
)

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.runner.config import Settings
    from transload.runner.plan import Plan


class LaunchSettings(TypedDict, total=False):
    """The arguments of `Launch` beside what is to run, as `Launch` describes them."""

    args: Mapping[str, Any] | Sequence[str]
    scheduler: str | None
    cfg: Mapping[str, CfgVal]
    workspace: str | Workspace | None
    parent_run_id: str | None
    tracker_base: str | None
    folder: str | None
    pass_env: Sequence[str]
    command_name: str | None
    checkpoints: AppHandle | None
    environment: Environment | str | None
    overrides: OverrideOptions


@dataclass(kw_only=True, frozen=True)
class Launch:
    """A job to be built when it is submitted, and where it goes.

    Exactly one of ``app``, ``component`` and ``command`` is given. Since the job is built when an
    orchestrator runs it, an upstream's output can set anything in it, such as image, replicas and
    resources.

    Args:
        app: an AppDef, its JSON (text or values), or a callable that returns one and takes nothing.
        component: name (``utils.echo``, ``file.py:function``, ``package.module:function``) or
            function. A script with a header (``train.py``, PEP 723) is run itself.
        args: arguments of the component: name → value, or as on the command line. A text given for
            an argument of another type is decoded as on the command line.
        command: a program and its arguments, to be run as they are.
        command_name: name of the job that a command becomes. None means that of its script or
            program.
        scheduler: where to run it. None means the configured one, else ``local``.
        cfg: run options of the scheduler.
        workspace: local folder (``PATH`` or ``PATH=TARGET,…``) that travels with every role that
            has none.
        parent_run_id: run that this one derives from.
        tracker_base: where the job reports results. None means as ``cfg`` says, else a folder of
            the job's own.
        folder: what relative paths (component file, workspace, ``file:`` secrets) are relative to,
            and where the job works. It is the folder of the file that defines the step. None
            means the working directory.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        checkpoints: handle of an ended job whose checkpoints this one goes on with.
        environment: what must be installed where the job runs, over what its roles say. It is a
            file (``requirements.txt``, ``uv.lock --group NAME``, a script), or ``none``. None means
            what roles, settings or the header of the script say.
        overrides: what is set over what the job says, such as ``image``, ``gpu`` or ``mem`` (see
            `transload.specs.settings.OverrideOptions`).

    Raises:
        SpecError: if not exactly one of the three is given, or arguments without a component, or an
            empty text for what may be left out.
    """

    app: AppDef | str | Mapping[str, Any] | Callable[[], AppDef] | None = None
    component: str | Component | Callable[..., AppDef] | None = None
    args: Mapping[str, Any] | Sequence[str] = field(default_factory=dict)
    command: Sequence[str] | None = None
    scheduler: str | None = None
    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    workspace: str | Workspace | None = None
    parent_run_id: str | None = None
    tracker_base: str | None = None
    folder: str | None = None
    pass_env: Sequence[str] = field(default_factory=list)
    command_name: str | None = None
    checkpoints: AppHandle | None = None
    environment: Environment | str | None = None
    overrides: OverrideOptions = field(default_factory=OverrideOptions)

    def __post_init__(self) -> None:
        if [self.app, self.component, self.command].count(None) != 2:
            raise SpecError("launch: exactly one of app, component and command must be given")
        if self.component is None and self.args:
            raise SpecError(f"launch: args={self.args!r}: only a component takes arguments")
        check_names(self.overrides)
        as_list(self.pass_env, "pass_env")
        check_given(
            scheduler=self.scheduler,
            workspace=self.workspace,
            parent_run_id=self.parent_run_id,
            tracker_base=self.tracker_base,
            folder=self.folder,
            command_name=self.command_name,
            checkpoints=self.checkpoints,
            environment=self.environment,
        )

    @staticmethod
    def of(source: object, **more: Unpack[LaunchSettings]) -> Launch:
        """Return a launch of whatever a user may hand to ``convert``.

        Args:
            source: a Launch, an AppDef, its JSON, or a component (name or function).
            more: the other arguments of a Launch. For a given Launch, they are what to replace in
                it. One that is None is not given.

        Raises:
            SpecError: if it is none of these.
        """
        given: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
        if isinstance(source, Launch):
            return replace(source, **given).with_script_as_command()
        if isinstance(source, (AppDef, Mapping)):
            return Launch(app=source, **given)
        if isinstance(source, str):
            if source.lstrip().startswith("{"):
                return Launch(app=source, **given)
            return Launch(component=source, **given).with_script_as_command()
        if callable(source):
            return Launch(component=source, **given)
        raise SpecError(
            f"{source!r}: must be an AppDef, its JSON, or a component (a name or a function)"
        )

    def with_overrides(self, overrides: OverrideOptions) -> Launch:
        """Return the launch with more settings over what its job says.

        They go before the settings that the launch has already.

        Raises:
            SpecError: for an unknown setting.
        """
        if not overrides:
            return self
        return replace(self, overrides={**self.overrides, **overrides})

    @property
    def name(self) -> str:
        """Return a name for people, which is that of the job or the component."""
        if isinstance(self.app, AppDef):
            return self.app.name
        if self.command is not None:
            return command_app(self.command, self.command_name).name
        thing = self.component if self.component is not None else self.app
        if isinstance(thing, str):
            return "app" if thing.lstrip().startswith("{") else thing
        if isinstance(thing, Mapping):
            return str(thing.get("name", "app"))
        return str(getattr(thing, "__name__", "app"))

    def scheduler_name(self, settings: Settings) -> str:
        """Return the name of the scheduler that it goes to.

        It is the launch's own, else that in the header of its command's script, else that of the
        settings.

        Raises:
            SpecError: if that header cannot be read.
        """
        if self.scheduler is not None:
            return self.scheduler
        command = self.with_script_as_command().command
        if command is None:
            return settings.scheduler
        script = script_in([str(word) for word in command])
        header = None
        if script is not None:
            header = read_header(os.path.join(self.folder or "", script))
        return scheduler_of(header) or settings.scheduler

    def with_script_as_command(self) -> Launch:
        """Return the launch of ``python SCRIPT`` if the component is a script with a header.

        Such a script holds no component. Any other launch is returned as it is.

        Raises:
            SpecError: if the header cannot be read, or the script is given arguments by name.
        """
        script = self.component
        if not isinstance(script, str) or not is_script(os.path.join(self.folder or "", script)):
            return self
        if not isinstance(self.args, Mapping | Sequence):
            return self  # until the run, it is what an orchestrator will replace
        self._check_args()
        if isinstance(self.args, Mapping) and self.args:
            raise SpecError(
                f"launch: args={dict(self.args)!r}: {script} is a script with a header, which takes "
                "a list of texts, as on its command line"
            )
        words = [str(word) for word in self.args]
        return replace(self, component=None, args={}, command=["python", script, *words])

    def resolve_component(self) -> Component:
        """Return the component.

        Raises:
            SpecError: if there is no such component.
        """
        assert self.component is not None
        if self.folder is None or not isinstance(self.component, str):
            return as_component(self.component)
        file = self.component.rpartition(":")[0] or self.component
        return as_component(
            os.path.join(self.folder, self.component) if is_file_reference(file) else self.component
        )

    def declares(self, argument: str) -> bool:
        """Tell whether the component has an argument of that name.

        Raises:
            SpecError: if there is no such component.
        """
        return self.component is not None and any(
            item.name == argument for item in self.resolve_component().parameters
        )

    def arguments(
        self,
        context_args: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return what the component will be called with, by name.

        Arguments and errors are those of `build`.
        """
        found, still_open = self.resolve_component(), self._unset_args(context_args, defaults)
        if isinstance(self.args, Mapping):
            own = {item.name: item.default for item in found.parameters if not item.required}
            return {**own, **still_open, **self.args}
        return arguments_of(found, self.args, still_open)

    def left_open(
        self,
        context_args: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return what the component gets, by name, where nothing more is given.

        ``*args`` are left out, and so is what is missing or wrong, which `build` refuses. Arguments
        are those of `build`.
        """
        if self.component is None:
            return {}
        found = self.resolve_component()
        still_open = self._unset_args(context_args, defaults)
        if not isinstance(self.args, Mapping):
            with suppress(ComponentArgumentError, ComponentHelpRequested):
                named = {item.name for item in found.parameters if item.kind != "varargs"}
                given = arguments_of(found, self.args, still_open)
                return {name: value for name, value in given.items() if name in named}
            return {}
        values = {}
        for item in found.parameters:
            if item.kind != "varargs" and (
                item.name in {*self.args, *still_open} or not item.required
            ):
                with suppress(ComponentArgumentError):
                    values[item.name] = self._value(item, still_open)
        return values

    def _value(self, item: Parameter, still_open: Mapping[str, Any]) -> Any:
        """Return what one argument of the component is, as `build` reads it."""
        if item.name in self.args and isinstance(self.args, Mapping):
            return read_argument(self.args[item.name], item.annotation, item.name)
        if item.name not in still_open:
            return item.default
        value = still_open[item.name]
        return read_argument(value, item.annotation, item.name, typed=isinstance(value, str))

    def build(
        self,
        context_args: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> AppDef:
        """Return the job, validated.

        Args:
            context_args: what the orchestrator knows (``tracker_base``, ``trial_idx`` …). It is
                given to the component where it declares an argument of that name that ``args``
                leaves open.
            defaults: component argument → text, for what is still open.

        Raises:
            SpecError: if the job is not valid, there is no such component, or its arguments are
                wrong.
        """
        app = self.definition(context_args, defaults)
        if self.overrides:
            app = with_settings(app, read_settings(self.overrides))
            app.check_runnable()
        return app

    def definition(
        self,
        context_args: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> AppDef:
        """Return the job as it was written, before anything is set over it.

        Arguments and errors are those of `build`.
        """
        if self.component is None:
            app = self._app()
        elif isinstance(self.args, Mapping):
            app = build(
                self.resolve_component(),
                self.args,
                defaults=self._unset_args(context_args, defaults),
            )
        else:
            app = materialize(
                self.resolve_component(), self.args, self._unset_args(context_args, defaults)
            )
        if not isinstance(app, AppDef):
            raise SpecError(f"{self.name}: must return an AppDef, not {type(app).__name__}")
        app.check_runnable()
        return app

    def _app(self) -> Any:
        if self.command is not None:
            return command_app(self.command, self.command_name)
        if isinstance(self.app, AppDef):
            return self.app
        if isinstance(self.app, str):
            return AppDef.from_json(self.app)
        if isinstance(self.app, Mapping):
            return AppDef.from_dict(self.app)
        if not callable(self.app):
            raise SpecError(
                f"app={self.app!r}: must be an AppDef, its JSON, or a callable that returns one"
            )
        return self.app()

    def _check_args(self) -> None:
        # not when made, since it may hold an orchestrator's stand-in for what is known at the run
        if isinstance(self.args, str | bytes) or not isinstance(self.args, Mapping | Sequence):
            raise SpecError(
                f"launch: args={self.args!r}: must be name → value, or a list of texts as on the "
                "command line"
            )

    def _unset_args(
        self, context_args: Mapping[str, Any] | None, defaults: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Return the values of arguments that the user leaves open.

        What the orchestrator knows goes before the settings.
        """
        self._check_args()
        declared = {item.name for item in self.resolve_component().parameters}
        found = Defaults(defaults or {})
        found.update(
            {name: value for name, value in (context_args or {}).items() if name in declared}
        )
        found.sources = getattr(defaults, "sources", {})
        return found

    def plan(
        self,
        runner: Runner,
        app_id: str | None = None,
        *,
        context_args: Mapping[str, Any] | None = None,
        change: Callable[[AppDef], AppDef] | None = None,
        checkpoint_name: str | None = None,
        asked: Mapping[str, Any] | None = None,
    ) -> Plan[Any]:
        """Return what would be submitted. Nothing outside of this process is touched.

        Args:
            runner: knows schedulers and settings, and will submit it.
            app_id: the caller's own id. The default is a fresh one.
            context_args: as in `build`.
            change: done to the job first of all.
            checkpoint_name: the name under which its checkpoints are kept and its run in trackers
                goes on, which a later attempt may have, too. The default is the job's id.
            asked: the words of the orchestrator that asks, under its name. They are kept with
                the job (see `transload.schedulers.Submission`).

        Raises:
            SpecError: as in `build`, or if the id is not valid or the scheduler cannot express it.
            ConfigError: for an unknown scheduler or option, or a tracker that is wrongly
                configured.
        """
        given = Planning(
            launch=self.with_script_as_command(),
            runner=runner,
            app_id=app_id,
            context_args=context_args or {},
            change=change,
            checkpoint_name=checkpoint_name,
            asked=asked or {},
        )
        return make_plan(given)

    def to_dict(self) -> dict[str, Any]:
        """Return the launch as JSON values, functions by their import path, without defaults.

        Raises:
            SpecError: for a function that cannot be imported again (a lambda, a closure), or args
                of a wrong type.
        """
        self._check_args()
        app = self.app
        if callable(app) and not isinstance(app, (AppDef, str, Mapping)):
            app = self._app()
        if isinstance(app, AppDef):
            app = app.to_json()
        component = self.component.fn if isinstance(self.component, Component) else self.component
        if callable(component):
            component = _path(component)
        workspace = self.workspace
        if isinstance(workspace, Workspace):
            workspace = ",".join(f"{path}={target}" for path, target in workspace.projects.items())
        own = {item.name: getattr(self, item.name) for item in fields(Launch)}
        values = {**own, "app": app, "component": component, "workspace": workspace}
        if isinstance(self.environment, Environment):
            values["environment"] = to_value(self.environment)
        values["overrides"] = to_value(self.overrides)
        given = {name: value for name, value in values.items() if value not in (None, {}, [])}
        return {"schema": SCHEMA, **{name: _plain(value) for name, value in given.items()}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Launch:
        """Read what `to_dict` returned.

        Raises:
            SpecError: if it is not such a value, or of a newer schema.
        """
        with reading("launch", data) as values:
            if isinstance(values.get("environment"), Mapping):
                values["environment"] = Environment(**values["environment"])
            return Launch(**values)


def caller_folder(*ours: str) -> str | None:
    """Return the folder of the file that calls transload's packages, or None at a prompt."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in (
        "transload",
        *ours,
    ):
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    return None if file is None else os.path.dirname(os.path.abspath(file))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _path(function: Callable[..., Any]) -> str:
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or not name or "<" in name or module == "__main__":
        meant = name if name.isidentifier() else "FUNCTION"
        raise SpecError(
            f"component {name or function!r}: must be a function of a module, so that other "
            f"processes can import it: move it to a file jobs.py, and give 'jobs.py:{meant}'"
        )
    return f"{module}:{name}"
