"""The helper: one file that runs this package's scheduler on a login node, with Python 3.8 and
nothing installed.
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

_ROOT: Final = "transload_slurm.helper"
_WHOLE: Final = (
    "transload.specs",
    "transload_slurm.job",
)  # packages whose parts are imported when they are used
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
_OLD_S: Final = 86400.0
_NEWER: Final = ("slots", "strict", "kw_only")
_MAIN: Final = "from transload_slurm.helper import main\n\nmain()\n"


@cache
def packed(folder: str = "") -> tuple[str, bytes]:
    """Return the name of the helper's file, which tells version and content, and the file.

    Args:
        folder: where it is kept until a source changes, since making it takes half a second; "":
            nowhere.
    """
    kept = Path(folder, f"packed-{_stamp()}") if folder else None
    data = b""
    if kept is not None:
        with contextlib.suppress(OSError):
            data = kept.read_bytes()
    if not data:
        data = pack()
        if kept is not None:
            aside = kept.with_suffix(f".{os.getpid()}")
            aside.write_bytes(data)
            aside.replace(kept)
            for other in kept.parent.glob("packed-*"):  # of sources that were changed, or are gone
                with contextlib.suppress(OSError):
                    if time.time() - other.stat().st_mtime > _OLD_S:
                        other.unlink()
    return f"helper-{__version__}-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data


def _stamp() -> str:
    """Return what changes when a source does."""
    digest = hashlib.sha256()
    for package in ("transload", "transload_slurm"):
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            stat = path.stat()
            digest.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def pack() -> bytes:
    """Return a file with the module `transload_slurm.helper` and what that imports of this package
    and the core.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:

        def add(path: str, text: str | bytes) -> None:
            archive.writestr(zipfile.ZipInfo(path, _WHEN), text, zipfile.ZIP_DEFLATED)

        add("__main__.py", _MAIN)
        for module, (path, source) in sorted(_modules().items()):
            # what runs in the jobs goes there as it is
            as_it_is = module.startswith(
                ("transload_slurm.job.", "transload.retries", "transload.runtime.untrusted")
            )
            add(path, source if as_it_is else _for_old(source))
    return made.getvalue()


def _modules() -> dict[str, tuple[str, bytes]]:
    """Return the modules that the helper consists of: name → path in the archive, source."""
    found: dict[str, tuple[str, bytes]] = {}
    wanted = [_ROOT, *(f"{package}.{name}" for package in _WHOLE for name in _parts_of(package))]
    while wanted:
        module = wanted.pop()
        package, _, inner = module.partition(".")
        spec = importlib.util.find_spec(module) if module not in found else None
        if package not in ("transload", "transload_slurm") or spec is None:
            continue  # the standard library's, known, or a name in a module
        folder = spec.submodule_search_locations is not None
        path = inner.replace(".", "/") + (
            ("/" if inner else "") + "__init__.py" if folder else ".py"
        )
        source = pkgutil.get_data(package, path)
        assert source is not None, module
        found[module] = (f"{package}/{path}", source)
        wanted += [module.rpartition(".")[0]] if inner else []
        wanted += _imported(ast.parse(source), module if folder else module.rpartition(".")[0])
    return found


def _parts_of(package: str) -> list[str]:
    spec = importlib.util.find_spec(package)
    folders = None if spec is None else spec.submodule_search_locations
    return [] if folders is None else [each.name for each in pkgutil.iter_modules(folders)]


def _imported(tree: ast.Module, package: str) -> list[str]:
    """Return what a module imports when it is loaded; of ``from a import b`` both ``a`` and
    ``a.b``.
    """
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{above}.{base}" if base else above
            if base.partition(".")[0] in ("transload", "transload_slurm"):
                found += [
                    base,
                    *(
                        f"{base}.{alias.name}"
                        for alias in node.names
                        if alias.name in _parts_of(base)
                    ),
                ]
    return found


class _Older(ast.NodeTransformer):
    """Leaves out what Python 3.8 has not and what runs does not depend on: ``slots=``, names of
    types; and docs.
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop keywords that only check or save."""
        self.generic_visit(node)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _NEWER]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``Marks = list[tuple[int, float]]``: annotations alone speak of it, and nobody reads
        those.
        """
        self.generic_visit(node)
        target, value = node.targets[0], node.value
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
    tree = ast.parse(source)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body  # __future__ comes first
    tree.body = body
    return ast.unparse(ast.fix_missing_locations(_Older().visit(tree))) + "\n"
