"""Bringing workspaces to a cluster: uploaded and fetched by an init container, or as a layer of a pushed image."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from transload.errors import SpecError, SubmitError
from transload.specs import AppDef, Role, Workspace
from transload.workspace import workspace_digest, workspace_files, write_workspace_archive
from transload_kubernetes.pod import WORKSPACE, WORKSPACE_KEY

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_TIMEOUT_S: Final = 600
_NOT_FOUND: Final = 404


def _each(app: AppDef, bring: Callable[[Role, Workspace, str], None]) -> AppDef:
    """Return a copy of an app, each of whose roles with a workspace was changed: told are role, workspace, digest."""
    app = copy.copy(app)
    app.roles = [copy.copy(role) for role in app.roles]
    for index, role in enumerate(app.roles):
        if role.workspace:
            try:
                digest = workspace_digest(role.workspace)
            except OSError as exc:
                raise SpecError(f"roles[{index}].workspace: cannot be read: {exc}") from exc
            bring(role, role.workspace, digest)
    return app


# -- uploaded


def with_uploads(app: AppDef, folder: str) -> AppDef:
    """Return an app whose roles say where their workspaces were uploaded; what is there already is not sent again."""

    def bring(role: Role, workspace: Workspace, digest: str) -> None:
        role.metadata = {**role.metadata, WORKSPACE_KEY: _upload(workspace, digest, folder)}

    return _each(app, bring) if folder and any(role.workspace for role in app.roles) else app


def _upload(workspace: Workspace, digest: str, folder: str) -> str:
    """Upload a workspace to a folder (fsspec URL); return its own URL, which follows from the content."""
    import fsspec

    url = f"{folder.rstrip('/')}/{digest.removeprefix('sha256:')[:32]}.zip"
    try:
        store, path = fsspec.core.url_to_fs(url)
        if not store.exists(path):
            with tempfile.TemporaryDirectory() as temporary:
                packed = Path(temporary) / "workspace.zip"
                _pack(workspace, packed)
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
                aside = f"{path}.{os.urandom(4).hex()}.tmp"
                store.put_file(str(packed), aside)
                store.mv(aside, path)
    except Exception as exc:  # whatever a store raises
        raise SubmitError(f"workspace {workspace}: cannot be uploaded to {url}: {exc}", transient=True) from exc
    return url


def _pack(workspace: Workspace, target: Path) -> None:
    """Write the files of a workspace as a zip file, the same bytes for the same content."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for source, inner in sorted(workspace_files(workspace), key=lambda each: each[1]):
            entry = zipfile.ZipInfo(inner, _EPOCH)
            entry.external_attr = (os.stat(source).st_mode & 0xFFFF) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, Path(source).read_bytes())


# -- as images


def with_images(app: AppDef, repository: str, refresh: bool) -> AppDef:
    """Return an app whose roles have images that carry their workspaces; what was pushed already is not built again.

    Images that workspaces are laid over are pulled if ``refresh``, though the engine has them.
    """
    if not any(role.workspace for role in app.roles):
        return app

    def bring(role: Role, workspace: Workspace, digest: str) -> None:
        role.image = _Build(api, repository).image(role.image, workspace, digest, refresh)
        role.workspace = None

    with _engine() as api:
        return _each(app, bring)


@contextlib.contextmanager
def _engine() -> Iterator[Any]:
    """Yield the official client; what goes wrong with the engine is a failed submit."""
    try:
        import docker
        from docker.errors import APIError, DockerException
        from docker.utils import kwargs_from_env
        from requests import RequestException
        from urllib3.exceptions import HTTPError
    except ImportError as exc:
        raise SubmitError(
            "run option image_repo: needs the Python client of docker "
            f"(pip install 'transload-kubernetes[images]'): {exc}"
        ) from exc
    kwargs = kwargs_from_env()
    url = kwargs.setdefault("base_url", "unix:///var/run/docker.sock").replace("http+unix:", "unix:")
    try:
        _knock(url)
        api = docker.APIClient(timeout=_TIMEOUT_S, **kwargs)
    except (DockerException, RequestException, OSError) as exc:
        raise SubmitError(
            f"run option image_repo: the docker engine {url} that is to build the image cannot be reached: {exc} "
            "(set DOCKER_HOST, or use workspace_url instead)",
            transient=True,
        ) from exc
    try:
        yield api
    except APIError as exc:
        code = getattr(exc.response, "status_code", 500) or 500
        words = " ".join(str(exc.explanation or exc).split())
        raise SubmitError(f"run option image_repo: docker engine {url}: {words}", transient=code >= 500) from exc
    except (DockerException, RequestException, HTTPError) as exc:
        raise SubmitError(f"run option image_repo: docker engine {url}: {exc}", transient=True) from exc
    finally:
        api.close()


