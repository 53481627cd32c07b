"""Read the signature and the docstring of a component as data."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from transload.components.errors import ComponentInvalid
from transload.specs import AppDef
from transload.specs.values import type_name, type_problem

ParameterKind = Literal["positional", "keyword", "varargs"]


class Parameter(NamedTuple):
    """One parameter of a component.

    Args:
        name: its name in the signature.
        annotation: its resolved type. For ``*args: T`` this is ``T``.
        kind: ``positional`` (may be given by position in a call), ``keyword`` or ``varargs``
            (``*args``).
        default: its default, None if it is required, or ``()`` for ``*args``.
        required: True if it has no default.
    """

    name: str
    annotation: Any
    kind: ParameterKind
    default: Any = None
    required: bool = False

    @property
    def type_name(self) -> str:
        """Return its type for display, such as ``int``, ``list[str]``, or ``a|b`` for a choice."""
        return type_name(self.annotation)


@dataclass(frozen=True)
class Component:
    """A component, which is a function that returns an ``AppDef``, with its parsed signature.

    Args:
        name: the name by which it was requested, such as ``utils.echo`` or ``train.py:main``.
        fn: the function.
        parameters: its parameters, in the order of the signature.
        folder: the folder of its file, if it was given by that.
        path: the folder from which it imports, if it was given by its module.
    """

    name: str
    fn: Callable[..., AppDef]
    parameters: tuple[Parameter, ...] = ()
    folder: str | None = None
    path: str | None = None

    @property
    def fn_name(self) -> str:
        """Return the name of the function."""
        return str(getattr(self.fn, "__name__", self.name))

    @property
    def varargs(self) -> Parameter | None:
        """Return the parameter ``*args``, if there is one."""
        return next((item for item in self.parameters if item.kind == "varargs"), None)

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter of that name, or None."""
        return next((item for item in self.parameters if item.name == name), None)

    @property
    def description(self) -> str:
        """Return its docstring without the sections about arguments and results."""
        return self._docstring[0]

    @property
    def helps(self) -> dict[str, str]:
        """Return the help of each parameter that the docstring describes."""
        return self._docstring[1]

    @functools.cached_property
    def _docstring(self) -> tuple[str, dict[str, str]]:
        """Return the description and the helps. Only who shows them pays for reading them."""
        return read_docstring(inspect.getdoc(function_behind(self.fn)) or "")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description, with its examples, and the help of each parameter, as plain text."""
    import textwrap

    import docstring_parser

    found = docstring_parser.parse(text)
    examples = [textwrap.indent(each.description or "", "    ") for each in found.examples]
    paragraphs = [found.description or "", *(f"Example:\n{each}" for each in examples)]
    helps = {
        each.arg_name.lstrip("*"): " ".join((each.description or "").split())
        for each in found.params
    }
    return "\n\n".join(each.rstrip() for each in paragraphs).strip(), helps


def read_component(fn: Callable[..., AppDef], name: str | None = None) -> Component:
    """Read the signature of a component function.

    Args:
        fn: the function.
        name: the component's name. None means the function's name.

    Raises:
        ComponentInvalid: if a parameter has no annotation or an unsupported type, or the function
            has ``**kwargs`` or is ``async``. The message has the file, the line and the parameter.
    """
    if not callable(fn):
        raise ComponentInvalid(f"component {fn!r}: must be a function that returns an AppDef")
    parameters, problems = read_parameters(fn)
    for problem in problems.values():
        raise ComponentInvalid(f"{where_is(fn)}: {problem}")
    name = name or str(getattr(function_behind(fn), "__name__", fn))
    return Component(name, fn, tuple(parameters))


def read_parameters(fn: Callable[..., Any]) -> tuple[list[Parameter], dict[str, str]]:
    """Return the parameters of a function, and name → problem of each that no component can have.

    A problem of the function itself stands under an empty name.
    """
    target = function_behind(fn)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        return [], {"": "a component must be a plain function, not async"}
    try:
        signature = _signature(fn)
    except (ValueError, TypeError) as exc:
        return [], {"": f"its signature cannot be read: {exc}"}
    hints = _hints(target)
    parameters: list[Parameter] = []
    problems: dict[str, str] = {}
    for item in signature.parameters.values():
        annotation = hints.get(item.name, item.annotation)
        problem = _problem(item, annotation)
        if problem is not None:
            problems[item.name] = problem
        parameters.append(_parameter(item, annotation))
    return parameters, problems


def spelling(parameter: Parameter) -> str:
    """Return a parameter's spelling on the command line, such as ``--name`` or ``-j``."""
    if parameter.kind == "varargs":
        return parameter.name
    if len(parameter.name) == 1:
        return f"-{parameter.name}"
    return f"--{parameter.name}"


def _problem(item: inspect.Parameter, annotation: Any) -> str | None:
    """Return why a component cannot have a parameter, or None if it can."""
    name = item.name
    if item.kind is item.VAR_KEYWORD:
        return f"parameter '**{name}': **kwargs is not supported; list the parameters"
    if item.annotation is item.empty:
        return f"parameter {name!r}: must have a type annotation"
    problem = type_problem(annotation)
    if isinstance(annotation, Exception):
        reason = f"{type(annotation).__name__}: {annotation}"
        problem = f"annotation {item.annotation!r} cannot be resolved: {reason}"
    return None if problem is None else f"parameter {name!r}: {problem}"


def _parameter(item: inspect.Parameter, annotation: Any) -> Parameter:
    if item.kind is item.VAR_POSITIONAL:
        return Parameter(item.name, annotation, "varargs", default=())
    kind: ParameterKind = "keyword" if item.kind is item.KEYWORD_ONLY else "positional"
    if item.default is item.empty:
        return Parameter(item.name, annotation, kind, required=True)
    return Parameter(item.name, annotation, kind, default=item.default)


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
