"""Find components by name, in files and in packages.

The files beside a component's file can be imported.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType, ModuleType, TracebackType
from typing import Any, Final, cast

from transload.components.errors import ComponentInvalid, ComponentNotFound, NoComponent, innermost
from transload.components.signature import (
    Component,
    function_behind,
    read_component,
    returns_app,
    where_is,
)
from transload.errors import PluginError
from transload.plugins import get_plugins, load_attribute
from transload.plugins.builtins import BUILTINS
from transload.runtime.forks import fork_lock
from transload.specs import AppDef
from transload.specs.checks import closest, nearest

_NO_APPS: Final = {
    "None",
    "bool",
    "bytes",
    "dict",
    "float",
    "int",
    "list",
    "object",
    "set",
    "str",
    "tuple",
}
"""Return annotations of functions that are certainly not components."""
_LONGEST_SHELL_SCRIPT: Final = 1 << 20


def get_component(name: str) -> Component:
    """Return a component by name.

    Args:
        name: ``utils.echo`` (built in, or of a plugin), ``path/to/file.py:function``,
            ``path/to/file.py`` if it has exactly one component, or ``package.module:function``.

    Raises:
        ComponentNotFound: if there is no such name, file or function. The nearest name is
            suggested.
        ComponentInvalid: if it cannot be imported or is not a component. The message has the file
            and the line.
        PluginError: if the plugin with the component cannot be loaded.
    """
    functions, place = find_functions(name)
    if len(functions) > 1:
        names = ", ".join(f"{name}:{fn.__name__}" for fn in functions)
        raise ComponentNotFound(f"{name}: holds {len(functions)} components, give one: {names}")
    (fn,) = functions
    with place or nullcontext():
        problem = return_problem(fn)
        if problem is not None:
            raise ComponentInvalid(f"{where_is(fn)}: {problem}")
        return read_component(fn, name, place)


def find_functions(name: str) -> tuple[list[Callable[..., Any]], ImportFolder | None]:
    """Return the functions that a name stands for, and the folder from which they can import.

    They are all components of a file that is named without a function, and else one. Errors are
    those of `get_component`.
    """
    if not isinstance(name, str) or not name.strip():
        raise ComponentNotFound(
            f"component {name!r}: must be a name, FILE.py:FUNCTION or package.module:FUNCTION"
        )
    target, colon, function = name.rpartition(":") if ":" in name else (name, "", "")
    if name in BUILTINS["components"]:
        # no plugin can replace a built-in component, so plugins need not be loaded
        return [load_attribute(BUILTINS["components"][name])], None
    if is_file_reference(target):
        return _from_file(target, function)
    if not colon:
        return [_function(_from_plugin(name), name)], None
    thing, place = _from_module(target, function, name)
    return [_function(thing, name)], place


def _function(thing: Any, name: str) -> Callable[..., Any]:
    """Return what was found, which must be callable."""
    if callable(thing):
        return cast("Callable[..., Any]", thing)
    kind = type(thing).__name__
    raise ComponentInvalid(
        f"component {name!r}: is a {kind}, must be a function that returns an AppDef"
    )


def return_problem(fn: Callable[..., Any]) -> str | None:
    """Return what is wrong with the return annotation of a component, or None."""
    if returns_app(fn):
        return None
    problem = "must be annotated to return an AppDef (-> AppDef)"
    if _is_from_torchx(getattr(fn, "__annotations__", {}).get("return")):
        return f"{problem}, not one of TorchX {_MIGRATE}"
    return problem


def as_component(source: str | Component | Callable[..., AppDef]) -> Component:
    """Return the component for ``source``, which is a component, its name or its function.

    Raises:
        ComponentNotFound: if the name does not exist.
        ComponentInvalid: if the function is not a component.
    """
    if isinstance(source, Component):
        return source
    if isinstance(source, str):
        return get_component(source)
    return read_component(source)


def get_components() -> dict[str, Component]:
    """Return all components with a name, built in and of plugins, except for broken ones."""
    return _load_all()[0]


def broken_components() -> dict[str, str]:
    """Return name → reason, in one line, for each named component that cannot be loaded."""
    return _load_all()[1]


_FILES: Final = (".sh", ".bash", ".sbatch", ".slurm", ".job")
"""How a name ends that is meant to be a file, and cannot be a component's."""


