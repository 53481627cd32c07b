"""What a dry-run returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from transload.specs._app import AppDef
    from transload.specs._runopts import CfgVal

T = TypeVar("T")


class AppDryRunInfo(Generic[T]):
    """The request that would be submitted; ``print()`` shows it.

    Attributes:
        request: the scheduler's own request. It may be changed before it is given to ``Runner.schedule``.
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self._fmt = fmt
        # what the runner needs to schedule it; set by Runner.dryrun
        self._app: AppDef | None = None
        self._cfg: Mapping[str, CfgVal] = {}
        self._scheduler: str | None = None
        self._submission: Any = None
        self._app_id: str = ""
        self._converted: AppDef | None = None
        # the request as it was converted, where it may have to be built anew at the submit
        self._unchanged: Any = None

    def __repr__(self) -> str:
        return self._fmt(self.request)
