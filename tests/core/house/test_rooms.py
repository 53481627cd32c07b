"""The nine rooms of the core import only what they may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = ROOT / "core" / "src" / "transload"
LAYERS = (
    ("cli",),
    ("pipelines",),
    ("runner",),
    ("components", "schedulers", "tracker", "workspace"),
    ("runtime",),
    ("specs",),
)
"""The rooms from top to bottom."""
BESIDE = ("errors", "keeper", "plugins")
"""What any room may import."""


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports when it runs, those inside functions included."""
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typing_only.update(id(part) for part in ast.walk(node))
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module == "transload":
                yield from (f"transload.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _found() -> set[tuple[str, str]]:
    """Return each pair of rooms of which one imports the other."""
    found = set()
    for path in CORE.rglob("*.py"):
        room = path.relative_to(CORE).parts[0].removesuffix(".py")
        for name in _imports(ast.parse(path.read_text(encoding="utf-8"))):
            package, _, rest = name.partition(".")
            if package == "transload" and rest:
                found.add((room, rest.partition(".")[0]))
    return found


def test_there_are_nine_rooms() -> None:
    """A folder or module at the top of the core is a room, or one of the few things beside them."""
    there = {path.name.removesuffix(".py") for path in CORE.iterdir()}
    rooms = {room for layer in LAYERS for room in layer}
    assert len(rooms) == 9
    assert there - {"__init__", "__main__", "__pycache__", "py.typed"} == {*rooms, *BESIDE}


def test_a_room_imports_what_is_below_it() -> None:
    """No room imports one that is above it."""
    height = {room: -number for number, layer in enumerate(LAYERS) for room in layer}
    upwards = {
        (room, other)
        for room, other in _found()
        if room in height and other in height and height[other] > height[room]
    }
    assert upwards == set()
