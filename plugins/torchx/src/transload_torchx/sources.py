"""Rename imports and names of TorchX in Python sources to those of transload."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from typing import Final, NamedTuple

from transload.plugins import install_command

MODULES: Final = {
    "torchx.specs.api": "transload.specs",
    "torchx.specs.builders": None,
    "torchx.specs.finder": None,
    "torchx.specs.file_linter": None,
    "torchx.specs": "transload.specs",
    "torchx.runner.api": "transload.runner",
    "torchx.runner": "transload.runner",
    "torchx.components.integration_tests": None,
    "torchx.components.component_test_base": "transload_torchx.component_test_base",
    "torchx.specs.named_resources_aws": "transload_torchx.named_resources_aws",
    "torchx.components": "transload.components",
    "torchx.apps": None,
    "torchx.runtime.tracking": "transload.runtime.tracking",
    "torchx.tracker.backend.fsspec": "transload.tracker.fsspec",
    "torchx.tracker.api": "transload.tracker.api",
    "torchx.tracker.mlflow": None,
    "torchx.tracker": "transload.tracker",
    "torchx.schedulers.api": "transload.schedulers.api",
    "torchx.schedulers": None,
    "torchx.version": "transload",
    "torchx": "transload",
    "ax.runners.torchx": "transload_ax",
    "ax.metrics.torchx": "transload_ax",
}
"""Our module for each module of TorchX, or of Ax for TorchX, or None if there is none.

The longest name that fits counts.
"""

NAMES: Final = {
    "torchx.specs.Resources": "Resource",
    "torchx.version.TORCHX_IMAGE": "IMAGE",
    "ax.runners.torchx.TorchXRunner": "TransloadRunner",
    "ax.runners.torchx.TORCHX_APP_HANDLE": "TRANSLOAD_APP_HANDLE",
    "ax.runners.torchx.TORCHX_TRACKER_BASE": "TRANSLOAD_TRACKER_BASE",
    "ax.runners.torchx.APP_STATE_TO_TRIAL_STATUS": "APP_STATE_TO_TRIAL_STATUS",
    "ax.metrics.torchx.TorchXMetric": "TransloadMetric",
}
"""Name in one of these modules → ours, where it is another one or its module may not be here."""


REMEDIES: Final = {
    "torchx.pipelines.kfp": (
        "write `from transload_kfp import component_from_app`, which is for KFP 2 "
        f"({install_command('kfp')})"
    ),
    "torchx.tracker.mlflow": (
        f"set [tracker.mlflow] in transload.toml ({install_command('mlflow')})"
    ),
    "torchx.schedulers": (
        "give the scheduler by its name: get_runner().run(app, 'slurm'); `transload info` lists them"
    ),
    "torchx.components.utils.copy": "write transload_torchx.utils.copy",
    "torchx.components.utils.touch": "write transload_torchx.utils.touch",
    "torchx.specs.AppStatusError": "write transload.errors.AppFailed",
    "torchx.specs.UnknownAppException": "write transload.errors.AppNotFound",
    **dict.fromkeys(
        ("torchx.specs.runopts", "torchx.specs.runopt", "torchx.specs.get_type_name"),
        "write the options of a scheduler as a dataclass, transload.specs.Options",
    ),
    "torchx.specs.materialize_appdef": "write transload.components.materialize_appdef",
    "torchx.specs.builders": "write transload.components.materialize_appdef",
    "torchx.tracker.app_run_from_env": "write transload.tracker.AppRun.run_from_env()",
    "torchx.specs.finder": "write transload.components.get_component and get_components",
    "torchx.specs.file_linter": "write transload.components.check",
    "torchx.version": "write transload.IMAGE and transload.__version__",
    "torchx.workspace": "write Role(workspace=transload.specs.Workspace({FOLDER: ''}))",
    "torchx.components": "write a component of your own",
    "torchx.apps": "write a program of your own",
    "torchx.runner.events": "write a plugin with the hook transload_app_event",
}
"""Names without a counterpart of that name → what to write. The longest that fits counts."""

VARIABLES: Final = {
    name: name.replace("TORCHX_", "TRANSLOAD_", 1)
    for name in ("TORCHX_JOB_ID", "TORCHX_IMAGE", "TORCHX_PARENT_RUN_ID", "TORCHX_TRACKERS")
}
_TRACKER: Final = re.compile(r"TORCHX_TRACKER_(\w+)_CONFIG\Z")


class Left(NamedTuple):
    """A part that must be done by hand."""

    line: int
    what: str


class _Change(NamedTuple):
    line: int
    column: int  # in bytes, as the parser counts
    old: str
    new: str


def convert_source(text: str) -> tuple[str, list[Left]]:
    """Return a Python source with the names of transload, and what is left to do by hand.

    Raises:
        SyntaxError: if it is no Python.
    """
    tree = ast.parse(text)
    changes: list[_Change] = []
    left: list[Left] = []
    lines = text.encode().splitlines(keepends=True)
    if _uses_ax(tree):
        left += _objectives_with_metric(tree)
        if importlib.util.find_spec("transload_ax") is None:
            left.append(Left(1, f"this file needs transload-ax: {install_command('ax')}"))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_theirs(node.module):
            _import_from(node, changes, left)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_theirs(alias.name):
                    _rename(alias.name, alias.lineno, alias.col_offset, changes, left)
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = _dotted(node)
            if _is_theirs(dotted) and "." in dotted:
                _rename(dotted, node.lineno, node.col_offset, changes, left, name_last=True)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "TORCHX_" in node.value
        ):
            _variable(node, lines, changes, left)
    for change in sorted(set(changes), reverse=True):
        line = lines[change.line - 1]
        rest = line[change.column :].replace(change.old.encode(), change.new.encode(), 1)
        lines[change.line - 1] = line[: change.column] + rest
    return b"".join(lines).decode(), sorted(set(left))


_THEIRS: Final = ("torchx", "ax.runners.torchx", "ax.metrics.torchx")


def _is_theirs(dotted: str | None) -> bool:
    return dotted is not None and f"{dotted}.".startswith(tuple(f"{each}." for each in _THEIRS))


def _uses_ax(tree: ast.AST) -> bool:
    """Tell whether a source imports what Ax has for TorchX."""
    modules = [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return any(_is_theirs(module) and module.startswith("ax.") for module in modules)


def _objectives_with_metric(tree: ast.AST) -> list[Left]:
    """Return the calls ``Objective(metric=…)``, of which Ax 1.3 keeps the metric's name alone."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name == "Objective" and any(each.arg == "metric" for each in node.keywords):
            what = "Objective(metric=…): Ax 1.3 keeps its name alone; give the Experiment metrics=[…] too"
            found.append(Left(node.lineno, what))
    return found


