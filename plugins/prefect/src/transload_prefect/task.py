"""Provide `AppTask`, a Prefect task that runs a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Unpack

from prefect import Task, unmapped
from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun
from prefect.futures import PrefectFuture
from prefect.utilities.annotations import allow_failure, opaque, quote
from prefect.utilities.collections import isiterable

from transload.errors import SpecError, TransloadError
from transload.specs import masked_env, nearest
from transload_prefect.adapter import runner_of
from transload_prefect.again import ROLLED_BACK
from transload_prefect.arguments import (
    CALL,
    LAUNCH,
    Call,
    LeftOpen,
    columns_as_lists,
    positional_as_list,
    values_left_open,
)
from transload_prefect.caching import AppCachePolicy
from transload_prefect.cluster import cluster_named
from transload_prefect.settings import AppSpec, split_settings
from transload_prefect.task_job import retry_condition, task_function
from transload_prefect.units import in_async_code
from transload_prefect.watch import watch_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from prefect.client.schemas.objects import RunInput
    from prefect.futures import PrefectDistributedFuture
    from prefect.transactions import Transaction

    from transload.pipelines import Step
    from transload_prefect.options import PrefectOptions, TaskOptions

_HOOKS: Final = ("on_completion", "on_failure", "on_running", "on_rollback", "on_commit")
_SETTINGS: Final = [
    name
    for name in inspect.signature(Task.__init__).parameters
    if name not in ("self", "fn", *_HOOKS)
]
"""Arguments of a task that it has as attributes of the same name."""

_LONGEST_SHOWN: Final = 24
_MOST_SHOWN: Final = 4


class AppTask(Task[..., Any]):
    """A Prefect task that runs a job, which you call, ``submit`` or ``map``.

    `transload_prefect.app_task` makes it. Called in async code (an ``async`` flow), it returns an
    awaitable.

    Args:
        spec: what to run.
        asynchronous: whether it is a coroutine always or never, or with None as the flow or task
            around it.
        name: of the task and its job. With None it is that of the app definition or the component.
        settings: other arguments of ``prefect.Task``.
    """

    cache_policy: Any

    def __init__(
        self,
        spec: AppSpec,
        asynchronous: bool | None = None,
        *,
        name: str | None = None,
        **settings: Unpack[PrefectOptions],
    ) -> None:
        self.spec = spec
        self.asynchronous = asynchronous
        self.given_name = name
        self._settings: dict[str, Any] = {**settings, "name": name}
        name = name or spec.launch.name
        function = task_function(spec, name, bool(asynchronous))
        settings.setdefault("task_run_name", partial(_task_run_name, name, spec.launch.args))
        settings["retry_condition_fn"] = retry_condition(
            spec.options, settings.get("retry_condition_fn")
        )
        super().__init__(function, name=name, **settings)
        self.task_key = f"{name}-{sha256(f'{name}:{spec.digest}'.encode()).hexdigest()[:8]}"
        theirs = self.cache_policy
        if isinstance(theirs, CachePolicy) and theirs != NO_CACHE:
            self.cache_policy = AppCachePolicy(inner=theirs, app=spec.digest)
        for hook in _HOOKS:
            # not the list that was given
            setattr(self, f"{hook}_hooks", list(getattr(self, f"{hook}_hooks")))
        self.on_rollback_hooks.append(ROLLED_BACK)
        self._at_first = {name: _kept(getattr(self, name)) for name in _SETTINGS}

    @property
    def aio(self) -> AppTask:
        """The same task as a coroutine function, with all hooks that this one has now."""
        if self.asynchronous:
            return self
        task = copy(self)
        task.asynchronous = True
        task.fn = self._coroutine_function
        task.isasync = True
        return task

    @cached_property
    def _coroutine_function(self) -> Callable[..., Any]:
        return task_function(self.spec, self.name, True)

    def on_rollback(self, fn: Callable[[Transaction], None]) -> Callable[[Transaction], None]:
        """Add a hook that is called when the task is rolled back."""
        hooks = self.on_rollback_hooks
        place = len(hooks)
        if ROLLED_BACK in hooks:
            place = hooks.index(ROLLED_BACK)
        hooks.insert(place, fn)
        return fn

    def with_options(  # type: ignore[override]  # Prefect's own takes NotSet for what stays
        self, **options: Unpack[TaskOptions]
    ) -> AppTask:
        """Return a task with other settings of ``prefect.Task.with_options`` and of `app_task`.

        Raises:
            ConfigError: for a wrong setting.
        """
        changes, given = split_settings(self.spec, options)
        asynchronous = given.pop("asynchronous", self.asynchronous)
        return self._remade(
            replace(self.spec, **changes), asynchronous, {**self._current(), **given}
        )

    def of_trial(
        self,
        index: int,
        label: str,
        *,
        namespace: str,
        context_args: Mapping[str, Any],
        meanwhile: Callable[[Step], AbstractContextManager[object]],
    ) -> AppTask:
        """Return the task of one trial of a search. Whoever continues the search reattaches.

        Args:
            index: of the trial.
            label: name of its task run, unless the task sets one.
            namespace: of the search.
            context_args: arguments that the component may declare.
            meanwhile: entered while the job is waited for, with its step.
        """
        spec = replace(
            self.spec,
            key=f"trial-{index}",
            namespace=namespace,
            context_args=context_args,
            meanwhile=meanwhile,
        )
        return self._remade(spec, self.asynchronous, {"task_run_name": label, **self._current()})

    def _current(self) -> dict[str, Any]:
        """Return the arguments of ``prefect.Task`` that make this task, as it is now."""
        now = {name: _kept(getattr(self, name)) for name in _SETTINGS}
        changed = {name: value for name, value in now.items() if value != self._at_first[name]}
        hooks = {name: list(getattr(self, f"{name}_hooks")) for name in _HOOKS}
        hooks["on_rollback"] = [hook for hook in hooks["on_rollback"] if hook != ROLLED_BACK]
        return {**self._settings, **changed, **hooks}

    def _remade(
        self, spec: AppSpec, asynchronous: bool | None, settings: dict[str, Any]
    ) -> AppTask:
        """Return another task with all that was set on this one, whoever's attribute it is."""
        made = AppTask(spec, asynchronous, **settings)
        known = {*vars(made), "_coroutine_function"}
        made.__dict__.update(
            {name: value for name, value in vars(self).items() if name not in known}
        )
        return made

    def __call__(
        self, *args: object, return_state: bool = False, wait_for: Any = None, **kwargs: object
    ) -> Any:
        """Run the job, and return its results (an awaitable of them in async code)."""
        if self.asynchronous is None and in_async_code():
            return self.aio(*args, return_state=return_state, wait_for=wait_for, **kwargs)
        given = self._with_call(args, kwargs)
        value = super().__call__(
            *given.args, return_state=return_state, wait_for=wait_for, **given.kwargs
        )
        if inspect.isawaitable(value):
            return _checked(value, return_state)
        return _check(value, return_state)

    def submit(
        self, *args: object, return_state: bool = False, wait_for: Any = None, **kwargs: object
    ) -> Any:
        """Hand the job to the flow's task runner, and return a future of its results."""
        given = self._with_call(args, kwargs)
        return super().submit(
            *given.args, return_state=return_state, wait_for=wait_for, **given.kwargs
        )

    def map(
        self, *args: object, return_state: bool = False, wait_for: Any = None, **kwargs: object
    ) -> Any:
        """Run the job once for each element of its iterable arguments, and return their futures."""
        ahead, rest = positional_as_list(self.spec.launch, args, kwargs)
        bound = self._bind(
            ahead, {**kwargs, **{name: columns_as_lists(values) for name, values in rest.items()}}
        )
        if isinstance(bound.arguments.get(LAUNCH), Mapping):
            bound.arguments[LAUNCH] = unmapped(bound.arguments[LAUNCH])
        for name, value in bound.arguments.items():
            if inspect.isgenerator(value):
                bound.arguments[name] = list(value)
        given = [*bound.arguments]
        length = _length(bound.arguments.values())
        if length:
            bound.arguments[CALL] = [Call.of(given, self.spec.key) for _ in range(length)]
        bound.arguments.update(
            {name: unmapped(value) for name, value in self._left_open(bound).items()}
        )
        return super().map(
            *bound.args, return_state=return_state, wait_for=wait_for, **bound.kwargs
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        signature = inspect.signature(self.fn)
        try:
            return signature.bind_partial(*args, **kwargs)
        except TypeError as exc:
            shown = [name for name in signature.parameters if name != CALL]
            wrong = next((name for name in kwargs if name not in shown), "")
            raise SpecError(f"task {self.name!r}: {exc}; {nearest(wrong, shown)}") from exc

    def apply_async(
        self,
        args: tuple[object, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
        dependencies: dict[str, set[RunInput]] | None = None,
    ) -> PrefectDistributedFuture[Any]:
        """Leave the job to a task worker, and return a future of its results.

        Args:
            args: arguments by position.
            kwargs: arguments by name.
            wait_for: futures that must have ended before.
            dependencies: of the task run, as of ``prefect.Task.apply_async``.
        """
        given = self._with_call(tuple(args or ()), dict(kwargs or {}))
        return super().apply_async(
            args=given.args, kwargs=given.kwargs, wait_for=wait_for, dependencies=dependencies
        )

    def _with_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a call with those that it leaves open, and what makes it."""
        ahead, rest = positional_as_list(self.spec.launch, args, kwargs)
        bound = self._bind(ahead, {**kwargs, **rest})
        if not isinstance(bound.arguments.get(CALL), Call):
            bound.arguments[CALL] = Call.of([*bound.arguments], self.spec.key)
        bound.arguments.update(self._left_open(bound))
        return bound

    def _left_open(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        spec = self.spec
        if spec.launch.component is None:
            return {}
        with suppress(TransloadError):  # the task run says what is wrong
            cluster = None
            if spec.cluster is not None:
                cluster = cluster_named(spec.cluster)
            defaults = runner_of(cluster, spec.inherit_env).settings.component_defaults(
                spec.launch.resolve_component()
            )
            return values_left_open(spec.launch, bound, spec.context_args, defaults)
        return {}


def _check(value: Any, return_state: bool) -> Any:
    """Let a flow that is being cancelled end here.

    Without this it would go on with a state in place of results.
    """
    context = FlowRunContext.get()
    if return_state or not isinstance(value, State) or context is None or context.flow_run is None:
        return value
    if watch_of(context).cancelled:
        raise CancelledRun(value.message or "the flow run is being cancelled")
    return value


async def _checked(value: Any, return_state: bool) -> Any:
    return _check(await value, return_state)


def _kept(value: Any) -> Any:
    """Return a value that stays as it is now."""
    return copy(value) if isinstance(value, (list, set)) else value


def _length(values: Iterable[Any]) -> int | None:
    """Return how many elements ``map`` will find, or None if that cannot be said."""
    for value in values:
        each = value
        if isinstance(each, (allow_failure, opaque, quote)):
            each = each.unwrap()
        if isinstance(each, unmapped):
            continue
        if isinstance(each, PrefectFuture):
            each.wait()
            if not each.state.is_completed():
                return None  # Prefect says so itself
            each = each.result()
        if isiterable(each):
            return len(list(each))
    return None


def _task_run_name(name: str, made: Any, parameters: dict[str, Any]) -> str:
    """Return the name of a task run, from the task's and its arguments, with secrets masked."""
    call = parameters.get(CALL)
    called = {key: value for key, value in parameters.items() if key not in (LAUNCH, CALL)}
    called = {key: value for key, value in called.items() if not isinstance(value, LeftOpen)}
    if isinstance(call, Call):
        called = {key: value for key, value in called.items() if key in call.given}
    given = called
    if isinstance(made, Mapping):
        given = {**made, **called}
    texts = {key: " ".join(str(value).split()) for key, value in given.items()}
    shown = {
        key: text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
        for key, text in texts.items()
    }
    words = [f"{key}={text}" for key, text in masked_env(shown).items()]
    return " ".join([name, *words[:_MOST_SHOWN]])
