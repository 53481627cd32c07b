"""Pickle the call of a function.

Some modules travel with it. The others are found where it runs.
"""

from __future__ import annotations

import ast
import functools
import io
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

import cloudpickle

from transload.errors import SpecError
from transload.runtime.forks import fork_lock

PACKAGE: Final = os.path.dirname(os.path.abspath(cloudpickle.__file__))
"""Folder of the package that reads the call where it runs."""

_LEFT_OUT: Final = ("__builtins__", "__cached__", "__loader__", "__spec__")
_CACHED: Final = type(functools.lru_cache(len))
_lock = fork_lock()


class Call(NamedTuple):
    """A pickled call.

    Args:
        body: the pickle.
        modules: path below a folder for modules → path of the source file that must lie there.
    """

    body: bytes
    modules: dict[str, str]


def pickle_call(
    call: Any, fn: Callable[..., Any], *, folders: Iterable[str] = (), shares: bool = False
) -> Call:
    """Return a pickled call, and the modules that go with it.

    Modules that are not found where the function runs travel as files, with all that they import. A
    module without a name for an import travels in the pickle.

    Args:
        call: function and arguments.
        fn: the function.
        folders: local folders whose modules are found there.
        shares: the function runs on this machine's disk, with the module path of this process.

    Raises:
        SpecError: if something cannot be pickled, or a module can neither travel nor be found.
    """
    stream = io.BytesIO()
    with _lock:  # what is registered is so for the whole process
        pickler = _Pickler(stream, fn, {os.path.realpath(folder) for folder in folders}, shares)
        try:
            pickler.dump(call)
        except SpecError:
            raise
        except Exception as exc:
            why = f"{type(exc).__name__}: {exc}"
            raise SpecError(f"{name_of(fn)}: cannot be pickled: {why}{pickler.explain()}") from exc
        finally:
            pickler.forget()
    return Call(stream.getvalue(), sources_of(pickler.files, pickler.is_there))


def name_of(fn: Callable[..., Any]) -> str:
    """Return a name for a function. A partial has that of the function that it calls."""
    fn = inner(fn)
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "function"


