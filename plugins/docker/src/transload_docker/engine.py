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
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper.failures import ASKS_AGAIN, LONGEST_ERROR, read_error
from transload.keeper.tracebacks import traceback_error
from transload.schedulers.api import Visibility, damaged_message
from transload.specs import AppStatus
from transload_docker import names
from transload_docker.plan import (
    DELETED,
    DELIVERED,
    ENDED,
    NOTICE,
    RECORD,
    STOP,
    Container,
    Facts,
    Interruptions,
    NewerPlan,
    Notice,
    Plan,
    Restarts,
)
from transload_docker.states import seconds
from transload_docker.usage import Meter

if TYPE_CHECKING:
    from docker import APIClient

_TIMEOUT_S: Final = 60
_DEFAULT_URL: Final = "unix:///var/run/docker.sock"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORKERS: Final = 8
_LOOKS: Final = 5
_LAST_LINES: Final = 200
_REMEMBERED: Final = 10_000
_SIGNAL_BASE: Final = 128
_KILL: Final = ("9", "SIGKILL", "KILL")
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
        self._running: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._machine: tuple[int, float] | None = None
        self.meter: Meter | None = None  # of somebody who watches

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
                if self._pid not in (0, os.getpid()):
                    self.meter = None  # its thread is the parent's
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

    def close(self) -> None:
        """Close the connection. It is made again if it is needed again."""
        with self._lock:
            api = self._api
            self._api = None
        if api is not None and self._pid == os.getpid():
            api.close()

    # -- facts

    def facts(self, app_id: str | None = None, *, chain: str | None = None) -> dict[str, Facts]:
        """Return all that the engine knows of one job, of a chain, or of all, by job id.

        Notes are read before and after the containers, so that no conclusion mixes two moments. A
        container counts as lost only if the job was recorded both before and after the look for it.
        """
        before = self.notes(app_id, chain=chain)
        for _ in range(_LOOKS):
            found = self._containers(
                _filters(app_id, chain),
                {each for each, facts in before.items() if facts.ended is not None},
            )
            after = self.notes(app_id, chain=chain)
            for each, containers in found.items():
                after.setdefault(each, Facts()).containers = containers
            if not any(_mixed(before.get(each), facts) for each, facts in after.items()):
                self._add_since([facts for facts in after.values() if facts.killed()])
                return after
            before = after
        return before

    def _add_since(self, found: list[Facts]) -> None:
        """Add when the engine was started. It makes its default network anew at each start."""
        if not found:
            return
        with contextlib.suppress(EngineError):
            since = seconds(self.query(lambda api: api.inspect_network("bridge")).get("Created"))
            for facts in found:
                facts.engine_since = since

    def notes(self, app_id: str | None = None, *, chain: str | None = None) -> dict[str, Facts]:
        """Return what is noted of jobs in the labels of volumes."""
        filters = _filters(app_id, chain)
        answer = self.query(lambda api: api.volumes(filters=filters))
        found: dict[str, Facts] = {}
        for volume in answer.get("Volumes") or ():
            labels = volume.get("Labels") or {}
            facts = found.setdefault(labels.get(names.LABEL_APP, ""), Facts())
            volume_name = f"volume {volume['Name']}"
            _note(
                facts,
                labels.get(names.LABEL_KIND, ""),
                labels.get(names.LABEL_DATA, ""),
                volume_name,
            )
        return found

    def _containers(
        self, filters: dict[str, list[str]], brief: set[str]
    ) -> dict[str, list[Container]]:
        """Return the containers of jobs.

        For jobs in ``brief`` only the list of containers is read.
        """
        rows = self.query(lambda api: api.containers(all=True, filters=filters))
        latest: dict[tuple[str, str, str], int] = {}
        for row in rows:
            labels = row["Labels"]
            key = _key(labels)
            latest[key] = max(latest.get(key, -1), _int(labels.get(names.LABEL_ATTEMPT)))
        found: dict[str, list[Container]] = {}
        for row in rows:
            labels = row["Labels"]
            app = labels[names.LABEL_APP]
            is_latest = latest[_key(labels)] == _int(labels.get(names.LABEL_ATTEMPT))
            details: dict[str, Any] | None = {}
            if is_latest and app not in brief:
                details = self._inspect(row)
            if details is not None:
                found.setdefault(app, []).append(_container(row, details))
        return found

    def _inspect(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """Return the ``State`` of a container, or None if it is gone.

        A state that cannot change is remembered.
        """
        container_id: str = row["Id"]
        known = self._ended.get(container_id)  # no container of ours is ever started twice
        if known is None and row["State"] == "running":
            known = self._running.get(container_id)
        if known is not None:
            return known
        try:
            state: dict[str, Any] = self.query(lambda api: api.inspect_container(container_id))[
                "State"
            ]
        except EngineError as exc:
            if exc.code == NOT_FOUND:
                return None
            raise
        if state["Status"] == "exited" and state["ExitCode"]:
            state["said"] = self._said(container_id, state["ExitCode"])
        if state["Status"] == "exited" and _may_have_been_asked(state["ExitCode"]):
            state.update(self._asked_to_end(container_id, state))
        if self.meter is not None:
            if state["Status"] == "running":
                self.meter.follow(container_id)
            else:
                state["used"] = self.meter.used.pop(container_id, None)
        remembered = {"running": self._running, "exited": self._ended, "dead": self._ended}.get(
            state["Status"]
        )
        if remembered is not None:
            if len(remembered) > _REMEMBERED:
                remembered.clear()
            remembered[container_id] = state
        return state

    def _said(self, container_id: str, code: int) -> str:
        """Return the error of a program that failed.

        That is its error file, else the exception at the end of its output.
        """
        said = ""
        with contextlib.suppress(EngineError, tarfile.TarError, OSError):
            said = read_error(
                _only_file(
                    self.query(lambda api: api.get_archive(container_id, names.ERROR_FILE)[0])
                )
            )
        if said or code != 1:  # what an interpreter exits with
            return said
        with contextlib.suppress(EngineError):
            return traceback_error(
                self.query(lambda api: api.logs(container_id, stdout=False, tail=_LAST_LINES))
            )
        return ""

    def _asked_to_end(self, container_id: str, state: dict[str, Any]) -> dict[str, Any]:
        """Return when a container was sent a signal it could handle, and whether it was stopped.

        The keys are ``asked_to_end``, in seconds since the epoch, and ``was_stopped``. ``docker
        stop`` sets both. An engine remembers only its last events. The dict is empty if it has
        forgotten these, or was started again.
        """
        found: dict[str, Any] = {}
        end = seconds(state.get("FinishedAt"))
        if end is None:
            return found
        filters = {"type": ["container"], "event": ["kill", "stop"], "container": [container_id]}
        begin = seconds(state.get("StartedAt")) or 0.0
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
                    found["was_stopped"] = True
                elif signal not in _KILL:
                    found.setdefault("asked_to_end", float(event["timeNano"]) / 1e9)
        return found

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

    def output(self, container_id: str) -> Any:
        """Return an iterator over what a container writes from now on, to be closed by ``close``.

        Raises:
            EngineError: if the engine refuses.
        """
        return self.call(
            lambda api: api.attach(container_id, stdout=True, stderr=True, stream=True, logs=False)
        )

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

    def measure(self) -> None:
        """Note from now on what containers use until they end."""
        if self.meter is None:
            self.meter = Meter()
            self._running.clear()  # each is looked at once more

    def doubt(self, container_id: str) -> None:
        """Forget that a container runs, since an engine's lists show its end a moment later."""
        self._running.pop(container_id, None)

    # -- changes

    def note(self, app_id: str, kind: str, data: str, uid: str) -> bool:
        """Note a fact about a job, unless one of that kind is noted already. The first one counts.

        Returns:
            True if this call noted it.
        """
        labels = {
            **names.id_labels(app_id),
            names.LABEL_KIND: kind,
            names.LABEL_DATA: data,
            names.LABEL_UID: uid,
        }
        name = names.volume_name(app_id, kind)
        made = self.call(lambda api: api.create_volume(name, labels=labels), again=True)
        return bool((made.get("Labels") or {}).get(names.LABEL_UID) == uid)

    def forget(self, app_id: str, kind: str) -> None:
        """Remove a noted fact, if there is one."""
        with ignoring(NOT_FOUND):
            self.call(lambda api: api.remove_volume(names.volume_name(app_id, kind)), again=True)

    def remove_container(self, container_id: str) -> None:
        """Kill and remove a container, if it is there."""
        with ignoring(NOT_FOUND, CONFLICT):  # conflict: somebody else is at it
            self.call(lambda api: api.remove_container(container_id, force=True, v=True))

    def remove_network(self, name: str) -> None:
        """Remove a network, unless it is gone or still in use."""
        with ignoring(NOT_FOUND, 403, CONFLICT):
            self.call(lambda api: api.remove_network(name))

    def stop(self, container_id: str) -> None:
        """Ask a container to end, and kill it after its grace period. One that has ended stays."""
        with ignoring(NOT_FOUND):
            self.call(lambda api: api.stop(container_id))

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


def _note(facts: Facts, kind: str, data: str, volume: str) -> None:
    """Take over one noted fact. What this version does not understand is ignored."""
    facts.kinds.add(kind)
    if kind.startswith(DELIVERED):
        facts.delivered.add(kind[len(DELIVERED) :])
        return
    try:
        if kind.startswith(NOTICE):
            facts.notices.append(Notice.from_object(kind[len(NOTICE) :], _object(data)))
        elif kind == RECORD:
            facts.plan = Plan.from_json(data)
        elif kind == STOP:
            facts.stop = _object(data)
        elif kind == DELETED:
            facts.deleted = _object(data)
        elif kind == ENDED and AppStatus.from_json(data).is_terminal():
            facts.ended = data
    except NewerPlan as exc:
        facts.newer = True
        facts.unread = f"its record, {volume}, {exc}"
    except (ValueError, RecursionError):
        if kind == RECORD:
            facts.unread = damaged_message(f"its record, {volume},")


def _object(text: str) -> dict[str, Any]:
    """Return the object in a JSON text.

    Raises:
        ValueError: if there is none.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _mixed(before: Facts | None, after: Facts) -> bool:
    """Tell whether the notes changed between two looks in a way that matters for the containers.

    What the containers say would then belong to neither of the looks.
    """
    if after.plan is None or after.ended is not None:
        return False
    known = before is not None and before.plan is not None and before.plan.uid == after.plan.uid
    return not known or (
        (before is not None and before.stop is not None) != (after.stop is not None)
    )


def _key(labels: dict[str, str]) -> tuple[str, str, str]:
    return (
        labels[names.LABEL_APP],
        labels.get(names.LABEL_ROLE, ""),
        labels.get(names.LABEL_REPLICA, ""),
    )


def _filters(app_id: str | None, chain: str | None) -> dict[str, list[str]]:
    """Return the filter for the objects of a job or of a chain, or else for those of all jobs."""
    label = names.LABEL_APP
    if app_id is not None:
        label = f"{names.LABEL_APP}={app_id}"
    elif chain is not None:
        label = f"{names.LABEL_CHAIN}={chain}"
    return {"label": [label]}


def _container(row: dict[str, Any], state: dict[str, Any]) -> Container:
    """Return a container, from its row in the list and its state when it was inspected."""
    labels = row["Labels"]
    name = row["Id"][:12]
    if row.get("Names"):
        name = row["Names"][0].lstrip("/")
    status = state.get("Status", row["State"])
    finished = None
    exit_code = None
    if status in {"exited", "dead"}:
        finished = seconds(state.get("FinishedAt"))
        exit_code = state.get("ExitCode")
    return Container(
        id=row["Id"],
        name=name,
        role=labels.get(names.LABEL_ROLE, ""),
        replica=_int(labels.get(names.LABEL_REPLICA)),
        attempt=_int(labels.get(names.LABEL_ATTEMPT)),
        restarts=Restarts.from_text(labels.get(names.LABEL_RESTARTS, "")),
        uid=labels.get(names.LABEL_UID, ""),
        status=status,
        exit_code=exit_code,
        error=state.get("Error", ""),
        oom=bool(state.get("OOMKilled")),
        started=seconds(state.get("StartedAt")),
        finished=finished,
        said=state.get("said", ""),
        used=state.get("used"),
        interruptions=Interruptions.from_text(labels.get(names.LABEL_INTERRUPTIONS, "")),
        asked_to_end=state.get("asked_to_end"),
        was_stopped=state.get("was_stopped", False),
    )


def _may_have_been_asked(code: int) -> bool:
    """Tell whether an exit code is one of a program that was sent a signal from outside."""
    return code == ASKS_AGAIN or code > _SIGNAL_BASE


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


def _int(text: str | None) -> int:
    """Return a label as a number, or 0 if it is missing or no number."""
    if text is None or not text.isdigit():
        return 0
    return int(text)


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
