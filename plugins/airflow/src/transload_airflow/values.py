"""Convert values on their way into Airflow and back.

These are jobs as JSON, exit codes, and what an XCom can hold.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from airflow.providers.common.compat.sdk import BaseOperator

from transload.errors import ConfigError, SpecError
from transload.specs import AppDef
from transload.specs.checks import closest, shorten

LONGEST_NAME: Final = 200
"""Characters of a job's name, while those of a task's are up to 250."""


@dataclass(frozen=True)
class AsIs:
    """A value of a template field that Airflow does not change.

    Its templates do not look into it, and a function is not called. Otherwise Airflow calls each
    function in a template field, with its own arguments.

    Args:
        value: JSON values, or a function.
    """

    value: Any

    def serialize(self) -> Any:
        """Return what Airflow shows of it. Airflow 3.1 takes no function here."""
        if callable(self.value):
            return f"<callable {getattr(self.value, '__qualname__', type(self.value).__name__)}>"
        return self.value

    def __str__(self) -> str:
        return json.dumps(self.value, sort_keys=True, default=str)


def as_values(app: Any, template: bool = True) -> tuple[Any, Callable[..., Any] | None]:
    """Return a job as JSON values, so that Airflow's templates reach into it.

    Args:
        app: as a user gives it. An upstream's output is resolved when the task runs, and is never
            a template.
        template: False: keep templates out of it.

    Returns:
        The values, and apart from these the job if it is a callable.
    """
    if isinstance(app, AppDef):
        app = json.loads(app.to_json())
    elif app is None or hasattr(app, "resolve"):
        return app, None
    elif callable(app):
        return None, app
    if not template:
        app = AsIs(app)
    return app, None


def app_name(task_id: str) -> str:
    """Return the name of a job that has none itself, such as a command, from that of its task."""
    return task_id[:LONGEST_NAME].lstrip("-.") or "app"


def as_component(component: Any) -> Any:
    """Return a component as a template field holds it.

    A function is wrapped, so that Airflow does not call it. Anything else is returned unchanged.
    """
    if component is None or isinstance(component, str) or hasattr(component, "resolve"):
        return component
    return AsIs(component)


def unwrapped(value: Any) -> Any:
    """Return what a template field holds, as it was given."""
    if isinstance(value, AsIs):
        return value.value
    return value


def arguments(value: Any) -> Mapping[str, Any] | Sequence[str]:
    """Return the arguments of a component, as they are after rendering.

    Raises:
        SpecError: if they have become a text (a template of an upstream's dict is one), or are not
            there yet.
    """
    if hasattr(value, "resolve"):
        raise SpecError(
            f"component_args={value}: what an upstream task returns is known only once that has run"
        )
    if isinstance(value, str) or not isinstance(value, (Mapping, Sequence, type(None))):
        raise SpecError(
            f"component_args={value!r}: must be name → value, or words as on the command line "
            "(an upstream's whole output is given as it is, not as a template: "
            "component_args=upstream.output)"
        )
    return value or {}


def words_of(value: Any) -> Sequence[str] | None:
    """Return a command after rendering, with numbers among its words as texts.

    Raises:
        SpecError: if it is no list.
    """
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise SpecError(f"command={value!r}: must be a list: the program, then its arguments")
    return [str(word) for word in value]


def refuse_misspelt(operator: type, given: Mapping[str, Any], own: Collection[str]) -> None:
    """Refuse an argument that Airflow's operators have not, and that resembles one of ours.

    Airflow itself refuses those that resemble none.

    Args:
        operator: the class of the operator.
        given: the arguments that are left for Airflow.
        own: the names of ours.

    Raises:
        ConfigError: with the argument that may have been meant.
    """
    known = inspect.signature(BaseOperator.__init__).parameters
    for name, value in given.items():
        meant = closest(name, list(own))
        if name not in known and meant is not None:
            raise ConfigError(
                f"{name}={shorten(value)}: no argument of {operator.__name__}: did you mean "
                f"{meant!r}?"
            )


def run_options(value: Any) -> Mapping[str, Any]:
    """Return run options, as they are after rendering.

    Raises:
        ConfigError: if they are no mapping.
    """
    if not isinstance(value, (Mapping, type(None))):
        raise ConfigError(f"cfg={value!r}: must be option → value")
    return value or {}


def called(function: Callable[..., Any], context: Mapping[str, Any]) -> Any:
    """Return the job that a user's callable makes, given what it asks for of the context.

    Raises:
        SpecError: if it asks for something that the context has not.
    """
    from airflow.providers.common.compat.sdk import determine_kwargs

    given = determine_kwargs(function, (), context)
    try:
        inspect.signature(function).bind(**given)
    except TypeError as exc:
        raise SpecError(
            f"app={function!r}: {exc} among what the task knows ({', '.join(sorted(context))})"
        ) from exc
    app = awaited(function(**given))
    if isinstance(app, AppDef):
        return json.loads(app.to_json())
    return app


def awaited(value: Any) -> Any:
    """Return what a user's function has returned.

    One that is ``async def`` runs to its end here.
    """
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1) as other:  # a notebook that tests a DAG: its loop is this thread's
        return other.submit(contextvars.copy_context().run, asyncio.run, wait()).result()


def exit_codes(value: int | Collection[int] | None) -> tuple[int, ...]:
    """Return exit codes as a tuple.

    Raises:
        ConfigError: if they are no ints.
    """
    if value is None:
        return ()
    if isinstance(value, int):
        value = [value]
    codes = tuple(value)
    if any(isinstance(code, bool) or not isinstance(code, int) for code in codes):
        raise ConfigError(f"skip_on_exit_code={value!r}: must be an int, or several")
    return codes
