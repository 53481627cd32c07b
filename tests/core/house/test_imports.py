"""The core imports no orchestrator, and nothing heavy in its light modules."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

import transload

HOSTS = ("airflow", "kfp", "prefect", "ax", "kubernetes", "torch", "docker", "mlflow", "torchx")
# Imports that cost more than the module that wants them. `import transload.specs` and `.runner`
# stay free of these.
HEAVY = (
    "fsspec",
    "pluggy",
    "click",
    "importlib.metadata",
    "asyncio",
    "subprocess",
    "socket",
    "urllib.request",
)
LIGHT = (
    "transload",
    "transload.errors",
    "transload.specs",
    "transload.runner",
    "transload.schedulers",
    "transload.components",
)


def _modules() -> list[str]:
    """Return every importable module of the core, without `__main__` files, which would run."""
    found = pkgutil.walk_packages(transload.__path__, "transload.", onerror=lambda name: None)
    return ["transload", *(info.name for info in found if not info.name.endswith("__main__"))]


def _loaded(*names: str) -> set[str]:
    """Import modules in a fresh interpreter and return what sys.modules then holds."""
    code = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    command = [sys.executable, "-c", code, json.dumps(names)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=os.sep, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def test_no_core_module_imports_a_host() -> None:
    """After importing all of core (testing included) no host is in sys.modules."""
    names = _modules()
    assert len(names) > 10
    loaded = _loaded(*names)
    assert [host for host in HOSTS if host in loaded] == []


@pytest.mark.parametrize("name", LIGHT)
def test_light_doors_stay_light(name: str) -> None:
    """Importing what every user imports pulls in nothing heavy."""
    loaded = _loaded(name)
    assert [heavy for heavy in HEAVY if heavy in loaded] == []


@pytest.mark.slow
def test_every_module_can_be_imported_alone() -> None:
    """No module relies on another one having been imported first."""
    code = (
        "import importlib, os, sys, json\n"
        "for name in json.loads(sys.argv[2]):\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError: pass\n"
        "bad = []\n"
        "for name in json.loads(sys.argv[1]):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        try: importlib.import_module(name)\n"
        "        except BaseException as e: print(name, repr(e), flush=True); os._exit(1)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(pid, 0)[1]: bad.append(name)\n"
        "sys.exit(len(bad))"
    )
    # what others wrote is imported once, and not by each: it needs none of ours
    others = [
        name for name in _loaded(*_modules()) if not name.startswith(("transload", "__main__"))
    ]
    command = [sys.executable, "-c", code, json.dumps(_modules()), json.dumps(others)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=os.sep, check=False
    )
    assert result.returncode == 0, result.stdout


def test_typed() -> None:
    """The distribution tells type checkers that it is typed."""
    assert (Path(transload.__path__[0]) / "py.typed").exists()


def _homes(package: str, init: Path) -> dict[str, str]:
    """Return public name → module, of a package that imports its names when they are first asked
    for.
    """
    found: dict[str, str] = {}
    tree = ast.parse(init.read_text())
    tables = {
        ast.unparse(node.target): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names":
            table = tables.get(ast.unparse(node.args[1])) or node.args[1]
            for module, names in ast.literal_eval(table).items():
                home = (
                    package.rpartition(".")[0] + module
                    if module.startswith(".")
                    else f"{package}.{module}"
                )
                found |= dict.fromkeys(names.split(), home)
    return found


def _imports(
    tree: ast.AST, package: str, homes: Mapping[str, Mapping[str, str]], known: Collection[str]
) -> set[str]:
    """Return the modules that a module imports, in its functions too, but not for types only."""
    found: set[str] = set()
    queue = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            queue += node.orelse
            continue
        queue += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(
                [*parts[: len(parts) - node.level + 1], *filter(None, [node.module])]
                if node.level
                else []
            )
            base = base or node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in known else homes.get(base, {}).get(alias.name, base))
    return found & set(known)


CORE = Path(transload.__path__[0])
PLUGINS = Path(__file__).parents[3] / "plugins"
PACKAGES = [
    CORE,
    *sorted(init.parent for init in PLUGINS.glob("[!_]*/src/transload_*/__init__.py")),
]


@pytest.mark.parametrize("root", PACKAGES, ids=lambda root: root.name)
def test_no_module_imports_itself_by_a_detour(root: Path) -> None:
    """There is no circle of imports among the modules of the core or of a plugin, those in
    functions counted in.
    """
    assert not _circles(root)


def test_every_plugin_is_looked_at() -> None:
    """The plugins' sources are where the test for circles looks for them."""
    assert len(PACKAGES) == 1 + len(list(PLUGINS.glob("[!_]*/pyproject.toml")))


def _circles(root: Path) -> dict[str, list[str]]:
    """Return each module that is in a circle, or imports one that is, and what of these it
    imports.
    """
    files: dict[str, Path] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    homes = {name: _homes(name, path) for name, path in files.items() if path.name == "__init__.py"}
    graph = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        graph[name] = _imports(ast.parse(path.read_text()), package, homes, files) - {name}
    # a module that imports nothing that is left can be taken away. What cannot is in a circle, or
    # above one
    while free := [name for name, wanted in graph.items() if not wanted & graph.keys()]:
        for name in free:
            del graph[name]
    return {name: sorted(wanted & graph.keys()) for name, wanted in graph.items()}
