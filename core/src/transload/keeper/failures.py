"""Say what the end of a replica means: its exit code in words, and the error that it reported.

This file runs on cluster nodes, and in processes that must start within milliseconds. So it keeps
to Python 3.8, and imports ``signal`` and ``json`` only when a replica has failed.
"""

from __future__ import annotations

__all__ = [
    "ASKS_AGAIN",
    "LONGEST_ERROR",
    "code_of_processes",
    "error_line",
    "exit_text",
    "is_about_peer",
    "read_error",
]

LONGEST_ERROR = 1 << 16
"""Bytes that are read of a replica's error file."""

ASKS_AGAIN = 75
"""The exit code by which a program asks, after a notice, to be started again later."""

_LONGEST_LINE = 300
_SIGNALLED = "SignalException: "  # what torchrun ends with after a signal
_ABOUT_A_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "DistBackendError",
    "DistNetworkError",
)


def exit_text(code: int | None) -> str:
    """Return ``"exit code 3"``, ``"killed by SIGKILL"`` or, for an unknown code, ``"failed"``.

    A shell returns 128 plus the signal's number for a program that a signal has killed. The text
    names that signal, too.
    """
    if code is None:
        return "failed"
    if 0 <= code <= 128:
        return f"exit code {code}"
    import signal

    if code > 128:
        try:
            return f"exit code {code} (128 + {signal.Signals(code - 128).name})"
        except ValueError:
            return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def read_error(data: bytes) -> str:
    """Return the content of a replica's error file as JSON text, or "" if it is empty.

    The file (``TRANSLOAD_ERROR_FILE``) may hold any text. The form of torchelastic's files is kept.
    """
    import json

    text = data.decode("utf-8", "replace").strip()
    if not text:
        return ""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    if found is None:
        return ""
    if not isinstance(found, dict):
        found = {"message": str(found)}
    # a file name may have lone surrogates, which no orchestrator takes
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace").decode()


def error_line(error: str) -> str:
    """Return the first line of an error's message, such as ``ValueError: no such thing``.

    Args:
        error: as `read_error` returned it.
    """
    import json

    if not error:
        return ""
    message = json.loads(error).get("message")
    if isinstance(message, dict):
        message = message.get("message")
    lines = [line.strip() for line in str(message or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return "".join(map(_harmless, lines[0][:_LONGEST_LINE]))


def _harmless(char: str) -> str:
    """Return a character, or its escape if it could change how a terminal shows the line."""
    if char.isprintable() or char in "\t\xa0\u3000":
        return char
    return char.encode("unicode_escape").decode("ascii")


def code_of_processes(error: str, code: int | None) -> int | None:
    """Return the exit code of a program, or that of its processes, for which torchrun ends with 1.

    Args:
        error: as `read_error` or `traceback_error` returned it.
        code: the exit code of the program itself.
    """
    import json

    if code != 1 or not error:
        return code
    message = json.loads(error).get("message")
    if not isinstance(message, dict):
        return code
    before, _, number = str(message.get("message")).partition(" got signal: ")
    if _SIGNALLED in before and number.isdecimal():
        return -int(number)
    return ASKS_AGAIN if message.get("errorCode") == ASKS_AGAIN else code


def is_about_peer(error: str) -> bool:
    """Tell whether an error says that another process of a training was lost, which is the cause.

    Args:
        error: as `read_error` or `traceback_error` returned it.
    """
    return any(word in error for word in _ABOUT_A_PEER)
