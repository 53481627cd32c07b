"""Make Prefect tasks of app definitions with `app_task`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from prefect import Task
from prefect.client.schemas.objects import State, StateType
from prefect.context import TaskRunContext

from transload.errors import SpecError, TransloadError
from transload.pipelines import ExecutionOptions
from transload.specs import masked_env
from transload_prefect.run import named, step_of
from transload_prefect.settings import AppSpec, launch_with, read_spec
from transload_prefect.states import ending_of
from transload_prefect.step import runner_of

if TYPE_CHECKING:
    from transload.pipelines import Launch
    from transload_prefect.options import TaskOptions
    from transload_prefect.step import PrefectStep

LAUNCH: Final = "launch"
APP: Final = "transload_app"
"""A parameter of each task, by which two jobs never share a cached result."""

_OURS: Final = "of the adapter"
"""Annotation of the parameters that are not the component's."""

OF_PREFECT: Final = [
    name for name in inspect.signature(Task.__init__).parameters if name not in ("self", "fn")
]
_LONGEST_SHOWN: Final = 24
_MOST_SHOWN: Final = 4


class LeftOpen:
    """Stands for an argument of a component that nobody has given, and whose value is not known."""

    def __repr__(self) -> str:
        return ""

    def __format__(self, spec: str) -> str:
        return ""


def app_task(
    source: object = None,
    *,
    command: Sequence[str] | None = None,
    launch: Mapping[str, Any] | None = None,
    **settings: Unpack[TaskOptions],
) -> Task[..., Any]:
    """Return a Prefect task that runs a job and returns its `transload.runner.AppResults`.

    The task's arguments are the component's, ``*args`` as a list by their name.
    ``launch={"scheduler": …, "cfg": …}`` at the call sets where it goes.

    Args:
        source: as of `transload_prefect.run_app`.
        command: likewise.
        launch: likewise.
        settings: those of `transload_prefect.run_app`, those of ``prefect.task`` (``name``,
            ``retries``, ``tags``, ``timeout_seconds`` …), and ``asynchronous``, which makes a task
            to be awaited.

    Raises:
        SpecError: if it is none of these, or both a source and a command.
        ConfigError: for a wrong or unknown setting.

    Example:
        >>> train = app_task("train.py:digits", retries=2, tags=["training"])  # doctest: +SKIP
        >>> best = max(train.map(lr=[0.1, 0.5]).result(), key=lambda r: r.value("accuracy"))  #
        doctest: +SKIP
    """
    spec, given = read_spec(source, command, launch, settings, [*OF_PREFECT, "asynchronous"])
    return _task(spec, **given)


def _task(spec: AppSpec, **given: Any) -> Task[..., Any]:
    signature = _signature(spec)
    function = _function(spec, signature, given.get("name"), given.get("asynchronous", False))
    function.__signature__ = signature
    name = function.__name__ = given.get("name") or spec.launch.name
    # by this Prefect's workers tell tasks apart
    function.__qualname__ = f"{name.replace('.', '-')}-{spec.digest}"
    function.__doc__ = _description(spec.launch)
    function.spec = spec  # Prefect makes it an attribute of the task
    settings = {
        "task_run_name": partial(_task_run_name, spec, signature),
        "retry_condition_fn": partial(may_retry, options=spec.options),
        **given,
        "name": name,
    }
    settings.pop("asynchronous", None)
    return Task(function, **settings)


def _function(
    spec: AppSpec, signature: inspect.Signature, given_name: str | None, asynchronous: bool
) -> Any:
    """Return the function of a task that runs a job."""

    async def run_async(*args: object, **kwargs: object) -> Any:
        try:
            step = _step(spec, signature, given_name, signature.bind(*args, **kwargs).arguments)
            with step.watched():
                return await step.run_async()
        except TransloadError as exc:
            return state_of(exc)

    def run(*args: object, **kwargs: object) -> Any:
        try:
            step = _step(spec, signature, given_name, signature.bind(*args, **kwargs).arguments)
            with step.watched():
                return step.run()
        except TransloadError as exc:
            return state_of(exc)

    return run_async if asynchronous else run


