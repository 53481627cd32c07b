"""Bring workspaces to a cluster, through an init container or as a layer of an image."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator

from transload.errors import SpecError, SubmitError
from transload.runtime.progress_lines import pieces
from transload.specs import AppDef, Role, Workspace
from transload.workspace import archive_digest, workspace_digest, write_workspace_archive
from transload_kubernetes.pod import ROOT_KEY, WORKSPACE, WORKSPACE_KEY, named_image
from transload_kubernetes.registry import Image, as_submit_error


def _workspaces(
    app: AppDef, digest_of: Callable[[Workspace], str]
) -> Iterator[tuple[Role, Workspace, str]]:
    """Yield each role that has a workspace, with the workspace and its digest."""
    for index, role in enumerate(app.roles):
        if role.workspace:
            try:
                yield role, role.workspace, digest_of(role.workspace)
            except OSError as exc:
                raise SpecError(f"roles[{index}].workspace: cannot be read: {exc}") from exc


@contextlib.contextmanager
def packed(workspace: Workspace, folder: str) -> Iterator[tuple[str, str]]:
    """Pack a workspace below a folder, and yield the path of the archive and a digest.

    The archive is packed with gzip, and the digest is that of the archive before packing. The
    same files give the same bytes.
    """
    with tempfile.TemporaryFile() as archive, tempfile.NamedTemporaryFile() as packed:
        write_workspace_archive(archive, workspace, folder)
        archive.seek(0)
        inner = hashlib.file_digest(archive, "sha256").hexdigest()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as target:
            target.writelines(pieces(archive, "packing the workspace"))
        packed.flush()
        yield packed.name, f"sha256:{inner}"


def with_uploads(app: AppDef, folder: str) -> AppDef:
    """Upload workspaces, and return the app definition with their places in its metadata.

    An archive that is there already is not sent again. Others may be able to write there, so pods
    refuse an archive whose content does not match its name.
    """
    app = copy.deepcopy(app)
    for role, workspace, digest in _workspaces(app, archive_digest) if folder else ():
        role.metadata[WORKSPACE_KEY] = upload(workspace, digest, folder)
    return app


def upload(workspace: Workspace, digest: str, folder: str) -> str:
    """Upload a workspace to a folder (fsspec URL). Return its URL, which contains its digest."""
    import fsspec

    url = f"{folder.rstrip('/')}/{digest}.tar.gz"
    try:
        store, path = fsspec.core.url_to_fs(url)
        if not store.exists(path):
            with packed(workspace, ".") as (archive, _), open(archive, "rb") as file:
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
                aside = f"{path}.{os.urandom(4).hex()}.tmp"
                with store.open(aside, "wb") as target:
                    target.writelines(pieces(file, f"uploading to {url}"))
                store.mv(aside, path)
    except Exception as exc:  # a store may raise any error
        raise SubmitError(
            f"workspace {workspace}: cannot be uploaded to {url}: {exc}", transient=True
        ) from exc
    return url


def with_images(
    app: AppDef, repository: str, default: str = "", architecture: str = "amd64"
) -> AppDef:
    """Push images that contain the workspaces, and return the app definition that uses them.

    An image that was pushed already is not pushed again.

    Args:
        app: the app definition.
        repository: the repository for the images.
        default: the image of roles that name none.
        architecture: that of the nodes. It chooses among images for several.
    """
    app = copy.deepcopy(app)
    for role, workspace, digest in _workspaces(app, workspace_digest):
        image = named_image(role, default)
        with as_submit_error(f"image {image!r} with a workspace, to {repository}"):
            role.image, role.metadata[ROOT_KEY] = _pushed(
                Image(image), repository, workspace, digest, architecture
            )
        role.workspace = None
    return app


def _pushed(
    base: Image, repository: str, workspace: Workspace, digest: str, architecture: str
) -> tuple[str, str]:
    """Push an image with a workspace, if it is missing. Return its name and working directory."""
    base_digest, manifest = base.manifest(architecture)
    config = base.config(manifest)
    folder = (config.get("config") or {}).get("WorkingDir") or "/"
    if folder == "/":
        folder = WORKSPACE
    tag = hashlib.sha256(f"{base_digest}\n{folder}\n{digest}".encode()).hexdigest()[:32]
    made = Image(f"{repository}:{tag}")
    if not made.exists():
        config["config"] = {**(config.get("config") or {}), "WorkingDir": folder}
        with packed(workspace, folder) as (layer, inner):
            made.push(base, manifest, config, layer, inner)
    return made.name, folder
