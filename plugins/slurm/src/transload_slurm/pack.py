"""The helper: one file that runs this package's scheduler on a login node, with Python 3.8 and nothing installed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import pkgutil
import zipfile
from functools import cache
from typing import Final

from transload_slurm import __version__

MODULES: Final = (
    "transload",
    "transload._forks",
    "transload._lazy",
    "transload.attempts",
    "transload.errors",
    "transload.schedulers",
    "transload.schedulers.api",
    "transload.schedulers.local",
    "transload.schedulers.local.environment",
    "transload.schedulers.local.logs",
    "transload.schedulers.local.states",
    "transload.schedulers.local.store",
    "transload.schedulers.local.supervisor",
    "transload.schedulers.local.supervisor.finalise",
    "transload.schedulers.local.supervisor.gpus",
    "transload.schedulers.local.supervisor.kernel",
    "transload.schedulers.local.supervisor.layout",
    "transload.schedulers.local.supervisor.logindex",
    "transload.schedulers.local.supervisor.tree",
    "transload.specs",
    "transload.specs._app",
    "transload.specs._check",
    "transload.specs._handle",
    "transload.specs._json",
    "transload.specs._macros",
    "transload.specs._resource",
    "transload.specs._runopts",
    "transload.specs._secrets",
    "transload.specs._status",
    "transload.specs._text",
    "transload.specs._workspace",
    *(
        f"transload_slurm{name}"
        for name in (
            "",
            ".apps",
            ".background",
            ".blobs",
            ".commands",
            ".convert",
            ".diagnose",
            ".elements",
            ".helper",
            ".job",
            ".job.__main__",
            ".job.agent",
            ".job.rank0",
            ".job.starts",
            ".job.steps",
            ".job.supervise",
            ".jobs",
            ".logview",
            ".options",
            ".states",
            ".store",
            ".submission",
            ".verdict",
            ".watch",
            ".wire",
        )
    ),
)
"""What the helper consists of: this package, and what it uses of the core. All of it loads on Python 3.8."""

_WHEN: Final = (1980, 1, 1, 0, 0, 0)
_NEWER: Final = ("slots", "strict", "kw_only")
_MAIN: Final = "from transload_slurm.helper import main\n\nmain()\n"


@cache
def packed() -> tuple[str, bytes]:
    """Return the name of the helper's file, which tells version and content, and the file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _WHEN), _MAIN, zipfile.ZIP_DEFLATED)
        for module in MODULES:
            spec = importlib.util.find_spec(module)
            assert spec is not None and spec.origin is not None, module
            path = module.replace(".", "/") + ("/__init__.py" if spec.submodule_search_locations else ".py")
            package, _, inner = path.partition("/")
            source = pkgutil.get_data(package, inner)
            assert source is not None, module
            # what runs in the jobs goes there as it is
            text = source if module.startswith(("transload_slurm.job.", "transload.attempts")) else _for_old(source)
            archive.writestr(zipfile.ZipInfo(path, _WHEN), text, zipfile.ZIP_DEFLATED)
    data = made.getvalue()
    return f"helper-{__version__}-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data


class _Older(ast.NodeTransformer):
    """Leaves out what Python 3.8 has not and what runs does not depend on: ``slots=``, names of types; and docs."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop keywords that only check or save."""
        self.generic_visit(node)
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _NEWER]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``Marks = list[tuple[int, float]]``: annotations alone speak of it, and nobody reads those."""
        self.generic_visit(node)
        target, value = node.targets[0], node.value
        named = isinstance(target, ast.Name) and target.id.strip("_")[:1].isupper() and not target.id.isupper()
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
