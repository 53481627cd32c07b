"""Making the neighbours of a component file importable, for a while."""

from __future__ import annotations

import os
import sys
from types import ModuleType, TracebackType
from typing import Final

from transload._forks import fork_lock

FILE_MODULE: Final = "transload_component_file_"
"""How the names of modules start that are made from component files."""

_lock = fork_lock()


class ImportFolder:
    """A folder that is importable inside a ``with`` block, and not after it.

    Modules imported from the folder meanwhile are taken out of ``sys.modules`` at the end and put back at the next
    entry, so that ``helper.py`` of one folder is never taken for the ``helper.py`` of another. A folder that is on
    ``sys.path`` anyway is left as it is. Only one thread is inside any place at a time.

    Args:
        folder: the folder.
        forget: False to leave imported modules where they are, as for a package of the current directory.
    """

    def __init__(self, folder: str, forget: bool = True) -> None:
        self._folder = os.path.abspath(folder)
        self._forget = forget
        self._kept: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        self._depth = 0
        self._active = False

    @property
    def own_folder(self) -> str | None:
        """The folder of a component file; None if it is only where packages are."""
        return self._folder if self._forget else None

    def __enter__(self) -> ImportFolder:
        _lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._active = not any(os.path.abspath(item) == self._folder for item in sys.path)
            if self._active:
                if self._forget:
                    self._hidden = _take_out(_foreign(self._folder))
                    sys.modules.update(self._kept)
                sys.path.insert(0, self._folder)
                sys.path_importer_cache.pop(self._folder, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._depth -= 1
            if self._depth == 0 and self._active:
                if self._folder in sys.path:
                    sys.path.remove(self._folder)
                sys.path_importer_cache.pop(self._folder, None)
                if self._forget:
                    self._kept = _take_out(_neighbours(self._folder))
                    sys.modules.update(self._hidden)
                    self._hidden = {}
        finally:
            _lock.release()


def _take_out(tops: set[str]) -> dict[str, ModuleType]:
    """Remove modules of these top-level names, submodules included, from sys.modules and return them."""
    names = [name for name in list(sys.modules) if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}


def _home(module: ModuleType) -> str:
    """Return the folder that a top-level module was found in, ``""`` if there is none."""
    file = module.__file__ if hasattr(module, "__file__") else None
    if file:
        folder = os.path.dirname(os.path.abspath(file))
        return os.path.dirname(folder) if hasattr(module, "__path__") else folder
    return next((os.path.dirname(os.path.abspath(str(path))) for path in getattr(module, "__path__", ())), "")


def _loaded() -> dict[str, ModuleType]:
    """Return the loaded top-level modules that may be a user's: not the standard library's, not ours."""
    ours = sys.stdlib_module_names | {"__main__", "__mp_main__", "transload"}
    tops = [name for name in list(sys.modules) if "." not in name and name not in ours]
    # the component file itself stays: its classes are looked up by their module's name
    tops = [name for name in tops if isinstance(sys.modules[name], ModuleType) and not name.startswith(FILE_MODULE)]
    return {name: sys.modules[name] for name in tops}


def _neighbours(folder: str) -> set[str]:
    return {name for name, module in _loaded().items() if _home(module) == folder}


def _foreign(folder: str) -> set[str]:
    """Return names of loaded modules that come from elsewhere and have the name of a file or package in the folder."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return set()
    names = {entry.removesuffix(".py") for entry in entries if entry.endswith(".py")}
    names |= {entry for entry in entries if os.path.isfile(os.path.join(folder, entry, "__init__.py"))}
    return {name for name, module in _loaded().items() if name in names and _home(module) != folder}
