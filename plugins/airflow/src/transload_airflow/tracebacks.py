"""What Airflow logs of a task that fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout

from transload.errors import TransloadError

P = ParamSpec("P")
T = TypeVar("T")


def hide_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Have Airflow log the failures of an operator's method with their message alone.

    Without it, a page of this package's frames follows. What somebody else raised keeps its
    traceback.
    """

    @functools.wraps(method)
    def brief(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (AirflowException, AirflowTaskTimeout) as exc:
            if not isinstance(exc.__cause__, TransloadError):
                raise
            raise exc.with_traceback(None) from None

    return brief
