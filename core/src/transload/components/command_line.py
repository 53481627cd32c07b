"""A component on the command line: its signature as a command of click, its arguments, its help."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn

from transload.components.errors import ComponentArgumentError, ComponentHelpRequested
from transload.components.signature import Component, Parameter, spelling
from transload.specs.checks import nearest, shorten
from transload.specs.secrets import MASK, looks_secret
from transload.specs.values import is_flag

if TYPE_CHECKING:
    import click

_HELP: Final = "--help"


def command_of(component: Component) -> click.Command:
    """Return the command of click that takes a component's parameters, as texts.

    None of them is required, since settings may give it. What follows the options is left in
    ``Context.args``. ``-h`` is free for a parameter.
    """
    import click

    def show_help(context: click.Context, option: click.Parameter, wanted: bool) -> None:
        if wanted:
            raise ComponentHelpRequested(component.name, component_help(component))

    options: list[click.Parameter] = []
    for item in _options(component):
        more: dict[str, Any] = {}
        if is_flag(item.annotation):
            more = {"is_flag": False, "flag_value": "true"}  # its value may be left out
        names = [item.name, *_spellings(item)]
        options.append(click.Option(names, type=click.UNPROCESSED, **more))
    if component.parameter(_HELP.lstrip("-")) is None:
        asked = click.Option(
            [_HELP], is_flag=True, is_eager=True, expose_value=False, callback=show_help
        )
        options.append(asked)
    settings = {"allow_interspersed_args": False, "allow_extra_args": True}
    return click.Command(
        component.name, params=options, context_settings=settings, add_help_option=False
    )


def split_arguments(component: Component, argv: Sequence[str]) -> dict[str, Any]:
    """Return the text of each parameter that a command line gives, and the list of those of ``*args``.

    Options are ``--name value``, ``--name=value``, ``-j value`` and ``-jvalue``. A bool without a
    value is true. ``*args`` starts at the first argument that is not an option, or at ``--``.

    Raises:
        ComponentArgumentError: for an unknown option (the nearest is suggested), a missing value,
            or an unexpected argument.
        ComponentHelpRequested: for ``--help``.
    """
    import click

    words = list(argv)
    for word in words:
        if not isinstance(word, str):
            raise ComponentArgumentError(f"{component.name}: argument {word!r}: must be a str")
    try:
        context = command_of(component).make_context(component.name, [*words])
    except click.NoSuchOption as exc:
        _refuse_unknown(component, words, exc.option_name)
    except click.UsageError as exc:
        raise ComponentArgumentError(f"{component.name}: {exc.format_message()}") from exc
    rest = context.args
    own = words[: len(words) - len(rest)]
    _refuse_forgotten(component, own)
    texts = {name: text for name, text in context.params.items() if text is not None}
    for name, text in texts.items():
        if text.startswith("=") and f"-{name}{text}" in own:
            texts[name] = text[1:]
    if not rest and own[-1:] != ["--"]:
        return texts
    if component.varargs is not None:
        return {**texts, component.varargs.name: rest}
    if rest:
        raise ComponentArgumentError(
            f"{component.name}: unexpected argument {shorten(rest[0])}: write --NAME VALUE"
        )
    return texts


def _options(component: Component) -> list[Parameter]:
    return [item for item in component.parameters if item.kind != "varargs"]


def _spellings(item: Parameter) -> list[str]:
    """Return the spellings of an option. The first is that of the help."""
    dashed = item.name.replace("_", "-")
    return [*dict.fromkeys((spelling(item), f"--{item.name}", f"--{dashed}"))]


def _refuse_forgotten(component: Component, words: Sequence[str]) -> None:
    """Refuse an option as the value of another one, as in ``--name --rate 3``.

    Nobody means that, and click takes it.
    """
    known = {name: item for item in _options(component) for name in _spellings(item)}
    for word, following in itertools.pairwise(words):
        item = known.get(word)
        if item is None or is_flag(item.annotation):
            continue
        if following in ("--", _HELP) or following.partition("=")[0] in known:
            raise ComponentArgumentError(
                f"{component.name}: {word}: needs a value of type {item.type_name}; to give "
                f"{following!r}, write {word}={following}"
            )


def _refuse_unknown(component: Component, words: Sequence[str], option: str) -> NoReturn:
    flags = [word.partition("=")[0] for word in words]
    flag = option
    if option not in flags:  # of -lr, click names -l
        flag = next((each for each in flags if each.startswith(option)), option)
    names = [spelling(item) for item in _options(component)]
    plain = flag[:2] + flag[2:].replace("-", "_")
    longer = sorted(name for name in names if len(plain) > 2 and name.startswith(plain))
    hint = f"did you mean {longer[0]!r}?" if longer else nearest(plain, names)
    if component.varargs is not None:
        hint += " (arguments of the program itself come after '--')"
    error = ComponentArgumentError(f"{component.name}: unknown argument {flag}: {hint}")
    error.unknown = flag
    raise error


def component_help(
    component: Component,
    prog: str | None = None,
    width: int = 100,
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """Return the help of a component as plain text.

    Args:
        component: the component.
        prog: the command in the usage line. None means ``transload run NAME``.
        width: columns at which to wrap lines.
        defaults: defaults in place of the function's own.

    Returns:
        Usage, description and an entry for each argument with its type and default. The text ends
        with a newline.
    """
    import click

    defaults = defaults or {}
    rest = component.varargs
    required = [item for item in _options(component) if item.required and item.name not in defaults]
    optional = [item for item in _options(component) if item not in required]
    usage = [_head(item) for item in required]
    if optional:
        usage.append("[--NAME VALUE ...]")
    rows = [
        *((_head(item), _text(component, item, "required")) for item in required),
        *((_head(item), _text(component, item, _default(item, defaults))) for item in optional),
    ]
    if rest is not None:
        usage.append(f"[-- {rest.name} ...]")
        rows.append((f"{_head(rest)} ...", component.helps.get(rest.name, "")))
    formatter = click.HelpFormatter(width=width)
    formatter.write_usage(prog or f"transload run {component.name}", " ".join(usage))
    if component.description:
        formatter.write(f"\n{component.description}\n")
    with formatter.section("Arguments"):
        formatter.write_dl([*rows, (_HELP, "Show this message and exit.")])
    return formatter.getvalue()


def _head(item: Parameter) -> str:
    return f"{spelling(item)} {item.type_name.removesuffix(' | None')}"


def _text(component: Component, item: Parameter, note: str) -> str:
    return f"{component.helps.get(item.name, '')} ({note})".strip()


def _default(item: Parameter, defaults: Mapping[str, Any]) -> str:
    """Return what the help says of a default."""
    value = defaults.get(item.name, item.default)
    shown = str(value)
    if isinstance(value, str) and value and looks_secret(item.name):
        shown = MASK
    elif isinstance(value, Enum):
        shown = value.name
    elif value is None or isinstance(value, bool):
        shown = shown.lower()
    return f"default: {shown or repr(shown)}"
