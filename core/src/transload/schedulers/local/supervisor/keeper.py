"""The keeper of one app: starts its replicas, looks after them, writes down what they do, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import time
import traceback

from . import folder, gpus, helpers, kernel, launch, layout, logindex, protocol, tree, watcher
from .app import App, exit_text
from .ending import Ending, Replica

TYPE_CHECKING = False  # typing itself would cost the spawner its speed
if TYPE_CHECKING:
    from typing import Any

_STATE_TICK_S = 0.02  # many replicas that end together are one change of state.json
_RETRY_WRITE_S = 0.5
_LONGEST_SLEEP_S = 86400.0  # poll takes no more than 24 days at once; a limit of months is slept through in pieces
_LOOK_AGAIN_S = 2.0  # whoever waits for GPUs looks himself too, should a wake-up be lost


class Keeper:
    """The loop of a keeper.

    Args:
        home: ``$TRANSLOAD_HOME/local``.
        app_id: the app.
        request: what the client sent.
        link: the connection to the spawner; its end is the spawner's end.
    """

    def __init__(self, home: str, app_id: str, request: dict[str, Any], link: int) -> None:
        self.home, self.app_id, self.request = home, app_id, request
        self.folder = layout.app_folder(home, app_id)
        self.app = App(request)
        self.link = socket.socket(fileno=link)
        self.link.setblocking(False)
        self.lock = -1
        self.ctl = -1
        self.watcher = 0
        self.lifeline = -1
        self.final: tuple[str, str] | None = None
        self.endings: list[Ending] = []
        self.failures: list[Replica] = []
        self.childless = True
        self.dirty = False
        self.waiting_for_gpus = False
        self.stuck = ""
        self.deadline: float | None = None
        self._written = 0.0
        self._shown = self.app.state
        self.base_env: dict[str, str] = request["env"]
        self.cookie: str = request["record"]["cookie"]
        self.logs = logindex.LogIndex([self._log_folder(r) for r in self.app.replicas], request["max_log"])
        self.poll = select.poll()

    # --------------------------------------------------------------------------------------------------- beginning

    def begin(self) -> bool:
        """Make the app's folder and tell the client; False if there is nothing to keep."""
        try:
            self.lock = folder.create(self.home, self.app_id, self.request, self.app.as_json())
            self.ctl = os.open(f"{self.folder}/ctl", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except folder.Refused as refused:
            self._tell(protocol.REPLY, refused.answer)
            return False
        layout.announce(self.home, self.app_id)
        self._tell(protocol.REPLY, {"started": True})
        return True

    def _tell(self, kind: int, answer: dict[str, object] | None = None) -> None:
        try:
            self.link.send(protocol.frame(kind, json.dumps(answer).encode() if answer is not None else b""))
        except OSError:
            pass  # the spawner is gone; the client asks again

    def run(self) -> None:
        """Keep the app up to its end."""
        self._listen()
        self.logs.start(time.monotonic())
        self._start()
        while not self._settle():
            self._wait()
        self._finish()

    def _listen(self) -> None:
        self.wake, waker = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(waker, False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, logindex._nothing)
        logindex.ignore_signals()
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for fd in (self.wake, self.ctl, self.link.fileno()):
            self.poll.register(fd, select.POLLIN)

    def _start(self) -> None:
        """Start the whole app, or wait for GPUs."""
        wanted = self.request["gpus"]
        if wanted is not None:
            total = sum(role["gpu"] * len(role["replicas"]) for role in self.app.roles)
            ids = gpus.acquire(self.home, self.app_id, total, wanted)
            self.waiting_for_gpus = ids is None
            if ids is None:
                message = f"waiting for {total} of {len(wanted)} GPUs"
                if self.app.msg != message:
                    self.app.state, self.app.msg, self.dirty = "PENDING", message, True
                return
            self.app.msg = ""
            for replica in self.app.replicas:
                count = self.app.roles[replica.role]["gpu"]
                replica.gpus, ids = ids[:count], ids[count:]
        if self.request["timeout"] is not None:
            self.deadline = time.monotonic() + self.request["timeout"]
        self._launch(self.app.replicas)

    # ---------------------------------------------------------------------------------------------------- replicas

    def _log_folder(self, replica: Replica) -> str:
        name = self.request["roles"][replica.role]["name"]
        return f"{self.request['record']['logs']}/{name}/{replica.k}"

    def _plan(self, replica: Replica) -> dict[str, Any]:
        role = self.app.roles[replica.role]
        part = role["replicas"][replica.k]
        env = {**self.base_env, **part["env"], **role["secrets"]}
        env.update(
            TRANSLOAD_APP_ID=self.app_id,
            TRANSLOAD_ROLE=role["name"],
            TRANSLOAD_REPLICA_ID=str(replica.k),
            TRANSLOAD_NUM_REPLICAS=str(len(role["replicas"])),
            TRANSLOAD_RANK0_HOST="localhost",
            TRANSLOAD_RETRY=str(replica.restarts),
        )
        env[layout.COOKIE] = f"{self.cookie}:{replica.role}:{replica.k}"
        if self.request["gpus"] is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(replica.gpus)
        return {
            "exe": role["exe"],
            "argv": [role["argv0"], *part["args"]],
            "env": env,
            "cwd": role["cwd"],
            "logs": self._log_folder(replica),
            "umask": self.request["umask"],
            "rlimits": self.request["rlimits"],
            "nice": self.request["nice"],
            "cpus": self.request["cpus"],
        }

    def _launch(self, replicas: list[Replica]) -> None:
        """Start replicas; if one cannot be, the app ends."""
        batch = launch.Batch()
        self.childless = False
        failed: dict[int, str] = {}
        for index, replica in enumerate(replicas):
            try:
                pid = batch.start(index, self._plan(replica))
            except OSError as exc:
                failed[index] = f"cannot fork: {exc.strerror}"
                break
            self.app.launched(replica, pid, tree.start_time(pid))
        failed.update(batch.errors())
        if failed:
            index = min(failed)
            for late in failed:
                replicas[late].unstarted = True
            self._end("FAILED", f"{self.app.name(replicas[index])} did not start: {failed[index]}", grace=0.0)
        self.app.refresh(self.final is not None)
        self.dirty = True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            if pid == self.watcher:
                self._watch()
                continue
            self.dirty = True
            failed = self.app.ended(pid, os.waitstatus_to_exitcode(status))
            if failed is not None:
                self.failures.append(failed)

    def _judge(self, failed: Replica) -> None:
        """Decide what follows from a replica's failure."""
        if self.final is not None or failed.stopping or failed.pid:
            return
        reason = f"{self.app.name(failed)} failed ({exit_text(failed.exit_code or 0)})"
        again = self.app.to_restart(failed)
        if again:
            self.app.count_restart(failed)
            self.app.msg = f"{reason}; started again"
            self._restart(failed, again)
        elif not self.app.holds(failed.role):
            self._end("FAILED", reason)

    def _restart(self, failed: Replica, replicas: list[Replica]) -> None:
        # a wider restart takes over the narrower ones that it covers
        scope = set(replicas)
        self.endings = [ending for ending in self.endings if not scope.issuperset(ending.replicas)]
        ending = Ending(replicas, False, self.cookie, self.request["grace"], time.monotonic())
        ending.because = failed
        self.endings.append(ending)

    # ------------------------------------------------------------------------------------------------------ ending

    def _end(self, state: str, reason: str, grace: float | None = None) -> None:
        """Bring the app to an end, with this result."""
        if self.final is not None:
            return
        self.final = (state, reason)
        self.app.msg, self.dirty = reason, True
        self.endings = []
        self._reap()
        self.failures = []
        for replica in self.app.replicas:
            replica.stopping = replica.stopping or replica.pid != 0
        if not self.childless:
            grace = self.request["grace"] if grace is None else grace
            self.endings = [Ending(self.app.replicas, True, self.cookie, grace, time.monotonic())]

    def _settle(self) -> bool:
        """Draw all conclusions from what has happened; True when the app has come to its end."""
        self._reap()
        now = time.monotonic()
        while self.failures:
            self._judge(self.failures.pop(0))
        if self.deadline is not None and now >= self.deadline:
            self._end("FAILED", f"timed out after {self.request['timeout']:g} s")
        if self.final is None and not self.app.by_pid and not self.endings and not self.waiting_for_gpus:
            good = self.app.succeeded()
            self._end("SUCCEEDED" if good else "FAILED", "" if good else "too few replicas ended well")
        self._step_endings(now)
        if self.final is not None and not self.endings:
            return True
        self.app.refresh(self.final is not None)
        if self.dirty and (self.app.state != self._shown or now >= self._written + _STATE_TICK_S):
            self._write(now)
        due = self.logs.due
        if due is not None and now >= due:
            self.logs.look(now, time.time())
        return False

    def _step_endings(self, now: float) -> None:
        """Go on with what is being ended; start again what has ended."""
        for ending in list(self.endings):
            if not ending.finished(now, self.childless, set(self.app.by_pid)):
                continue
            self.endings.remove(ending)
            if ending.everything:
                self._reap()
                continue
            for replica in ending.replicas:
                replica.begin_again()
                self.logs.end_lines(self._log_folder(replica))
            self.app.refresh()
            self._write(now)
            self._launch(ending.replicas)
        stuck = "; ".join(ending.stuck for ending in self.endings if ending.stuck)
        if stuck != self.stuck:
            self.stuck, self.dirty = stuck, True

    # ----------------------------------------------------------------------------------------------------- waiting

    def _wait(self) -> None:
        """Sleep until something happens or is due."""
        now = time.monotonic()
        dues = [ending.due for ending in self.endings]
        if self.deadline is not None and self.final is None:
            dues.append(self.deadline)
        if self.logs.due is not None:
            dues.append(self.logs.due)
        if self.dirty:
            dues.append(self._written + _STATE_TICK_S)
        if self.waiting_for_gpus:
            dues.append(now + _LOOK_AGAIN_S)
        timeout = None if not dues else max(0.0, min(*dues, now + _LONGEST_SLEEP_S) - now) * 1000 + 0.5
        ready = self.poll.poll(timeout)
        for fd, _ in ready:
            if fd == self.wake:
                self._on_signals()
            elif fd == self.ctl:
                self._look_around(_drain(self.ctl))
            else:
                self._on_link()
        if not ready and self.waiting_for_gpus:
            self._look_around()

    def _on_signals(self) -> None:
        numbers = _drain(self.wake)
        if signal.SIGTERM in numbers:
            self._cancel()
        if kernel.LINUX and signal.SIGIO in numbers:
            self.logs.changed(time.monotonic())

    def _look_around(self, pokes: bytes = b"") -> None:
        if layout.CANCEL in pokes or os.path.exists(f"{self.folder}/cancel"):
            self._cancel()
        elif not os.path.exists(f"{self.folder}/lock"):
            self._end("CANCELLED", "its folder was removed")
        elif self.waiting_for_gpus and self.final is None:
            self._start()

    def _cancel(self) -> None:
        if not self.app.cancel_requested:
            self.app.cancel_requested = self.dirty = True
            self._end("CANCELLED", "")
            self.waiting_for_gpus = False

    def _on_link(self) -> None:
        """Nothing is ever sent here: the spawner is gone."""
        self.poll.unregister(self.link.fileno())
        self.link.close()
        self._watch()

    def _watch(self) -> None:
        if self.lifeline >= 0:
            os.close(self.lifeline)
        try:
            self.watcher, self.lifeline = watcher.start(self.home, self.app_id)
        except OSError:
            self.watcher, self.lifeline = 0, -1  # without one, the next client finds out

    # ----------------------------------------------------------------------------------------------------- writing

    def _write(self, now: float) -> bool:
        """Write the state; False if that is not possible now."""
        self._written, self._shown = now, self.app.state
        state = self.app.as_json()
        state["msg"] = "; ".join(filter(None, (self.app.msg, self.stuck)))
        try:
            layout.write_file(f"{self.folder}/state.json", json.dumps(state).encode())
        except OSError as exc:
            self._written = now + _RETRY_WRITE_S
            if exc.errno == errno.ENOENT and not os.path.exists(f"{self.folder}/lock"):
                self.dirty = False
                self._end("CANCELLED", "its folder was removed")
            return False
        self.dirty = False
        layout.announce(self.home, self.app_id)
        return True

    def _finish(self) -> None:
        """Nothing runs any more: write the end."""
        assert self.final is not None
        self.logs.look(time.monotonic(), time.time())
        self.app.finish(*self.final)
        self._tell(protocol.ENDING)
        data = json.dumps(self.app.as_json()).encode()
        while True:
            try:
                layout.write_file(f"{self.folder}/state.json", data)
                break
            except OSError:
                if not os.path.exists(f"{self.folder}/lock"):
                    break  # removed: there is nowhere to write to
                self._note_end()
                time.sleep(_RETRY_WRITE_S)  # a full disk: its details may still find room
        gpus.release(self.home, self.app_id)
        layout.announce(self.home, self.app_id)
        if self.watcher:
            os.kill(self.watcher, signal.SIGKILL)

    def _note_end(self) -> None:
        """Let the end be seen at least; the app may be removed from then on."""
        assert self.final is not None
        if self.lock >= 0 and layout.note_end(self.folder, self.final[0]):
            os.close(self.lock)
            self.lock = -1
            layout.announce(self.home, self.app_id)

    def abandon(self, problem: str) -> None:
        """Something in the keeper itself went wrong: end everything and say so."""
        with open(f"{self.folder}/keeper.log", "a", encoding="utf-8") as log:
            log.write(problem)
        pause = 0.01
        while True:
            self._reap()
            processes = tree.snapshot()
            left = tree.below(processes, {os.getpid()})
            if not left:
                break
            tree.signal_all(processes, left, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
        last = problem.strip().rsplit("\n", 1)[-1]
        self.final = ("FAILED", f"internal error of the keeper: {last} (see keeper.log)")
        self._finish()


def _drain(fd: int) -> bytes:
    data = b""
    try:
        while part := os.read(fd, 4096):
            data += part
            if len(part) < 4096:
                break
    except BlockingIOError:
        pass
    return data


def main(home: str, app_id: str, body: memoryview, link: int) -> None:
    """Keep one app; returns at its end. Runs in a process forked for it."""
    helpers.enter(home, b"tl-keeper")
    os.setsid()
    kernel.become_subreaper()
    keeper = Keeper(home, app_id, json.loads(bytes(body)), link)
    try:
        if keeper.begin():
            keeper.run()
    except Exception:  # nothing may be left behind, whatever happened
        keeper.abandon(traceback.format_exc())
    helpers.leave(home)
