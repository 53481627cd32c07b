"""Import what lies beside a component's file, for that file alone.

Such a file imports its neighbours as ``python FILE`` does. But one process may read several, with
neighbours of one name, and may have a module of that name itself. So each neighbour has a name of
its own in ``sys.modules``, below that of a package for the folder, and the file has an
``__import__`` that knows these names.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

PREFIX: Final = "transload_component_file_"
"""How the names of modules begin that are component files, and of those beside them."""


def builtins_beside(folder: str) -> dict[str, Any]:
    """Return the built-ins of a file, in which ``import`` finds the modules of a folder.

    The standard library, transload, and a folder that is on ``sys.path`` are imported as always.
    """
    folder = os.path.abspath(folder)
    if any(os.path.abspath(each) == folder for each in sys.path):
        return vars(builtins)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    sys.path_importer_cache.pop(folder, None)  # it may not know a file that is new
    package = _package_of(folder)

    def import_(
        name: str,
        namespace: Any = None,
        local: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not _is_in(folder, top):
            return builtins.__import__(name, namespace, local, fromlist or (), level)
        found = builtins.__import__(f"{package}.{name}", namespace, local, fromlist or ())
        return found if fromlist else sys.modules[f"{package}.{top}"]

    made: dict[str, Any] = {**vars(builtins), "__import__": import_}
    sys.modules[package].__dict__["__builtins__"] = made
    return made


def _package_of(folder: str) -> str:
    """Return the name of the package for a folder, another one after a file in it has changed."""
    import zlib

    files: list[tuple[str, int, int]] = []
    with suppress(PermissionError), os.scandir(folder) as entries:
        for each in entries:
            if each.name.endswith(".py"):
                found = each.stat(follow_symlinks=False)  # a link may lead nowhere
                files.append((each.name, found.st_mtime_ns, found.st_size))
    name = f"{PREFIX}{zlib.crc32(os.fsencode(f'{folder} {sorted(files)}')):08x}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    return name


def _is_in(folder: str, name: str) -> bool:
    """Tell whether a folder has a module, which one in the standard library hides."""
    if name == "transload" or name in sys.stdlib_module_names:
        return False
    found = PathFinder.find_spec(name, [folder])
    if found is None:
        return False
    if found.loader is not None:
        return True
    # a folder without __init__.py counts if there is no such module elsewhere
    return name not in sys.modules and PathFinder.find_spec(name) is None


class _Finder:
    """Finds the modules in the packages for folders."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith(PREFIX):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module that imports its own neighbours in the same way."""

    def exec_module(self, module: ModuleType) -> None:
        package = sys.modules[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = package.__dict__["__builtins__"]
        super().exec_module(module)


@contextmanager
def on_path(folder: str | None) -> Iterator[None]:
    """Import from a folder too, before others, as ``python -m`` does from the working directory."""
    if folder is None:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