def _load_all() -> tuple[dict[str, Component], dict[str, str]]:
    found: dict[str, Component] = {}
    broken: dict[str, str] = {}
    for name in get_plugins().names("components"):
        try:
            found[name] = get_component(name)
        except (ComponentInvalid, PluginError) as exc:
            broken[name] = str(exc)
    return found, broken


def _from_plugin(name: str) -> Any:
    plugins = get_plugins()
    try:
        return plugins.get("components", name)
    except KeyError:
        raise ComponentNotFound(_unknown(name, plugins.hint("components", name))) from None


def _unknown(name: str, hint: str) -> str:
    """Return the message about a name that no plugin registers as a component."""
    import shutil

    if shutil.which(name) is not None:
        return f"no component {name!r}: to run a program, put -- before it: -- {name} …"
    if name.endswith(_FILES):
        return f"no such file: {name} (in {os.getcwd()})"
    return f"no component {name!r}: {hint} (or give FILE.py:FUNCTION, or package.module:FUNCTION)"


def is_file_reference(target: str) -> bool:
    """Tell whether the part before the colon is a file."""
    return target.endswith(".py") or os.sep in target or os.path.isfile(os.path.expanduser(target))


def _from_file(target: str, function: str) -> tuple[list[Callable[..., Any]], ImportFolder]:
    path = os.path.abspath(os.path.expanduser(target))
    if not function:
        _refuse_shell_script(path, target)
        _refuse_script(path, target)
    module, place = load_file(path, target)
    public = public_functions(module)
    if function:
        thing = getattr(module, function, None)
        if thing is None:
            hint = nearest(function, sorted(public))
            raise ComponentNotFound(f"{target}: has no function {function!r}: {hint}")
        return [_function(thing, f"{target}:{function}")], place
    with place:
        found = [fn for fn in public.values() if returns_app(fn)]
    if not found:
        raise NoComponent(_none_in(target, list(public)))
    return found, place


def is_batch_script(text: str) -> bool:
    """Tell whether a text is a batch script of Slurm, with options in lines ``#SBATCH``."""
    return text.startswith("#!") and re.search(r"^#SBATCH\s", text, re.MULTILINE) is not None


def _refuse_shell_script(path: str, shown: str) -> None:
    """Refuse a file that begins like a program, but not like one of Python."""
    if path.endswith(".py"):
        return
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST_SHELL_SCRIPT)
    except (OSError, UnicodeDecodeError):
        return  # executing the file reports it in the usual way
    if is_batch_script(text):
        remedy = f"to make a component of it: transload migrate {shlex.quote(shown)}"
        raise ComponentInvalid(f"{shown}: is a batch script of Slurm, and no component; {remedy}")
    named = path.endswith((".sh", ".bash"))
    if named or (text.startswith("#!") and "python" not in text.partition("\n")[0]):
        raise NoComponent(f"{shown}: is a shell script, and no component")


