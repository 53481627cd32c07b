"""Have the packages of an environment installed in a pod, before its program starts.

Its text is an argument of the init container's ``python3 -c``, so it imports the standard library
alone, and Python 3.8 can run it. The arguments are the folder to work in, a title for messages, and
pieces of what is to be done.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from typing import Any

FAILED = 78
"""Exit code if the packages cannot be installed."""
_MESSAGE = "/dev/termination-log"
_MESSAGE_BEGIN = 1000
_MESSAGE_END = 2500
_DEFAULTS = {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def main() -> int:
    """Install them, show the installer's lines as a log, and return the exit code."""
    root = sys.argv[1]
    title = sys.argv[2]
    given = json.loads(zlib.decompress(base64.b64decode("".join(sys.argv[3:]))).decode())
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    order = dict(given["order"], root=root)
    program = os.path.join(root, "builder.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(given["program"])
    end = _built(program, order)
    if "path" in end:
        os.symlink(end["path"], os.path.join(root, "current"))
        return 0
    why = end.get("error", "its builder was ended")
    if end.get("away"):
        why += (
            "; if the pods reach no index, build an image that has the packages, and switch this "
            "off by --environment none"
        )
    return _failed(title, why, end.get("lines") or [])


def _built(program: str, order: dict[str, Any]) -> dict[str, Any]:
    """Run the program that makes environments, and return its last message, or {} without one."""
    builder = subprocess.Popen(
        [sys.executable, "-I", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert builder.stdin is not None
    assert builder.stdout is not None
    builder.stdin.write(json.dumps(order).encode() + b"\n")
    builder.stdin.flush()  # it stays open: the program ends with it
    end: dict[str, Any] = {}
    shown = ""
    for data in builder.stdout:
        try:
            said = json.loads(data.decode())
        except ValueError:
            continue
        if "line" not in said:
            end = said
        elif said["line"] != shown:
            shown = said["line"]
            _show(shown)
    builder.wait()
    return end


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _failed(title: str, why: str, lines: list[str]) -> int:
    """Say why they were not installed, in the log and in the pod's status."""
    text = "\n".join([f"{title}: cannot be made: {why}", *lines])
    _show(text)
    with open(_MESSAGE, "w", encoding="utf-8", errors="replace") as file:
        file.write(text[:_MESSAGE_BEGIN] + text[_MESSAGE_BEGIN:][-_MESSAGE_END:])
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
