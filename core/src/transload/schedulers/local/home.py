"""The state folder: where it is, and whether it can be trusted and used."""

from __future__ import annotations

import os
import stat
from typing import Final

from transload.errors import ConfigError
from transload.schedulers.local.supervisor import kernel, layout

ENV_HOME: Final = "TRANSLOAD_HOME"
ENV_ALLOW_NETWORK: Final = "TRANSLOAD_ALLOW_NETWORK_HOME"


def state_home() -> str:
    """Return the state folder: ``TRANSLOAD_HOME``, else ``${XDG_STATE_HOME:-~/.local/state}/transload``."""
    home = os.environ.get(ENV_HOME)
    if not home:
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        home = f"{base}/transload"
    return os.path.abspath(os.path.expanduser(home))


def local_home() -> str:
    """Return the folder of the local scheduler, whether it exists or not."""
    return f"{state_home()}/local"


def ensure(local: str) -> None:
    """Make the folders of the local scheduler, and check that they are safe to use.

    Raises:
        ConfigError: if the state folder cannot be made, is somebody else's, is open to others, or lies on a network
            file system.
    """
    home = os.path.dirname(local)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        _check(home)
        for folder in (local, *(f"{local}/{name}" for name in layout.FOLDERS)):
            if not os.path.isdir(folder):
                try:
                    os.mkdir(folder, 0o700)
                except FileExistsError:  # another process or thread made it at the same time
                    if not os.path.isdir(folder):
                        _refuse(folder, "is not a folder")
    except FileExistsError:
        _refuse(home, "is not a folder")
    except OSError as exc:
        raise ConfigError(f"state folder {exc.filename or home}: {exc.strerror} (set {ENV_HOME} to another)") from exc


def _check(home: str) -> None:
    found = os.stat(home)
    if not stat.S_ISDIR(found.st_mode):
        _refuse(home, "is not a folder")
    if found.st_uid != os.geteuid():
        _refuse(home, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o022:
        _refuse(home, f"is writable for others (mode {stat.S_IMODE(found.st_mode):o}; must be 700)")
    if os.environ.get(ENV_ALLOW_NETWORK, "") in ("", "0"):
        kind = kernel.network_file_system(home)
        if kind is not None:
            _refuse(
                home, f"is on a network file system ({kind}), where locks and notifications do not reach far enough"
            )


def _refuse(home: str, reason: str) -> None:
    raise ConfigError(f"state folder {home}: {reason}; set {ENV_HOME} to a folder of your own on a local disk")
