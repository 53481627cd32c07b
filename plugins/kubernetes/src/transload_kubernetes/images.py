"""Images that carry a workspace: built by a Docker engine, pushed to a registry that the cluster pulls from."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transload.errors import SpecError, SubmitError
from transload.specs import AppDef, Workspace
from transload.workspace import workspace_digest, write_workspace_archive

PLACEHOLDER: Final = "<content hash>"
DEFAULT_FOLDER: Final = "/workspace"
"""Where a workspace goes in an image that has no working directory of its own."""
_TIMEOUT_S: Final = 600
_NOT_FOUND: Final = 404


def with_images(app: AppDef, repository: str, refresh: bool) -> AppDef:
    """Return an app whose roles have images that carry their workspaces; what was pushed already is not built again.

    Args:
        app: the app.
        repository: where images are pushed to, without a tag.
        refresh: pull the images that workspaces are laid over, though the engine has them.

    Raises:
        SubmitError: if there is no engine, or an image cannot be pulled, built or pushed.
        SpecError: if a workspace cannot be read.
    """
    if not any(role.workspace for role in app.roles):
        return app
    app = copy.copy(app)
    app.roles = [copy.copy(role) for role in app.roles]
    digests = [_digest(role.workspace, f"roles[{index}]") for index, role in enumerate(app.roles)]
    with _engine() as api:
        for role, digest in zip(app.roles, digests, strict=True):
            if role.workspace:
                role.image = _Build(api, repository).image(role.image, role.workspace, digest, refresh)
                role.workspace = None
    return app


def _digest(workspace: Workspace | None, path: str) -> str:
    try:
        return workspace_digest(workspace) if workspace else ""
    except OSError as exc:
        raise SpecError(f"{path}.workspace: cannot be read: {exc}") from exc


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
    """Builds on one engine, for one repository.

    Args:
        api: the engine's client.
        repository: where images go.
    """

    def __init__(self, api: Any, repository: str) -> None:
        self._api, self._repository = api, repository

    def image(self, base: str, workspace: Workspace, digest: str, refresh: bool) -> str:
        """Return the name of an image that is in the registry: ``base`` with a workspace on top."""
        found = self._base(base, refresh)
        config = found.get("Config") or {}
        folder = config.get("WorkingDir") or ""
        folder = DEFAULT_FOLDER if folder in ("", "/") else folder
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


def is_repository(text: str) -> bool:
    """Tell whether images can be named ``text:tag``: no tag and no digest in it."""
    return bool(text) and "@" not in text and ":" not in text.rpartition("/")[2] and not os.path.isabs(text)
