"""A real registry for images, and images in it that were made without any engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"


class Registry:
    """A real registry on the loopback interface.

    Args:
        folder: its own.
        more: more of its configuration.
        tls: more about its address.
        host: its address.
    """

    def __init__(
        self, folder: Path, more: str = "", tls: str = "", host: str = "127.0.0.1"
    ) -> None:
        with socket.socket() as free:
            free.bind((host, 0))
            self._address = free.getsockname()
        self.name = f"{host}:{self._address[1]}"
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: "
            f"{folder}/R}}}}\n"
            f"http: {{addr: '{self.name}'{tls}}}\n{more}"
        )
        program = shutil.which("docker-registry")
        assert program is not None
        with (folder / "registry.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(config)], stdout=log, stderr=log
            )

    def wait(self, eventually: Any) -> None:
        """Wait until it listens."""

        def listens() -> bool:
            with socket.socket() as link:
                return link.connect_ex(self._address) == 0

        eventually(listens, 30)

    def ask(
        self, path: str, accept: str = "*/*", body: bytes | None = None, verb: str = "GET"
    ) -> Any:
        """Send a request, and return the answer."""
        url = path if "://" in path else f"http://{self.name}/v2/{path}"
        headers = {"Accept": accept, "Content-Type": accept}
        return urllib.request.urlopen(
            urllib.request.Request(url, body, headers, method=verb), timeout=30
        )

    def push(self, repository: str, data: bytes) -> dict[str, Any]:
        """Put a blob, and return its descriptor."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self.ask(f"{repository}/blobs/uploads/", body=b"", verb="POST").headers["Location"]
        self.ask(f"{place}&digest={digest}", "application/octet-stream", data, "PUT")
        return {"digest": digest, "size": len(data)}

    def image(
        self,
        repository: str = "base",
        architectures: tuple[str, ...] = (),
        folder: str = "/",
        files: Mapping[str, str] | None = None,
    ) -> str:
        """Put an image of one small layer, or an index for several architectures. Return its name.

        Args:
            repository: what it is called.
            architectures: of an index. With none it is a single image, for amd64.
            folder: its working directory.
            files: what it holds besides an empty file ``there``: path here → path within.
        """
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w:gz") as tar:
            tar.addfile(tarfile.TarInfo("there"))
            for path, inner in (files or {}).items():
                tar.add(path, inner)
        inner = f"sha256:{hashlib.sha256(gzip.decompress(layer.getvalue())).hexdigest()}"
        entries = []
        for architecture in architectures or ("amd64",):
            config: dict[str, Any] = {
                "architecture": architecture,
                "os": "linux",
                "config": {"WorkingDir": folder},
            }
            config["rootfs"] = {
                "type": "layers",
                "diff_ids": [inner],
            }
            manifest = {
                "schemaVersion": 2,  # that an OCI manifest names its own type is not demanded
                "config": {
                    "mediaType": f"{OCI}.config.v1+json",
                    **self.push(repository, json.dumps(config).encode()),
                },
                "layers": [
                    {
                        "mediaType": f"{OCI}.layer.v1.tar+gzip",
                        **self.push(repository, layer.getvalue()),
                    }
                ],
            }
            text = json.dumps(manifest).encode()
            where = f"sha256:{hashlib.sha256(text).hexdigest()}" if architectures else "1"
            self.ask(f"{repository}/manifests/{where}", f"{OCI}.manifest.v1+json", text, "PUT")
            platform = {"os": "linux", "architecture": architecture}
            entries.append(
                {
                    "mediaType": f"{OCI}.manifest.v1+json",
                    "digest": where,
                    "size": len(text),
                    "platform": platform,
                }
            )
        if architectures:
            text = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
            self.ask(f"{repository}/manifests/1", f"{OCI}.index.v1+json", text, "PUT")
        return f"{self.name}/{repository}:1"

    def found(self, image: str) -> tuple[dict[str, Any], list[dict[str, bytes]]]:
        """Return the configuration of an image, and of each layer the files."""
        repository, _, tag = image.partition("/")[2].partition(":")
        manifest = json.load(self.ask(f"{repository}/manifests/{tag}", f"{OCI}.manifest.v1+json"))
        layers = []
        for each in manifest["layers"]:
            data = self.ask(f"{repository}/blobs/{each['digest']}").read()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                layers.append({m.name: tar.extractfile(m).read() for m in tar if m.isfile()})  # type: ignore[union-attr]
        return json.load(self.ask(f"{repository}/blobs/{manifest['config']['digest']}")), layers

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)
