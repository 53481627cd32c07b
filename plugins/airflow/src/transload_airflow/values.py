"""Values on their way into Airflow and back: apps as JSON, exit codes, what an XCom can hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from transload.errors import ConfigError
from transload.specs import AppDef


def as_values(app: Any) -> tuple[Any, Callable[..., Any] | None]:
    """Return an app as JSON values, so that Airflow's templates reach into it; and apart, if it is a callable."""
    if isinstance(app, AppDef):
        return json.loads(app.to_json()), None
    if callable(app) and not hasattr(app, "resolve"):  # an upstream's output, resolved when the task runs
        return None, app
    return app, None


def called(function: Callable[..., Any], context: Mapping[str, Any]) -> Any:
    """Return the app that a user's callable makes, given what it asks for of the context."""
    from airflow.providers.common.compat.sdk import determine_kwargs

    app = function(**determine_kwargs(function, (), context))
    return json.loads(app.to_json()) if isinstance(app, AppDef) else app


def exit_codes(value: int | Collection[int] | None) -> tuple[int, ...]:
    """Return exit codes as a tuple.

    Raises:
        ConfigError: if they are no ints.
    """
    codes = () if value is None else (value,) if isinstance(value, int) else tuple(value)
    if any(isinstance(code, bool) or not isinstance(code, int) for code in codes):
        raise ConfigError(f"skip_on_exit_code={value!r}: must be an int, or several")
    return codes


def plain(value: Any) -> Any:
    """Return JSON values that Airflow's API takes: NaN and infinities, which JSON has not, as texts."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