def _refuse_script(path: str, shown: str) -> None:
    """Refuse a file in which no function can be a component, without executing it.

    Such a file may be a training script.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return  # executing the file reports it in the usual way
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    texts = [ast.unparse(node.returns) for node in functions if node.returns is not None]
    kinds = {text.strip("\"'").partition("[")[0] for text in texts}
    if not kinds - _NO_APPS:
        raise NoComponent(_none_in(shown, [node.name for node in functions]))


def _none_in(shown: str, functions: list[str]) -> str:
    names = ", ".join(functions) or "none"
    lacking = "holds no component, that is a public function annotated '-> AppDef'"
    return f"{shown}: {lacking} (its functions: {names})"


def load_file(path: str, shown: str) -> tuple[ModuleType, ImportFolder]:
    """Execute a component file, and return its module and the folder from which it can import.

    Each call executes it again, because it or the files beside it may have changed.

    Raises:
        ComponentNotFound: if there is no such file.
        ComponentInvalid: if it cannot be compiled or raises an error. The message has the file and
            the line.
    """
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as exc:
        raise ComponentNotFound(f"component file {shown}: {exc.strerror or exc} ({path})") from exc
    # for a link, this is the folder of its target, as in `python FILE`
    real = os.path.realpath(path)
    place = ImportFolder(os.path.dirname(real))
    module = ModuleType(_module_name(path))
    module.__file__ = path
    with place:
        try:
            code = compile(source, path, "exec", dont_inherit=True)
            # dataclasses and annotations are looked up through sys.modules
            sys.modules[module.__name__] = module
            exec(code, module.__dict__)  # noqa: S102 - the file is the user's program, given by name
        except (Exception, SystemExit) as exc:
            folder = os.path.dirname(real) + os.sep
            raise _failed(exc, path, lambda file: file == path or file.startswith(folder)) from exc
    return module, place


def _module_name(path: str) -> str:
    import zlib

    stem = os.path.basename(path).removesuffix(".py").replace(".", "_")
    return f"{FILE_MODULE}{zlib.crc32(os.fsencode(os.path.dirname(path))):08x}_{stem}"


def _failed(exc: BaseException, path: str, is_own: Callable[[str], bool]) -> ComponentInvalid:
    """Return the error for a module that cannot be imported.

    It has the innermost line of the user's own code, and the reason.
    """
    if isinstance(exc, SystemExit):
        return ComponentInvalid(f"{path}: ends the process (exit {exc.code!r}) when it is imported")
    if isinstance(exc, SyntaxError):
        return ComponentInvalid(
            f"{exc.filename or path}:{exc.lineno or 0}: syntax error: {exc.msg}"
        )
    why = type(exc).__name__
    message = " ".join(str(exc).split())
    if message:
        why = f"{why}: {message}"
    lacking = _lacking(exc)
    if lacking is not None and lacking.partition(".")[0] == "torchx":
        why = f"{why} {_MIGRATE}"
    return ComponentInvalid(f"{innermost(exc, is_own) or path}: {why}")


def public_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public functions that a module defines itself, in the order of the file."""
    public = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
    return {name: thing for name, thing in public.items() if _is_function_of(module, thing)}


def _is_function_of(module: ModuleType, thing: Any) -> bool:
    """Tell whether a module's attribute is a function that the module defines itself."""
    if not callable(thing) or isinstance(thing, type):
        return False
    if getattr(thing, "__module__", None) != module.__name__:
        return False
    return isinstance(function_behind(thing), FunctionType)


def _from_module(target: str, function: str, name: str) -> tuple[Any, ImportFolder | None]:
    # as with `python -m`, modules of the current directory can be imported, unless Python runs in
    # safe-path mode
    place = None if sys.flags.safe_path else ImportFolder(os.getcwd(), forget=False)
    with place or nullcontext():
        thing: Any = _import(target, name)
        for part in function.split("."):
            if not hasattr(thing, part):
                hint = "look for a public function annotated '-> AppDef'"
                close = closest(part, [item for item in dir(thing) if not item.startswith("_")])
                if close is not None:
                    hint = f"did you mean {close!r}?"
                raise ComponentNotFound(f"component {name!r}: {target} has no {function!r}: {hint}")
            thing = getattr(thing, part)
    return thing, place


