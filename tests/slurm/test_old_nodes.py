"""The wrapper in a job runs on nodes that may be old."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import transload
import transload_slurm.job
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
