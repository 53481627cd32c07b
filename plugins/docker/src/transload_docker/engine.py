"""Send requests to an engine, by the few calls that are needed, and translate its errors."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper.failures import LONGEST_ERROR, read_error
from transload.keeper.rules import TERMINAL
from transload.keeper.tracebacks import traceback_error
from transload.schedulers.api import Visibility
from transload_docker import names
from transload_docker.states import seconds

if TYPE_CHECKING:
    from docker import APIClient

_TIMEOUT_S: Final = 60
_SENT_S: Final = 1.0  # a request has reached the engine by then
_DEFAULT_URL: Final = "unix:///var/run/docker.sock"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORKERS: Final = 8
_LAST_LINES: Final = 200
_KILL: Final = ("9", "SIGKILL", "KILL")
_EVENTS: Final = ("create", "start", "die", "destroy", "pause", "unpause")
_BEFORE_S: Final = 2.0  # longer than an engine takes to listen
_NOTED_LATER_S: Final = 0.5
"""Seconds by which an engine may note a signal after the end that the signal caused.

It notes a signal once it was sent, so that a container that ends at once may be earlier.
"""
SERVER_ERROR: Final = 500
NOT_FOUND: Final = 404
CONFLICT: Final = 409


class EngineError(Exception):
    """The engine answered that it will not do something.

    Attributes:
        code: HTTP status of the answer.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Box:
    """One container of a job, that is one attempt of a replica.

    Args:
        status: what the engine calls its state.
        created: when it was made, seconds since the epoch.
        labels: its labels.
    """

    id: str
    name: str
    status: str
    created: float
    labels: dict[str, str]

    @property
    def app_id(self) -> str:
        """The job."""
        return self.labels[names.LABEL_APP]

    @property
    def owner(self) -> str:
        """Whose keeper looks after it."""
        return self.labels.get(names.LABEL_OWNER, "")

    @property
    def token(self) -> str:
        """The submit that it belongs to."""
        return self.labels.get(names.LABEL_SUBMIT, "")

    @property
    def key(self) -> tuple[str, int]:
        """Role and number of its replica."""
        replica = self.labels.get(names.LABEL_REPLICA, "")
        return self.labels.get(names.LABEL_ROLE, ""), int(replica) if replica.isdigit() else 0

    @property
    def attempt(self) -> int:
        """How often its replica had been started before."""
        text = self.labels.get(names.LABEL_ATTEMPT, "")
        return int(text) if text.isdigit() else 0


def latest(boxes: Iterable[Box]) -> dict[tuple[str, int], Box]:
    """Return the latest container of each replica."""
    found: dict[tuple[str, int], Box] = {}
    for box in sorted(boxes, key=lambda each: each.attempt):
        found[box.key] = box
    return dict(sorted(found.items()))


