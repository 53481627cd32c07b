"""Keep workspaces that travel, as files by their content and lists of where each file lies.

A file that several workspaces share is kept once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from typing import Any, Final

from transload.errors import SpecError
from transload.schedulers.folder.home import make_private

Entry = tuple[str, int, str, str]
"""Path, mode, digest of the content, target of a link. A folder has neither of the last two."""

_BLOCK: Final = 1 << 20
_KEEP_S: Final = 30 * 86400.0


# -- here


def listed(workspace: Any) -> tuple[list[Entry], dict[str, str]]:
    """Return what is in a workspace, and digest → path of a file with that content.

    Raises:
        SpecError: if a project is not a folder, or two projects bring the same file.
        OSError: if a file cannot be read.
    """
    from transload.workspace import each_once, workspace_files

    entries: list[Entry] = []
    places: dict[str, str] = {}
    for found in each_once(workspace_files(workspace), "reading", shared=False):
        mode = stat.S_IMODE(os.lstat(found.source).st_mode)
        if found.target is not None:
            entries.append((found.path, mode, "", found.target))
        elif found.is_folder:
            entries.append((found.path, mode, "", ""))
        else:
            name = digest_of(found.source)
            places[name] = found.source
            entries.append((found.path, mode, name, ""))
    return entries, places


def digest_of(path: str) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.sha256()
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def pieces(path: str) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the content of a file as (offset, piece, whether it is the last one).

    An empty file has one empty piece.
    """
    offset, before = 0, b""
    for block in blocks(path):
        if before:
            yield offset, before, False
            offset += len(before)
        before = block
    yield offset, before, True


def blocks(path: str) -> Iterator[bytes]:
    """Yield the content of a file, piece by piece."""
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(_BLOCK), b"")


# -- on the cluster


class Blobs:
    """Files by their content, below the folder of the apps.

    Args:
        root: the folder of the apps.
    """

    def __init__(self, root: str) -> None:
        self._folder = f"{root}/.blobs"

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name}"

    def want(self, entries: list[Entry]) -> tuple[str, list[str]]:
        """Keep a list of files. Return its name, and the digests of the files that are not here."""
        data = json.dumps(entries).encode()
        name = hashlib.sha256(data).hexdigest()
        if not self._has(name):
            self.put(name, data, 0, last=True, upload=os.urandom(6).hex())
        return name, sorted({entry[2] for entry in entries if entry[2] and not self._has(entry[2])})

    def _has(self, name: str) -> bool:
        try:
            os.utime(self._path(name))  # used today: it stays
        except OSError:
            return False
        return True

    def put(self, name: str, data: bytes, offset: int, last: bool, upload: str) -> None:
        """Store a piece of a file. With the last piece the file is there.

        ``upload`` keeps senders of the same file apart.

        Raises:
            SpecError: if the content is another than the name says.
            OSError: if it cannot be written.
        """
        path = self._path(name)
        aside = f"{path}.{upload}"
        make_private(os.path.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if offset == 0 else 0)
        try:
            with open(os.open(aside, flags, 0o600), "wb") as file:
                file.seek(offset)
                file.write(data)
            if last:
                if digest_of(aside) != name:
                    raise SpecError("workspace: a file was changed while it travelled")
                os.replace(aside, path)
        except (OSError, SpecError):
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise

    def lay(self, name: Any, folder: str) -> None:
        """Make the copy of a workspace in a folder, from its list.

        Raises:
            OSError: if something is not here, or cannot be written.
        """
        with open(self._path(name), encoding="utf-8") as file:
            entries = json.load(file)
        make_private(folder)
        for inner, mode, digest, target in entries:
            place = os.path.normpath(f"{folder}/{inner}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if target:
                os.symlink(target, place)
            elif not digest:
                os.mkdir(place)
            else:
                # a copy: the job may write to its own
                shutil.copyfile(self._path(digest), place)
                os.chmod(place, mode)

    def sweep(self) -> None:
        """Remove what no submit has used for a month."""
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(f"{folder}/{name}").st_mtime > _KEEP_S:
                        os.unlink(f"{folder}/{name}")
