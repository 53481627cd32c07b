"""Say who asks for a job or its end: the user, the machine, the folder, and its commit of git."""

from __future__ import annotations

import functools
import os
import pwd
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from transload.schedulers.cancelling import asker, cancelling_for

if TYPE_CHECKING:
    from transload.runner.config import Settings

__all__ = ["cancelling_as_user", "who_asks"]

_LONGEST: Final = 0.05
"""Seconds that git gets. What it has not said by then is left out."""
_FRESH: Final = 2.0
"""Seconds for which an answer of git counts, so that a hundred submits ask once."""

# a file system monitor would be a program that the repository names
_GIT: Final = "git --no-optional-locks -c core.fsmonitor=false"
# the last one looks at all files, which may take long: the others have answered by then
_QUESTIONS: Final = (
    f"{_GIT} rev-parse --verify HEAD",
    f"{{ {_GIT} config --get-regexp '^remote[.]origin[.]url$' || true; }}",
    f"{_GIT} status --porcelain=v2 -uno",
    "echo complete",
)
_REMOTE: Final = "remote.origin.url "


def who_asks(settings: Settings, folder: str) -> dict[str, Any]:
    """Return who asks for a job from a folder, or ``{}`` with ``provenance = false``."""
    if not settings.provenance:
        return {}
    folder = os.path.abspath(folder)
    shown = os.fsencode(folder).decode(errors="replace")  # a name may be any bytes
    found: dict[str, Any] = {"user": _user(), "machine": os.uname().nodename, "folder": shown}
    git = _git(folder, int(time.monotonic() / _FRESH))
    if git:
        found["git"] = dict(git)
    return found


@contextmanager
def cancelling_as_user(settings: Settings) -> Iterator[None]:
    """Have jobs that are cancelled within this block name the user, if nobody else asks."""
    who = asker()
    if not who and settings.provenance:
        who = f"{_user()} on {os.uname().nodename}"
    with cancelling_for(who):
        yield


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container
        return str(os.getuid())


@functools.lru_cache(maxsize=16)
def _git(folder: str, moment: int) -> dict[str, Any]:
    """Return the commit of a folder, where it is from, and whether files differ from it.

    What cannot be said in time is left out. In a repository that is broken, or another user's, and
    without git, that is all.
    """
    if not _is_in_repository(folder):
        return {}
    lines = _answer(folder).splitlines()
    if not lines or not re.fullmatch("[0-9a-f]{40,64}", lines[0]):
        return {}
    found: dict[str, Any] = {"commit": lines[0]}
    changes = 0
    for line in lines[1:]:
        if line.startswith(_REMOTE):
            remote = _without_credentials(line.removeprefix(_REMOTE))
            if remote is not None:
                found["remote"] = remote
        elif line != "complete":
            changes += 1
    if changes or lines[-1] == "complete":
        found["dirty"] = changes > 0
    return found


def _is_in_repository(folder: str) -> bool:
    """Tell whether a folder may be in a repository, since asking git costs much more."""
    above = os.path.dirname(folder)
    has_git = os.path.exists(os.path.join(folder, ".git"))
    return has_git or (above != folder and _is_in_repository(above))


def _answer(folder: str) -> str:
    """Return what git says of a folder in the time that it has."""
    import subprocess  # only in a repository, since the import costs as much as git

    try:
        asked = subprocess.Popen(
            ["/bin/sh", "-c", " && ".join(_QUESTIONS)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError:
        return ""
    with asked:
        try:
            said, _ = asked.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired as exc:
            said = exc.output or b""
            with suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
    whole, _, _ = said.rpartition(b"\n")
    return whole.decode(errors="replace")


def _without_credentials(url: str) -> str | None:
    """Return a remote without users, passwords and parameters, which may be secrets.

    The user ``git`` stays in ``git@host:path``, since it is everybody's. The value is None where it
    cannot be told what is a secret.
    """
    if url.startswith("ext::"):  # a command
        return None
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        scheme, rest = "", url
        if ":" not in url.partition("/")[0]:  # a folder
            return url
    place, *parameters = re.split("[?#]", rest, maxsplit=1)
    if any("@" in each for each in parameters):  # of a password that has ? or #, or of a parameter
        return None
    user, _, shown = place.rpartition("@")
    if not is_url and user == "git":
        return place
    return f"{scheme}{is_url}{shown}"