class Engine:
    """A connection to an engine, made when it is first used and made anew in a forked process.

    Args:
        url: where it is (``unix://…``, ``tcp://…``, ``ssh://…``). None means ``DOCKER_HOST``, else
            the usual socket.
    """

    def __init__(self, url: str | None = None) -> None:
        self._given = url
        self.url = url or os.environ.get("DOCKER_HOST") or _DEFAULT_URL
        self._lock = threading.Lock()
        self._api: APIClient | None = None
        self._pid = 0
        self._machine: tuple[int, float] | None = None

    @property
    def reach(self) -> Visibility:
        """``host`` for a socket of this machine, else ``network``."""
        if self.url.startswith(("unix:", "http+unix:", "/", "npipe:")):
            return "host"
        return "network"

    @property
    def api(self) -> APIClient:
        """The official client.

        Raises:
            SchedulerUnavailable: if there is no engine.
        """
        with self._lock:
            if self._api is None or self._pid != os.getpid():
                self._api = self._connect()
                self._pid = os.getpid()
            return self._api

    def _connect(self) -> APIClient:
        import docker
        from docker.utils import kwargs_from_env

        try:
            kwargs = kwargs_from_env()
            kwargs["base_url"] = self.url
            return docker.APIClient(
                timeout=_TIMEOUT_S, use_ssh_client=self.url.startswith("ssh:"), **kwargs
            )
        except Exception as exc:
            raise self._unavailable(exc) from exc

    def _knock(self) -> None:
        """Raise OSError if no process listens at a socket of this machine.

        The client itself would leave a socket open.
        """
        if self.reach != "host" or self.url.startswith("npipe:"):
            return
        import socket

        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_TIMEOUT_S)
            link.connect(self.url.removeprefix("http+").removeprefix("unix://"))

    def _unavailable(self, exc: BaseException) -> SchedulerUnavailable:
        return SchedulerUnavailable(f"docker engine {self.url}: cannot be reached: {_root(exc)}")

    def call(self, function: Callable[[APIClient], Any], *, again: bool = False) -> Any:
        """Return ``function(client)`` with the errors of client and transport translated.

        Args:
            function: one call.
            again: it may be repeated: an idle connection may have been closed by an engine that was
                restarted.

        Raises:
            EngineError: if the engine refused.
            SchedulerUnavailable: if it could not be reached.
        """
        try:
            import requests
            import urllib3  # type: ignore[import-untyped,unused-ignore]
            from docker.errors import APIError, DockerException
        except ImportError as exc:
            raise SchedulerUnavailable(
                f"the Python client of docker cannot be imported: {exc} (pip install docker)"
            ) from exc
        for last in (not again, True):
            try:
                self._knock()
                return function(self.api)
            except APIError as exc:
                code = getattr(exc.response, "status_code", SERVER_ERROR)
                raise EngineError(_message(exc), int(code or SERVER_ERROR)) from exc
            except (
                requests.RequestException,
                urllib3.exceptions.HTTPError,
                DockerException,
                OSError,
            ) as exc:
                self.close()
                if last:
                    raise self._unavailable(exc) from exc
        raise AssertionError

    def query(self, function: Callable[[APIClient], Any]) -> Any:
        """Do what `call` does for a question without effects.

        An answer that is an error means that the engine cannot say.
        """
        try:
            return self.call(function, again=True)
        except EngineError as exc:
            if exc.code >= SERVER_ERROR:
                raise SchedulerUnavailable(f"docker engine {self.url}: {exc}") from exc
            raise

    def machine(self) -> tuple[int, float]:
        """Return the bytes of memory and the number of CPUs of the engine's machine.

        A number that is not known is 0.
        """
        if self._machine is None:
            found = self.query(lambda api: api.info())
            self._machine = (int(found.get("MemTotal") or 0), float(found.get("NCPU") or 0))
        return self._machine

    def now(self) -> float:
        """Return the time by the clock of the engine's machine, in seconds since the epoch."""
        found = self.query(lambda api: api.info())
        return seconds(found.get("SystemTime")) or time.time()

    def events(self, **labels: str) -> Any:
        """Return the stream of what happens to containers with these labels.

        An engine answers a moment before it listens. So what has happened just before is told, too.

        Raises:
            EngineError: if the engine refuses.
            SchedulerUnavailable: if it cannot be reached.
        """
        filters = {"type": ["container"], "event": list(_EVENTS), "label": _wanted(labels)}
        since = int(self.now() - _BEFORE_S)
        return self.call(
            lambda api: api.events(since=since, filters=filters, decode=True), again=True
        )

    def close(self) -> None:
        """Close the connection. It is made again if it is needed again."""
        with self._lock:
            api = self._api
            self._api = None
        if api is not None and self._pid == os.getpid():
            api.close()

    # -- what there is

    def boxes(self, **labels: str) -> list[Box]:
        """Return the containers with these labels, by the names of `Box`, those that ended too."""
        filters = {"label": _wanted(labels)}
        rows = self.query(lambda api: api.containers(all=True, filters=filters))
        return [_box(row) for row in rows]

    def inspect(self, container_id: str) -> dict[str, Any] | None:
        """Return all that the engine knows of a container, or None if it is gone."""
        try:
            found: dict[str, Any] = self.query(lambda api: api.inspect_container(container_id))
        except EngineError as exc:
            if exc.code == NOT_FOUND:
                return None
            raise
        return found

    def since(self) -> float | None:
        """Return when the engine was started, as its default network is made anew then."""
        with contextlib.suppress(EngineError):
            found = self.query(lambda api: api.inspect_network("bridge"))
            return seconds(found.get("Created"))
        return None

    def error_of(self, container_id: str, code: int) -> str:
        """Return the error of a program that failed.

        That is its error file, else the exception at the end of its output.
        """
        said = ""
        with contextlib.suppress(EngineError, SchedulerUnavailable):
            said = read_error(self.read_file(container_id, names.ERROR_FILE))
            if said or code != 1:  # what an interpreter exits with
                return said
            return traceback_error(
                self.query(lambda api: api.logs(container_id, stdout=False, tail=_LAST_LINES))
            )
        return said

    def asked_to_end(self, container_id: str, begin: float, end: float) -> tuple[bool, bool]:
        """Return whether a container was sent a signal it could handle, and whether it was stopped.

        ``docker stop`` is both. An engine remembers only its last events, none from before its own
        start.

        Args:
            container_id: which.
            begin: when it was started, seconds since the epoch.
            end: when it has ended.
        """
        asked = stopped = False
        filters = {"type": ["container"], "event": ["kill", "stop"], "container": [container_id]}
        until = end + _NOTED_LATER_S
        with contextlib.suppress(EngineError):
            events = self.query(
                lambda api: list(
                    api.events(
                        since=f"{begin:.6f}", until=f"{until:.6f}", filters=filters, decode=True
                    )
                )
            )
            for event in events:
                signal = (event.get("Actor") or {}).get("Attributes", {}).get("signal")
                if event.get("Action") == "stop":
                    stopped = True
                elif signal not in _KILL:
                    asked = True
        return asked, stopped

    def read_file(self, container_id: str, path: str) -> bytes:
        """Return the beginning of a file of a container, or b"" if there is none.

        Raises:
            EngineError: if the engine refuses.
        """
        with contextlib.suppress(tarfile.TarError, OSError), ignoring(NOT_FOUND):
            return _only_file(self.query(lambda api: api.get_archive(container_id, path)[0]))
        return b""

    def last_line(self, container_id: str) -> str:
        """Return when a container has written its last line, in the engine's words.

        It is "" if that is not known.
        """
        with contextlib.suppress(EngineError):
            line: bytes = self.query(lambda api: api.logs(container_id, timestamps=True, tail=1))
            return line.partition(b" ")[0].decode("ascii", "replace")
        return ""

    def has_file(self, container_id: str, path: str) -> bool:
        """Tell whether a container has a file, whether it runs or not."""
        route = f"/containers/{container_id}/archive"

        def look(api: APIClient) -> int:
            answer = api.head(
                f"{api.base_url}/v{api.api_version}{route}",
                params={"path": path},
                timeout=_TIMEOUT_S,
            )
            return int(answer.status_code)

        return bool(self.query(look) == 200)

    def find_program(self, container_id: str, name: str, path: str) -> str:
        """Return where a container has a program, whether it runs or not, or "" if it has none.

        Args:
            container_id: which.
            name: of the program.
            path: the folders to look in, as PATH has them.
        """
        places = (f"{folder}/{name}" for folder in path.split(":"))
        return next((place for place in places if self.has_file(container_id, place)), "")

    # -- changes

    def mark(self, app_id: str, state: str, msg: str, owner: str) -> dict[str, str]:
        """Note how a job is to end, for other machines, and return the mark that was first.

        It is an empty volume, which outlives the process that wrote it.
        """
        text = json.dumps({"state": state, "msg": msg, "owner": owner, "time": time.time()})
        labels = {**names.id_labels(app_id), names.LABEL_END: text}
        name = names.mark_name(app_id)
        made = self.call(lambda api: api.create_volume(name, labels=labels), again=True)
        return _mark(made) or {}

    def marks(self, **labels: str) -> dict[str, dict[str, str]]:
        """Return how jobs are to end that have a mark, by their ids. Labels as in `boxes`."""
        wanted = [f"{names.OF[name]}={value}" for name, value in labels.items()]
        filters = {"label": [names.LABEL_END, *wanted]}
        answer = self.query(lambda api: api.volumes(filters=filters))
        found = {}
        for volume in answer.get("Volumes") or ():
            mark = _mark(volume)
            if mark is not None:
                found[volume["Labels"].get(names.LABEL_APP, "")] = mark
        return found

    def mark_of(self, app_id: str) -> dict[str, str] | None:
        """Return how a job is to end, or None if it has no mark."""
        with ignoring(NOT_FOUND):
            return _mark(self.query(lambda api: api.inspect_volume(names.mark_name(app_id))))
        return None

    def unmark(self, app_id: str) -> None:
        """Remove the mark of a job, if there is one."""
        with ignoring(NOT_FOUND):
            self.call(lambda api: api.remove_volume(names.mark_name(app_id)), again=True)

    def remove_container(self, container_id: str) -> None:
        """Kill and remove a container, if it is there."""
        with ignoring(NOT_FOUND, CONFLICT):  # conflict: somebody else is at it
            self.call(lambda api: api.remove_container(container_id, force=True, v=True))

    def stop(self, container_id: str) -> None:
        """Have the engine end a container, without waiting for that: by its stop signal, then KILL."""
        with ignoring(NOT_FOUND), contextlib.suppress(SchedulerUnavailable):
            self.call(lambda api: _stop(api, container_id))

    def signal(self, container_id: str, number: str) -> None:
        """Send a signal to a container, unless it has ended."""
        with ignoring(NOT_FOUND, CONFLICT):
            self.call(lambda api: api.kill(container_id, number))


