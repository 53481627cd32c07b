"""Make and parse the handles of jobs, ``{scheduler}://{session}/{app_id}``."""

from __future__ import annotations

import re
from typing import NamedTuple

from transload.errors import SpecError

AppHandle = str
"""The name of a submitted job in the form of a URL, ``{scheduler}://{session}/{app_id}``."""

_UNSAFE = rb"[^A-Za-z0-9._~:@+=,;-]"
_FORM = r"([A-Za-z0-9_][\w.+-]*)://([^/]*)/([^/]+)\Z"
_ESCAPE = r"%([0-9A-Fa-f]{2})"


class MalformedAppHandleException(SpecError):
    """A handle is not of the form ``{scheduler}://{session}/{app_id}``."""

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"app handle {app_handle!r}: must be of the form SCHEDULER://SESSION/APP_ID, such as "
            "local://transload/train-x7k2; `transload list` shows those that exist"
        )


class ParsedAppHandle(NamedTuple):
    """The parts of a handle, decoded."""

    scheduler_backend: str
    session_name: str
    app_id: str


def make_app_handle(scheduler_backend: str, session_name: str, app_id: str) -> AppHandle:
    """Return the handle of a job. Its parts are percent-encoded (UTF-8) where needed.

    Raises:
        MalformedAppHandleException: if the scheduler's name is not one, or the job id is empty.
    """
    handle = f"{scheduler_backend}://{_quote(session_name)}/{_quote(app_id)}"
    if not re.match(_FORM, handle):
        raise MalformedAppHandleException(handle)
    return handle


def parse_app_handle(app_handle: AppHandle) -> ParsedAppHandle:
    """Return the decoded parts of a handle. This is the reverse of `make_app_handle`.

    Raises:
        MalformedAppHandleException: if it is not of that form.
    """
    match = re.match(_FORM, app_handle) if isinstance(app_handle, str) else None
    if match is None:
        raise MalformedAppHandleException(app_handle)
    try:
        return ParsedAppHandle(match.group(1), _unquote(match.group(2)), _unquote(match.group(3)))
    except UnicodeDecodeError as exc:
        raise MalformedAppHandleException(app_handle) from exc


def _quote(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return re.sub(_UNSAFE, lambda match: b"%%%02X" % match[0][0], data).decode()


def _unquote(text: str) -> str:
    if "%" not in text:
        return text
    parts = re.split(_ESCAPE, text)
    data = b"".join(
        bytes([int(part, 16)]) if index % 2 else part.encode("utf-8", "surrogatepass")
        for index, part in enumerate(parts)
    )
    return data.decode("utf-8", "surrogatepass")
