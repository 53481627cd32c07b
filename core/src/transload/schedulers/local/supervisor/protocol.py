"""Exchange one request and its answer over each connection to the fork server.

The client sends a JSON object and an end of file. The supervisor answers likewise.
"""

from __future__ import annotations

import os
import struct
import sys

from . import layout

TYPE_CHECKING = False  # typing itself would cost the fork server its speed
if TYPE_CHECKING:
    import socket as socket
    from collections.abc import Callable
    from typing import Any
else:
    import _socket as socket  # what Python adds to it costs 5 ms

# Part of the socket's name, so a fork server of another version is left alone, with its jobs.
VERSION = 3
SMALL = 1 << 16  # bytes of a message that a socket takes at once
_MOST = 1 << 28  # bytes of a request
_PATIENCE_S = 60.0  # a client that was stopped within its request


def receive(sock: socket.socket) -> dict[str, Any]:
    """Return the JSON object that the other side sends before its end of file.

    Raises:
        ValueError: if it sends something else, or breaks off.
        TimeoutError: if nothing comes for too long.
    """
    data = bytearray()
    while True:
        try:
            part = sock.recv(SMALL)
        except ConnectionResetError:
            break  # it has closed without reading all that was sent to it
        if not part:
            break
        data += part
        if len(data) > _MOST:
            raise ValueError("the message is too long")
    value = layout.loads(bytes(data))
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def receive_request(client: socket.socket) -> dict[str, Any] | None:
    """Return what a client asks for, or None if it has broken off."""
    client.settimeout(_PATIENCE_S)
    try:
        return receive(client)
    except (OSError, ValueError):
        return None


def answer(client: socket.socket, value: dict[str, object]) -> None:
    """Send a client its answer, and the end of file. One that is gone asks again, or gives up."""
    try:
        client.send(layout.dumps(value))
    except OSError:
        pass
    client.close()


def refuse(client: socket.socket, why: str) -> None:
    """Answer that nothing was started, for a reason that may pass."""
    answer(client, {"error": "submit", "transient": True, "message": why})


def peer_uid(sock: socket.socket) -> int:
    """Return the user at the other end of a Unix socket."""
    if sys.platform.startswith("linux"):
        credentials = "3i"  # struct ucred {pid_t pid; uid_t uid; gid_t gid;}
        size = struct.calcsize(credentials)
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    else:
        credentials = "Ii"  # struct xucred {u_int version; uid_t uid; ...} of macOS
        data = sock.getsockopt(0, 1, 76)  # LOCAL_PEERCRED
    return int(struct.unpack_from(credentials, data)[1])


def with_address(folder: str, name: str, use: Callable[[str], None]) -> None:
    """Call ``use(address)`` for a socket in a folder.

    The folder's path may be longer than an address may be (108 bytes).
    """
    path = f"{folder}/{name}"
    if len(os.fsencode(path)) < 100:
        use(path)
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            use(f"/proc/self/fd/{fd}/{name}")
        else:
            _through_link(folder, name, use)
    finally:
        os.close(fd)


def _through_link(folder: str, name: str, use: Callable[[str], None]) -> None:
    """Reach the folder by a short link, in a process without /proc (macOS)."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as short:
        os.symlink(folder, f"{short}/l")
        use(f"{short}/l/{name}")
