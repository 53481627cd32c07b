"""Keep the secret keys that sign what functions return.

There is one for each job, and its submitter keeps it. A key lies in the state folder of the
submitting user, in a folder that only this user can enter. It never lies below a folder of results.
It is made before the submit, and removed with the job's record.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Final

from transload.errors import ConfigError, TransloadError
from transload.runtime.tracking.names import decode_name, encode_name
from transload.schedulers.local.home import make_private, state_home
from transload.specs import make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transload.schedulers.api import SchedulerBase

FOLDER: Final = "function-keys"
KEY_BYTES: Final = 32
LEFT_S: Final = 30 * 86_400.0
"""Seconds after which a key is removed if its scheduler does not know the job any more.

A scheduler's own time limit may have removed the job, unseen by this user.
"""


def new_key() -> str:
    """Return a random key, as hexadecimal digits."""
    return secrets.token_hex(KEY_BYTES)


def keep_key(handle: str, key: str) -> None:
    """Keep the key of a job that is about to be submitted.

    Raises:
        ConfigError: if there is no folder to keep it in that is this user's alone.
    """
    path = key_path(handle)
    folder = os.path.dirname(path)
    try:
        make_private(folder)
        _check_private(folder)
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(key)
    except OSError as exc:
        raise ConfigError(
            f"{path}: the key of a function's result cannot be kept: {exc.strerror}: "
            "set TRANSLOAD_HOME to another folder, or give safe=True"
        ) from exc


def find_key(handle: str) -> str | None:
    """Return the key of a job, or None if this user did not submit it here.

    Raises:
        ConfigError: if others can write where it lies.
    """
    path = key_path(handle)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, encoding="ascii", errors="replace") as file:
        text = file.read(2 * KEY_BYTES)
    _check_private(os.path.dirname(path))
    try:
        return text if len(bytes.fromhex(text)) == KEY_BYTES else None
    except ValueError:
        return None


def forget_key(handle: str) -> None:
    """Remove the key of a job that is gone, if there is one."""
    with contextlib.suppress(OSError):
        os.unlink(key_path(handle))


def forget_keys(scheduler: SchedulerBase, gone: Iterable[str]) -> None:
    """Remove the keys of a scheduler's deleted jobs, and old keys of jobs that it does not know."""
    for app_id in gone:
        forget_key(make_app_handle(scheduler.name, "", app_id))
    now = time.time()
    with contextlib.suppress(OSError, TransloadError):
        for entry in os.scandir(_folder()):
            parsed = _parsed(entry.name)
            if (
                parsed is None
                or parsed[0] != scheduler.name
                or now - entry.stat().st_mtime < LEFT_S
            ):
                continue
            if scheduler.describe(parsed[1]) is None:
                os.unlink(entry.path)


def key_path(handle: str) -> str:
    """Return where the key of a job lies, if it is kept here."""
    parsed = parse_app_handle(handle)
    # without the session, since a job may be asked for in the name of another one
    return f"{_folder()}/{encode_name(f'{parsed.scheduler_backend}/{parsed.app_id}')}"


def _folder() -> str:
    return f"{state_home()}/{FOLDER}"


def _parsed(name: str) -> tuple[str, str] | None:
    scheduler, slash, app_id = (decode_name(name) or "").partition("/")
    return (scheduler, app_id) if slash else None


def _check_private(folder: str) -> None:
    """Refuse a folder of keys that another user may have put a key into.

    Raises:
        ConfigError: if others can write there, or in the state folder, or one of them belongs to
            somebody else.
    """
    for path in (folder, os.path.dirname(folder)):
        found = os.stat(path)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid():
            raise ConfigError(
                f"{path}: belongs to user {found.st_uid}: keys of function results must be yours "
                "alone"
            )
        if mode & 0o022:
            raise ConfigError(f"{path}: others may write there (mode {mode:o}): chmod 700 it")