def path_of(config: dict[str, Any]) -> str:
    """Return the PATH of an image or a container, from its ``Config``."""
    pairs = (item.partition("=") for item in config.get("Env") or ())
    found = {name: value for name, _, value in pairs}
    return str(found.get("PATH", _PATH))


@contextlib.contextmanager
def ignoring(*codes: int) -> Iterator[None]:
    """Ignore the engine's refusals of these codes."""
    try:
        yield
    except EngineError as exc:
        if exc.code not in codes:
            raise


def in_parallel(function: Callable[[Any], Any], items: Iterable[Any]) -> list[BaseException]:
    """Call ``function`` with each item, a few at a time, and return what was raised.

    No thread is left.
    """
    items = list(items)
    errors: list[BaseException] = []
    if len(items) <= 1:
        for item in items:
            _guard(function, item, errors)
        return errors
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_WORKERS, len(items))) as pool:
        for item in items:
            # in a copy of this thread's context, which says where progress is shown
            pool.submit(copy_context().run, _guard, function, item, errors)
    return errors


def _guard(function: Callable[[Any], Any], item: Any, errors: list[BaseException]) -> None:
    try:
        function(item)
    except Exception as exc:
        errors.append(exc)


def _stop(api: APIClient, container_id: str) -> None:
    """Send the request, which the engine carries out whether somebody waits or not."""
    url = api._url("/containers/{0}/stop", container_id)
    api._raise_for_status(api._post(url, timeout=_SENT_S))


