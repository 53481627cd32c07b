"""The part of adapters.md that is written from the adapters' own sources: the methods that each of
them gives, beside each other.
"""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from transload.pipelines import Ending

HERE = Path(__file__).parent
ROOT = HERE.parent
BEGIN, END = "<!-- from the sources: docs/make_pages.py -->\n", "<!-- end -->\n"
HOSTS = {
    "Airflow": "plugins/airflow/src/transload_airflow",
    "Prefect": "plugins/prefect/src/transload_prefect",
    "Kubeflow Pipelines": "plugins/kfp/src/transload_kfp",
    "Ax": "plugins/ax/src/transload_ax",
    "Tinyflow, the template": "plugins/_template/src/transload_tinyflow",
}
METHODS = {
    "identity": "whose job it is",
    "io": "where the orchestrator keeps and shows what is known of the job",
    "cancel_on_exit": "what ends the step reaches the job",
    "translate": "what the orchestrator acts on, for an error",
}
"""Methods that every `Adapter` gives, in this order."""
SHOWN = ("identity", "translate")
"""Those that are shown whole."""

_RUN_BY = "<!-- run by: tests/docs/test_site.py::test_pages_written_from_the_code_are_fresh -->"


Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Method:
    """A method of an adapter, and the file it is in, relative to the root."""

    file: str
    node: Function


def methods(folder: str) -> dict[str, Method]:
    """Return what an adapter gives of `METHODS`, by name."""
    for path in sorted((ROOT / folder).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and _is_adapter(node):
                return _named(f"{folder}/{path.name}", node.body)
    raise LookupError(f"{folder}: no class is based on Adapter[…]")


def _is_adapter(node: ast.ClassDef) -> bool:
    """Tell whether a class is based on ``Adapter[…]``."""
    return any(ast.unparse(base).startswith("Adapter[") for base in node.bases)


def _named(file: str, body: list[ast.stmt]) -> dict[str, Method]:
    """Return the functions of a body that are one of `METHODS`, by the name of the method."""
    there = {node.name: node for node in body if isinstance(node, Function)}
    found = {}
    for name in METHODS:
        node = there.get(name)
        if node is not None:
            found[name] = Method(file, node)
    return found


def _code(method: Method) -> str:
    """Return a method as it stands in its file, without its docstring and decorators."""
    lines = (ROOT / method.file).read_text(encoding="utf-8").splitlines()
    node = method.node
    docstring = node.body[0]
    body = "\n".join(lines[docstring.end_lineno : node.end_lineno]).lstrip("\n")
    return dedent("\n".join([*lines[node.lineno - 1 : docstring.lineno - 1], body]))


def _endings() -> dict[str, dict[Ending, object]]:
    """Return each host's table of endings, by host."""
    found = {}
    sys.path.insert(0, str(ROOT / "plugins" / "_template" / "src"))
    try:
        for host, folder in HOSTS.items():
            table = getattr(importlib.import_module(f"{Path(folder).name}.states"), "ENDINGS", None)
            if table is not None:
                found[host] = table
    finally:
        sys.path.pop(0)
    return found


def _cell(value: object) -> str:
    if value is None:
        return "raised"
    words = value if isinstance(value, tuple) else (value,)
    return (
        "exit code " + str(value)
        if isinstance(value, int)
        else ", ".join(f"`{word}`" for word in words)
    )


def side_by_side() -> str:
    """Return the methods of all adapters, and the tables of endings."""
    known = {host: methods(folder) for host, folder in HOSTS.items()}
    parts = []
    for name, meaning in METHODS.items():
        parts += [f"### `{name}`: {meaning}", ""]
        there = {host: found[name] for host, found in known.items() if name in found}
        for host, method in there.items():
            summary = (ast.get_docstring(method.node) or "").partition("\n\n")[0]
            first = " ".join(summary.split()).replace("``", "`")
            parts.append(f"- [{host}](../../{method.file}): {first}")
        parts.append("")
        if name in SHOWN:
            bodies = "\n\n\n".join(f"# {host}\n{_code(method)}" for host, method in there.items())
            parts += [_RUN_BY, "```python", bodies, "```", ""]
    tables = _endings()
    parts += [
        "### `endings`: how a job ended, and what that is in the orchestrator",
        "",
        f"| `Ending` | {' | '.join(tables)} |",
    ]
    parts.append("|---" * (len(tables) + 1) + "|")
    for ending in Ending:
        parts.append(
            f"| {ending.name} | {' | '.join(_cell(table[ending]) for table in tables.values())} |"
        )
    return "\n".join([*parts, ""])


def adapters() -> str:
    """Return adapters.md with its written part made anew."""
    page = (HERE / "reference" / "adapters.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"adapters.md: has no lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{side_by_side()}\n{END}{after}"
