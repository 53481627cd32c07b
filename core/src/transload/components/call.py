"""Call a component with arguments from a command line, from JSON, or from a program."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transload.components.command_line import split_arguments
from transload.components.errors import ComponentArgumentError, innermost, reason
from transload.components.finder import as_component
from transload.components.neighbours import on_path
from transload.components.signature import Component, Parameter, function_behind, spelling
from transload.errors import SpecError, TransloadError
from transload.specs import AppDef
from transload.specs.checks import nearest
from transload.specs.secrets import masked_arguments
from transload.specs.values import read

Source = str | Component | Callable[..., AppDef]


def materialize_appdef(
    cmpnt_fn: Source,
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component with the arguments of a command line and return its app definition.

    Args:
        cmpnt_fn: the component, its name or its function.
        cmpnt_args: the arguments of the command line, such as
            ``["--num_replicas", "2", "--", "--for", "the program"]``.
        cmpnt_defaults: defaults in place of the function's own, as texts or JSON values.
        config: JSON values in place of all other values.

    Returns:
        The app definition that the component made.

    Raises:
        ComponentArgumentError: if an argument is unknown, missing or wrong. The message names it.
        ComponentHelpRequested: if ``--help`` is among the arguments.
        SpecError: if the component raised an error, or did not return an AppDef.
    """
    component = as_component(cmpnt_fn)
    with on_path(component.path):
        texts = split_arguments(component, cmpnt_args)
        return _call(component, _values(component, config or {}, cmpnt_defaults or {}, texts))


materialize = materialize_appdef
"""Call a component like `materialize_appdef`."""


def build(
    component: Source,
    values: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component with values from JSON or from a program and return its app definition.

    A str for a parameter of another type is parsed as on the command line. So the result of one job
    can be the number of replicas or the resources of the next.

    Args:
        component: the component, its name or its function.
        values: parameter → value. ``*args`` takes a list.
        defaults: defaults in place of the function's own.

    Raises:
        ComponentArgumentError: if an argument is unknown, missing or wrong. The message names it.
        SpecError: if the component raised an error, or did not return an AppDef.
    """
    component = as_component(component)
    with on_path(component.path):
        return _call(component, _values(component, values or {}, defaults or {}))


def arguments_of(
    component: Source, argv: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the decoded arguments of a command line, with defaults, without calling the component.

    Raises:
        ComponentArgumentError: if an argument is unknown, missing or wrong.
        ComponentHelpRequested: if ``--help`` is among the arguments.
    """
    component = as_component(component)
    with on_path(component.path):
        return _values(component, {}, defaults or {}, split_arguments(component, argv))


def typed_arguments(component: Component, argv: Sequence[str]) -> dict[str, Any]:
    """Return the decoded arguments that a command line gives, without what it leaves open.

    Raises:
        ComponentArgumentError: if an argument is unknown or wrong.
        ComponentHelpRequested: if ``--help`` is among the arguments.
    """
    with on_path(component.path):
        texts = split_arguments(component, argv)
        items = [item for item in component.parameters if item.name in texts]
        return {item.name: _typed(component, item, texts[item.name]) for item in items}


def read_argument(value: Any, tp: Any, where: str, *, typed: bool = False) -> Any:
    """Return an argument of a component as its type says. See `transload.specs.values.read`.

    Args:
        value: a value of JSON or of a program. A text for a type other than str is read as if it
            was typed.
        tp: the type.
        where: names the argument in messages.
        typed: it is a text of a command line.

    Raises:
        ComponentArgumentError: if it is no value of the type.
    """
    try:
        return read(value, tp, where, typed=typed)
    except SpecError as exc:
        raise ComponentArgumentError(str(exc)) from exc


def _values(
    component: Component,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    texts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the value of each parameter: as given, or typed, or the default.

    Args:
        component: the component.
        values: the values that are given by name.
        defaults: those that replace the component's own.
        texts: what was typed, or None if there is no command line.
    """
    known = [item.name for item in component.parameters]
    _refuse_unknown(f"{component.name}: unknown argument", values, known)
    _refuse_unknown(f"{component.name}: unknown default", defaults, known)
    typed = texts or {}
    given = {*values, *typed, *defaults}
    missing = [item for item in component.parameters if item.required and item.name not in given]
    if missing:
        names = [item.name if texts is None else spelling(item) for item in missing]
        raise ComponentArgumentError(f"{component.name}: missing: {', '.join(names)} (see --help)")
    found: dict[str, Any] = {}
    for item in component.parameters:
        if item.name in values:
            found[item.name] = _given(item, values[item.name], f"{component.name}: {item.name}")
        elif item.name in typed:
            found[item.name] = _typed(component, item, typed[item.name])
        elif item.name in defaults:
            found[item.name] = _default(component, item, defaults)
        else:
            found[item.name] = item.default
    return found


def _refuse_unknown(what: str, given: Mapping[str, Any], known: list[str]) -> None:
    for name in given:
        if name not in known:
            origin = _source(given, name)
            place = f" (set in {origin})" if origin else ""
            hint = nearest(str(name), known)
            raise ComponentArgumentError(f"{what} {name!r}{place}: {hint}")


def _given(item: Parameter, value: Any, path: str) -> Any:
    """Return an argument that was given by name."""
    if item.kind == "varargs":
        return _rest(value, item.annotation, path)
    return read_argument(value, item.annotation, path)


def _typed(component: Component, item: Parameter, text: Any) -> Any:
    """Return an argument of a command line, which is a list of texts for ``*args``."""
    path = f"{component.name}: {spelling(item)}"
    if item.kind == "varargs":
        return _words(text, item.annotation, path)
    return read_argument(text, item.annotation, path, typed=True)


def _default(component: Component, item: Parameter, defaults: Mapping[str, Any]) -> Any:
    """Return the value of a default from the settings or the caller."""
    value = defaults[item.name]
    path = f"{component.name}: {item.name}"
    if item.kind == "varargs":
        return _rest(value, item.annotation, path)
    origin = _source(defaults, item.name)
    where = f" (default, set in {origin})" if origin else " (default)"
    return read_argument(value, item.annotation, path + where, typed=isinstance(value, str))


def _source(defaults: Mapping[str, Any], name: str) -> str:
    """Return where a default was set, such as a settings file, or ``""`` if it is unknown."""
    return str(getattr(defaults, "sources", {}).get(name, ""))


def _rest(value: Any, tp: Any, path: str) -> list[Any]:
    """Return the values of ``*args`` from a list, or from a text split like in a shell."""
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as exc:
            raise ComponentArgumentError(
                f"{path}={value!r}: cannot be split into arguments: {exc}"
            ) from exc
        return _words(words, tp, path)
    if not isinstance(value, (list, tuple)):
        raise ComponentArgumentError(f"{path}={value!r}: must be a list")
    return [read_argument(part, tp, f"{path}[{index}]") for index, part in enumerate(value)]


def _words(words: Sequence[str], tp: Any, path: str) -> list[Any]:
    return [
        read_argument(word, tp, f"{path}[{index}]", typed=True) for index, word in enumerate(words)
    ]


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
        code = getattr(function_behind(component.fn), "__code__", None)
        file = getattr(code, "co_filename", None)
        why = reason(exc)
        place = innermost(exc, lambda each: each == file)
        if place:
            why = f"{why} ({place})"
        raise SpecError(f"component {component.name}: {why}") from exc
    if not isinstance(app, AppDef):
        raise SpecError(
            f"component {component.name}: returned {type(app).__name__}, must be an AppDef"
        )
    return replace(app, arguments={**masked_arguments(values), **app.arguments})
