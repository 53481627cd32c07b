"""How the replicas find each other and add vectors up: plain sockets, a star around rank 0.

Rank 0 listens; the others learn its host from the environment variable that the scheduler fills in.
The port is no secret arrangement either: both sides derive the same few candidates from the app's
id, rank 0 takes the first that is free, and a greeting with the id makes sure that a peer has found
its own app and not a neighbour's.

Sums are taken in the order of the ranks, so the result is the same bit for bit whoever arrives
first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FIRST_PORT, LAST_PORT, CANDIDATES = (
    20_000,
    32_000,
    16,
)  # below the ports that the kernel hands out itself
GREETING_LIMIT, GREETING_S = 1024, 2.0


class GroupError(Exception):
    """The replicas did not find, or have lost, each other; the message says who missed whom, and
    where.
    """


def candidate_ports(app_id: str, port: int = 0) -> list[int]:
    """Return the ports to try, in order: the given one, or (0) some that only the app's id
    decides.
    """
    if port:
        return [port]
    digest = int.from_bytes(hashlib.sha256(app_id.encode()).digest()[:8], "big")
    span = LAST_PORT - FIRST_PORT
    return [FIRST_PORT + (digest + number * 757) % span for number in range(CANDIDATES)]


class Group:
    """The replicas of one app, able to add vectors up. Close it when done (a context manager
    does).
    """

    def __init__(self, rank: int, world: int, links: list[socket.socket]) -> None:
        self.rank = rank
        self.world = world
        self._links = links  # rank 0: to ranks 1, 2, ... in this order; the others: to rank 0 only

    @classmethod
    def join(
        cls, rank: int, world: int, host: str, app_id: str, port: int = 0, timeout: float = 60.0
    ) -> Group:
        """Find the others.

        Args:
            rank: This replica's number, 0 up to ``world - 1``.
            world: How many there are.
            host: Where rank 0 is, as the others reach it; rank 0 itself may not know ("").
            app_id: The app's id: what the ports come from, and the word that a peer must know.
            port: A fixed port, or 0 for ports that follow from ``app_id``.
            timeout: Seconds to wait for the others, and later for any one of their messages.

        Raises:
            GroupError: They were not all there in time, or no port was free.
        """
        ports = candidate_ports(app_id, port)
        deadline = time.monotonic() + timeout
        if world == 1:
            links = []
        elif rank == 0:
            links = _gather(world, host, app_id, ports, deadline)
        else:
            links = [_reach(rank, world, host, app_id, ports, deadline)]
        for link in links:
            link.settimeout(timeout)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(rank, world, links)

    def sum(self, vector: Array) -> Array:
        """Return the sum of every replica's vector; all must call this with vectors of one length.

        Raises:
            GroupError: Another replica has gone.
        """
        if self.rank == 0:
            total = vector.copy()
            for peer, link in enumerate(self._links, start=1):
                total += _receive(link, len(vector), f"rank 0 lost rank {peer}")
            for peer, link in enumerate(self._links, start=1):
                _send(link, total, f"rank 0 lost rank {peer}")
            return total
        lost = f"rank {self.rank} lost rank 0"
        _send(self._links[0], vector, lost)
        return _receive(self._links[0], len(vector), lost)

    def close(self) -> None:
        """Hang up."""
        for link in self._links:
            link.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _gather(
    world: int, host: str, app_id: str, ports: list[int], deadline: float
) -> list[socket.socket]:
    """Rank 0's side: listen, and admit each of the other ranks once."""
    peers: dict[int, socket.socket] = {}
    with _listen(host, ports) as door:
        try:
            while len(peers) < world - 1:
                door.settimeout(max(0.001, deadline - time.monotonic()))
                link, _ = door.accept()
                rank = _admit(link, world, app_id, peers)
                if rank:
                    peers[rank] = link
        except TimeoutError:
            missing = sorted(set(range(1, world)) - set(peers))
            for link in peers.values():
                link.close()
            raise GroupError(
                f"rank 0 on port {door.getsockname()[1]} waited in vain for ranks {missing}"
            ) from None
    return [peers[rank] for rank in sorted(peers)]


def _listen(host: str, ports: list[int]) -> socket.socket:
    """Take the first candidate that is free; where all are on one machine, only its loopback
    interface is opened.
    """
    here = "127.0.0.1" if host in ("localhost", "127.0.0.1") else ""
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server((here, port))
    raise GroupError(f"rank 0 found none of the ports {ports} free; give another with --port")


def _admit(link: socket.socket, world: int, app_id: str, peers: dict[int, socket.socket]) -> int:
    """Read one greeting and answer it; return the rank, or 0 for somebody who does not belong
    here.
    """
    greeting = _read_line(link)
    rank = greeting.get("rank")
    known = greeting.get("app") == app_id and greeting.get("world") == world
    if known and isinstance(rank, int) and 0 < rank < world and rank not in peers:
        with contextlib.suppress(OSError):
            link.sendall(_line({"app": app_id, "rank": 0}))
            return rank
    link.close()
    return 0


def _reach(
    rank: int, world: int, host: str, app_id: str, ports: list[int], deadline: float
) -> socket.socket:
    """The others' side: try the candidates in turn until one of them answers with the app's id."""
    pause = 0.02
    while True:
        for port in ports:
            patience = deadline - time.monotonic()
            if patience <= 0:
                raise GroupError(
                    f"rank {rank} found no rank 0 of app {app_id!r} at {host}, ports {ports}"
                )
            with contextlib.suppress(OSError):
                link = socket.create_connection((host, port), timeout=min(patience, 5.0))
                link.sendall(_line({"app": app_id, "rank": rank, "world": world}))
                if _read_line(link).get("app") == app_id:
                    return link
                link.close()
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, 0.5)


def _line(message: dict[str, object]) -> bytes:
    """Encode one greeting."""
    return json.dumps(message).encode() + b"\n"


def _read_line(link: socket.socket) -> dict[str, object]:
    """Read one greeting; a stranger's silence, noise or length gives an empty one."""
    data, end = b"", time.monotonic() + GREETING_S
    try:
        while not data.endswith(b"\n") and len(data) < GREETING_LIMIT:
            link.settimeout(max(0.001, end - time.monotonic()))
            byte = link.recv(1)  # no more than the line: a vector may follow it
            if not byte:
                return {}
            data += byte
        message = json.loads(data)
    except (OSError, ValueError):
        return {}
    return message if isinstance(message, dict) else {}


def _send(link: socket.socket, vector: Array, lost: str) -> None:
    """Send a vector as little-endian doubles."""
    try:
        link.sendall(vector.astype("<f8").tobytes())
    except OSError as exc:
        raise GroupError(f"{lost}: {exc}") from exc


def _receive(link: socket.socket, length: int, lost: str) -> Array:
    """Receive a vector of this length."""
    data = bytearray(length * 8)
    view, got = memoryview(data), 0
    try:
        while got < len(data):
            count = link.recv_into(view[got:])
            if not count:
                raise GroupError(f"{lost}: it hung up")
            got += count
    except OSError as exc:
        raise GroupError(f"{lost}: {exc}") from exc
    return np.frombuffer(data, dtype="<f8").astype(np.float64)