def state_of(error: TransloadError) -> State[Any]:
    """Return the state of a task that has no results, or raise the error, which Prefect may retry."""
    ending = ending_of(error)
    if ending is None:
        raise error
    kind, name = ending
    return State(type=StateType(kind), name=name, message=str(error))


def may_retry(
    task: object, task_run: object, state: State[Any], options: ExecutionOptions | None = None
) -> bool:
    """Tell whether a retry may help against the failure of a job. It is a ``retry_condition_fn``.

    It is that of each `app_task`, and may be that of any task that calls `run_app`.
    """
    error = state.data
    if not isinstance(error, BaseException):
        return True
    return (options or ExecutionOptions()).host_may_retry(error)


# -- the arguments of the call


def _signature(spec: AppSpec) -> inspect.Signature:
    """Return the component's signature, with the values that it will get, and our own arguments."""
    parameters = []
    if spec.launch.component is not None:
        component = spec.launch.resolve_component()
        settings = runner_of(None, spec.inherit_env).settings
        known = spec.launch.left_open({}, settings.component_defaults(component))
        for each in component.parameters:
            by_name = each.kind in ("keyword", "varargs")
            parameters.append(_parameter(each.name, known.get(each.name, LeftOpen()), by_name))
    taken = {each.name for each in parameters}
    for name, default in ((LAUNCH, None), (APP, spec.digest)):
        if name not in taken:
            own = _parameter(name, default)
            parameters.append(own.replace(annotation=_OURS))
    return inspect.Signature(sorted(parameters, key=lambda each: each.kind))


def _parameter(name: str, default: object, by_name: bool = True) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default)


def _takes_launch(signature: inspect.Signature) -> bool:
    """Tell whether ``launch`` is the adapter's argument, and not one of the component."""
    return bool(signature.parameters[LAUNCH].annotation == _OURS)


def _description(launch: Launch) -> str:
    """Return what a task that runs this says of itself."""
    if launch.component is None:
        return f"Runs the job {launch.name}."
    return launch.resolve_component().description


def _given(signature: inspect.Signature, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that are not what the job gets anyway."""
    return {
        name: value
        for name, value in parameters.items()
        if name != APP and not _is_left_open(value, signature.parameters[name].default)
    }


def _is_left_open(value: object, default: object) -> bool:
    if isinstance(value, LeftOpen):
        return True
    return type(value) is type(default) and value == default


def _step(
    spec: AppSpec,
    signature: inspect.Signature,
    given_name: str | None,
    parameters: Mapping[str, Any],
) -> PrefectStep:
    """Return the job of a call. Nothing is submitted yet.

    Raises:
        SpecError: for arguments where the launch takes none, or a wrong ``launch=``.
        ConfigError: as of `step_of`.
    """
    given = _given(signature, parameters)
    at_call = None
    if _takes_launch(signature):
        at_call = given.pop(LAUNCH, None)
    launch = launch_with(spec.launch, at_call)
    if given:
        launch = _with_args(launch, given)
    context = TaskRunContext.get()
    name = given_name or spec.launch.name
    if context is not None and context.task.name != name:
        name = given_name = context.task.name
    return step_of(spec, named(launch, given_name), name, at_call=at_call, is_task=True)


def _with_args(launch: Launch, given: Mapping[str, Any]) -> Launch:
    if not isinstance(launch.args, Mapping):
        raise SpecError(
            f"{launch.name}: args={launch.args!r}: a list leaves no arguments to the call"
        )
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}
    return replace(launch, args={**launch.args, **values})


def _task_run_name(
    spec: AppSpec, signature: inspect.Signature, parameters: Mapping[str, Any]
) -> str:
    """Return the name of a task run, from the task's and its arguments, with secrets masked."""
    context = TaskRunContext.get()
    name = spec.launch.name if context is None else context.task.name
    given = _given(signature, parameters)
    if _takes_launch(signature):
        given.pop(LAUNCH, None)
    if isinstance(spec.launch.args, Mapping):
        given = {**spec.launch.args, **given}
    texts = {key: " ".join(str(value).split()) for key, value in given.items()}
    shown = {
        key: text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        for key, text in texts.items()
    }
    words = [f"{key}={text}" for key, text in masked_env(shown).items()]
    return " ".join([name, *words[:_MOST_SHOWN]])
