"""Find the errors in a component, each with its line."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from transload.components.errors import ComponentInvalid, ComponentNotFound
from transload.components.finder import get_component, is_file_reference
from transload.components.signature import function_behind, read_docstring
from transload.errors import TransloadError
from transload.specs.checks import closest, nearest
from transload.specs.values import SUPPORTED

_Function = ast.FunctionDef | ast.AsyncFunctionDef

_MACROS: Final = {
    name.replace("_", ""): name for name in ("img_root", "app_id", "replica_id", "rank0_env")
}
_TOKEN = re.compile(r"\$(?:\{[^{}]*\}|\([^()]*\)|\w+)")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of `check`.

    Args:
        path: the file.
        line: the line, from 1, or 0 if there is none.
        message: what is wrong, and what is allowed.
        level: ``error`` if it will not run, ``warning`` if it will run, but perhaps not as intended.
    """

    path: str
    line: int
    message: str
    level: str = "error"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.level}: {self.message}"


def check(reference: str) -> list[Finding]:
    """Return all errors and warnings about a component.

    The source is read first, so that each finding has its line. Then the component is loaded to
    find the rest.

    Args:
        reference: a name as in `get_component`. For ``file.py`` without a function, each component
            in the file is checked.

    Returns:
        The findings by line. There may be none.

    Raises:
        ComponentNotFound: if there is no such name, file or function.
        PluginError: if the plugin with the component cannot be loaded.
    """
    if ":" in reference:
        target, _, name = reference.rpartition(":")
    else:
        target = reference
        name = ""
    if is_file_reference(target):
        return _check_file(target, name)
    try:
        component = get_component(reference)
    except ComponentInvalid as exc:
        return [_as_finding(exc, reference)]
    code: Any = getattr(function_behind(component.fn), "__code__", None)
    if code is None or not os.path.isfile(code.co_filename):
        return []
    functions = [node for node in ast.walk(_parse(code.co_filename)) if isinstance(node, _Function)]
    of_name = [node for node in functions if node.name == code.co_name]
    at_line = [node for node in of_name if _first_line(node) == code.co_firstlineno]
    nodes = at_line or of_name
    return [finding for node in nodes for finding in _check_function(node, code.co_filename)]


