"""How local code reaches where a job runs: which files travel, and copying them."""

from __future__ import annotations

from transload.workspace._archive import write_workspace_archive
from transload.workspace._copy import copy_workspace, workspace_digest, workspace_files
from transload.workspace._ignore import IGNORE_FILES, ignore_rules

__all__ = [
    "IGNORE_FILES",
    "copy_workspace",
    "ignore_rules",
    "workspace_digest",
    "workspace_files",
    "write_workspace_archive",
]