def _home(dotted: str) -> tuple[str, str | None]:
    """Return the longest module of the table that a name begins with, and ours."""
    for theirs in sorted(MODULES, key=len, reverse=True):
        if dotted == theirs or dotted.startswith(f"{theirs}."):
            ours = MODULES[theirs]
            return theirs, ours
    return dotted, None


def _translated(dotted: str) -> str | None:
    """Return transload's name for a name of TorchX, or None if there is none."""
    theirs, ours = _home(dotted)
    if ours is None:
        return None
    if dotted in NAMES:
        return f"{ours}.{NAMES[dotted]}"
    return ours + dotted.removeprefix(theirs)


def _nothing(dotted: str) -> str:
    """Return what is left to do for a name without a counterpart."""
    text = f"{dotted}: transload has nothing of that name"
    for theirs in sorted(REMEDIES, key=len, reverse=True):
        if f"{dotted}.".startswith(f"{theirs}."):
            return f"{text}; {REMEDIES[theirs]}"
    return text


def _exists(dotted: str) -> bool:
    """Tell whether transload has a module, or a name in a module.

    What is in a distribution beside the core need not be installed.
    """
    if dotted == "transload_ax" or dotted in {f"transload_ax.{name}" for name in NAMES.values()}:
        return True
    try:
        importlib.import_module(dotted)
    except ImportError:
        module, _, name = dotted.rpartition(".")
        try:
            return bool(module) and hasattr(importlib.import_module(module), name)
        except ImportError:
            return False
    return True


def _rename(
    dotted: str,
    line: int,
    column: int,
    changes: list[_Change],
    left: list[Left],
    *,
    name_last: bool = False,
) -> None:
    new = _translated(dotted)
    while new is not None and not _exists(new) and name_last:  # an attribute of a name
        shorter = new.rpartition(".")[0]
        if shorter.count(".") < 2:
            break
        new = shorter
    if new is None or not _exists(new):
        left.append(Left(line, _nothing(dotted)))
        return
    theirs, ours = _home(dotted)
    if dotted in NAMES:
        changes.append(_Change(line, column, dotted, new))
        return
    changes.append(_Change(line, column, theirs, str(ours)))


def _import_from(node: ast.ImportFrom, changes: list[_Change], left: list[Left]) -> None:
    module = str(node.module)
    new = _translated(module)
    names = [f"{module}.{alias.name}" for alias in node.names]
    missing = [name for name in names if not _has_counterpart(name) or _is_elsewhere(name, new)]
    all_missing = missing == names and names != [f"{module}.*"]
    if new is None or not _exists(new) or all_missing or (module == "torchx" and missing):
        left.append(Left(node.lineno, _nothing(", ".join(missing) or module)))
        return
    for name in missing:
        left.append(Left(node.lineno, _nothing(name)))
    changes.append(_Change(node.lineno, node.col_offset, module, new))
    for alias in node.names:
        ours = NAMES.get(f"{module}.{alias.name}", alias.name)
        if ours == alias.name:
            continue
        if alias.asname is None:  # the rest of the file goes on to use the name
            ours = f"{ours} as {alias.name}"
        changes.append(_Change(alias.lineno, alias.col_offset, alias.name, ours))


def _has_counterpart(dotted: str) -> bool:
    ours = _translated(dotted)
    return ours is not None and _exists(ours)


def _is_elsewhere(dotted: str, module: str | None) -> bool:
    """Tell whether what is imported from one module is with us no name of that module."""
    return dotted not in NAMES and _translated(dotted) != f"{module}.{dotted.rpartition('.')[2]}"


def _dotted(node: ast.expr) -> str:
    """Return the dotted name that an expression is, or ``""`` if it is another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _variable(
    node: ast.Constant, lines: list[bytes], changes: list[_Change], left: list[Left]
) -> None:
    value = str(node.value)
    new = VARIABLES.get(value)
    if new is None and _TRACKER.match(value):
        new = _TRACKER.sub(r"TRANSLOAD_TRACKER_\1_CONFIG", value)
    if new and value.encode() in lines[node.lineno - 1][node.col_offset :]:
        changes.append(_Change(node.lineno, node.col_offset, value, new))
    else:
        left.append(Left(node.lineno, f"{value!r}: name the variable by hand"))
