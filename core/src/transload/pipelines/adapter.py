"""Define what an adapter registers, and list the adapters that are installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from transload.errors import ConfigError, PluginError, StateUnknown, TransloadError
from transload.pipelines.chain import Again
from transload.pipelines.drivers import Driver
from transload.pipelines.errors import AppLost, Ending
from transload.pipelines.handover import finish
from transload.pipelines.lifecycle import LifecycleState
from transload.pipelines.states import StateMap
from transload.specs import AppState, AppStatus

if TYPE_CHECKING:
    from transload.pipelines.adapter_io import AdapterIO
    from transload.pipelines.identity import Identity
    from transload.pipelines.options import ExecutionOptions
    from transload.runner import AppResults, Launch

Context = TypeVar("Context")
"""The orchestrator's facts about one step, and what its user set for it."""


def no_advice(schedulers: Collection[str]) -> Iterable[str]:
    """Return nothing, which is what most adapters advise."""
    return ()


@dataclass(frozen=True)
class Adapter:
    """What a plugin registers for an orchestrator, and `get_adapter` returns.

    Reading it imports no orchestrator.

    Args:
        name: name of the orchestrator, in small letters. It is the session of all handles.
        convert: ``convert(source, **host_options)`` returns the orchestrator's own object, such as
            an operator, a component or a task. Nothing runs. ``source`` is an AppDef, its JSON, a
            component (name or function), a `Launch`, or a search where the host has sub-pipelines.
            It raises UnsupportedFeature for what the orchestrator cannot express, by field name,
            and SpecError if the source is wrong.
        dry_run: with the same arguments, returns what would be made and submitted, as text for a
            person.
        states: AppState → the orchestrator's state.
        advice: returns what `transload doctor` advises about the orchestrator's settings, given
            the names of the schedulers that the settings lead to.
    """

    name: str
    convert: Callable[..., Any]
    dry_run: Callable[..., str]
    states: StateMap[Any]
    advice: Callable[[Collection[str]], Iterable[str]] = no_advice


