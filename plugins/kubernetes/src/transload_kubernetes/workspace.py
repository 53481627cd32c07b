"""Bringing workspaces to a cluster: by an init container, or as a layer of an image."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator

from transload.cli.progress import pieces
from transload.errors import SpecError, SubmitError
from transload.specs import AppDef, Role, Workspace
from transload.workspace import archive_digest, workspace_digest, write_workspace_archive
from transload_kubernetes.pod import ROOT_KEY, WORKSPACE, WORKSPACE_KEY, named_image
from transload_kubernetes.registry import Image, told_as_submit_error


def _workspaces(
    app: AppDef, digest_of: Callable[[Workspace], str]
) -> Iterator[tuple[Role, Workspace, str]]:
    """Yield each role that has a workspace, the workspace and its digest."""
    for index, role in enumerate(app.roles):
        if role.workspace:
            try:
                yield role, role.workspace, digest_of(role.workspace)
            except OSError as exc:
                raise SpecError(f"roles[{index}].workspace: cannot be read: {exc}") from exc


@contextlib.contextmanager
def _packed(workspace: Workspace, folder: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a workspace, below a folder, as an archive: its path (gzip), and the
    digest of what is in it.

    The same content has the same bytes.
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
    """Return a job whose roles say where their workspaces were uploaded; what is there already is
    not sent again.

    Pods refuse an archive that is not what its name says: others may be able to write there.
    """
    app = copy.deepcopy(app)
    for role, workspace, digest in _workspaces(app, archive_digest) if folder else ():
        role.metadata[WORKSPACE_KEY] = _upload(workspace, digest, folder)
    return app


def _upload(workspace: Workspace, digest: str, folder: str) -> str:
    """Upload a workspace to a folder (fsspec URL); return its URL, which has a digest of it."""
    import fsspec

    url = f"{folder.rstrip('/')}/{digest}.tar.gz"
    try:
        store, path = fsspec.core.url_to_fs(url)
        if not store.exists(path):
            with _packed(workspace, ".") as (packed, _), open(packed, "rb") as file:
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
                aside = f"{path}.{os.urandom(4).hex()}.tmp"
                with store.open(aside, "wb") as target:
                    target.writelines(pieces(file, f"uploading to {url}"))
                store.mv(aside, path)
    except Exception as exc:  # whatever a store raises
        raise SubmitError(
            f"workspace {workspace}: cannot be uploaded to {url}: {exc}", transient=True
        ) from exc
    return url


def with_images(
    app: AppDef, repository: str, default: str = "", architecture: str = "amd64"
) -> AppDef:
    """Return a job whose roles have images that carry their workspaces; what was pushed already is
    not pushed again.

    ``default`` is the image of roles that name none, ``architecture`` that of the nodes, for images
    of several.
    """
    app = copy.deepcopy(app)
    for role, workspace, digest in _workspaces(app, workspace_digest):
        image = named_image(role, default)
        with told_as_submit_error(f"image {image!r} with a workspace, to {repository}"):
            role.image, role.metadata[ROOT_KEY] = _pushed(
                Image(image), repository, workspace, digest, architecture
            )
        role.workspace = None
    return app


def _pushed(
    base: Image, repository: str, workspace: Workspace, digest: str, architecture: str
) -> tuple[str, str]:
    """Return name and working directory of an image with a workspace, pushed if need be."""
    base_digest, manifest = base.manifest(architecture)
    config = base.config(manifest)
    folder = (config.get("config") or {}).get("WorkingDir") or "/"
    folder = WORKSPACE if folder == "/" else folder
    tag = hashlib.sha256(f"{base_digest}\n{folder}\n{digest}".encode()).hexdigest()[:32]
    made = Image(f"{repository}:{tag}")
    if not made.exists():
        config["config"] = {**(config.get("config") or {}), "WorkingDir": folder}
        with _packed(workspace, folder) as (layer, inner):
            made.push(base, manifest, config, layer, inner)
    return made.name, folder
