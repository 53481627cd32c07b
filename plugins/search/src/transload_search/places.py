"""Keep the searches of the command line, with a folder for each name and a lock while it runs."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from transload.errors import ConfigError
from transload.schedulers.folder.home import make_private, state_home

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_ELSEWHERE: Final = "tracker_base"
"""File in a search's folder with its tracker base, if that is not the folder itself."""
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


def search_folder(name: str) -> Path:
    """Return the folder of a search.

    Raises:
        ConfigError: if the name cannot be that of a folder.
    """
    if not _NAME.match(name):
        raise ConfigError(
            f"--name {name!r}: must have only letters, digits, '.', '_' and '-', and begin with a letter or "
            "digit"
        )
    return Path(state_home()) / "searches" / name


def absolute(place: str) -> str:
    """Return a path that means the same in every folder. A URL stays as it is."""
    if "://" in place:
        return place
    return os.path.abspath(os.path.expanduser(place))


def kept_base(name: str) -> str | None:
    """Return the tracker base of the search with a name, or None if there is none."""
    folder = search_folder(name)
    try:
        return (folder / _ELSEWHERE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return str(folder) if (folder / "search" / "search.json").exists() else None


def keep_base(name: str, tracker_base: str) -> None:
    """Record the tracker base of a search under its name."""
    folder = search_folder(name)
    make_private(folder)
    if tracker_base != str(folder):
        (folder / _ELSEWHERE).write_text(tracker_base, encoding="utf-8")


def forget_search(name: str) -> None:
    """Remove the folder of a search. Files in a tracker base elsewhere stay."""
    shutil.rmtree(search_folder(name))


def kept_names() -> list[str]:
    """Return the names of all searches that are kept here."""
    root = search_folder("x").parent
    return sorted(
        path.name
        for path in root.glob("*")
        if _NAME.match(path.name) and kept_base(path.name) is not None
    )


@contextmanager
def locked(file: Path, what: str) -> Iterator[None]:
    """Keep other processes and threads from running a search meanwhile, by a lock on a file.

    The lock ends with its process in any case, but the file stays. If a file system has no locks,
    a warning says so.

    Args:
        file: the file, whose folder is created.
        what: the search, for the message.

    Raises:
        ConfigError: if another process or thread has the lock.
    """
    make_private(file.parent)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{what}: another process is running this search; {file} is locked"
            ) from None
        except OSError as exc:
            if exc.errno not in _NO_LOCKS:
                raise
            logging.getLogger("transload_search").warning(
                "%s cannot be locked (%s); make sure that only one process runs the search",
                file,
                exc,
            )
        yield
    finally:
        os.close(descriptor)