def _first_line(node: _Function) -> int:
    """Return the first line of a function, including its decorators."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _parse(path: str) -> ast.Module:
    with open(path, "rb") as file:
        return ast.parse(file.read(), path)


def _check_file(target: str, name: str) -> list[Finding]:
    path = os.path.abspath(os.path.expanduser(target))
    try:
        tree = _parse(path)
    except OSError as exc:
        raise ComponentNotFound(f"component file {target}: {exc.strerror or exc} ({path})") from exc
    except SyntaxError as exc:
        return [Finding(target, exc.lineno or 0, f"syntax error: {exc.msg}")]
    except ValueError as exc:
        return [Finding(target, 0, f"cannot be read as Python: {exc}")]
    functions = [node for node in tree.body if isinstance(node, _Function)]
    if name:
        nodes = [node for node in functions if node.name == name]
        if not nodes:
            # it may be made in another way than by a def
            return _check_loaded(target, name, [])
    else:
        public = [node for node in functions if not node.name.startswith("_")]
        nodes = [node for node in public if _returns_app(node)]
        if not nodes:
            names = ", ".join(f"{node.name} (line {node.lineno})" for node in public) or "none"
            lacking = "holds no component, that is a public function annotated '-> AppDef'"
            return [Finding(target, 1, f"{lacking} (its functions: {names})")]
    found = [finding for node in nodes for finding in _check_function(node, target)]
    for node in nodes:
        found += _check_loaded(target, node.name, found)
    return sorted(dict.fromkeys(found), key=lambda item: item.line)


def _check_loaded(target: str, name: str, found: list[Finding]) -> list[Finding]:
    """Load the component, and return its error, unless an error is known already."""
    if any(finding.level == "error" for finding in found):
        return []
    try:
        get_component(f"{target}:{name}")
    except ComponentInvalid as exc:
        return [_as_finding(exc, target)]
    return []


def _as_finding(exc: TransloadError, target: str) -> Finding:
    """Convert a message that starts with ``file:line:`` to a finding."""
    match = re.match(r"(.+?):(\d+): (.*)\Z", str(exc), re.DOTALL)
    if match is None:
        return Finding(target, 0, str(exc))
    path, line, message = match.groups()
    if path == os.path.abspath(os.path.expanduser(target)):
        path = target
    return Finding(path, int(line), message)


def _returns_app(node: _Function) -> bool:
    return (
        node.returns is not None
        and ast.unparse(node.returns).strip("\"'").rpartition(".")[2] == "AppDef"
    )


def _check_function(node: _Function, path: str) -> Iterator[Finding]:
    if isinstance(node, ast.AsyncFunctionDef):
        yield Finding(
            path, node.lineno, f"{node.name}: a component must be a plain function, not async"
        )
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if arguments.vararg:
        listed.append(arguments.vararg)
    for item in listed:
        if item.annotation is None:
            yield Finding(
                path,
                item.lineno,
                f"{node.name}: parameter {item.arg!r} must have a type annotation",
            )
        else:
            yield from _check_annotation(node, item, path)
    if arguments.kwarg is not None:
        parameter = f"{node.name}: parameter '**{arguments.kwarg.arg}'"
        message = f"{parameter}: **kwargs is not supported; list the parameters"
        yield Finding(path, arguments.kwarg.lineno, message)
    if node.returns is None:
        yield Finding(
            path, node.lineno, f"{node.name}: must be annotated to return an AppDef (-> AppDef)"
        )
    elif not _returns_app(node) and isinstance(node.returns, ast.Constant | ast.Subscript):
        message = f"{node.name}: is annotated to return {ast.unparse(node.returns)}, must be AppDef"
        yield Finding(path, node.returns.lineno, message)
    yield from _check_docstring(node, [item.arg for item in listed], path)
    yield from _check_macros(node, path)


_UNSUPPORTED: Final = {
    "set",
    "frozenset",
    "Set",
    "FrozenSet",
    "bytes",
    "complex",
    "Callable",
    "Any",
    "object",
    "type",
}


def _check_annotation(node: _Function, item: ast.arg, path: str) -> Iterator[Finding]:
    """Report common mistakes at their own line. Loading the component finds the rest."""
    annotation: Any = item.annotation
    outer = annotation
    if isinstance(annotation, ast.Subscript):
        outer = annotation.value
    name = ast.unparse(outer).strip("\"'").rpartition(".")[2]
    if name.partition("[")[0] in _UNSUPPORTED:
        message = (
            f"{node.name}: parameter {item.arg!r}: type {ast.unparse(annotation)} is not supported"
        )
        yield Finding(path, item.lineno, f"{message}; use one of: {SUPPORTED}")


def _check_docstring(node: _Function, names: list[str], path: str) -> Iterator[Finding]:
    text = ast.get_docstring(node)
    if not text:
        return
    line = node.body[0].lineno
    helps = read_docstring(text)[1]
    if not helps:
        return
    for name in helps:
        if name not in names:
            described = f"{node.name}: the docstring describes {name!r}"
            message = f"{described}, which is not a parameter; {nearest(name, names)}"
            yield Finding(path, _line_of(node, name, line), message, "warning")
    for name in names:
        if name not in helps:
            message = f"{node.name}: the docstring does not describe parameter {name!r}"
            yield Finding(path, line, message, "warning")


def _line_of(node: _Function, name: str, start: int) -> int:
    """Return the line of the docstring that starts with ``name:``."""
    value: Any = node.body[0]
    for offset, text in enumerate(value.value.value.splitlines()):
        if re.match(rf"\s*(:\w+\s+.*)?\*{{0,2}}{re.escape(name)}\b.*:", text):
            return start + offset
    return start


def _check_macros(node: _Function, path: str) -> Iterator[Finding]:
    docstring = None
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0].value  # type: ignore[attr-defined]
    for item in ast.walk(node):
        if isinstance(item, ast.JoinedStr):
            yield from _check_joined(item, path)
        elif isinstance(item, ast.Constant) and item is not docstring:
            if not isinstance(item.value, str):
                continue
            for message in near_misses(item.value):
                yield Finding(path, item.lineno, message, "warning")


def _check_joined(item: ast.JoinedStr, path: str) -> Iterator[Finding]:
    for before, after in zip(item.values, item.values[1:], strict=False):
        if not isinstance(before, ast.Constant) or not isinstance(after, ast.FormattedValue):
            continue
        macro = ast.unparse(after.value)
        if not macro.startswith("macros."):
            continue
        text = str(before.value)
        if text.endswith(("$$", "$${")):
            message = "'$$' is not an escape and is not changed; write one '$'"
            yield Finding(path, item.lineno, message, "warning")
        elif text.endswith("$"):
            message = f"{macro} contains its '$' already; remove the one before it"
            yield Finding(path, item.lineno, message, "warning")


def near_misses(text: str) -> list[str]:
    """Return a message for each token in ``text`` that looks like a macro but is not one."""
    found = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        macro = _macro_like(token)
        if macro is None:
            continue
        if token != f"${{{macro}}}":
            found.append(f"{token!r} is not a macro and is not replaced; the macro is ${{{macro}}}")
        elif text[: match.start()].endswith("$"):
            found.append(
                f"'$${{{macro}}}': '$$' is not an escape; it becomes '$' and the value of the macro"
            )
    return found


def _macro_like(token: str) -> str | None:
    """Return the macro that a token is or most likely should be."""
    word = re.sub(r"[^0-9a-z]", "", token.lower().replace("macros.", ""))
    if word in _MACROS:
        return _MACROS[word]
    if not token.startswith("${") or len(word) <= 4:
        return None
    close = closest(word, list(_MACROS))
    if close is None:
        return None
    return _MACROS[close]
