"""Pack the helper, one file that runs this package's scheduler on a login node.

There it needs Python 3.8 and nothing else installed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import io
import os
import pkgutil
import time
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from transload_slurm import __version__
from transload_slurm.job import OF_THE_CORE

_ROOT: Final = "transload_slurm.helper"
_WHOLE: Final = ("transload.runtime.tracking", "transload.specs", "transload_slurm.job")
"""Packages whose modules are imported when they are used, so that all of them are packed."""
_LEFT_OUT: Final = (
    "transload.runtime.tracking.fsspec_store",
    "transload.specs.values",
    "transload.specs.settings",
    "transload_slurm.options",
)
"""Modules that no login node needs, as those that read what a user gives by a newer Python."""
_UNCHANGED: Final = (
    "transload_slurm.job.",
    *(f"transload.{module}" for module in OF_THE_CORE),
)
"""How the names of modules begin that are copied beside a job as they are."""
_OURS: Final = ("transload", "transload_slurm")
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
_OLD_S: Final = 86400.0
_NEWER: Final = ("slots", "strict", "kw_only")
_MAIN: Final = "from transload_slurm.helper import main\n\nmain()\n"


@cache
def packed(folder: str = "") -> tuple[str, bytes]:
    """Return the name of the helper's file, which says version and content, and the file.

    Args:
        folder: where the file is kept until a source changes, since packing takes half a second, or
            ``""`` for nowhere.
    """
    data = _kept(Path(folder)) if folder else pack()
    return f"helper-{__version__}-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data


def _kept(folder: Path) -> bytes:
    """Return the file that a folder keeps, which is packed anew if a source has changed."""
    kept = folder / f"packed-{_stamp()}"
    with contextlib.suppress(OSError):
        data = kept.read_bytes()
        if data:
            return data
    data = pack()
    aside = kept.with_suffix(f".{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(kept)
    for other in folder.glob("packed-*"):  # of sources that were changed, or are gone
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > _OLD_S:
                other.unlink()
    return data


def _stamp() -> str:
    """Return what changes when a source does."""
    digest = hashlib.sha256()
    for package in _OURS:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            stat = path.stat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def pack() -> bytes:
    """Return a file with the module `transload_slurm.helper` and what it imports of ours."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:

        def add(path: str, text: str | bytes) -> None:
            archive.writestr(zipfile.ZipInfo(path, _WHEN), text, zipfile.ZIP_DEFLATED)

        add("__main__.py", _MAIN)
        for module, (path, source) in sorted(_modules().items()):
            if module.startswith(_UNCHANGED):
                add(path, source)
            else:
                add(path, _for_old(source))
    return made.getvalue()


def _modules() -> dict[str, tuple[str, bytes]]:
    """Return the path in the archive and the source of each module that the helper consists of."""
    found: dict[str, tuple[str, bytes]] = {}
    parts = [f"{package}.{name}" for package in _WHOLE for name in _parts_of(package)]
    copied = [f"transload.{module}" for module in OF_THE_CORE]
    wanted = [_ROOT, *copied, *(part for part in parts if part not in _LEFT_OUT)]
    while wanted:
        module = wanted.pop()
        package, _, inner = module.partition(".")
        if module in found or package not in _OURS:
            continue
        spec = importlib.util.find_spec(module)
        if spec is None:
            continue  # a name in a module
        parent = module.rpartition(".")[0]
        path = inner.replace(".", "/")
        if spec.submodule_search_locations is None:
            path += ".py"
            relative_to = parent
        else:
            path = f"{path}/__init__.py".lstrip("/")
            relative_to = module
        source = pkgutil.get_data(package, path)
        assert source is not None, module
        found[module] = (f"{package}/{path}", source)
        if parent:
            wanted.append(parent)
        wanted += _imported(ast.parse(source), relative_to)
    return found


def _parts_of(package: str) -> list[str]:
    """Return the names of the modules in a package, or none if it is not a package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return [each.name for each in pkgutil.iter_modules(spec.submodule_search_locations)]


def _imported(tree: ast.Module, package: str) -> list[str]:
    """Return the modules that a module imports when it is loaded.

    Args:
        tree: the module.
        package: the package that its relative imports start from.
    """
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += _imported_from(node, package)
    return found


def _imported_from(node: ast.ImportFrom, package: str) -> list[str]:
    """Return the modules of ``from a import b``: ``a``, and ``a.b`` if that is a module."""
    base = node.module or ""
    if node.level:
        above = package
        if node.level > 1:
            above = package.rsplit(".", node.level - 1)[0]
        base = f"{above}.{base}".rstrip(".")
    if base.partition(".")[0] not in _OURS:
        return []
    parts = _parts_of(base)
    return [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name in parts)]


class _Older(ast.NodeTransformer):
    """Leaves out what Python 3.8 does not have and a run does not need, and docstrings."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop keywords that only check or save."""
        self.generic_visit(node)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _NEWER]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Drop a name of a type, as ``Marks = list[int]``, since only annotations use it."""
        self.generic_visit(node)
        target = node.targets[0]
        value = node.value
        named = (
            isinstance(target, ast.Name)
            and target.id.strip("_")[:1].isupper()
            and not target.id.isupper()
        )
        union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
        if named and (union or isinstance(value, ast.Subscript)):
            node.value = ast.copy_location(ast.Constant(None), value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Drop a docstring."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


def _for_old(source: bytes) -> str:
    """Return a module as Python 3.8 can run it."""
    tree = ast.parse(source)
    if ast.get_docstring(tree):
        tree.body = tree.body[1:]  # nothing may stand before the import of __future__
    return ast.unparse(ast.fix_missing_locations(_Older().visit(tree))) + "\n"
