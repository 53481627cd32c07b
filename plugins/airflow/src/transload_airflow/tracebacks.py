"""What Airflow logs of a task that fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout

from transload.errors import TransloadError

F = TypeVar("F", bound=Callable[..., Any])


def hide_traceback(method: F) -> F:
    """Have Airflow log the failures of an operator's method with their message alone.

    Without it, a page of this package's frames follows. What somebody else raised keeps its
    traceback.
    """

    @functools.wraps(method)
    def brief(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (AirflowException, AirflowTaskTimeout) as exc:
            if not isinstance(exc.__cause__, TransloadError):
                raise
            raise exc.with_traceback(None) from None

    return brief  # type: ignore[return-value]
