"""The keeper of a job, a process beside it on the machine that submitted it.

Containers go on if it is killed. Whoever looks at the job next starts another, which goes on from
what this one wrote last and from what the engine says.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from contextlib import AbstractContextManager
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper import creation, gpus, layout, processes
from transload.keeper.keeper import Keeper
from transload.keeper.kernel import drain
from transload.keeper.launcher import Ended
from transload.keeper.rules import Gang, Replica
from transload.schedulers.folder import store
from transload.schedulers.folder.home import make_private
from transload_docker.engine import Engine, EngineError
from transload_docker.gpus import assign
from transload_docker.launcher import Containers, refused
from transload_docker.names import MAKING
from transload_docker.owner import owner_of
from transload_docker.sweep import sweep

_AWAY_S: Final = 1800.0  # without the engine, after which somebody else may look once more
_CLEAR_S: Final = 1.0  # between two tries to clear what a submit has left


class DockerKeeper(Keeper):
    """The keeper of a job whose replicas are containers.

    Args:
        home: folder of the scheduler.
        record: that of the job.
        url: where the engine is.
        wake: gives the numbers of signals.
    """

    def __init__(self, home: str, record: dict[str, Any], url: str, wake: int) -> None:
        keep = record["keep"]
        app = Gang(keep["roles"], keep["timeout"])
        self.engine = Engine(url)
        self.owner = owner_of(home)
        self.containers = Containers(self.engine, home, record, self.owner, app, self._on_news)
        super().__init__(home, record, app, self.containers, time.time, wake)
        self.load = float("inf")  # all code is loaded
        self.gpu_table: str = keep["gpus"]
        # a keeper that dies while it makes the containers leaves no job. One that dies while it starts
        # them leaves that to the next
        self.stage = MAKING
        self.is_taken_back = False
        self.marked = False
        self.is_left = False
        self.news, self.told = os.pipe()
        for fd in (self.news, self.told):
            os.set_blocking(fd, False)
        self.poll.register(self.news, select.POLLIN)

    def _on_news(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self.told, b"x")

    # -- beginning

    def submit(self, request: dict[str, Any]) -> dict[str, object]:
        """Make the job's folder and containers, all or nothing, and return the answer."""
        said = self.create(request)
        if self.lock < 0:
            return said
        try:
            self._make(request)
        except creation.Refused as exc:
            said = exc.answer
        except Exception as exc:
            said = refused(exc)
        if self.stage:
            self.take_back()
        return said

    def _make(self, request: dict[str, Any]) -> None:
        for folder in (*request["folders"], *self._own_folders()):
            _open_to_all(folder, self.home)
        if request["gpus"] is not None:
            sweep(self.engine, self.home, self.owner)  # what a dead submit has left may hold some
            assign(self.engine, self.gpu_table, self.folder, request)
        self.containers.make(request["containers"])
        self.app.begin(time.time())
        for replica in self.app.replicas:
            self.app.starting(replica)
        self._enter("starting")
        self.containers.start_made()
        self._enter("")

    def _enter(self, stage: str) -> None:
        before = self.stage
        self.stage = stage
        if not self.write():
            self.stage = before
            raise OSError(f"the state of the job cannot be written to {self.folder}")

    def _own_folders(self) -> list[str]:
        return [self.containers.logs_of(replica) for replica in self.app.replicas]

    def take_back(self) -> None:
        """Remove the job, which was not started. If the engine is away, its containers come later."""
        self.is_taken_back = True
        self.finished()
        self.is_left = not self._clear()
        with contextlib.suppress(SchedulerUnavailable):
            store.remove(self.home, self.app_id, self._lock_checkpoints, forget=True)

    def _lock_checkpoints(self) -> AbstractContextManager[object]:
        return creation.locked_checkpoints(self.home)

    def _clear(self) -> bool:
        try:
            self.containers.remove_all()
        except (EngineError, SchedulerUnavailable):
            return False
        return True

    def clear(self) -> None:
        """Remove the containers of a job that was not started, as soon as the engine can."""
        end = time.monotonic() + _AWAY_S
        while not self._clear() and time.monotonic() < end:
            time.sleep(_CLEAR_S)

    def adopt(self) -> bool:
        """Take over a job whose keeper is gone, and return False if it has one, or has ended."""
        lock = layout.take_lock(f"{self.folder}/record.json")
        if lock is None:
            return False
        state = layout.read_json(layout.state_file(self.folder)) or {}
        is_over = state.get("state") in layout.TERMINAL or layout.noted_end(self.folder)
        if (
            is_over
            or state.get("stage") == MAKING
            or processes.keeper_lives(self.home, self.app_id)
        ):
            os.close(lock)
            return False
        self.place = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.lock = lock
        self.app.restore(state["gang"])
        self.progress_before = state.get("progress") or {}
        self.cancel_requested = bool(state.get("cancel_requested"))
        self.stage = ""
        self.write()
        return True

    def begin(self) -> None:
        """Hear of the containers, and start those that an earlier keeper was to start."""
        self.containers.listen()
        to_start = self.containers.adopt()
        if to_start:
            self.start(to_start)
        self._look_at_mark()
        with contextlib.suppress(SchedulerUnavailable):
            sweep(self.engine, self.home, self.owner)

    # -- what happens

    def hear(self) -> None:
        """Take what has happened to the rules, unless somebody on another machine ended the job."""
        events = self.containers.events()
        if any(isinstance(each, Ended) for each in events):
            self._look_at_mark()
        for event in events:
            self.take(event)

    def end(self, state: str, reason: str) -> None:
        """Bring the job to an end, unless it has come to one by itself."""
        self.hear()
        self.app.decide(self.clock())
        self.dirty = self.app.end(state, reason) or self.dirty

    def check_more(self) -> None:
        """Look whether somebody on another machine asked for the end, or the engine is gone."""
        self._look_at_mark()
        away = self.containers.away_since
        if self.containers.away and time.monotonic() - away > _AWAY_S:
            self.write()
            os._exit(0)

    def _look_at_mark(self) -> None:
        if self.app.final is not None or self.containers.away:
            return
        try:
            mark = self.engine.mark_of(self.app_id)
        except (EngineError, SchedulerUnavailable):
            return
        if mark is not None:
            self._end_as_marked(mark)

    def _end_as_marked(self, mark: dict[str, Any]) -> None:
        """End the job as somebody wants it, who has given the replicas their notice."""
        self.marked = True
        self.cancel_requested = mark["state"] == "CANCELLED"
        for replica in self.app.replicas:
            attempt = replica.attempt
            has_notice = self.app.roles[replica.role]["notice"] and mark["owner"] != self.owner
            if has_notice and attempt.alive and attempt.kill_at is None:
                self.app.notified(replica, float(mark["time"]), "requested")
        self.dirty = self.app.end(mark["state"], mark["msg"]) or self.dirty

    def on_sigterm(self) -> None:
        """Leave the job to the next keeper, since its containers go on."""
        self.write()
        os._exit(0)

    def _on_signals(self) -> None:
        drain(self.news)
        super()._on_signals()

    def _give_notice(self, replica: Replica, now: float) -> None:
        """Note a notice before its signal is sent, so that none is sent twice."""
        self.app.notified(replica, now)
        self.write()
        self.containers.signal(replica, self.app.roles[replica.role]["notice_signal"])

    def stop(self, now: float) -> None:
        """Have ended what the rules say. An end that is no success is marked on the engine first."""
        if self.app.final is not None and not self.marked and not self.containers.away:
            self._mark(*self.app.final)
        super().stop(now)

    def _mark(self, state: str, msg: str) -> None:
        """Let other machines know how the job ends."""
        self.marked = True
        if state == "SUCCEEDED":
            return
        try:
            self.engine.mark(self.app_id, state, msg, self.owner)
        except SchedulerUnavailable:
            self.marked = False
        except EngineError as exc:  # a full disk
            self.log(f"{exc}\n")

    # -- writing

    def state(self) -> dict[str, Any]:
        """Return the state, with all that the next keeper needs."""
        state = super().state()
        state["gang"] = self.app.snapshot()
        state["engine"] = {
            "containers": ", ".join(self.containers.name_of(each) for each in self.app.replicas)
        }
        if self.stage:
            state["stage"] = self.stage
        if self.containers.away and self.app.state not in layout.TERMINAL:
            state["state"] = "UNKNOWN"
            state["msg"] = self.containers.away
        return state

    def step(self) -> bool:
        """Do what follows from all that has happened, and return True when the job has ended."""
        away = self.containers.away
        is_over = super().step()
        self.dirty = self.dirty or away != self.containers.away
        return is_over

    def finished(self) -> None:
        """Give its GPUs back."""
        if self.gpu_table:
            with contextlib.suppress(OSError):
                gpus.release(self.gpu_table, self.folder)


def _open_to_all(folder: str, home: str) -> None:
    """Make a folder that is mounted. One of our own is open to any user of a container."""
    make_private(folder)
    if folder.startswith(f"{home}/"):  # below folders that only the owner can enter
        with contextlib.suppress(PermissionError):  # a container's root has it
            os.chmod(folder, 0o777)  # noqa: S103 - as said