def inner(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a partial function calls."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes modules along as it meets them.

    Args:
        stream: where the pickle goes.
        fn: the function. On this machine's disk its own module goes into the pickle, since its file
            may be edited before the function runs.
        folders: folders whose modules are found where it runs.
        shares: modules that this process finds by their names are found there.

    Attributes:
        files: names of the modules and packages that must travel as files.
    """

    def __init__(
        self, stream: io.BytesIO, fn: Callable[..., Any], folders: set[str], shares: bool
    ) -> None:
        super().__init__(stream)
        self.files: set[str] = set()
        self._fn = name_of(fn)
        self._folders = folders
        self._shares = shares
        self._travels: dict[str, bool] = {}
        self._taken: list[ModuleType] = []
        self._known = set(cloudpickle.list_registry_pickle_by_value())
        own = getattr(inner(fn), "__module__", None) or ""
        if shares and own in sys.modules and own != "__main__":
            self._travels[own] = not _is_installed(own)
        self._take(own)

    def reducer_override(self, obj: Any) -> Any:
        """Take along the module of a function, a class or a module before that is pickled."""
        if isinstance(obj, ModuleType):
            return self._module(obj)
        if isinstance(obj, _CACHED):
            return self._cached(obj)
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self._take(getattr(obj, "__module__", None) or "")
        elif isinstance(getattr(obj, "__module__", None), str) and self._is_by_name(obj):
            self._refuse(
                obj.__module__,
                f"{type(obj).__name__} {obj.__reduce_ex__(4)}, which is found by its name only",
            )
        return super().reducer_override(obj)

    def _is_by_name(self, obj: Any) -> bool:
        """Tell whether an object would be looked up by name in a module that is not there.

        Functions and classes are not asked about.
        """
        if type(obj).__module__ == obj.__module__ or not self._must_travel(obj.__module__):
            return False  # of most objects the module is that of their class
        try:
            return isinstance(obj.__reduce_ex__(4), str)
        except Exception:
            return False  # it is about to say so itself

    def _module(self, module: ModuleType) -> Any:
        if not self._must_travel(module.__name__):
            return super().reducer_override(module)
        self._take(module.__name__)
        # first the module, then what is in it, since modules may refer to each other
        state = {name: value for name, value in vars(module).items() if name not in _LEFT_OUT}
        return ModuleType, (module.__name__,), state

    def _cached(self, obj: Any) -> Any:
        """Return how to make a cached function again, since pickle finds it only by its name."""
        home = obj.__module__ or ""
        if (
            home in sys.modules
            and home != "__main__"
            and "<" not in obj.__qualname__
            and not self._must_travel(home)
        ):
            return NotImplemented

        def cached(fn: Any, maxsize: int | None, typed: bool) -> Any:
            import functools

            return functools.lru_cache(maxsize=maxsize, typed=typed)(fn)

        settings = obj.cache_parameters()
        return cached, (obj.__wrapped__, settings["maxsize"], settings["typed"])

    def _take(self, name: str) -> None:
        if name in self._known or not self._must_travel(name):
            return
        self._known.add(name)
        self._taken.append(sys.modules[name])
        cloudpickle.register_pickle_by_value(sys.modules[name])

    def _must_travel(self, name: str) -> bool:
        """Tell whether a module must travel in the pickle, and note one that travels as a file."""
        if name not in self._travels:
            top = name.partition(".")[0]
            is_there = (
                name == "__main__"
                or _is_installed(name)
                or self.is_there(top, sys.modules.get(top))
            )
            travels = not is_there
            if travels and not self._shares and _is_found(sys.modules.get(top)):
                self.files.add(top)
                travels = False
            self._travels[name] = travels
        return self._travels[name]

    def is_there(self, top: str, module: ModuleType | None) -> bool:
        """Tell whether a module, not one inside a package, is found where the function runs."""
        if module is not None and _is_installed(top):
            return True
        place = None if module is None else _folder_of(getattr(module, "__file__", None))
        return place is not None and (
            place in self._folders or (self._shares and _is_found(module))
        )

    def _refuse(self, module: str, what: str) -> None:
        raise SpecError(
            f"{self._fn}: cannot be sent: it needs {what}, of the module {module}, which is not "
            "installed: "
            "give workspace=FOLDER, so that the module travels as a file, and import it by its name"
        )

    def explain(self) -> str:
        """Return the end of a message that names the modules that were to travel and a way out."""
        names = sorted(module.__name__ for module in self._taken)
        if not names:
            return ""
        return f" (with it travel the modules {', '.join(names)}; those of a folder that workspace names need not)"

    def forget(self) -> None:
        """Let other calls be pickled as if nothing had been."""
        for module in self._taken:
            cloudpickle.unregister_pickle_by_value(module)


def sources_of(
    names: Iterable[str], is_there: Callable[[str, ModuleType | None], bool]
) -> dict[str, str]:
    """Return the source files of modules, and of all missing modules that these import.

    Returns:
        The path below a folder for modules → the path here.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = sorted(names)
    while waiting:
        top = waiting.pop()
        if top in seen:
            continue
        seen.add(top)
        files = _files_of(top)
        found.update(files)
        for file in files.values():
            waiting += [
                each for each in _imports(file) if each not in seen and _can_travel(each, is_there)
            ]
    return found


def _can_travel(top: str, is_there: Callable[[str, ModuleType | None], bool]) -> bool:
    """Tell whether a module that a source file imports must be sent, too, and can be."""
    if top in sys.stdlib_module_names:
        return False
    if top in sys.modules:
        return not is_there(top, sys.modules[top]) and _is_found(sys.modules[top])
    spec = _spec_of(top)  # imported only as it runs
    return spec is not None and spec.origin is not None and not _is_below(spec.origin, _installed())


def _files_of(top: str) -> dict[str, str]:
    """Return the source files of a module or package.

    Returns:
        The path below a folder for modules → the path here.
    """
    spec = _spec_of(top)
    if spec is None:
        return {}
    if spec.submodule_search_locations is None:
        return {} if spec.origin is None else {os.path.basename(spec.origin): spec.origin}
    found = {}
    for root in spec.submodule_search_locations:
        for folder, inner_folders, names in os.walk(root):
            inner_folders[:] = [
                each for each in inner_folders if each.isidentifier() and each != "__pycache__"
            ]
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    found[f"{top}/{os.path.relpath(path, root)}"] = path
    return found


def _imports(file: str) -> set[str]:
    """Return the names of the modules that a source file imports, of packages the outermost."""
    if not file.endswith(".py"):
        return set()
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def _is_installed(name: str) -> bool:
    """Tell whether a module is part of Python, or installed as packages are."""
    module = sys.modules.get(name)
    if module is None:
        return True
    file = getattr(module, "__file__", None)
    # without a file it is a part of the interpreter, a package, or made by a program
    if file is None:
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        folders = [str(each) for each in getattr(module, "__path__", ())]
        return origin in ("built-in", "frozen") or any(
            _is_below(each, _installed()) for each in folders
        )
    return _is_below(file, _installed())


def _is_below(file: str, folders: Iterable[str]) -> bool:
    return any(os.path.abspath(file).startswith(f"{folder}{os.sep}") for folder in folders)


@functools.cache
def _installed() -> frozenset[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(sysconfig.get_path(name) for name in names)


def _folder_of(file: str | None) -> str | None:
    """Return the folder in which Python finds a module or package, or None if it has no file."""
    if file is None:
        return None
    folder = os.path.dirname(os.path.realpath(file))
    return os.path.dirname(folder) if os.path.basename(file) == "__init__.py" else folder


def _is_found(module: ModuleType | None) -> bool:
    """Tell whether a new process with this one's module path finds the same file by its name."""
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return False
    spec = _spec_of(module.__name__)
    try:
        return spec is not None and spec.origin is not None and os.path.samefile(spec.origin, file)
    except OSError:
        return False


def _spec_of(top: str) -> ModuleSpec | None:
    """Return where a top-level module is found by its name, or None if it is not found."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec = None if find is None else find(top, None)
        except Exception:
            spec = None
        if spec is not None:
            return cast("ModuleSpec", spec)
    return None
