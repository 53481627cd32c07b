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
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from transload.components.errors import (
    ComponentInvalid,
    ComponentNotFound,
    NoComponent,
    innermost,
    reason,
)
from transload.components.neighbours import PREFIX, builtins_beside, on_path
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
    found = find_functions(name)
    if len(found.functions) > 1:
        names = ", ".join(f"{name}:{fn.__name__}" for fn in found.functions)
        count = len(found.functions)
        raise ComponentNotFound(f"{name}: holds {count} components, give one: {names}")
    (fn,) = found.functions
    problem = return_problem(fn)
    if problem is not None:
        raise ComponentInvalid(f"{where_is(fn)}: {problem}")
    return replace(read_component(fn, name), folder=found.folder, path=found.path)


class Found(NamedTuple):
    """What a name stands for.

    Args:
        functions: all components of a file that is named without a function, and else one function.
        folder: the folder of the file, if it was named.
        path: the folder from which it imports, if a module was named.
    """

    functions: list[Callable[..., Any]]
    folder: str | None = None
    path: str | None = None


def find_functions(name: str) -> Found:
    """Return the functions that a name stands for. Errors are those of `get_component`."""
    if not isinstance(name, str) or not name.strip():
        raise ComponentNotFound(
            f"component {name!r}: must be a name, FILE.py:FUNCTION or package.module:FUNCTION"
        )
    if name in BUILTINS["components"]:
        # no plugin can replace a built-in component, so plugins need not be loaded
        return Found([load_attribute(BUILTINS["components"][name])])
    target, colon, function = name.rpartition(":")
    file = target if colon else name
    if is_file_reference(file):
        return _from_file(file, function if colon else "")
    if colon:
        return _from_module(target, function, name)
    return Found([_function(_from_plugin(name), name)])


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


def _from_file(target: str, function: str) -> Found:
    path = os.path.abspath(os.path.expanduser(target))
    if not function:
        _refuse_shell_script(path, target)
        _refuse_script(path, target)
    module = load_file(path, target)
    folder = os.path.dirname(os.path.realpath(path))
    public = public_functions(module)
    if function:
        thing = getattr(module, function, None)
        if thing is None:
            hint = nearest(function, sorted(public))
            raise ComponentNotFound(f"{target}: has no function {function!r}: {hint}")
        return Found([_function(thing, f"{target}:{function}")], folder)
    found = [fn for fn in public.values() if returns_app(fn)]
    if not found:
        raise NoComponent(_none_in(target, list(public)))
    return Found(found, folder)


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


def load_file(path: str, shown: str) -> ModuleType:
    """Execute a component file, which can import what lies beside it, and return its module.

    Each call executes it again, because it may have changed.

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
    folder = os.path.dirname(os.path.realpath(path))
    module = ModuleType(_module_name(path))
    module.__file__ = path
    module.__dict__["__builtins__"] = builtins_beside(folder)
    try:
        code = compile(source, path, "exec", dont_inherit=True)
        # dataclasses and annotations are looked up through sys.modules
        sys.modules[module.__name__] = module
        exec(code, module.__dict__)  # noqa: S102 - the file is the user's program, given by name
    except (Exception, SystemExit) as exc:
        own = folder + os.sep
        raise _failed(exc, path, lambda file: file == path or file.startswith(own)) from exc
    return module


def _module_name(path: str) -> str:
    import zlib

    stem = os.path.basename(path).removesuffix(".py").replace(".", "_")
    return f"{PREFIX}{zlib.crc32(os.fsencode(os.path.dirname(path))):08x}_{stem}"


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
    why = reason(exc)
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


def _from_module(target: str, function: str, name: str) -> Found:
    # as with `python -m`, modules of the current directory can be imported, unless Python runs in
    # safe-path mode
    path = None if sys.flags.safe_path else os.getcwd()
    with on_path(path):
        thing: Any = _import(target, name)
    for part in function.split("."):
        if not hasattr(thing, part):
            hint = "look for a public function annotated '-> AppDef'"
            close = closest(part, [item for item in dir(thing) if not item.startswith("_")])
            if close is not None:
                hint = f"did you mean {close!r}?"
            raise ComponentNotFound(f"component {name!r}: {target} has no {function!r}: {hint}")
        thing = getattr(thing, part)
    return Found([_function(thing, name)], path=path)


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
