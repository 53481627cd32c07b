"""The part of adapters.md that is written from the adapters' own `run.py`: the same words, beside
each other.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

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
WORDS = {
    "identity_of": "whose app it is",
    "execution_of": "what is run, as the host has it",
    "traces_of": "where the host keeps what is known of the app, where it has several places",
    "run_app": "the app's life in the host's unit of work",
    "cancel_on_exit": "what ends the unit reaches the app",
    "translate_errors": "what became of the app reaches the host",
    "ending_of": "what the host acts on, for an error",
}
"""Functions that every `run.py` has, in this order."""
SHOWN = ("identity_of", "run_app")
"""Those that are shown whole."""

_RUN_BY = "<!-- run by: tests/docs/test_site.py::test_pages_written_from_the_code_are_fresh -->"


def functions(folder: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of an adapter's `run.py`, by name."""
    tree = ast.parse((ROOT / folder / "run.py").read_text(encoding="utf-8"))
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _code(folder: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function as it stands in its file, without its docstring and decorators."""
    lines = (ROOT / folder / "run.py").read_text(encoding="utf-8").splitlines()
    told = node.body[0]
    body = "\n".join(lines[told.end_lineno : node.end_lineno]).lstrip("\n")
    return "\n".join([*lines[node.lineno - 1 : told.lineno - 1], body])


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
    """Return the words of all `run.py`, and the tables of endings."""
    known = {host: functions(folder) for host, folder in HOSTS.items()}
    parts = []
    for word, meaning in WORDS.items():
        parts += [f"### `{word}`: {meaning}", ""]
        there = {host: found[word] for host, found in known.items() if word in found}
        for host, node in there.items():
            summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
            first = " ".join(summary.split()).replace("``", "`")
            parts.append(f"- [{host}](../{HOSTS[host]}/run.py): {first}")
        parts.append("")
        if word in SHOWN:
            bodies = "\n\n\n".join(
                f"# {host}\n{_code(HOSTS[host], node)}" for host, node in there.items()
            )
            parts += [_RUN_BY, "```python", bodies, "```", ""]
    tables = _endings()
    parts += ["### `ENDINGS`: what a host is told", "", f"| `Ending` | {' | '.join(tables)} |"]
    parts.append("|---" * (len(tables) + 1) + "|")
    for ending in Ending:
        parts.append(
            f"| {ending.name} | {' | '.join(_cell(table[ending]) for table in tables.values())} |"
        )
    return "\n".join([*parts, ""])


def adapters() -> str:
    """Return adapters.md with its written part made anew."""
    page = (HERE / "adapters.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"adapters.md: has no lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{side_by_side()}\n{END}{after}"
