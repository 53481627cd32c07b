"""Calling a component with arguments from a command line, from JSON, or from a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transload.components._arguments import TypedArguments, split_arguments
from transload.components._decode import decode_text, decode_value
from transload.components._errors import ComponentArgumentError
from transload.components._finder import as_component
from transload.components._signature import Component, Parameter, function_behind, spelling
from transload.errors import SpecError, TransloadError
from transload.specs import AppDef
from transload.specs._check import nearest
from transload.specs._secrets import masked_arguments

Source = str | Component | Callable[..., AppDef]


def materialize_appdef(
    cmpnt_fn: Source,
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component with the arguments of a command line and return its app.

    Args:
        cmpnt_fn: the component, its name or its function.
        cmpnt_args: as typed: ``["--num_replicas", "2", "--", "--for", "the program"]``.
        cmpnt_defaults: defaults that take the place of the function's own, texts as typed (or JSON values).
        config: values that take the place of everything else, as JSON.

    Returns:
        The app that the component made.

    Raises:
        ComponentArgumentError: for an unknown, missing or wrong argument; one line that names it.
        ComponentHelpRequested: if ``--help`` is among the arguments.
        SpecError: if the component raised, or returned no AppDef.
    """
    component = as_component(cmpnt_fn)
    with component.placed():
        given = split_arguments(component, cmpnt_args)
        return _call(component, _values(component, given, config or {}, cmpnt_defaults or {}, typed=True))


materialize = materialize_appdef
"""The same as `materialize_appdef`."""


def build(
    component: Source, values: Mapping[str, Any] | None = None, *, defaults: Mapping[str, Any] | None = None
) -> AppDef:
    """Call a component with values from JSON or from a program and return its app.

    A str that is given where the signature asks for another type is read as on the command line, so that what one job
    returned can be the replicas or the resources of the next.

    Args:
        component: the component, its name or its function.
        values: parameter → value; ``*args`` takes a list.
        defaults: defaults that take the place of the function's own.

    Raises:
        ComponentArgumentError: for an unknown, missing or wrong argument; one line that names it.
        SpecError: if the component raised, or returned no AppDef.
    """
    component = as_component(component)
    with component.placed():
        return _call(component, _values(component, TypedArguments(), values or {}, defaults or {}, typed=False))


def arguments_of(component: Source, argv: Sequence[str], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the decoded arguments that a command line gives, defaults filled in, without calling the component.

    Raises:
        ComponentArgumentError: for an unknown, missing or wrong argument.
        ComponentHelpRequested: if ``--help`` is among the arguments.
    """
    component = as_component(component)
    with component.placed():
        return _values(component, split_arguments(component, argv), {}, defaults or {}, typed=True)


def _values(
    component: Component, given: TypedArguments, values: Mapping[str, Any], defaults: Mapping[str, Any], *, typed: bool
) -> dict[str, Any]:
    """Return every parameter's value: from ``values``, else as typed, else from the defaults."""
    known = [parameter.name for parameter in component.parameters]
    for source, what in ((values, "argument"), (defaults, "default")):
        for name in source:
            if name not in known:
                hint = nearest(str(name), known)
                origin = _source(defaults, name) if what == "default" else ""
                place = f" (set in {origin})" if origin else ""
                raise ComponentArgumentError(f"{component.name}: unknown {what} {name!r}{place}: {hint}")
    missing = [
        spelling(item) if typed else item.name
        for item in component.parameters
        if item.required and item.name not in values and item.name not in given.texts and item.name not in defaults
    ]
    if missing:
        raise ComponentArgumentError(f"{component.name}: missing: {', '.join(missing)} (see --help)")
    return {item.name: _value(component, item, given, values, defaults) for item in component.parameters}


def _value(
    component: Component, item: Parameter, given: TypedArguments, values: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    shown = f"{component.name}: {spelling(item)}"
    plain = f"{component.name}: {item.name}"
    if item.kind == "varargs":
        if item.name in values:
            return _rest(values[item.name], item, plain)
        if given.rest is not None:
            return [decode_text(text, item.annotation, f"{plain}[{i}]") for i, text in enumerate(given.rest)]
        return _rest(defaults.get(item.name, ()), item, plain)
    if item.name in values:
        return decode_value(values[item.name], item.annotation, plain)
    if item.name in given.texts:
        return decode_text(given.texts[item.name], item.annotation, shown)
    if item.name in defaults:
        source = _source(defaults, item.name)
        where = f"default, set in {source}" if source else "default"
        return decode_value(defaults[item.name], item.annotation, f"{plain} ({where})")
    return item.default


def _source(defaults: Mapping[str, Any], name: str) -> str:
    """Return where a default was set, if that is known: settings know the file."""
    return str(getattr(defaults, "sources", {}).get(name, ""))


def _rest(value: Any, item: Parameter, path: str) -> list[Any]:
    """Return the values of ``*args``: a list, or a text that is split as a shell would split it."""
    if isinstance(value, str):
        import shlex

        try:
            value = shlex.split(value)
        except ValueError as exc:
            raise ComponentArgumentError(f"{path}={value!r}: cannot be split into arguments: {exc}") from exc
    if not isinstance(value, (list, tuple)):
        raise ComponentArgumentError(f"{path}={value!r}: must be a list")
    return [decode_value(part, item.annotation, f"{path}[{index}]") for index, part in enumerate(value)]


def _call(component: Component, values: dict[str, Any]) -> AppDef:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for item in component.parameters:
        if item.kind == "varargs":
            positional += values[item.name]
        elif item.kind == "positional":
            positional.append(values[item.name])
        else:
            keywords[item.name] = values[item.name]
    try:
        app = component.fn(*positional, **keywords)
    except TransloadError:
        raise
    except (Exception, SystemExit) as exc:
        raise SpecError(f"component {component.name}: {_reason(component, exc)}") from exc
    if not isinstance(app, AppDef):
        raise SpecError(f"component {component.name}: returned {type(app).__name__}, must be an AppDef")
    return replace(app, arguments={**masked_arguments(values), **app.arguments})


def _reason(component: Component, exc: BaseException) -> str:
    """Return what a component raised, and at which line of its own file."""
    code = getattr(function_behind(component.fn), "__code__", None)
    place = ""
    trace = exc.__traceback__
    while trace is not None:
        if code is not None and trace.tb_frame.f_code.co_filename == code.co_filename:
            place = f" ({code.co_filename}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(exc).__name__}: {' '.join(str(exc).split())}{place}"
