"""How clients, the fork server and supervisors talk: frames of ``length, kind, payload`` over Unix
sockets.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False  # typing itself would cost the fork server its speed
if TYPE_CHECKING:
    import socket as socket
    from collections.abc import Callable
else:
    import _socket as socket  # what Python adds to it costs 5 ms

# Part of the socket's name: a fork server of another version is left alone, with its apps.
VERSION = 1
HEADER = struct.Struct("!IB")
MAX_FRAME = 1 << 28
SMALL = 1 << 16  # bytes of a message that a socket takes at once

# client -> fork server: SUBMIT (the app's id in a line for the fork server, the rest for the
# supervisor), BYE fork server -> client: REPLY, STAY; supervisor -> fork server: REPLY, ENDING
# (nothing runs now), FREE (it may keep another app)
SUBMIT, REPLY, BYE, STAY, ENDING, FREE = 1, 2, 3, 4, 5, 6


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Return a message as bytes."""
    return HEADER.pack(len(payload), kind) + payload


def split(data: bytearray) -> list[tuple[int, bytes]]:
    """Take the complete frames out of what a socket has given so far; return them.

    Raises:
        ValueError: for a frame that no client of ours would send.
    """
    frames = []
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)
        if length > MAX_FRAME:
            raise ValueError(f"a message of {length} bytes")
        if len(data) < HEADER.size + length:
            break
        frames.append((kind, bytes(data[HEADER.size : HEADER.size + length])))
        del data[: HEADER.size + length]
    return frames


def receive(sock: socket.socket) -> tuple[int, bytes]:
    """Return the next frame of a blocking socket.

    Raises:
        EOFError: if the other side is gone.
    """
    length, kind = HEADER.unpack(_exactly(sock, HEADER.size))
    return kind, _exactly(sock, length)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def peer_uid(sock: socket.socket) -> int:
    """Return the user at the other end of a Unix socket."""
    if sys.platform.startswith("linux"):
        return _credentials(sock)[1]
    # LOCAL_PEERCRED of macOS: struct xucred {u_int version; uid_t uid; ...}
    return int(struct.unpack_from("Ii", sock.getsockopt(0, 1, 76))[1])


def peer_pid(sock: socket.socket) -> int:
    """Return the process at the other end (the one that listened), 0 if the system does not say."""
    return _credentials(sock)[0] if sys.platform.startswith("linux") else 0


def _credentials(sock: socket.socket) -> tuple[int, int, int]:
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", data)


def with_address(folder: str, name: str, use: Callable[[str], None]) -> None:
    """Call ``use(address)`` for a socket in a folder whose path may be longer than an address may
    be (108 bytes).
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
