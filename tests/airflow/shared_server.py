"""Share one Airflow among all processes of a test run, from the first to the last of them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from airflow_server import AirflowServer


class SharedServer:
    """A server that several processes use, known to each by a file in a folder that they share.

    Args:
        folder: the folder.
        make: makes the server, for the first process.
    """

    def __init__(self, folder: Path, make: Callable[[], AirflowServer]) -> None:
        self._known = folder / "airflow.json"
        self._make = make
        self._turn = folder / "airflow.turn"
        self._use = folder / "airflow.use"
        self._users = folder / "airflow.users"
        self._starting = folder / "airflow.starting"

    @contextmanager
    def joined(self) -> Iterator[AirflowServer]:
        """Give the server, which is started unless another process has done so."""
        with open(self._users, "a") as users:
            with _locked(self._starting):
                fcntl.flock(users, fcntl.LOCK_SH)
                server = self._started()
            try:
                yield server
            finally:
                with _locked(self._starting):
                    self._leave(users, server)

    @contextmanager
    def used(self, alone: bool) -> Iterator[None]:
        """Use the server, together with others or (``alone``) as the only one.

        Whoever wants to be alone waits for those that use it, and those that come later wait for
        it.
        """
        with open(self._use, "a") as use:
            with _locked(self._turn):
                kind = fcntl.LOCK_SH
                if alone:
                    kind = fcntl.LOCK_EX
                fcntl.flock(use, kind)
            yield

    def _started(self) -> AirflowServer:
        if self._known.exists():
            return AirflowServer.joined(json.loads(self._known.read_text()))
        server = self._make()
        try:
            server.start()
        except BaseException:
            _end(server)
            raise
        self._known.write_text(json.dumps(server.to_dict()))
        return server

    def _leave(self, users: IO[str], server: AirflowServer) -> None:
        """Stop the server if nobody else uses it, since a process that has ended holds no lock."""
        fcntl.flock(users, fcntl.LOCK_UN)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        self._known.unlink(missing_ok=True)
        _end(server)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end(server: AirflowServer) -> None:
    """Stop a server, and remove all that it has written."""
    server.stop()
    shutil.rmtree(server.home.parent, ignore_errors=True)


def shared_folder(own: Path) -> Path:
    """Return the folder that all processes of a test run share.

    Args:
        own: the folder for temporary files of this one.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return own.parent
    return own
