"""Read the signature and the docstring of a component as data."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from transload.components.errors import ComponentInvalid
from transload.specs import AppDef
from transload.specs.values import type_name, type_problem

if TYPE_CHECKING:
    from transload.components.finder import ImportFolder


ParameterKind = Literal["positional", "keyword", "varargs"]

HELP: Final = "--help"


class Parameter(NamedTuple):
    """One parameter of a component.

    Args:
        name: its name in the signature.
        annotation: its resolved type. For ``*args: T`` this is ``T``.
        kind: ``positional`` (may be given by position in a call), ``keyword`` or ``varargs``
            (``*args``).
        default: its default, None if it is required, or ``()`` for ``*args``.
        required: True if it has no default.
        help: its description in the docstring, or ``""`` if there is none.
    """

    name: str
    annotation: Any
    kind: ParameterKind
    default: Any = None
    required: bool = False
    help: str = ""

    @property
    def type_name(self) -> str:
        """Return its type for display, such as ``int``, ``list[str]``, or ``a|b`` for a choice."""
        return type_name(self.annotation)


class Component(NamedTuple):
    """A component, which is a function that returns an ``AppDef``, with its parsed signature.

    Args:
        name: the name by which it was requested, such as ``utils.echo`` or ``train.py:main``.
        fn: the function.
        description: its docstring without the sections about arguments and results.
        parameters: its parameters, in the order of the signature.
        varargs: the parameter ``*args``, if there is one.
        fn_name: the name of the function.
        place: the folder from which it can import, if it was given by its file.
    """

    name: str
    fn: Callable[..., AppDef]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    varargs: Parameter | None = None
    fn_name: str = ""
    place: ImportFolder | None = None

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter of that name, or None."""
        return next((item for item in self.parameters if item.name == name), None)


def read_component(
    fn: Callable[..., AppDef], name: str | None = None, place: ImportFolder | None = None
) -> Component:
    """Read the signature and docstring of a component function.

    Args:
        fn: the function.
        name: the component's name. None means the function's name.
        place: the folder from which it can import, if it came from a file.

    Raises:
        ComponentInvalid: if a parameter has no annotation or an unsupported type, or the function
            has ``**kwargs`` or is ``async``. The message has the file, the line and the parameter.
    """
    if not callable(fn):
        raise ComponentInvalid(f"component {fn!r}: must be a function that returns an AppDef")
    target = function_behind(fn)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise ComponentInvalid(f"{where_is(fn)}: a component must be a plain function, not async")
    try:
        parameters = _signature(fn).parameters
    except (ValueError, TypeError) as exc:
        raise ComponentInvalid(f"component {fn!r}: its signature cannot be read: {exc}") from exc
    hints = _hints(target)
    description, helps = parse_docstring(inspect.getdoc(target) or "")
    read = tuple(
        _read_parameter(fn, item, hints, helps.get(item.name, "")) for item in parameters.values()
    )
    rest = next((item for item in read if item.kind == "varargs"), None)
    name = name or str(getattr(target, "__name__", fn))
    return Component(name, fn, description, read, rest, str(getattr(fn, "__name__", name)), place)


def spelling(parameter: Parameter) -> str:
    """Return a parameter's spelling on the command line, such as ``--name`` or ``-j``."""
    if parameter.kind == "varargs":
        return parameter.name
    if len(parameter.name) == 1:
        return f"-{parameter.name}"
    return f"--{parameter.name}"


def _read_parameter(
    fn: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any], help_text: str
) -> Parameter:
    name = parameter.name
    if parameter.kind is parameter.VAR_KEYWORD:
        raise ComponentInvalid(
            f"{where_is(fn)}: parameter '**{name}': **kwargs is not supported; list the parameters"
        )
    if parameter.annotation is parameter.empty:
        raise ComponentInvalid(f"{where_is(fn)}: parameter {name!r}: must have a type annotation")
    annotation = hints.get(name, parameter.annotation)
    if isinstance(annotation, Exception):
        reason = f"{type(annotation).__name__}: {annotation}"
        raise ComponentInvalid(
            f"{where_is(fn)}: parameter {name!r}: annotation {parameter.annotation!r} cannot be "
            f"resolved: {reason}"
        )
    problem = type_problem(annotation)
    if problem is not None:
        raise ComponentInvalid(f"{where_is(fn)}: parameter {name!r}: {problem}")
    if parameter.kind is parameter.VAR_POSITIONAL:
        return Parameter(name, annotation, "varargs", default=(), help=help_text)
    kind: ParameterKind = "positional"
    if parameter.kind is parameter.KEYWORD_ONLY:
        kind = "keyword"
    if parameter.default is parameter.empty:
        return Parameter(name, annotation, kind, required=True, help=help_text)
    return Parameter(name, annotation, kind, default=parameter.default, help=help_text)


