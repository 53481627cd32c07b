"""Splitting a component's command line into named texts.

argparse is not used: it cannot take ``-h`` for a host without tricks, refuses values that start with a dash, treats
``--`` differently from one Python to the next, and leaves the process on an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from transload.components._decode import plain_type
from transload.components._errors import ComponentArgumentError, ComponentHelpRequested
from transload.components._signature import HELP, Component, Parameter, spelling
from transload.errors import SpecError
from transload.specs._check import nearest, shorten
from transload.specs._text import parse_bool


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


def split_arguments(component: Component, argv: Sequence[str]) -> tuple[dict[str, str], list[str] | None]:
    """Return the texts in ``argv`` by parameter, and the arguments for ``*args``; None if there were none.

    Options are ``--name value``, ``--name=value``, ``-j value``, ``-jvalue``; a bool may stand without a value, which
    is true. The first argument that is no option, or the first ``--``, begins ``*args``.

    Raises:
        ComponentArgumentError: for an unknown option (the nearest is suggested), a missing value, a stray argument.
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
        texts[parameter.name] = "true" if attached is None else attached
    if rest and component.varargs is None:
        stray = shorten(rest[0])
        raise ComponentArgumentError(f"{component.name}: unexpected argument {stray}: write --NAME VALUE")
    return texts, rest


def _match(component: Component, known: dict[str, Parameter], word: str) -> tuple[Parameter, str | None]:
    """Return the parameter that an option means, and the value attached to it."""
    flag, equals, value = word.partition("=")
    if flag in known:
        return known[flag], value if equals else None
    if not word.startswith("--") and word[:2] in known:
        return known[word[:2]], word[2:]
    if flag == HELP:
        from transload.components._help import component_help

        raise ComponentHelpRequested(component.name, component_help(component))
    names = sorted({spelling(item) for item in known.values()})
    plain = flag[:2] + flag[2:].replace("-", "_")
    longer = [name for name in names if len(plain) > 2 and name.startswith(plain)]
    hint = f"did you mean {longer[0]!r}?" if longer else nearest(plain, names)
    if component.varargs is not None:
        hint += " (arguments of the program itself come after '--')"
    error = ComponentArgumentError(f"{component.name}: unknown argument {flag}: {hint}")
    error.unknown = flag
    raise error


def _value(
    component: Component, known: dict[str, Parameter], parameter: Parameter, word: str, following: list[str]
) -> str | None:
    """Return the value that follows an option; None for a bool that stands alone."""
    text = following[0] if following else None
    is_option = text is not None and (text in ("--", HELP) or text.partition("=")[0] in known)
    if plain_type(parameter.annotation) is bool and (text is None or is_option or _no_bool(text)):
        if text is not None and not is_option and not text.startswith("-"):
            return text
        return None
    if text is None or is_option:
        raise ComponentArgumentError(
            f"{component.name}: {word}: needs a value of type {parameter.type_name}"
            + (f"; to give {text!r}, write {word}={text}" if text is not None else "")
        )
    return text


def _no_bool(text: str) -> bool:
    try:
        parse_bool(text)
    except SpecError:
        return True
    return False