class LifecycleAdapter(ABC, Generic[Context]):
    """Turns jobs into steps of one orchestrator. Reading its attributes imports no orchestrator.

    An adapter knows how its orchestrator names a step, stores and shows the facts of the job, ends
    the step, and reports an error. This class runs the job with that. ``Context`` is the adapter's
    own class for the facts of one step.

    An orchestrator that blocks calls `run`, an asynchronous one `run_async`. One that defers calls
    `start` and hands `Driver.state` over as JSON. The process that waits calls `restore` and
    ``outcome``, and hands back the result. The third process calls `restore` and `resume`. An
    orchestrator that polls calls `start`, and then `poll`.

    Attributes:
        name: name of the orchestrator, in small letters. It is the session name of all handles.
        states: AppState → the orchestrator's state.
        endings: how a job ended that did not end well → what that is in the orchestrator. Total.
    """

    name: ClassVar[str]
    states: ClassVar[StateMap[Any]]
    endings: ClassVar[Mapping[Ending, Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "endings" not in cls.__dict__:
            return
        missing = [ending.name for ending in Ending if ending not in cls.endings]
        if missing:
            raise ConfigError(
                f"endings of {cls.__name__}: no value for {', '.join(missing)}; every Ending "
                "needs one"
            )

    # -- what an adapter gives

    @abstractmethod
    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return the orchestrator's own object, such as an operator, a component or a task.

        Nothing runs.

        Args:
            source: an AppDef, its JSON, a component (name or function), or a `Launch`.
            host_options: the orchestrator's own arguments, and those of `ExecutionOptions`.

        Raises:
            UnsupportedFeature: for what the orchestrator cannot express, by field name.
            SpecError: if the source is wrong.
        """

    @abstractmethod
    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return what would be made and submitted, as text for a person.

        Arguments and errors as in `convert`.
        """

    @abstractmethod
    def identity(self, context: Context) -> Identity:
        """Return whose job it is, in words that never change while the step exists.

        It is equal for every try of a step, and also when a person runs the step again.
        """

    def asked(self, context: Context) -> Mapping[str, Any]:
        """Return the orchestrator's words of this try, as JSON values. Default none.

        They are kept with the job that the try submits, and `asked_anew` compares them.
        """
        return {}

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell how this try asks, compared with the one that submitted the newest job of the step.

        Args:
            kept: what `asked` returned for that try. It is empty if that try said nothing.
            now: what it returns for this one.

        Returns:
            By default ``Again.NO``: every try asks for the same job.
        """
        return Again.NO

    @abstractmethod
    def io(self, context: Context) -> AdapterIO:
        """Return the runner, stores, logs and displays for the job of a step."""

    @abstractmethod
    def cancel_on_exit(self, context: Context, driver: Driver) -> AbstractContextManager[object]:
        """Return a context in which the orchestrator's end of the step reaches the driver.

        `Driver.kill` may be called from a signal handler. `Driver.give_up` and `Driver.cancel` act
        at once. A driver that a BaseException leaves gives the job up by itself.
        """

    @abstractmethod
    def translate(self, error: TransloadError, context: Context) -> BaseException:
        """Return the exception that the orchestrator acts on, for an error of a job or its submit.

        ``Ending.of(error)`` is the row of `endings`.
        """

    def registered(self) -> Adapter:
        """Return what is registered of it."""
        return Adapter(self.name, self.convert, self.dry_run, self.states, self.advice)

    def advice(self, schedulers: Collection[str]) -> Iterable[str]:
        """Return what `transload doctor` advises about the orchestrator's settings. Default nothing.

        Args:
            schedulers: names of the schedulers that the settings lead to.
        """
        return ()

    # -- what is the same for all

    def driver(self, context: Context, launch: Launch | None, options: ExecutionOptions) -> Driver:
        """Return what looks after the job of a step in this process. Nothing is asked or submitted.

        Args:
            context: the step.
            launch: what to submit. None means that the job is known by its handle
                (`Driver.attach`).
            options: how the job is run.

        Raises:
            BaseException: what `translate` makes of an error.
        """
        with self.translating(context):
            state = LifecycleState(self.identity(context), options)
            return Driver(
                launch,
                state,
                self.io(context),
                asked=self.asked(context),
                asked_anew=self.asked_anew,
            )

    def restore(self, context: Context, state: Mapping[str, Any]) -> Driver:
        """Return a driver that goes on where another process took `Driver.state`.

        It can follow, collect and cancel. It does not submit.

        Args:
            context: the step, or what this process knows of it.
            state: from `Driver.state`, after any trip through JSON.

        Raises:
            BaseException: what `translate` makes of an error.
        """
        with self.translating(context):
            taken = LifecycleState.from_dict(state)
            return Driver(None, taken, self.io(context))

    def run(self, context: Context, launch: Launch, options: ExecutionOptions) -> AppResults:
        """Submit the job of a step or attach to it, wait for its end, return its results.

        Raises:
            BaseException: what `translate` makes of an error. `Driver.run` names the errors.
        """
        driver = self.driver(context, launch, options)
        with self.guard(context, driver):
            return driver.run()

    async def run_async(
        self, context: Context, launch: Launch, options: ExecutionOptions
    ) -> AppResults:
        """Do what `run` does, without blocking the event loop.

        Cancelling the task ends the step, as `Driver.kill` does.
        """
        driver = self.driver(context, launch, options)
        with self.guard(context, driver):
            return await driver.run_async()

    def start(self, context: Context, launch: Launch, options: ExecutionOptions) -> Driver:
        """Submit the job of a step or attach to it, and return its driver in this process.

        Raises:
            BaseException: what `translate` makes of an error.
        """
        driver = self.driver(context, launch, options)
        with self.guard(context, driver):
            driver.start()
        return driver

    def resume(
        self, context: Context, driver: Driver, waited: Mapping[str, Any] | None = None
    ) -> AppResults:
        """Do what `run` does after the start, which is to wait for the end and return the results.

        Args:
            context: the step.
            driver: from `start` or `restore`.
            waited: from ``outcome``, of another process that has waited. None means to wait here.

        Raises:
            BaseException: what `translate` makes of an error.
        """
        with self.guard(context, driver):
            if waited is None:
                return driver.resume()
            return finish(driver, waited)

    def poll(
        self,
        context: Context,
        driver: Driver,
        status: AppStatus | None = None,
        *,
        asked: bool = False,
    ) -> AppStatus:
        """Look once at the job of a step, and return what was seen.

        It waits only for the last lines of a job that has failed, through an outage, for as long as
        the patience of its options says.

        Args:
            context: the step.
            driver: from `start` or `restore`.
            status: what the scheduler said, where many jobs were asked for at once
                (``Runner.status_many``).
            asked: ``status`` is that answer, so that None means a job that is gone.

        Raises:
            BaseException: what `translate` makes of a job that did not end well, that is gone, or
                whose patience is exhausted.
        """
        seen = driver.poll(status, asked=asked)
        with self.translating(context):
            if seen.status is None:
                raise AppLost(seen.handle)
            if seen.exhausted:
                raise StateUnknown(seen.handle, seen.unknown_for, seen.status.msg)
            if seen.status.is_terminal() and seen.status.state is not AppState.SUCCEEDED:
                driver.collect(seen.status)
            return seen.status

    @contextmanager
    def guard(self, context: Context, driver: Driver) -> Iterator[None]:
        """Give a context in which the step's end reaches the driver, and errors are translated."""
        with self.translating(context), self.cancel_on_exit(context, driver):
            yield

    @contextmanager
    def translating(self, context: Context) -> Iterator[None]:
        """Give a context in which an error of transload becomes what `translate` returns."""
        try:
            yield
        except TransloadError as exc:
            translated = self.translate(exc, context)
            if translated is exc:
                raise
            raise translated from exc


def adapters() -> list[str]:
    """Return the names of the adapters that are installed."""
    from transload.plugins import get_plugins

    return get_plugins().names("adapters")


def get_adapter(name: str) -> Adapter:
    """Return the adapter of that name.

    Raises:
        ConfigError: if there is none. The nearest name is suggested.
        PluginError: if its plugin is broken, or what it made is no adapter.
    """
    from transload.plugins import get_plugins

    plugins = get_plugins()
    entry = plugins.registry("adapters").get(name)
    if entry is None:
        raise ConfigError(f"adapter {name!r} does not exist: {plugins.hint('adapters', name)}")
    factory = plugins.get("adapters", name)
    try:
        made = factory()
    except Exception as exc:
        raise PluginError(
            f"adapter {name!r} cannot be made: {type(exc).__name__}: {exc}", entry.plugin
        ) from exc
    if isinstance(made, LifecycleAdapter):
        made = made.registered()
    if not isinstance(made, Adapter) or not isinstance(made.states, StateMap):
        raise PluginError(
            f"adapter {name!r}: {type(made).__name__} is no transload.pipelines.Adapter with a "
            "StateMap",
            entry.plugin,
        )
    return made


def describe_adapters() -> list[dict[str, Any]]:
    """Return the installed adapters, broken ones included.

    Of each ``name``, ``plugin``, ``status`` (``installed``, or why it cannot be used), and
    ``states``: AppState → the orchestrator's state.
    """
    from transload.plugins import get_plugins

    rows = []
    for name, entry in sorted(get_plugins().registry("adapters").items()):
        row: dict[str, Any] = {
            "name": name,
            "plugin": entry.plugin,
            "status": "installed",
            "states": {},
        }
        try:
            row["states"] = get_adapter(name).states.names()
        except PluginError as exc:
            row["status"] = str(exc)
        rows.append(row)
    return rows
