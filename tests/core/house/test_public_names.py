"""What the plugins use of the core is public there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
PACKAGES = sorted(path.parent.name for path in PLUGINS.glob("*/src"))


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


@cache
def _public_names(module: str) -> frozenset[str]:
    """Return what a module's ``__all__`` names, or nothing if it has none."""
    return frozenset(getattr(importlib.import_module(module), "__all__", ()))


def _used_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Return ``(module, name)`` of each name of the core that a file imports or reads."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        module = node.module or ""
        if module.partition(".")[0] != "transload":
            continue
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if _is_module(full):
                aliases[alias.asname or alias.name] = full
            else:
                yield module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = aliases.get(node.value.id, "")
            if module and not _is_module(f"{module}.{node.attr}"):
                yield module, node.attr


@pytest.mark.parametrize("plugin", PACKAGES)
def test_plugins_import_only_public_names(plugin: str) -> None:
    """A plugin uses no name of the core that its module's ``__all__`` does not name."""
    private = set()
    for path in sorted((PLUGINS / plugin / "src").rglob("*.py")):
        for module, name in _used_names(ast.parse(path.read_text())):
            if name not in _public_names(module):
                private.add(f"{path.name}: {module}.{name}")
    assert not private


def test_reading_a_name_of_an_imported_module_counts() -> None:
    """``from transload import errors`` makes ``errors.X`` a use of the name."""
    tree = ast.parse("from transload import errors\nfrom transload.specs import Role\nerrors.X")
    found = [("transload.specs", "Role"), ("transload.errors", "X")]
    assert list(_used_names(tree)) == found
