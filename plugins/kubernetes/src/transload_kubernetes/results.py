"""Read what a program without storage left in its container's message file. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from transload.keeper.failures import read_error
from transload.runtime.tracking import Entry, Store, TrackingError
from transload.runtime.tracking.names import encode_name
from transload_kubernetes import states

MESSAGE_FILE: Final = "/dev/termination-log"
"""A container's message file, whose first 4,096 bytes the status of the pod has."""
MESSAGE_LIMIT: Final = 4096
_TORCH_ERROR: Final = "/dev/shm/transload-error"  # noqa: S108 - torchrun removes it first; the message's is a mount
_CUT_MESSAGE: Final = re.compile(r'"message": *("(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)')

VARIABLES: Final = {
    "TRANSLOAD_RESULT_FILE": MESSAGE_FILE,
    "TRANSLOAD_ERROR_FILE": MESSAGE_FILE,
    "TORCHELASTIC_ERROR_FILE": _TORCH_ERROR,
}
"""The variables that name the place for a program's reports, unless the role sets them."""


class PodStore(Store):
    """The result files in the messages of a job's pods, presented as one folder."""

    def __init__(self, base: str) -> None:
        self.base = base  # its name in messages
        self.files: dict[str, bytes] = {}  # path → content

    def read(self, path: str, limit: int = MESSAGE_LIMIT) -> bytes:
        """Return the content of a file, which is never larger than a message."""
        if path not in self.files:
            raise FileNotFoundError(self.where(path))
        return self.files[path]

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder."""
        start = f"{folder.strip('/')}/" if folder.strip("/") else ""
        found = {
            path.removeprefix(start).partition("/")[:2]
            for path in self.files
            if path.startswith(start)
        }
        return [(name, bool(slash)) for name, slash in found]

    def take_end(self, end: dict[str, Any], key: str, who: str) -> None:
        """Store the results in a program's message file.

        The file has JSON lines. Each is the content of a result file, or plain results.

        Raises:
            TrackingError: if the file is too large.
        """
        message = states.said(end)
        if end.get("exitCode") == 0 and len(message.encode()) >= MESSAGE_LIMIT:
            raise TrackingError(
                f"results of {who}: {MESSAGE_LIMIT:,} bytes or more; a pod without storage can "
                f"return at most {MESSAGE_LIMIT - 1:,}; set tracker_base to a store, or to a folder "
                "on a volume"
            )
        bodies, _ = _read_lines(message)
        for found in bodies:
            if "base64" in found:
                self.files[str(found.get("file"))] = base64.b64decode(str(found["base64"]) + "==")
                continue
            body = found
            if not isinstance(found.get("results"), dict):
                body = {"schema": 1, "key": key, "results": found}
            # escapes may hold lone surrogates, which no text can have
            own_key = str(body.get("key", key)).encode("utf-8", "replace").decode()
            data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            self.files[encode_name(own_key, ".json")] = data


def error_of(pod: Mapping[str, Any]) -> str:
    """Return the error that the program of a pod left, any text as JSON, or ``""`` if it left none."""
    _, said = _read_lines(states.said(states.program(pod, "terminated")))
    cut = _CUT_MESSAGE.search(said)
    if cut and _read_object(said) is None:
        # the end was cut off, and the message is there
        message = _read_object(f'{{"message": {cut[1]}"}}')
        if message:
            said = json.dumps(message)
    return read_error(said.encode())


def _read_lines(text: str) -> tuple[list[dict[str, Any]], str]:
    """Split a text into lines with results or files, and the rest, which is an error."""
    bodies: list[dict[str, Any]] = []
    rest: list[str] = []
    for line in text.splitlines():
        found = _read_object(line)
        if found is None or "message" in found:
            rest.append(line)
        else:
            bodies.append(found)
    return bodies, "\n".join(rest).strip()


def _read_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