def function_behind(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with annotations and docstring, behind wrappers and callable objects."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, functools.partial):
        fn = inspect.unwrap(fn.func)
    if isinstance(fn, type) or hasattr(fn, "__code__"):
        return fn
    call = type(fn).__call__
    return call if hasattr(call, "__code__") else fn


def where_is(fn: Callable[..., Any]) -> str:
    """Return ``file:line: component 'name'`` of a function."""
    target = function_behind(fn)
    code = getattr(target, "__code__", None)
    component = f"component {getattr(target, '__name__', repr(fn))!r}"
    if code is None:
        return component
    return f"{code.co_filename}:{code.co_firstlineno}: {component}"


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations. An unresolvable one is replaced by its exception."""
    try:
        return typing.get_type_hints(fn)
    except Exception:
        return {name: _resolve(fn, annotation) for name, annotation in _annotations(fn).items()}


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature.

    From Python 3.14 on, its annotations are text, because evaluating them may fail as a whole.
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(fn, annotation_format=annotationlib.Format.STRING)
    return inspect.signature(fn)


def _annotations(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations, as text if they cannot be evaluated."""
    try:
        return dict(getattr(fn, "__annotations__", None) or {})
    except Exception:
        if sys.version_info >= (3, 14):
            import annotationlib

            return annotationlib.get_annotations(fn, format=annotationlib.Format.STRING)
        raise


def _resolve(fn: Callable[..., Any], annotation: Any) -> Any:
    """Return the type of an annotation, or the exception that resolving it raised."""
    probe = type("probe", (), {"__annotations__": {"it": annotation}})
    known = getattr(fn, "__globals__", {})
    try:
        return typing.get_type_hints(probe, globalns=known, localns={})["it"]
    except Exception as exc:
        return exc


def returns_app(fn: Callable[..., Any]) -> bool:
    """Tell whether a function's annotation says that it returns an ``AppDef``.

    The name of the annotation decides if it is not imported.
    """
    target = function_behind(fn)
    annotation = _annotations(target).get("return")
    if isinstance(annotation, str):
        resolved = _resolve(target, annotation)
        if isinstance(resolved, Exception):
            return annotation.strip("\"' ").rpartition(".")[2] == "AppDef"
        annotation = resolved
    return isinstance(annotation, type) and issubclass(annotation, AppDef)


_ARGS: Final = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
}
_ITEM: Final = r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(.*)\Z"
_FIELD: Final = r":(\w+)((?:\s+[^:\s]+)*)\s*:(.*)\Z"
_PARAM_FIELDS: Final = {"param", "parameter", "arg", "argument", "key", "keyword"}
# these end the description, to which examples and notes belong
_ENDING: Final = _ARGS | {"return", "returns", "yield", "yields", "raises"}
_SECTIONS: Final = _ENDING.union(
    ("example", "examples", "note", "notes", "attributes", "see also", "references", "todo"),
    ("warning", "warnings", "warns", "methods"),
)


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description and the help of each parameter in a dedented docstring, as plain text.

    Google style (``Args:``) and reST fields (``:param name:``) are understood.
    """
    reader = _DocstringReader()
    for line in text.splitlines():
        reader.read(line)
    helps = {name: " ".join(" ".join(lines).split()) for name, lines in reader.helps.items()}
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(reader.description)).strip()
    return description, helps


class _DocstringReader:
    """Reads a docstring line by line.

    Attributes:
        description: the lines that describe neither parameters nor results.
        helps: the lines about each parameter.
    """

    def __init__(self) -> None:
        self.description: list[str] = []
        self.helps: dict[str, list[str]] = {}
        self._section = ""
        self._indent = 0
        self._current: list[str] | None = None  # the help text that further lines continue

    def read(self, line: str) -> None:
        """Read the next line."""
        heading = line.rstrip().lower()
        field = re.match(_FIELD, line)
        if heading.endswith(":") and heading[:-1] in _SECTIONS:
            self._begin_section(heading[:-1], line)
        elif field is not None:
            self._begin_field(*field.groups())
        elif self._section in _ARGS and line[:1].isspace():
            self._read_argument(line)
        elif self._section == "fields":
            self._go_on(line)
        elif self._section not in _ENDING:
            self.description.append(line)
        elif line and not line[:1].isspace():  # a section of values ends without a heading
            self._section = ""
            self.description.append(line)

    def _begin_section(self, name: str, line: str) -> None:
        self._section = name
        self._indent = 0
        self._current = None
        if name not in _ENDING:
            self.description.append(line)

    def _begin_field(self, kind: str, words: str, text: str) -> None:
        """Begin a reST field, ``:kind words: text``. The last word is the parameter's name."""
        self._section = "fields"
        self._current = None
        if kind.lower() in _PARAM_FIELDS and words:
            self._begin_parameter(words.split()[-1].lstrip("*"), text)

    def _read_argument(self, line: str) -> None:
        """Read a line of ``Args:``, which is the first one of a parameter or a further one."""
        item = re.match(_ITEM, line)
        if item is None:
            self._go_on(line)
            return
        margin, name, text = item.groups()
        if self._indent and len(margin) > self._indent:
            self._go_on(line)
            return
        self._indent = len(margin)
        self._begin_parameter(name, text)

    def _begin_parameter(self, name: str, text: str) -> None:
        self._current = self.helps.setdefault(name, [])
        self._current.append(text)

    def _go_on(self, line: str) -> None:
        if self._current is not None:
            self._current.append(line)
