"""Values that are known only when the pipeline runs, while the component function runs now.

The function gets stand-ins that print as a mark and refuse whatever needs the value: arithmetic, comparisons, truth.
What it makes is built twice, with stand-ins of different values: where the two differ, a value leaked into the app.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final, NoReturn

from transload.errors import SpecError

_JUMBLE: Final = "Zz0.1-2_3=4,5;6:7 8/9a\"b'c\\d@e+f*g?h[i]j{k}l(m)n<o>p|q&r$s%t^u~v!w#x`y"
"""Nearly everything that a function may look for in a text: what it finds in the one mark it misses in the other."""
_MARK: Final = re.compile(
    f"\ue000late:([^\ue000\ue001]*)\ue001|\ue002{re.escape(_JUMBLE)}late:([^\ue002\ue003]*) \ue003"
)
Piece = str | tuple[str]
"""A piece of a text: literal, or ``(name,)`` of what stands there at run time."""


class NeedsValue(SpecError):
    """The component function looked at a value that is known only when the pipeline runs.

    Attributes:
        name: the argument.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"argument {name!r} is known only when the pipeline runs, and {what}")
        self.name = name


def mark(name: str, probe: int = 0) -> str:
    """Return the text that stands for the value of ``name``; marks of different probes share no part of any use."""
    return f"\ue002{_JUMBLE}late:{name} \ue003" if probe else f"\ue000late:{name}\ue001"


def pieces(text: str) -> tuple[Piece, ...]:
    """Split a text at its marks."""
    found: list[Piece] = []
    end = 0
    for match in _MARK.finditer(text):
        if match.start() > end:
            found.append(text[end : match.start()])
        found.append((match.group(1) or match.group(2),))
        end = match.end()
    if end < len(text):
        found.append(text[end:])
    return tuple(found)


def has_mark(text: str) -> bool:
    """Tell whether a text depends on a value that is known only when the pipeline runs."""
    return _MARK.search(text) is not None


class Late:
    """What all stand-ins are."""

    late_name: str
    late_probe: int

    def _refuse(self, what: str) -> NoReturn:
        raise NeedsValue(self.late_name, f"the component function {what}")

    def _text(self) -> str:
        """Return the value as a text that is passed on, and refuses to be looked at like the value itself."""
        made: str = stand_in(self.late_name, str, self.late_probe)
        return made

    def __str__(self) -> str:
        return self._text()

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(f"formats it with {spec!r}")
        return self._text()


class _LateStr(Late, str):
    def _text(self) -> str:
        # a true text: paths are put together of it, for one
        return mark(self.late_name, self.late_probe)

    def __repr__(self) -> str:
        self._refuse("takes its repr(), which depends on the value")


class _LateInt(Late, int):
    def __repr__(self) -> str:
        return self._text()


class _LateFloat(Late, float):
    def __repr__(self) -> str:
        return self._text()


class _LateBool(Late):
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self._text()


_ALLOWED: Final = frozenset({"join", "format", "encode"}) | {
    f"__{name}__"
    for name in (
        *("new", "init", "init_subclass", "subclasshook", "class", "getattribute", "setattr", "delattr", "dir", "doc"),
        *("str", "repr", "format", "sizeof", "reduce", "reduce_ex", "getnewargs", "getstate", "getformat"),
        *("add", "len"),
    )
}
_NUMERIC_TOO: Final = frozenset(["__add__"])


def _guard(cls: type, base: type, name: str) -> None:
    original = getattr(base, name, None)

    def guarded(self: Any, *args: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if original is not None and caller.startswith("transload.specs"):
            return original(self, *args)  # our own validation looks at it, and decides nothing by it
        return self._refuse(f"needs its value ({name.strip('_')})")

    setattr(cls, name, guarded)


def _guard_all() -> None:
    for cls, base in ((_LateStr, str), (_LateInt, int), (_LateFloat, float)):
        names = {name for name in dir(base) if callable(getattr(base, name))} | {"__bool__"}
        allowed = _ALLOWED if base is str else _ALLOWED - _NUMERIC_TOO
        for name in sorted(names - allowed):
            if name == "__bool__" and base is str:
                _guard_truth(cls)
                continue
            _guard(cls, base, name)
    for name in ("__bool__", "__int__", "__index__", "__eq__", "__ne__", "__and__", "__or__", "__xor__", "__invert__"):
        _guard(_LateBool, object, name)


def _guard_truth(cls: type) -> None:
    def truth(self: Any) -> bool:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("transload.specs"):
            return True
        raise NeedsValue(self.late_name, "the component function asks whether it is empty")

    cls.__bool__ = truth  # type: ignore[attr-defined]


_guard_all()


def stand_in(name: str, kind: type, probe: int) -> Any:
    """Return a stand-in for an argument.

    Args:
        name: the argument.
        kind: ``str``, ``int``, ``float`` or ``bool``.
        probe: 0 or 1; stand-ins of different probes have different values.
    """
    made: Any
    if kind is str:
        made = _LateStr(mark(name, probe))
    elif kind is int:
        made = _LateInt((3, 5)[probe])
    elif kind is float:
        made = _LateFloat((0.3717, 0.5923)[probe])
    else:
        made = _LateBool()
    made.late_name, made.late_probe = name, probe
    return made


def plain(value: Any) -> Any:
    """Return a JSON-like value with its stand-ins replaced by their marks."""
    if isinstance(value, Late):
        return mark(value.late_name, value.late_probe)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
