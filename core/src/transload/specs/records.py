"""The records of the spec: dataclasses whose comparison and text are written once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

__all__ = ["record"]

TYPE_CHECKING = False  # importing typing would be a tenth of what a program pays for the spec
if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from typing import Any
else:

    def record(cls: type | None = None, **options: bool) -> Any:
        """Make a dataclass; by itself ``dataclass`` compiles ``__eq__`` and ``__repr__`` anew for
        each class.
        """
        if cls is None:
            return partial(record, **options)
        cls.__eq__, cls.__hash__ = _equal, None
        if "__repr__" not in vars(cls):
            cls.__repr__ = _shown
        return dataclass(cls, eq=False, repr=False, **options)


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(
        [getattr(self, name)] == [getattr(other, name)] for name in self.__dataclass_fields__
    )  # NaN is itself


def _shown(self: Any) -> str:
    fields = [each.name for each in self.__dataclass_fields__.values() if each.repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"