def _mark(volume: dict[str, Any]) -> dict[str, str] | None:
    """Return what a volume says of the end of a job, or None for nothing."""
    text = (volume.get("Labels") or {}).get(names.LABEL_END, "")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict) and found.get("state") in TERMINAL:
            return found
    return None


def _wanted(labels: Mapping[str, str]) -> list[str]:
    """Return the labels that containers must have, given by the names of `Box`."""
    return [names.LABEL_APP, *(f"{names.OF[name]}={value}" for name, value in labels.items())]


def _box(row: dict[str, Any]) -> Box:
    labels = row["Labels"]
    name = row["Id"][:12]
    if row.get("Names"):
        name = row["Names"][0].lstrip("/")
    return Box(
        id=row["Id"],
        name=name,
        status=row["State"],
        created=float(row.get("Created") or 0.0),
        labels=labels,
    )


def _only_file(archive: Iterable[bytes]) -> bytes:
    """Return the beginning of the one file in a tar archive, and read no more than that takes."""
    data = b""
    for chunk in archive:
        data += chunk
        if len(data) > LONGEST_ERROR + 10 * tarfile.BLOCKSIZE:
            break
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        member = tar.next()
        if member is None or not member.isreg():
            return b""  # the program left a link, a FIFO or a folder there
        file = tar.extractfile(member)
        if file is None:
            return b""
        return file.read(LONGEST_ERROR)


def _message(exc: Any) -> str:
    """Return the engine's own words as one line."""
    return " ".join(str(exc.explanation or exc).split())


def _root(exc: BaseException) -> str:
    """Return the innermost reason of a failed connection, as one line."""
    seen: BaseException | None = exc
    while seen is not None:
        if (
            isinstance(seen, OSError)
            and isinstance(seen.errno, int)
            and seen.errno in errno.errorcode
        ):
            return str(seen.strerror or seen)
        seen = seen.__cause__ or seen.__context__
    return " ".join(str(exc).split())[:300]
