"""The wrapper in a job runs on nodes that may be old."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import transload
import transload_slurm.job
from transload.runner import Runner
from transload.specs import AppDef, AppState
from transload_slurm.job import OF_THE_CORE


def test_the_wrapper_is_good_for_old_nodes() -> None:
    """What runs on the nodes is written in the Python of 2019, and imports nothing but the standard
    library and the files of the core that are copied to it.
    """
    known = {*sys.stdlib_module_names, "transload_slurm_job"}
    core = Path(transload.__file__).parent
    copied = {f"transload.{name}": core / f"{name.replace('.', '/')}.py" for name in OF_THE_CORE}
    for path in [*Path(transload_slurm.job.__file__).parent.glob("*.py"), *copied.values()]:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
                if node.module == "transload.keeper":
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                assert name in copied or name.partition(".")[0] in known, (path.name, name)


def test_nodes_with_an_old_python(
    runner: Runner, shell_app: Callable[..., AppDef], tmp_path: Path
) -> None:
    """A job that finds a Python that is too old says so. A Python that lies about itself is one."""
    old = tmp_path / "old"
    code = (
        "import runpy, sys; sys.version_info = (3, 6, 8); del sys.argv[0]; "
        'runpy.run_path(sys.argv[0], run_name="__main__")'
    )
    old.write_text(f"#!/bin/sh\nshift 2\nexec {sys.executable} -c '{code}' \"$@\"\n")
    old.chmod(0o755)
    status = runner.wait(runner.run(shell_app("true"), "slurm", {"python": str(old)}), timeout=60)
    assert status is not None
    assert status.state is AppState.FAILED
    assert "3.6.8" in status.msg
    assert "python=PATH" in status.msg
