"""Bringing workspaces to a cluster: packed, uploaded once per content, fetched by an init container."""

from __future__ import annotations

import copy
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from transload.errors import SubmitError
from transload.specs import AppDef, Workspace
from transload.workspace import workspace_digest, workspace_files
from transload_kubernetes.pod import WORKSPACE_KEY

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def with_uploads(app: AppDef, folder: str) -> AppDef:
    """Return an app whose roles say where their workspaces were uploaded; what is there already is not sent again.

    Args:
        app: the app.
        folder: fsspec URL of a folder.

    Raises:
        SubmitError: if an upload fails.
    """
    if not folder or not any(role.workspace for role in app.roles):
        return app
    app = copy.copy(app)
    app.roles = [copy.copy(role) for role in app.roles]
    for role in app.roles:
        if role.workspace:
            role.metadata = {**role.metadata, WORKSPACE_KEY: upload(role.workspace, folder)}
    return app


def upload(workspace: Workspace, folder: str) -> str:
    """Upload a workspace; return its URL, which follows from the content.

    Raises:
        SubmitError: if that fails.
    """
    import fsspec

    digest = workspace_digest(workspace).removeprefix("sha256:")[:32]
    url = f"{folder.rstrip('/')}/{digest}.zip"
    try:
        store, path = fsspec.core.url_to_fs(url)
        if not store.exists(path):
            with tempfile.TemporaryDirectory() as temporary:
                packed = Path(temporary) / "workspace.zip"
                pack(workspace, packed)
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
                aside = f"{path}.{os.urandom(4).hex()}.tmp"
                store.put_file(str(packed), aside)
                store.mv(aside, path)
    except Exception as exc:  # whatever a store raises
        raise SubmitError(f"workspace {workspace}: cannot be uploaded to {url}: {exc}", transient=True) from exc
    return url


def pack(workspace: Workspace, target: Path) -> None:
    """Write the files of a workspace as a zip file, the same bytes for the same content."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for source, inner in sorted(workspace_files(workspace), key=lambda each: each[1]):
            entry = zipfile.ZipInfo(inner, _EPOCH)
            entry.external_attr = (os.stat(source).st_mode & 0xFFFF) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, Path(source).read_bytes())
