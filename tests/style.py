"""Keep three habits from coming back, and count what there is of them.

They are nested conditional expressions, packed assignments, and `**x: Any` in signatures.

    python tests/style.py            fail if the sources have more of one than tests/style.json allows
    python tests/style.py --lower    write today's numbers to tests/style.json, where they are lower

The numbers in tests/style.json only go down.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_suffix(".json")
SOURCES = ("core/src", "plugins/*/src")
KINDS = {
    "nested_conditionals": "a conditional expression inside another: name what is in between",
    "packed_assignments": "`a, b = x, y`: write an assignment for each name",
    "any_keywords": "`**x: Any` in a signature: name the parameters",
}


def find(source: str) -> Iterator[tuple[str, int]]:
    """Yield the kind and the line of each place in a source text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.IfExp) and _holds_conditional(node):
            yield "nested_conditionals", node.lineno
        elif isinstance(node, ast.Assign) and _is_packed(node):
            yield "packed_assignments", node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _takes_anything(node):
            yield "any_keywords", node.lineno


def _holds_conditional(node: ast.IfExp) -> bool:
    inner = [part for child in ast.iter_child_nodes(node) for part in ast.walk(child)]
    return any(isinstance(part, ast.IfExp) for part in inner)


def _is_packed(node: ast.Assign) -> bool:
    """Tell whether a tuple of values is assigned to a tuple of names, which a swap does not do."""
    if not isinstance(node.value, ast.Tuple):
        return False
    values = {ast.unparse(each) for each in node.value.elts}
    for target in node.targets:
        if not isinstance(target, ast.Tuple):
            continue
        names = {ast.unparse(each) for each in target.elts}
        if names != values:
            return True
    return False


def _takes_anything(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    keywords = node.args.kwarg
    if keywords is None or keywords.annotation is None:
        return False
    return ast.unparse(keywords.annotation) == "Any"


def find_all() -> dict[str, list[str]]:
    """Return the places of each kind in the sources of all distributions, as `file:line`."""
    places: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for pattern in SOURCES:
        for folder in sorted(ROOT.glob(pattern)):
            for path in sorted(folder.rglob("*.py")):
                for kind, line in find(path.read_text(encoding="utf-8")):
                    places[kind].append(f"{path.relative_to(ROOT)}:{line}")
    return places


def main(arguments: list[str]) -> int:
    """Compare the sources with the limits, and return the exit code."""
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    places = find_all()
    if arguments == ["--lower"]:
        lowered = {kind: min(len(places[kind]), limits[kind]) for kind in KINDS}
        LIMITS.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
        return 0
    code = 0
    for kind, advice in KINDS.items():
        count = len(places[kind])
        if count > limits[kind]:
            code = 1
            print(f"{kind}: {count}, and {limits[kind]} are allowed. It is {advice}.")
            print("".join(f"  {place}\n" for place in places[kind]), end="")
        elif count < limits[kind]:
            print(f"{kind}: {count}; `python tests/style.py --lower` keeps it so")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
