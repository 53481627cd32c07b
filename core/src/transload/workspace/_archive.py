"""A workspace as a tar archive, as it is laid over an image."""

from __future__ import annotations

import os
import tarfile
from typing import IO

from transload.errors import SpecError
from transload.specs import Workspace
from transload.workspace._copy import workspace_files


def write_workspace_archive(archive: IO[bytes], workspace: Workspace, folder: str) -> None:
    """Write a workspace as a tar archive: the files below ``folder``, root's, readable for any user of the image.

    Args:
        archive: where to.
        workspace: the workspace.
        folder: absolute path within the image.

    Raises:
        SpecError: if two files would have the same path.
        OSError: if a file cannot be read.
    """
    seen: dict[str, str] = {}
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        root = tarfile.TarInfo(folder.strip("/"))
        root.type, root.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(root)
        for source, inner in workspace_files(workspace):
            if inner in seen:
                raise SpecError(f"workspace: {inner!r} comes from both {seen[inner]!r} and {source!r}")
            seen[inner] = source
            tar.add(source, os.path.join(folder, inner).lstrip("/"), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry
