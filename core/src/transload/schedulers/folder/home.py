"""Find the state folder, and check whether it can be trusted and used."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from typing import Final, NoReturn

from transload.errors import ConfigError
from transload.keeper import layout

__all__ = ["ensure", "in_home", "local_home", "make_private", "state_home"]


ENV_HOME: Final = "TRANSLOAD_HOME"
ENV_ALLOW_NETWORK: Final = "TRANSLOAD_ALLOW_NETWORK_HOME"
_NETWORK_NAMES: Final = """
    nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs coda 9p ocfs2 gfs2 orangefs pvfs2 panfs
    wekafs glusterfs fuse.sshfs fuse.glusterfs fuse.juicefs fuse.ceph-fuse fuse.beegfs fuse.s3fs
    fuse.rclone fuse.gcsfuse
"""
_NETWORK: Final = frozenset(_NETWORK_NAMES.split())
"""Network file systems, by their names in the kernel.

On them flock does not reach other machines.
"""

FALLBACK: Final = "/var/tmp/transload-{}"  # noqa: S108 - checked before each use
"""Where local jobs are kept if the state folder lies on a network file system, by user."""


def state_home() -> str:
    """Return the state folder.

    It is ``TRANSLOAD_HOME``, else ``${XDG_STATE_HOME:-~/.local/state}/transload``. A relative
    ``XDG_STATE_HOME`` does not count, as its specification says.

    Raises:
        ConfigError: if the user has no home folder, and none of these variables is set.
    """
    if given := os.environ.get(ENV_HOME):
        return os.path.abspath(in_home(given, ENV_HOME))
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = in_home("~/.local/state", ENV_HOME)
    return os.path.abspath(f"{base}/transload")


def in_home(path: str, variable: str) -> str:
    """Return a path with ``~`` replaced by the home folder.

    Args:
        path: a path that may begin with ``~``.
        variable: names another folder, where there is no home folder.

    Raises:
        ConfigError: if there is no home folder.
    """
    found = os.path.expanduser(path)
    if path.startswith("~") and not os.path.isabs(found):
        raise ConfigError(
            f"{path}: there is no home folder: HOME is not set, and user {os.geteuid()} has no "
            f"name here; set {variable} to a folder of this user's"
        )
    return found


def local_home(name: str = "local") -> str:
    """Return the folder of the local scheduler, or of one of its kind with another name.

    The folder need not exist. It is below the state folder, or below `FALLBACK` where that lies on
    a network file system by default. Locks do not reach far enough there.

    Raises:
        ConfigError: if the folder of this machine is not safe to use.
    """
    if not network_home() or os.environ.get(ENV_HOME):
        return f"{state_home()}/{name}"
    home = FALLBACK.format(os.geteuid())
    if os.path.lexists(home):
        _check(home, os.lstat(home), 0o077)  # anybody may write there, so no link is followed
    return f"{home}/{name}"


def network_home() -> str | None:
    """Return the type of the network file system of the state folder, or None if it may be used."""
    if os.environ.get(ENV_ALLOW_NETWORK, "") not in ("", "0"):
        return None
    return network_file_system(state_home())


def network_file_system(path: str) -> str | None:
    """Return the type of the network file system that holds ``path``, or would (Linux).

    Returns:
        The type, or None if it is no network file system.
    """
    while not os.path.exists(path) and path not in ("", "/"):
        path = os.path.dirname(path)
    device = os.stat(path or "/").st_dev
    mark = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                if line.split(" ", 3)[2] == mark:
                    kind = line.partition(" - ")[2].split(" ", 1)[0]
                    if kind in _NETWORK:
                        return kind
                    return None
    except OSError:
        pass
    return None


def make_private(folder: str | os.PathLike[str]) -> None:
    """Make a folder for this user alone, and its missing parents. Existing ones do not change.

    Each new folder gets mode 0700. ``os.makedirs`` would leave the mode of the parents to the
    umask. Whoever may write to a parent could put another folder in the place of ours.

    Raises:
        FileExistsError: if something else is there.
        OSError: if one cannot be made.
    """
    path = os.path.abspath(os.fspath(folder))
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            if not os.path.isdir(each):
                raise


def ensure(local: str) -> None:
    """Make the folders of the local scheduler, and check that they are safe to use.

    Raises:
        ConfigError: if the state folder cannot be made, is somebody else's, is open to others, or
            was set to a folder on a network file system.
    """
    home = os.path.dirname(local)
    try:
        fresh = not os.path.lexists(home)
        if home == FALLBACK.format(os.geteuid()):
            with contextlib.suppress(FileExistsError):
                os.mkdir(home, 0o700)
            _check(home, os.lstat(home), 0o077)
            if fresh:
                logging.getLogger("transload.local").warning("%s", explain()[1])
        else:
            make_private(home)
            _check(home, os.stat(home), 0o022)
            if kind := network_home():
                _refuse(
                    home,
                    f"is on a network file system ({kind}), where locks do not reach far",
                )
        for folder in (local, *(f"{local}/{name}" for name in layout.FOLDERS)):
            make_private(folder)
    except FileExistsError as exc:
        _refuse(exc.filename or home, "is not a folder")
    except OSError as exc:
        raise ConfigError(
            f"state folder {exc.filename or home}: {exc.strerror} (set {ENV_HOME} to another)"
        ) from exc


def explain() -> tuple[bool, str]:
    """Return whether local jobs can be kept, and in a line where, or why not.

    Raises:
        ConfigError: if the state folder is not safe to use.
    """
    home = state_home()
    local = local_home()
    kind = network_home()
    if os.path.lexists(home) and not os.path.isdir(home):
        return False, f"{home} is not a folder; set {ENV_HOME} to another"
    if os.path.isdir(home):
        _check(home, os.stat(home), 0o022)
    there = home
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        return False, f"{home}: {there} is not writable; set {ENV_HOME} to another"
    if not kind:
        return True, f"kept in {local}"
    if local == f"{home}/local":
        return (
            False,
            (
                f"{ENV_HOME}={home} is on a network file system ({kind}); set it to a folder on a "
                "local disk"
            ),
        )
    machine = os.uname().nodename
    return (
        True,
        (
            f"{home} is on a network file system ({kind}): local jobs are kept in {local}, on "
            f"{machine} alone"
        ),
    )


def _check(home: str, found: os.stat_result, forbidden: int) -> None:
    if not stat.S_ISDIR(found.st_mode):
        _refuse(home, "is not a folder")
    if found.st_uid != os.geteuid():
        _refuse(home, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & forbidden:
        reason = "writable for" if forbidden == 0o022 else "open to"
        _refuse(home, f"is {reason} others (mode {stat.S_IMODE(found.st_mode):o}): chmod 700 it")


def _refuse(home: str, reason: str) -> NoReturn:
    raise ConfigError(
        f"state folder {home}: {reason}; set {ENV_HOME} to a folder of your own on a local disk"
    )
