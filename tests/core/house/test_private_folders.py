"""Folders that are to be private are made by one function, which knows what the umask does to their
parents.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]

MADE = re.compile(r"makedirs\([^\n]*0o700|mkdir\([^\n]*parents=True[^\n]*mode=")

BY_THEMSELVES = (
    # runs without the package, in a folder that is private
    "plugins/slurm/src/transload_slurm/job/",
    "plugins/slurm/src/transload_slurm/ssh.py",  # code for the login node, which sets the umask
    "core/src/transload/keeper/",  # likewise
    "core/src/transload/workspace.py",  # its callers have made the folder around it
)


def test_one_function_makes_private_folders() -> None:
    """No private folder is made by ``os.makedirs`` or ``Path.mkdir``, as parents get the umask."""
    found = []
    for source in [*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        name = str(source.relative_to(ROOT))
        if not name.startswith(BY_THEMSELVES) and MADE.search(source.read_text(encoding="utf-8")):
            found.append(name)
    assert found == []