def _import(target: str, name: str) -> ModuleType:
    if not all(part.isidentifier() for part in target.split(".")):
        raise ComponentNotFound(
            f"component {name!r}: {target!r} is not the name of a module; a file must end in .py "
            "or contain a '/'"
        )
    try:
        return importlib.import_module(target)
    except (Exception, SystemExit) as exc:
        lacking = _lacking(exc)
        if lacking and f"{target}.".startswith(f"{lacking}."):
            raise ComponentNotFound(f"component {name!r}: no module named {lacking!r}") from exc
        raise _failed(exc, target, _is_outside) from exc


_MIGRATE: Final = "(`transload migrate FILE` changes the imports to those of transload)"


def _is_from_torchx(annotation: object) -> bool:
    """Tell whether an annotation is a class of TorchX."""
    return getattr(annotation, "__module__", "").partition(".")[0] == "torchx"


def _lacking(exc: BaseException) -> str | None:
    """Return the name of the module that an import did not find."""
    if isinstance(exc, ModuleNotFoundError):
        return exc.name
    return None


def _is_outside(file: str) -> bool:
    """Tell whether code belongs neither to the import system nor to transload."""
    return (
        not file.startswith("<frozen")
        and os.sep + "importlib" + os.sep not in file
        and file != __file__
    )


FILE_MODULE: Final = "transload_component_file_"
"""Prefix of the names of modules that are made from component files."""

_lock = fork_lock()


class ImportFolder:
    """A folder whose modules can be imported inside a ``with`` block, but not after it.

    At the end, the modules imported from the folder are removed from ``sys.modules``. The next
    entry puts them back. So ``helper.py`` of one folder is never confused with that of another. A
    folder that is already on ``sys.path`` is not changed. Only one thread at a time is inside such
    a block.

    Args:
        folder: the folder.
        forget: False to keep imported modules, for example for a package of the current directory.
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
        """Return the folder of a component file, or None if it is only a place of packages."""
        if not self._forget:
            return None
        return self._folder

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
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._depth -= 1
            if self._depth == 0 and self._active:
                if self._folder in sys.path:
                    sys.path.remove(self._folder)
                sys.path_importer_cache.pop(self._folder, None)
                if self._forget:
                    loaded = _loaded().items()
                    own = {name for name, module in loaded if _home(module) == self._folder}
                    self._kept = _take_out(own)
                    sys.modules.update(self._hidden)
                    self._hidden = {}
        finally:
            _lock.release()


def _take_out(tops: set[str]) -> dict[str, ModuleType]:
    """Remove the modules with these top-level names from sys.modules, and return them."""
    names = [name for name in list(sys.modules) if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}


def _home(module: ModuleType) -> str:
    """Return the folder in which a top-level module was found, or ``""`` if there is none."""
    file: str | None = getattr(module, "__file__", None)
    if file and not hasattr(module, "__path__"):
        return os.path.dirname(os.path.abspath(file))
    if file:  # a package's __init__.py
        return os.path.dirname(os.path.dirname(os.path.abspath(file)))
    for path in getattr(module, "__path__", ()):
        return os.path.dirname(os.path.abspath(str(path)))
    return ""


def _loaded() -> dict[str, ModuleType]:
    """Return the loaded top-level modules that belong neither to Python nor to transload."""
    ours = sys.stdlib_module_names | {"__main__", "__mp_main__", "transload"}
    tops = [name for name in list(sys.modules) if "." not in name and name not in ours]
    # the component file itself stays, because its classes are looked up by their module's name
    tops = [
        name
        for name in tops
        if isinstance(sys.modules[name], ModuleType) and not name.startswith(FILE_MODULE)
    ]
    return {name: sys.modules[name] for name in tops}


def _foreign(folder: str) -> set[str]:
    """Return the loaded modules from elsewhere whose names a file or package in the folder has."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return set()
    names = {entry.removesuffix(".py") for entry in entries if entry.endswith(".py")}
    for entry in entries:
        if os.path.isfile(os.path.join(folder, entry, "__init__.py")):
            names.add(entry)
    alike = {name: module for name, module in _loaded().items() if name in names}
    return {name for name, module in alike.items() if _home(module) != folder}
