"""Find the errors in a component, each with its line."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from transload.components.errors import ComponentInvalid, NoComponent
from transload.components.finder import find_functions, return_problem
from transload.components.signature import function_behind, read_docstring, read_parameters
from transload.specs.checks import closest, nearest

_Function = ast.FunctionDef | ast.AsyncFunctionDef

_MACROS: Final = {
    name.replace("_", ""): name for name in ("img_root", "app_id", "replica_id", "rank0_env")
}
_TOKEN = re.compile(r"\$(?:\{[^{}]*\}|\([^()]*\)|\w+)")


class Finding(NamedTuple):
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
    """Return all errors and warnings about a component, which is loaded for that.

    Args:
        reference: a name as in `get_component`. For ``file.py`` without a function, each component
            in the file is checked.

    Returns:
        The findings by line. There may be none.

    Raises:
        ComponentNotFound: if there is no such name, file or function.
        PluginError: if the plugin with the component cannot be loaded.
    """
    target = reference.rpartition(":")[0] or reference
    try:
        functions = find_functions(reference).functions
    except NoComponent as exc:
        return [Finding(target, 1, str(exc).removeprefix(f"{target}: "))]
    except ComponentInvalid as exc:
        return [_as_finding(exc, target)]
    found = {each: None for fn in functions for each in _check_function(fn, target)}
    return sorted(found, key=lambda each: each.line)


def _as_finding(exc: ComponentInvalid, target: str) -> Finding:
    """Convert a message that starts with ``file:line:`` to a finding."""
    match = re.match(r"(.+?):(\d+): (.*)\Z", str(exc), re.DOTALL)
    if match is None:
        return Finding(target, 0, str(exc))
    path, line, message = match.groups()
    return Finding(_shown(path, target), int(line), message)


def _shown(path: str, target: str) -> str:
    """Return the path of a file as the user wrote it."""
    if path == os.path.abspath(os.path.expanduser(target)):
        return target
    return path


def _check_function(fn: Any, target: str) -> Iterator[Finding]:
    code = getattr(function_behind(fn), "__code__", None)
    if code is None:
        return
    path = _shown(code.co_filename, target)
    node = _node_of(code)
    lines = _lines_of(node)
    parameters, problems = read_parameters(fn)
    lacking = return_problem(fn)
    if lacking:
        problems = {"": lacking, **problems}
    for name, problem in problems.items():
        where = lines.get(name, code.co_firstlineno)
        yield Finding(path, where, f"{code.co_name}: {problem}")
    if node is not None:
        yield from _check_docstring(node, [item.name for item in parameters], path)
        yield from _check_macros(node, path)


def _node_of(code: Any) -> _Function | None:
    """Return the source of a function, or None if there is none."""
    if not os.path.isfile(code.co_filename):
        return None
    with open(code.co_filename, "rb") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, _Function) and node.name == code.co_name:
            first = min([node, *node.decorator_list], key=lambda each: each.lineno)
            if first.lineno == code.co_firstlineno:
                return node
    return None


def _lines_of(node: _Function | None) -> Mapping[str, int]:
    """Return the line of each parameter, and that of the function under an empty name."""
    if node is None:
        return {}
    found = {each.arg: each.lineno for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    return {"": node.lineno, **found}


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
