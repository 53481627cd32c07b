"""Add a layer to an image in a registry, by requests to the registry alone."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from transload.errors import SubmitError
from transload.runtime.progress_lines import progress

# the registry of names without one: its name, its address, and its name in Docker's settings
_HUB: Final = ("docker.io", "registry-1.docker.io", "https://index.docker.io/v1/")
_TIMEOUT_S: Final = 600


class Image:
    """An image in a registry, or a place for one.

    A name without a registry belongs to Docker's. The default tag is ``latest``.
    """

    def __init__(self, name: str) -> None:
        from dxf import DXF

        plain, _, digest = name.partition("@")
        host, slash, repository = plain.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host = _HUB[0]
            repository = plain
        path, colon, tag = repository.rpartition(":")
        if not colon or "/" in tag:
            path = repository
            tag = "latest"
        self.name = name
        self.host = host
        self.repository = path
        self.tag = digest or tag
        local = host.partition(":")[0] in ("localhost", "127.0.0.1")
        address = _HUB[1] if host == _HUB[0] else host
        self._api: Any = DXF(
            address, self.repository, _authenticate, insecure=local, timeout=_TIMEOUT_S
        )

    def manifest(self, architecture: str) -> tuple[str, dict[str, Any]]:
        """Return the digest and the manifest of the image for ``architecture``."""
        tag = self.tag
        while True:
            text, answer = self._api.get_manifest_and_response(tag)
            found: dict[str, Any] = {
                "mediaType": answer.headers["Content-Type"],
                **json.loads(text),
            }
            if "manifests" not in found:
                return f"sha256:{hashlib.sha256(answer.content).hexdigest()}", found
            linux = [
                each
                for each in found["manifests"]
                if (each.get("platform") or {}).get("os") == "linux"
            ]
            offered = {each["platform"]["architecture"]: each["digest"] for each in reversed(linux)}
            if architecture not in offered:
                raise SubmitError(
                    f"image {self.name}: has no {architecture} version, only "
                    f"{', '.join(offered)}; choose another image or node architecture"
                )
            tag = offered[architecture]

    def config(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a manifest's image."""
        found: dict[str, Any] = json.loads(
            b"".join(self._api.pull_blob(manifest["config"]["digest"]))
        )
        return found

    def exists(self) -> bool:
        """Tell whether the image exists."""
        from requests import HTTPError

        try:
            return bool(self._api.head_manifest_and_response(self.tag))
        except HTTPError as exc:
            if exc.response is not None and exc.response.status_code == 404:
                return False
            raise

    def push(
        self,
        base: Image,
        manifest: dict[str, Any],
        config: dict[str, Any],
        layer: str,
        diff_id: str,
    ) -> None:
        """Push the image, with the layers of a base image and one more.

        Args:
            base: the base image.
            manifest: the manifest of the base image.
            config: the configuration of the image.
            layer: the file of the additional layer, a tar archive packed with gzip.
            diff_id: the digest of the archive before packing.
        """
        missing = [each for each in manifest["layers"] if not self._has(base, each["digest"])]
        total = sum(each["size"] for each in missing) + os.path.getsize(layer)
        what = f"pushing {self.host}/{self.repository}"
        with tempfile.TemporaryDirectory() as folder, progress(what, total) as step:
            place = Path(folder) / "blob"
            for each in missing:
                with place.open("wb") as file:
                    file.writelines(base._api.pull_blob(each["digest"], chunk_size=1 << 20))
                self._api.push_blob(
                    str(place), progress=lambda _digest, piece, _size: step(len(piece))
                )
            digest = self._api.push_blob(
                layer, progress=lambda _digest, piece, _size: step(len(piece))
            )
            config = {
                **config,
                "history": [*config.get("history", ()), {"created_by": "transload: workspace"}],
            }
            config["rootfs"] = {
                **config["rootfs"],
                "diff_ids": [*config["rootfs"]["diff_ids"], diff_id],
            }
            place.write_text(json.dumps(config))
            own = {"digest": self._api.push_blob(str(place)), "size": place.stat().st_size}
        docker = "docker" in manifest["mediaType"]
        kind = f"application/vnd.{'docker.image.rootfs.diff.tar.gzip' if docker else 'oci.image.layer.v1.tar+gzip'}"
        layers = [
            *manifest["layers"],
            {"mediaType": kind, "digest": digest, "size": os.path.getsize(layer)},
        ]
        made = {**manifest, "config": {**manifest["config"], **own}, "layers": layers}
        self._api.set_manifest(self.tag, json.dumps(made))

    def _has(self, base: Image, digest: str) -> bool:
        """Tell whether the repository has a layer, or could mount it from the base image's."""
        from dxf.exceptions import DXFError
        from requests import HTTPError

        with contextlib.suppress(HTTPError):
            return self._api.blob_size(digest) is not None
        with contextlib.suppress(HTTPError, DXFError):
            return base.host == self.host and bool(self._api.mount_blob(base.repository, digest))
        return False


@contextlib.contextmanager
def as_submit_error(what: str) -> Iterator[None]:
    """Raise each error of a registry or its client as a SubmitError of one line."""
    try:
        from dxf.exceptions import DXFError
        from requests import RequestException
    except ImportError as exc:
        needed = "needs the package python-dxf (pip install python-dxf)"
        raise SubmitError(f"run option image_repo: {needed}: {exc}") from exc
    try:
        yield
    except DXFError as exc:
        hint = "if it needs a user, log in with docker login"
        raise SubmitError(f"{what}: {type(exc).__name__} {exc}; {hint}") from exc
    except RequestException as exc:
        code = getattr(exc.response, "status_code", 503)
        text = " ".join(f"{exc} {getattr(exc.response, 'text', '')[:300]}".split())
        raise SubmitError(f"{what}: {text}", transient=code in (408, 429) or code >= 500) from exc


def _authenticate(api: Any, response: Any) -> None:
    """Send the credentials that ``docker login`` or its helper has stored, if any."""
    host = _HUB[2] if api._host == _HUB[1] else api._host
    user = secret = None
    folder = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    with contextlib.suppress(OSError, ValueError, KeyError, subprocess.SubprocessError):
        noted = json.loads((Path(folder) / "config.json").read_text())
        if helper := (noted.get("credHelpers") or {}).get(host) or noted.get("credsStore"):
            command = [f"docker-credential-{helper}", "get"]
            done = subprocess.run(
                command, input=host, capture_output=True, text=True, timeout=60, check=True
            )
            found = json.loads(done.stdout)
            user = found["Username"]
            secret = found["Secret"]
        else:
            user, _, secret = base64.b64decode(noted["auths"][host]["auth"]).decode().partition(":")
    api.authenticate(user, secret, response=response)
