"""Serve a small index of Python packages on loopback, with wheels made here, for tests."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["PackageIndex", "package_index"]

_LONGEST_WAIT_S = 60.0


@dataclass
class PackageIndex:
    """An index that is served, and the wheels in it.

    Args:
        folder: where the wheels lie.
        url: the index, as ``UV_DEFAULT_INDEX`` and ``PIP_INDEX_URL`` take it.
        requests: paths that were asked for, in order.
        answers: while it is not set, requests wait.
    """

    folder: Path
    url: str
    requests: list[str] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    def variables(self) -> dict[str, str]:
        """Return what leads uv and pip to this index, each with a cache of its own, and leaves pip's
        files unread.
        """
        cache = self.folder.parent
        return {
            "PIP_CACHE_DIR": f"{cache}/pip-cache",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.url,
            "UV_CACHE_DIR": f"{cache}/uv-cache",
            "UV_DEFAULT_INDEX": self.url,
            "UV_HTTP_TIMEOUT": "5",
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def be_the_only_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the installers of this test, and those that its jobs start, ask no other index.

        Whatever else leads uv or pip somewhere on this machine is unset: a package of its indexes
        would outvote one of the same name in this one.
        """
        for name in list(os.environ):
            if name.startswith(("UV_", "PIP_")):
                monkeypatch.delenv(name)
        for name, value in self.variables().items():
            monkeypatch.setenv(name, value)

    def add(
        self,
        name: str,
        version: str = "1.0",
        *,
        code: str = "",
        tag: str = "py3-none-any",
        requires: tuple[str, ...] = (),
    ) -> str:
        """Make a wheel of one module, ``NAME.py``, and return its sha256.

        Args:
            name: of the package and its module, in lower-case letters.
            version: of the package.
            code: what is in the module, behind ``VERSION = …``.
            tag: Python, ABI and platform that it is for.
            requires: packages that it needs.
        """
        place = self.folder / "simple" / name
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{name}-{version}-{tag}.whl"
        info = f"{name}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"{name}.py", f"VERSION = {version!r}\n{code}")
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(f"{info}/WHEEL", wheel)
            archive.writestr(f"{info}/RECORD", "")
        return hashlib.sha256(file.read_bytes()).hexdigest()


class _Handler(SimpleHTTPRequestHandler):
    """Serves the folder to those who know the password, if there is one."""

    def __init__(self, *args: object, index: PackageIndex, wanted: str, **more: object) -> None:
        self._index = index
        self._wanted = wanted
        super().__init__(*args, **more)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._index.requests.append(self.path)
        self._index.answers.wait(_LONGEST_WAIT_S)
        if self._wanted and self.headers.get("Authorization") != self._wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Says nothing of installers that were killed while they read."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def package_index(folder: Path, user: str = "", password: str = "") -> Iterator[PackageIndex]:
    """Serve an index on a free port of loopback.

    Args:
        folder: an empty folder.
        user: who may read it, or ``""`` for anybody.
        password: of that user.
    """
    wanted = ""
    if user:
        wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "simple").mkdir(parents=True, exist_ok=True)
    index = PackageIndex(folder, "")
    handler = partial(_Handler, index=index, wanted=wanted, directory=str(folder))
    server = _Server(("127.0.0.1", 0), handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
