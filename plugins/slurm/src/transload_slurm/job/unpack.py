"""Packages that are kept as one file, and unpacked to the disk of a node.

That is done once for all jobs that use them there. The last of these removes them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tarfile

_COMPLETE = "complete"
_LARGEST_SCRIPT = 1 << 20


class Unpacked:
    """The packages of one folder, on this node, kept until `release`.

    They lie below ``TMPDIR``, else ``/tmp``, in a folder of this user alone.

    Args:
        folder: the shared folder that has the file.

    Raises:
        OSError: if they cannot be unpacked here.
    """

    def __init__(self, folder: str) -> None:
        self._place = _own_place()
        self._folder = os.path.join(self._place, os.path.basename(folder))
        self.venv = os.path.join(self._folder, "venv")
        try:
            self._lock = self._keep(folder)
        except tarfile.TarError as exc:
            raise OSError(errno.EIO, f"its packages cannot be unpacked: {exc}", folder) from exc

    def _keep(self, folder: str) -> int:
        """Return a descriptor that holds a share of the lock, once all is unpacked."""
        while True:
            _own_place()
            lock = _hold(self._folder, fcntl.LOCK_SH)
            if lock is not None and os.path.exists(os.path.join(self._folder, _COMPLETE)):
                return lock
            if lock is not None:
                os.close(lock)
            lock = _hold(self._folder, fcntl.LOCK_EX)
            if lock is None:
                continue
            try:
                if not os.path.exists(os.path.join(self._folder, _COMPLETE)):
                    self._unpack(folder)
            finally:
                os.close(lock)

    def _unpack(self, folder: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.mkdir(self._folder, 0o700)
        try:
            with tarfile.open(os.path.join(folder, "venv.tar"), "r:") as archive:
                if hasattr(tarfile, "fully_trusted_filter"):  # a link leads to the Python outside
                    archive.extractall(self._folder, filter="fully_trusted")  # noqa: S202 - ours
                else:
                    archive.extractall(self._folder)  # noqa: S202 - ours
            with open(os.path.join(folder, "environment.json"), encoding="utf-8") as file:
                before = json.load(file)["packed_from"]
            _move_scripts(os.path.join(self.venv, "bin"), before, self.venv)
            with open(os.path.join(self._folder, _COMPLETE), "w"):
                pass
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def release(self) -> None:
        """Remove the packages unless others use them.

        Remove what killed processes have left, too.
        """
        os.close(self._lock)
        try:
            for name in os.listdir(self._place):
                if name.endswith(".lock"):
                    _remove_unused(os.path.join(self._place, name[: -len(".lock")]))
            os.rmdir(self._place)
        except OSError:
            pass  # others use some, or have just removed it


def _own_place() -> str:
    """Return the folder of this user's packages on this node.

    Raises:
        OSError: if it is another user's.
    """
    base = os.environ.get("TMPDIR") or ""
    if not os.path.isdir(base):
        base = "/tmp"  # noqa: S108 - a folder of ours in it, which is checked
    path = os.path.join(base, f"transload-environments-{os.getuid()}")
    found = None
    while found is None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            pass  # the last who used it has just removed it
    if found.st_uid != os.getuid() or found.st_mode & 0o170077 != 0o040000:
        raise OSError(errno.EPERM, "must be a folder of yours alone", path)
    return path


def _hold(folder: str, how: int) -> int | None:
    """Return a descriptor that holds the lock of unpacked packages.

    It is None if they were just removed, or if ``how`` does not wait for others who have the lock.
    """
    path = folder + ".lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, how)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _remove_unused(folder: str) -> None:
    lock = _hold(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock is None:
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.unlink(folder + ".lock")
    except OSError:
        pass
    os.close(lock)


def _move_scripts(folder: str, before: str, now: str) -> None:
    """Have the programs of a virtual environment name the place where it lies now."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) or os.path.getsize(path) > _LARGEST_SCRIPT:
            continue
        with open(path, "rb") as file:
            data = file.read()
        if os.fsencode(before) in data and not data.startswith(b"\x7fELF"):
            with open(path, "wb") as file:  # its mode stays
                file.write(data.replace(os.fsencode(before), os.fsencode(now)))
