"""Call a component with arguments from a command line, from JSON, or from a program.

The command line is not split by argparse. argparse needs tricks to accept ``-h`` as an argument,
refuses values that start with a dash, and ends the process on an error. Its treatment of ``--``
depends on the Python version.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from transload.components.errors import ComponentArgumentError, ComponentHelpRequested, innermost
from transload.components.finder import as_component
from transload.components.signature import HELP, Component, Parameter, function_behind, spelling
from transload.errors import SpecError, TransloadError
from transload.specs import AppDef
from transload.specs.checks import nearest, shorten
from transload.specs.secrets import masked_arguments
from transload.specs.text import parse_bool
from transload.specs.values import is_flag, read

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
    with component.place or nullcontext():
        return _call(component, _values(component, cmpnt_args, config or {}, cmpnt_defaults or {}))


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
    with component.place or nullcontext():
        return _call(component, _values(component, None, values or {}, defaults or {}))


def arguments_of(
    component: Source, argv: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the decoded arguments of a command line, with defaults, without calling the component.

    Raises:
        ComponentArgumentError: if an argument is unknown, missing or wrong.
        ComponentHelpRequested: if ``--help`` is among the arguments.
    """
    component = as_component(component)
    with component.place or nullcontext():
        return _values(component, argv, {}, defaults or {})


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
    argv: Sequence[str] | None,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the value of each parameter, from ``values``, the command line, or the defaults."""
    texts, rest = split_arguments(component, argv or ())
    known = [parameter.name for parameter in component.parameters]
    for name in values:
        if name not in known:
            hint = nearest(str(name), known)
            raise ComponentArgumentError(f"{component.name}: unknown argument {name!r}: {hint}")
    for name in defaults:
        if name not in known:
            hint = nearest(str(name), known)
            set_in = _source(defaults, name)
            place = f" (set in {set_in})" if set_in else ""
            raise ComponentArgumentError(
                f"{component.name}: unknown default {name!r}{place}: {hint}"
            )
    given = {*values, *texts, *defaults}
    missing = [item for item in component.parameters if item.required and item.name not in given]
    if missing:
        names = [item.name if argv is None else spelling(item) for item in missing]
        raise ComponentArgumentError(f"{component.name}: missing: {', '.join(names)} (see --help)")
    found: dict[str, Any] = {}
    for item in component.parameters:
        path = f"{component.name}: {item.name}"
        if item.kind == "varargs":
            found[item.name] = _varargs(item, path, values, rest, defaults)
        elif item.name in values:
            found[item.name] = read_argument(values[item.name], item.annotation, path)
        elif item.name in texts:
            shown = f"{component.name}: {spelling(item)}"
            found[item.name] = read_argument(texts[item.name], item.annotation, shown, typed=True)
        elif item.name in defaults:
            found[item.name] = _default(item, path, defaults)
        else:
            found[item.name] = item.default
    return found


def _varargs(
    item: Parameter,
    path: str,
    values: Mapping[str, Any],
    rest: list[str] | None,
    defaults: Mapping[str, Any],
) -> list[Any]:
    """Return the values of ``*args``, of which ``rest`` has those of the command line."""
    if item.name in values:
        return _rest(values[item.name], item.annotation, path)
    if rest is not None:
        return [
            read_argument(text, item.annotation, f"{path}[{index}]", typed=True)
            for index, text in enumerate(rest)
        ]
    if item.name in defaults:
        return _rest(defaults[item.name], item.annotation, path)
    return []


def _default(item: Parameter, path: str, defaults: Mapping[str, Any]) -> Any:
    """Return the value of a default from the settings or the caller."""
    origin = _source(defaults, item.name)
    where = f" (default, set in {origin})" if origin else " (default)"
    value = defaults[item.name]
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
        return [
            read_argument(word, tp, f"{path}[{index}]", typed=True)
            for index, word in enumerate(words)
        ]
    if not isinstance(value, (list, tuple)):
        raise ComponentArgumentError(f"{path}={value!r}: must be a list")
    return [read_argument(part, tp, f"{path}[{index}]") for index, part in enumerate(value)]


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
        why = f"{type(exc).__name__}: {' '.join(str(exc).split())}"
        place = innermost(exc, lambda each: each == file)
        if place:
            why = f"{why} ({place})"
        raise SpecError(f"component {component.name}: {why}") from exc
    if not isinstance(app, AppDef):
        raise SpecError(
            f"component {component.name}: returned {type(app).__name__}, must be an AppDef"
        )
    return replace(app, arguments={**masked_arguments(values), **app.arguments})


def _spellings(component: Component) -> dict[str, Parameter]:
    known: dict[str, Parameter] = {}
    for parameter in component.parameters:
        if parameter.kind == "varargs":
            continue
        known.setdefault(f"--{parameter.name.replace('_', '-')}", parameter)
        known[f"--{parameter.name}"] = parameter
        if len(parameter.name) == 1:
            known[f"-{parameter.name}"] = parameter
    return known


def split_arguments(
    component: Component, argv: Sequence[str]
) -> tuple[dict[str, str], list[str] | None]:
    """Split ``argv`` into a text for each parameter and the arguments for ``*args``.

    Options are ``--name value``, ``--name=value``, ``-j value`` and ``-jvalue``. A bool without a
    value is true. ``*args`` starts at the first argument that is not an option, or at ``--``.

    Returns:
        Parameter → text, and the arguments for ``*args``, or None if there are none.

    Raises:
        ComponentArgumentError: for an unknown option (the nearest is suggested), a missing value,
            or an unexpected argument.
        ComponentHelpRequested: for ``--help``.
    """
    known = _spellings(component)
    texts: dict[str, str] = {}
    rest = None
    words = list(argv)
    for word in words:
        if not isinstance(word, str):
            raise ComponentArgumentError(f"{component.name}: argument {word!r}: must be a str")
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--" or not word.startswith("-") or word == "-":
            rest = words[position + (word == "--") :]
            break
        parameter, attached = _match(component, known, word)
        position += 1
        if attached is None:
            attached = _value(component, known, parameter, word, words[position : position + 1])
            position += attached is not None
        if attached is None:
            attached = "true"
        texts[parameter.name] = attached
    if rest and component.varargs is None:
        stray = shorten(rest[0])
        raise ComponentArgumentError(
            f"{component.name}: unexpected argument {stray}: write --NAME VALUE"
        )
    return texts, rest


def _match(
    component: Component, known: dict[str, Parameter], word: str
) -> tuple[Parameter, str | None]:
    """Return the parameter of an option, and the value that is attached to it."""
    flag, equals, value = word.partition("=")
    if flag in known:
        return known[flag], value if equals else None
    if not word.startswith("--") and word[:2] in known:
        return known[word[:2]], word[2:]
    if flag == HELP:
        from transload.components.help import component_help

        raise ComponentHelpRequested(component.name, component_help(component))
    names = sorted({spelling(item) for item in known.values()})
    plain = flag[:2] + flag[2:].replace("-", "_")
    longer = [name for name in names if len(plain) > 2 and name.startswith(plain)]
    hint = nearest(plain, names)
    if longer:
        hint = f"did you mean {longer[0]!r}?"
    if component.varargs is not None:
        hint += " (arguments of the program itself come after '--')"
    error = ComponentArgumentError(f"{component.name}: unknown argument {flag}: {hint}")
    error.unknown = flag
    raise error


def _value(
    component: Component,
    known: dict[str, Parameter],
    parameter: Parameter,
    word: str,
    following: list[str],
) -> str | None:
    """Return the value after an option, or None for a bool without a value."""
    if not following:
        if is_flag(parameter.annotation):
            return None
        raise ComponentArgumentError(_missing_value(component, parameter, word))
    text = following[0]
    is_option = text in ("--", HELP) or text.partition("=")[0] in known
    if is_flag(parameter.annotation):
        is_next = is_option or (text.startswith("-") and not _is_bool(text))
        return None if is_next else text
    if is_option:
        missing = _missing_value(component, parameter, word)
        raise ComponentArgumentError(f"{missing}; to give {text!r}, write {word}={text}")
    return text


def _missing_value(component: Component, parameter: Parameter, word: str) -> str:
    """Return the message for an option without a value."""
    return f"{component.name}: {word}: needs a value of type {parameter.type_name}"


def _is_bool(text: str) -> bool:
    try:
        parse_bool(text)
    except SpecError:
        return False
    return True
