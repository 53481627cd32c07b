"""Define what a dry-run returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(repr=False, eq=False)
class AppDryRunInfo(Generic[T]):
    """The request that would be submitted. ``print()`` shows it.

    A runner's dry-run returns a `transload.runner.Plan`, which says all else of the job, too.

    Attributes:
        request: the scheduler's own request. It may be changed before it is given to
            ``Runner.schedule``.
    """

    request: T
    _fmt: Callable[[T], str]

    def __repr__(self) -> str:
        return self._fmt(self.request)