def _knock(url: str) -> None:
    """Raise OSError if nobody listens at a socket of this machine; the client itself would leave one open."""
    path = url.removeprefix("unix://")
    if path != url:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_TIMEOUT_S)
            link.connect(path if path.startswith("/") else f"/{path}")


class _Build:
    """Builds on one engine, for one repository."""

    def __init__(self, api: Any, repository: str) -> None:
        self._api, self._repository = api, repository

    def image(self, base: str, workspace: Workspace, digest: str, refresh: bool) -> str:
        """Return the name of an image that is in the registry: ``base`` with a workspace on top."""
        found = self._base(base, refresh)
        config = found.get("Config") or {}
        folder = config.get("WorkingDir") or ""
        folder = WORKSPACE if folder in ("", "/") else folder
        key = f"{found['Id']}\n{folder}\n{digest}"
        tag = hashlib.sha256(key.encode()).hexdigest()[:32]
        name = f"{self._repository}:{tag}"
        if not self._is_pushed(name):
            if self._inspect(name) is None:
                self._build(found["Id"], config, workspace, folder, tag)
            self._push(tag)
        return name

    def _inspect(self, name: str) -> dict[str, Any] | None:
        from docker.errors import APIError

        try:
            found: dict[str, Any] = self._api.inspect_image(name)
        except APIError as exc:
            if getattr(exc.response, "status_code", None) == _NOT_FOUND:
                return None
            raise
        return found

    def _base(self, name: str, refresh: bool) -> dict[str, Any]:
        found = self._inspect(name)
        if found is None or refresh:
            from docker.utils import parse_repository_tag

            repository, tag = parse_repository_tag(name)
            _finish(f"image {name!r} cannot be pulled", self._api.pull(repository, tag or "latest", True, decode=True))
            found = self._inspect(name)
        if found is None:
            raise SubmitError(f"image {name!r} was pulled and is not on the engine")
        return found

    def _is_pushed(self, name: str) -> bool:
        """Ask the registry; where it does not say, the image is pushed once more, which costs little if it is there."""
        from docker.errors import APIError

        try:
            return bool(self._api.inspect_distribution(name))
        except APIError:
            return False

    def _build(self, base: str, config: Mapping[str, Any], workspace: Workspace, folder: str, tag: str) -> None:
        # create, copy in, commit: works on every engine, needs no builder and never runs anything
        body: dict[str, Any] = {"Image": base}
        if not config.get("Entrypoint") and not config.get("Cmd"):
            body["Cmd"] = ["/transload-workspace"]  # an engine makes no container without a program
        made = self._api.create_container_from_config(body)["Id"]
        try:
            with tempfile.TemporaryFile() as archive:
                write_workspace_archive(archive, workspace, folder)
                archive.seek(0)
                self._api.put_archive(made, "/", archive)
            changes = [f"WORKDIR {folder}"]  # entrypoint and command stay those of the base
            self._api.commit(made, repository=self._repository, tag=tag, changes=changes)
        finally:
            self._api.remove_container(made, force=True)

    def _push(self, tag: str) -> None:
        _finish(
            f"image {self._repository}:{tag} cannot be pushed",
            self._api.push(self._repository, tag=tag, stream=True, decode=True),
        )


def _finish(what: str, progress: Iterator[dict[str, Any]]) -> None:
    """Read what an engine says while it works; it reports failures in the middle of a success."""
    for line in progress:
        if "error" in line:
            raise SubmitError(f"{what}: {line['error']}", transient=True)
