"""Every public name is in the reference, and what is written from the code is fresh."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.util.inventory import InventoryFile

DISABLE = "TRANSLOAD_DISABLE_PLUGINS"
ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "_build" / importlib.metadata.version("transload")
PLUGINS = sorted(ROOT.glob("plugins/[!_]*/src/*/__init__.py"))


def _script(name: str) -> ModuleType:
    """Load a script of docs/ by path, its neighbours importable."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    """Every page of the site, which the session builds before its tests."""
    found = sorted(SITE.rglob("*.html"))
    assert found, f"{SITE} is empty: nox -s docs builds it"
    return found


@pytest.fixture(scope="module")
def names(pages: list[Path]) -> set[str]:
    """Every name of Python that the site documents, dotted."""
    with open(SITE / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, uri: uri)
    items = getattr(inventory, "data", inventory)
    return {name for kind in items if kind.startswith("py:") for name in items[kind]}


def _exported(init: Path) -> set[str]:
    """Return what ``__all__`` of a module says, without importing the host that it belongs to."""
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value)) - {"__version__"}
    return set()


def test_every_public_name_of_the_core_is_in_the_reference(names: set[str]) -> None:
    """All of ``__all__``, of every module that make_pages.py lists."""
    reference = _script("make_pages")
    modules = {name: importlib.import_module(name) for name in reference.MODULES}
    wanted = {
        f"{name}.{each}"
        for name, module in modules.items()
        for each in reference.public_names(module)
    }
    assert wanted - names == set()


def test_every_module_with_public_names_is_in_the_reference() -> None:
    """A package of the core that has ``__all__`` is listed, unless one that is listed shows its
    names.
    """
    reference = _script("make_pages")
    source = ROOT / "core" / "src"
    packages = {
        ".".join(path.parent.relative_to(source).parts) for path in source.rglob("__init__.py")
    }
    found = {
        name
        for name in packages
        if "._" not in name and hasattr(importlib.import_module(name), "__all__")
    }
    inner = {"transload.cli", "transload.cli.commands"}
    assert found - set(reference.MODULES) - inner - {"transload"} == set()


@pytest.mark.parametrize("init", PLUGINS, ids=lambda path: path.parent.name)
def test_every_public_name_of_a_plugin_is_in_the_reference(init: Path, names: set[str]) -> None:
    """All of its ``__all__``, though its host is not installed here."""
    assert {f"{init.parent.name}.{name}" for name in _exported(init)} - names == set()


@pytest.mark.parametrize(
    "page", ["reference/states.md", "reference/schedulers.md", "extend/hooks.md"]
)
def test_pages_written_from_the_code_are_fresh(page: str) -> None:
    """Run ``docs/make_pages.py`` where this fails."""
    assert (ROOT / "docs" / page).read_text() == _script("make_pages").PAGES[page]()
