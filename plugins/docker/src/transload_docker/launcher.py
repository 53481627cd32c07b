"""The replicas of a job as containers of an engine, one for each attempt.

Containers go on without whoever started them. What became of one is asked of the engine, whenever
that says that something happened, and now and then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper import layout
from transload.keeper.creation import Refused
from transload.keeper.failures import ASKS_AGAIN, exit_text
from transload.keeper.launcher import (
    Ended,
    Event,
    Launcher,
    NotStarted,
    Progressed,
    Stalled,
    Started,
)
from transload.keeper.logindex import SILENT_S
from transload.keeper.rules import Gang, Replica, Restart
from transload.keeper.signs import UPDATE_S, Watch
from transload.schedulers import Feeder
from transload.specs import AppState
from transload_docker import names, networks, states
from transload_docker.engine import (
    CONFLICT,
    NOT_FOUND,
    Box,
    Engine,
    EngineError,
    in_parallel,
    path_of,
)
from transload_docker.processes import has_handler

GRACE_S: Final = 5.0
"""Seconds between asking a replica without a notice to end, and killing it."""

_RESYNC_S: Final = 30.0
_AGAIN_S: Final = 1.0
_STARTS: Final = 3
_KILLS: Final = 5  # after so many, a container is said not to end
_REMOTE_S: Final = 5.0
_SHARE: Final = 20  # reading through an engine takes at most this part of the time
_KILL: Final = 9
_TERM: Final = 15
_FIRST_SIGNAL: Final = 129
_HINTS: Final = {
    126: "its entrypoint may not be executed",
    127: "there may be no such entrypoint in the image",
}


class Containers(Launcher):
    """Replicas that are containers of an engine.

    Args:
        engine: where they run.
        home: folder of the scheduler.
        record: that of the job.
        owner: whose keeper this is.
        app: the rules of the job.
        wake: called from another thread when `events` should be called.

    Attributes:
        away: why the engine cannot be asked now, or "".
        away_since: since when, monotonic.
    """

    def __init__(
        self,
        engine: Engine,
        home: str,
        record: dict[str, Any],
        owner: str,
        app: Gang,
        wake: Callable[[], object],
    ) -> None:
        super().__init__()
        self.engine = engine
        self._home = home
        self.app = app
        self.app_id: str = record["app_id"]
        self.token: str = record["token"]
        self.owner = owner
        self.away = ""
        self.away_since = 0.0
        self._logs: str = record["logs"]
        self._keep: dict[str, Any] = record["keep"]
        self._grace = GRACE_S
        self._pending: list[Replica] = []  # to be started once the engine can
        self._refused: dict[Replica, int] = {}  # how often the engine would not start it
        self._shown: set[Replica] = set()  # those whose start was reported
        self._boxes: dict[Replica, Box] = {}
        self._paused: set[Replica] = set()
        self._deadlines: dict[Replica, float] = {}  # when each is killed (again), rules' clock
        self._kills: dict[Replica, int] = {}
        self._died: set[str] = set()  # ids of containers that have ended, by the engine's events
        self._look_at = 0.0
        self._news = threading.Event()
        self._wake = wake
        self._feeder: Feeder | None = None
        self._watches = {replica: self._watch(replica) for replica in app.replicas}
        self._progress_due = 0.0
        self._progress_pause = UPDATE_S
        self._events: list[Event] = []

    def _watch(self, replica: Replica) -> Watch:
        """Return what looks for the signs of life of a replica."""
        role = self._keep["roles"][replica.role]

        def last_line() -> object:
            box = self._boxes.get(replica)
            return self.engine.last_line(box.id) if box is not None else ""

        return Watch(
            self.logs_of(replica),
            layout.end_of_own,
            role["folders"],
            role["stall_after"],
            last_line,
        )

    def logs_of(self, replica: Replica) -> str:
        """Return the folder where a replica reports its progress."""
        name = self._keep["roles"][replica.role]["name"]
        return f"{self._logs}/{name}/{replica.k}"

    def name_of(self, replica: Replica) -> str:
        """Return the name of the container of a replica's latest attempt."""
        return self._name_of(replica, replica.run)

    def _name_of(self, replica: Replica, attempt: int) -> str:
        role = self._keep["roles"][replica.role]["name"]
        return names.container_name(self.app_id, role, replica.k, attempt)

    def error_of(self, replica: Replica, code: int, since: int) -> str:
        """Return a replica's report of its failure, else the exception at the end of its output."""
        return self.engine.error_of(self.name_of(replica), code)

    # -- the first start

    def make(self, containers: Sequence[dict[str, Any]]) -> None:
        """Make all containers.

        Args:
            containers: name and body of each, in the order of the replicas.

        Raises:
            EngineError: if the engine refuses one.
            SchedulerUnavailable: if it does not answer.
            Refused: if another machine has submitted the job.
        """
        if self._keep["network"]:
            network = networks.ensure(self.engine, self._home, self.owner)
            for container in containers:
                body = container["body"]
                networks.connect(body, network, body["Labels"][names.LABEL_HOST])
        self._make(containers[0])  # its name is the lock among machines
        for error in in_parallel(self._make, containers[1:]):
            raise error

    def start_made(self) -> None:
        """Start all containers that were made. `adopt` sees to the rest where the engine is away.

        Raises:
            EngineError: if the engine refuses one.
        """
        first, *rest = self.app.replicas
        for part in ([first], rest):  # rank 0 first: the others look for it
            for error in in_parallel(self._start_made, part):
                if not isinstance(error, SchedulerUnavailable):
                    raise error

    def _make(self, container: dict[str, Any]) -> None:
        name = container["name"]
        body = container["body"]
        try:
            made = self._create(name, body)
        except EngineError as exc:
            if exc.code != CONFLICT:
                raise
            there = self.engine.inspect(name)
            labels = there["Config"].get("Labels") or {} if there is not None else {}
            if there is not None and labels.get(names.LABEL_APP) != self.app_id:
                raise
            if labels.get(names.LABEL_OWNER) != self.owner:  # there, or gone just now
                raise Refused({"error": "elsewhere"}) from exc
            self.engine.remove_container(name)  # of a submit that died
            made = self._create(name, body)
        if body.get("Entrypoint") == ["python"] and self._has_python3_alone(made):
            self.engine.remove_container(made)
            body["Entrypoint"] = ["python3"]
            self._create(name, body)

    def _create(self, name: str, body: dict[str, Any]) -> str:
        made = self.engine.call(lambda api: api.create_container_from_config(body, name))
        return str(made["Id"])

    def _has_python3_alone(self, container_id: str) -> bool:
        """Tell whether a container has no ``python``, and a ``python3`` in its place."""
        path = path_of((self.engine.inspect(container_id) or {}).get("Config", {}))
        if self.engine.find_program(container_id, "python", path):
            return False
        return bool(self.engine.find_program(container_id, "python3", path))

    def _start_made(self, replica: Replica) -> None:
        self._expect_signs(replica)
        self.engine.call(lambda api: api.start(self.name_of(replica)))

    def _expect_signs(self, replica: Replica) -> None:
        """Expect signs of life of a new attempt, which is about to be started."""
        self._watches[replica].begin(time.monotonic())
        self._progress_pause = UPDATE_S
        self._progress_due = 0.0

    def remove_all(self) -> None:
        """Remove all containers of this submit, running ones too.

        Raises:
            EngineError, SchedulerUnavailable: if the engine does not.
        """
        boxes = self.engine.boxes(app_id=self.app_id, owner=self.owner)
        for error in in_parallel(lambda box: self.engine.remove_container(box.id), boxes):
            raise error

    # -- starting

    def adopt(self) -> list[Replica]:
        """Go on with the replicas as they are, and return those that are still to be started."""
        to_start = []
        for replica in self.app.replicas:
            attempt = replica.attempt
            if attempt.alive and attempt.state == "RUNNING":
                self._shown.add(replica)
                self._watches[replica].resume(time.monotonic())
            elif attempt.alive:
                self._pending.append(replica)
            elif attempt.state == "PENDING" and not replica.waiting:
                to_start.append(replica)
        self._news.set()
        return to_start

    def listen(self) -> None:
        """Hear from now on what happens to containers."""
        self._feeder = Feeder("transload-docker-events", self._read_events)

    def _read_events(self, feeder: Feeder) -> None:
        stream = self.engine.events(app_id=self.app_id)
        if not feeder.opened(stream.close):
            return
        try:
            self._notify()
            for event in stream:
                if event.get("Action") == "die":
                    self._died.add((event.get("Actor") or {}).get("ID", ""))
                self._notify()
        finally:
            self._notify()

    def _notify(self) -> None:
        self._news.set()
        self._wake()

    def start(self, replicas: Sequence[Replica]) -> None:
        """Make the containers of new attempts, and start them as soon as the engine can."""
        for replica in replicas:
            self._shown.discard(replica)
            self._deadlines.pop(replica, None)
            self._kills.pop(replica, None)
            self._pending.append(replica)
        self._news.set()

    def _start_pending(self) -> None:
        """Start what is pending, the first replica first."""
        ordered = [
            each
            for each in self.app.replicas
            if each in self._pending and not each.attempt.stopping
        ]
        first = [each for each in ordered if each is self.app.replicas[0]]
        rest = [each for each in ordered if each not in first]
        for part in (first, rest):
            for error in in_parallel(self._start_one, part):
                raise error

    def _start_one(self, replica: Replica) -> None:
        name = self.name_of(replica)
        try:
            there = self.engine.inspect(name)
            if there is None:
                there = self._renewed(replica, name)
            if there is None:
                self._give_up(replica, "its container was removed")
                return
            if there["State"]["Status"] != "created":
                self._watches[replica].resume(time.monotonic())
            elif not there["State"].get("Error"):
                self._expect_signs(replica)
                self.engine.call(lambda api: api.start(name))
        except EngineError as exc:
            there = self.engine.inspect(name)
            self._refused[replica] = self._refused.get(replica, 0) + 1
            # usually the engine notes the reason with the container, which has failed then
            if there is None or not there["State"].get("Error"):
                if self._refused[replica] >= _STARTS:
                    self._give_up(replica, str(exc))
                return
        self._refused.pop(replica, None)
        self._pending.remove(replica)

    def _give_up(self, replica: Replica, why: str) -> None:
        self._pending.remove(replica)
        self._events.append(NotStarted(replica, why))

    def _renewed(self, replica: Replica, name: str) -> dict[str, Any] | None:
        """Make the container of a replica's next attempt like its last one, or return None."""
        last = None
        if replica.run:
            last = self.engine.inspect(self._name_of(replica, replica.run - 1))
        if last is None:
            return None
        body = {**last["Config"], "Image": last["Image"], "HostConfig": last["HostConfig"]}
        body["Labels"] = {**body["Labels"], names.LABEL_ATTEMPT: str(replica.run)}
        counts = {
            "TRANSLOAD_RETRY": replica.restarts,
            "TRANSLOAD_INTERRUPTIONS": replica.interruptions,
        }
        kept = [item for item in body.get("Env") or () if item.partition("=")[0] not in counts]
        body["Env"] = [*kept, *(f"{name}={count}" for name, count in counts.items())]
        mode = last["HostConfig"].get("NetworkMode") or ""
        if self._keep["network"]:  # it may have been removed while nothing ran
            mode = networks.ensure(self.engine, self._home, self.owner)
        if mode not in ("", "default", "bridge", "host", "none"):
            host = body["Labels"].get(names.LABEL_HOST, "")
            networks.connect(body, mode, host)
        self._create(name, body)
        return self.engine.inspect(name)

    # -- what happens

    def events(self) -> list[Event]:
        """Return the starts and ends of containers, and signs of life, since the last call."""
        now = time.monotonic()
        if self._news.is_set() or now >= self._look_at:
            self._news.clear()
            self._look_at = now + _RESYNC_S
            self._ask(self._look)
        if not self.away:
            self._ask(self._look_for_signs)
        found = self._events
        self._events = []
        return found

    def _ask(self, question: Callable[[], object]) -> None:
        """Do what needs the engine, and note whether it can be reached."""
        try:
            question()
        except SchedulerUnavailable as exc:
            self._went_away(exc)
            return
        except EngineError as exc:
            self.waiting = str(exc)
            self._look_at = time.monotonic() + _AGAIN_S
            return
        self.away = self.waiting = ""

    def _went_away(self, error: BaseException) -> None:
        if not self.away:
            self.away_since = time.monotonic()
        self.away = str(error)
        self._look_at = time.monotonic() + _AGAIN_S

    def due(self) -> float:
        """Return when to look again, though nothing is heard."""
        if self._events:
            return 0.0
        dues = [self._look_at]
        if not self.away:
            offset = time.monotonic() - time.time()
            dues += [offset + each for each in self._deadlines.values()]
        living = self._living()
        if living and not self.away:
            dues.append(self._progress_due)
            dues += [self._watches[replica].due for replica in living]
        return min(dues)

    def _look(self) -> None:
        """Ask the engine what became of the containers."""
        if self._pending:
            self._start_pending()
        if self._pending:
            self._look_at = time.monotonic() + _AGAIN_S
        died, self._died = self._died, set()
        boxes = {box.name: box for box in self.engine.boxes(app_id=self.app_id)}
        ends: list[Ended] = []
        for replica in self.app.replicas:
            if not replica.attempt.alive or replica in self._pending:
                continue
            box = boxes.get(self.name_of(replica))
            if box is None:
                why = "lost: its container was removed"
                ends.append(self._ended(replica, None, time.time(), why=why, retry=False))
                continue
            self._boxes[replica] = box
            self._note_pause(replica, box)
            # an engine's lists show an end a moment later than its events
            has_ended = box.status not in states.ALIVE or box.id in died
            if has_ended or replica not in self._shown:
                end = self._inspect(replica, box)
                if end is not None:
                    ends.append(end)
        ends.sort(key=lambda end: end.at)
        self._events += ends

    def _inspect(self, replica: Replica, box: Box) -> Ended | None:
        """Look closely at a container, and return its end if it has ended."""
        found = self.engine.inspect(box.id)
        if found is None:  # the next look says so
            self._look_at = time.monotonic()
            return None
        state = found["State"]
        started = states.seconds(state.get("StartedAt"))
        is_new = state["Status"] == "created" and not state.get("Error")
        if started is not None and replica not in self._shown:
            self._shown.add(replica)
            self._events.append(Started(replica, started, box.name))
        if is_new:
            self._pending.append(replica)
            self._news.set()
        if is_new or state["Status"] in states.ALIVE or state["Status"] not in states.STATES:
            return None
        if state["Status"] == "removing":
            self._look_at = time.monotonic() + _AGAIN_S
            return None
        return self._end_of(replica, box, state)

    def _end_of(self, replica: Replica, box: Box, state: dict[str, Any]) -> Ended:
        code = states.exit_code(state["ExitCode"])
        if state["Status"] == "created":
            code = None
        started = states.seconds(state.get("StartedAt")) or 0.0
        finished = states.seconds(state.get("FinishedAt")) or time.time()
        asked = stopped = False
        may_be_asked = code == ASKS_AGAIN or (code or 0) < 0
        if may_be_asked and replica.attempt.kill_at is None and not state.get("OOMKilled"):
            asked, stopped = self.engine.asked_to_end(box.id, started, finished)
        why = ""
        if states.replica_state(state["Status"], state["ExitCode"], state.get("Error", "")) != (
            AppState.SUCCEEDED
        ):
            why = self._why(state, asked, started, finished)
        cause = "requested" if self._is_interruption(replica, code, asked, stopped) else ""
        return self._ended(replica, code, finished, why=why, cause=cause)

    def _ended(
        self,
        replica: Replica,
        code: int | None,
        at: float,
        *,
        why: str,
        cause: str = "",
        retry: bool = True,
    ) -> Ended:
        self._watches[replica].end()
        self._paused.discard(replica)
        self._deadlines.pop(replica, None)
        if replica in self._boxes:
            with suppress(EngineError):
                self._note_progress(replica)
        return Ended(replica, code, at, why=why, cause=cause, retry=retry)

    def _is_interruption(
        self, replica: Replica, code: int | None, asked: bool, stopped: bool
    ) -> bool:
        """Tell whether somebody else's ``docker stop`` has interrupted a replica.

        It asks to go on by its exit code, or was sure to end and did by the signal of its notice,
        or by KILL.
        """
        notice = self._keep["roles"][replica.role]["notice_signal"] or _TERM
        if code == ASKS_AGAIN:
            return asked
        return asked and stopped and code in (-_KILL, -notice)

    def _why(self, state: dict[str, Any], asked: bool, started: float, finished: float) -> str:
        """Return why a container ended badly."""
        if state.get("Error"):
            return f"could not be started: {state['Error']}"
        if state.get("OOMKilled"):
            return "out of memory: killed at its memory limit"
        code = state["ExitCode"]
        hint = _HINTS.get(code, "")
        if code >= _FIRST_SIGNAL:
            hint = self._killed_by(asked, started, finished)
        text = exit_text(states.exit_code(code))
        return f"{text}: {hint}" if hint else text

    def _killed_by(self, asked: bool, started: float, finished: float) -> str:
        """Return who ended a container by a signal, or "" if that is not known."""
        since = self.engine.since()
        # what an engine finds running when it is started it ends within a moment
        if since is not None and started < since and finished - 1.0 < since:
            return "the engine went away, and was started again since"
        return "somebody else stopped its container" if asked else ""

    # -- signs of life

    def _note_pause(self, replica: Replica, box: Box) -> None:
        """Expect no signs of life of a container that is paused."""
        is_paused = box.status == "paused"
        if is_paused and replica not in self._paused:
            self._paused.add(replica)
            self._watches[replica].end()
        elif not is_paused and replica in self._paused:
            self._paused.discard(replica)
            self._watches[replica].resume(time.monotonic())

    def _living(self) -> list[Replica]:
        """Return the replicas of which signs of life are expected."""
        return [
            each
            for each in self.app.replicas
            if each.attempt.alive
            and not each.attempt.stopping
            and each in self._boxes
            and each not in self._paused
            and each not in self._pending
        ]

    def _look_for_signs(self) -> None:
        """See how far the replicas are, and whether one has stalled."""
        now = time.monotonic()
        living = self._living()
        if living and now >= self._progress_due:
            said = [each for each in living if self._note_progress(each)]
            self._progress_pause = min(2 * self._progress_pause, SILENT_S)
            if said:
                self._progress_pause = UPDATE_S
            took = time.monotonic() - now
            if not self._keep["mounted"]:
                self._progress_pause = max(_REMOTE_S, _SHARE * took)
            self._progress_due = now + self._progress_pause
        for replica in living:
            watch = self._watches[replica]
            if watch.look(now):
                self._events.append(Stalled(replica, watch.stalled))
                if watch.stalled:
                    self._answer_stall(replica, now)

    def _note_progress(self, replica: Replica) -> bool:
        """Note what a replica reports, and return False if it has reported nothing."""
        if not self._keep["mounted"]:
            self._fetch_report(replica)
        report = self._watches[replica].report()
        if report:
            self._events.append(Progressed(replica, report))
        return bool(report)

    def _fetch_report(self, replica: Replica) -> None:
        """Copy a replica's report out of its container, where no folder is mounted."""
        data = self.engine.read_file(self._boxes[replica].id, names.PROGRESS_FILE)
        path = self._watches[replica].progress_file
        if data and data != layout.part_of_own(path, len(data) + 1):
            with suppress(OSError):
                layout.write_file(path, data)

    def _answer_stall(self, replica: Replica, now: float) -> None:
        """Send a replica that has stalled its signal, if it has a handler for it."""
        number = self._keep["roles"][replica.role]["stall_signal"]
        box = self._boxes[replica]
        if number is not None and has_handler(box.id, number):
            self._watches[replica].ignore_answer(now)
            self._signal(box.id, number)

    # -- ending

    def _signal(self, container: str, number: int) -> None:
        """Send a signal to the main process of a container, if it lives."""
        with suppress(EngineError, SchedulerUnavailable):
            self.engine.signal(container, str(number))

    def signal(self, replica: Replica, number: int) -> None:
        """Send a signal to the main process of a replica, if it lives."""
        self._signal(self.name_of(replica), number)

    def stop(self, restarts: Sequence[Restart] | None) -> None:
        """End the replicas that are to end: those without a notice by SIGTERM, and all by KILL."""
        now = time.time()
        ending = [
            each for each in self.app.replicas if each.attempt.alive and each.attempt.stopping
        ]
        if not ending or self.away:
            return
        self._ask(lambda: self._drop_pending(ending))
        if self.away:
            return
        new = [each for each in ending if each not in self._deadlines]
        for replica in new:
            self._deadlines[replica] = replica.attempt.kill_at or now + self._grace
        self._send(_TERM, [each for each in new if each.attempt.kill_at is None])
        late = [each for each in ending if now >= self._deadlines[each]]
        for replica in late:
            self._deadlines[replica] = now + _AGAIN_S
            self._kills[replica] = self._kills.get(replica, 0) + 1
            self._look_at = min(self._look_at, time.monotonic() + _AGAIN_S)
        self._send(_KILL, late)
        stuck = [each for each in ending if self._kills.get(each, 0) >= _KILLS]
        shown = ", ".join(self.name_of(each) for each in stuck)
        self.stuck = f"cannot end the container {shown}" if stuck else ""

    def _drop_pending(self, ending: Sequence[Replica]) -> None:
        """Start no more what is to end, and report the ends of those that have not begun."""
        for replica in [each for each in ending if each in self._pending]:
            there = self.engine.inspect(self.name_of(replica))
            self._pending.remove(replica)
            # it may run all the same: an earlier keeper has started it, or this one had no answer
            if there is None or there["State"]["Status"] == "created":
                self._events.append(Ended(replica, None, time.time()))

    def _send(self, number: int, replicas: Collection[Replica]) -> None:
        in_parallel(lambda replica: self.signal(replica, number), replicas)

    def is_stopped(self, restart: Restart | None) -> bool:
        """Tell whether the ends of these replicas were reported."""
        if restart is None:
            return not any(replica.attempt.alive for replica in self.app.replicas)
        return restart.is_ended

    def kill(self) -> None:
        """Give nothing any time from now on."""
        self._grace = 0.0
        self._deadlines = dict.fromkeys(self._deadlines, 0.0)

    def close(self) -> None:
        """Hear nothing any more."""
        if self._feeder is not None:
            self._feeder.stop()


NO_POOL: Final = "non-overlapping"
"""What an engine says, in each of its versions, when it has no addresses left for a network."""

_PERMANENT: Final = (
    "already allocated",
    "executable",
    "device driver",
    "device information",
    "unable to find user",
    "unable to find group",
    "no such file or directory",
)
"""What an engine says with the code of a fault of its own, though trying again would not help."""


def refused(exc: Exception) -> dict[str, object]:
    """Return the answer to a client whose job an engine has refused."""
    text = str(exc)
    transient = isinstance(exc, SchedulerUnavailable)
    if isinstance(exc, EngineError):
        transient = exc.code >= 500 and not any(words in text for words in _PERMANENT)
        if exc.code == CONFLICT and "name" in text:
            text += " It is not this job's: remove or rename it, or choose another job id"
        if NO_POOL in text:
            text += ": remove unused networks (docker network prune)"
            transient = True
        if exc.code == NOT_FOUND and "network" in text:
            text += " (run option network)"
        if "device driver" in text:
            text += ": the engine has no GPUs to give (see transload doctor)"
    return {"error": "submit", "transient": transient, "message": text}
