"""What a dry-run returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from transload.specs.app import AppDef
    from transload.specs.options import CfgVal

T = TypeVar("T")


@dataclass(repr=False, eq=False)
class AppDryRunInfo(Generic[T]):
    """The request that would be submitted; ``print()`` shows it.

    Attributes:
        request: the scheduler's own request. It may be changed before it is given to
            ``Runner.schedule``.
    """

    request: T
    _fmt: Callable[[T], str]
    # what the runner needs to schedule it; set by Runner.dryrun
    _app: AppDef | None = field(default=None, init=False)
    _cfg: Mapping[str, CfgVal] = field(default_factory=dict, init=False)
    _scheduler: str | None = field(default=None, init=False)
    _submission: Any = field(default=None, init=False)
    _app_id: str = field(default="", init=False)
    _converted: AppDef | None = field(default=None, init=False)
    # the request as it was converted, where it may have to be built anew at the submit
    _unchanged: Any = field(default=None, init=False)

    def __repr__(self) -> str:
        return self._fmt(self.request)
