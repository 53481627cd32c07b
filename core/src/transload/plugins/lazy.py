"""Public names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package.

    For type checkers, the package imports the same in an ``if TYPE_CHECKING`` block.

    Args:
        package: its ``__name__``.
        homes: module, relative to the package (as ``.name`` beside it) → the public names that live
            there, with blanks.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        above = package.rpartition(".")[0] if home.startswith(".") else package
        value = getattr(__import__(f"{above}.{home.lstrip('.')}", fromlist=[name]), name)
        return vars(sys.modules[package]).setdefault(name, value)  # asked for once

    def names() -> list[str]:
        return sorted({*home_of, *vars(sys.modules[package])})

    return load, names, sorted(home_of)
