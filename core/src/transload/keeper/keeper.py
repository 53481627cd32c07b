"""A process on the machine where a job was submitted, which keeps it."""

from __future__ import annotations

import errno
import os
import select
import time

from . import creation, kernel, layout, processes
from .failures import error_line, exit_text, read_error
from .kernel import signal
from .loop import Loop
from .replica import Processes
from .rules import Gang, cancelled_for

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .launcher import Launcher

__all__ = ["Keeper", "answer", "leave", "read_request"]

_RETRY_WRITE_S = 0.5
_LOOK_AGAIN_S = 2.0  # between looks for free GPUs, should a wake-up be lost
_LOOK_S = 5.0  # between looks at its folder
_REMOVAL_S = 0.05  # between looks at a folder that is being removed
_LOAD_S = 5.0  # a job that ends sooner is spared what that costs
_REQUEST_S = 60.0  # a client that was stopped within its request


class Keeper(Loop):
    """The loop of a process of its own, on the machine where a job was submitted.

    Args:
        home: folder of the scheduler.
        record: that of the job.
        app: its rules.
        launcher: starts and ends its replicas.
        clock: returns the rules' time.
        wake: gives the numbers of signals.
    """

    def __init__(
        self,
        home: str,
        record: dict[str, Any],
        app: Gang,
        launcher: Launcher,
        clock: Callable[[], float],
        wake: int,
    ) -> None:
        super().__init__(app, launcher, clock)
        self.home = home
        self.app_id: str = record["app_id"]
        self.folder = layout.app_folder(home, self.app_id)
        self.wake = wake
        self.lock = self.place = -1
        self.look_at = 0.0  # when to check requests, though nothing happens
        self.look_pause = _LOOK_S
        self.removal_pause = _REMOVAL_S  # before the next look at a folder that is being removed
        self.keeper = [os.getpid(), processes.start_time(os.getpid())]
        self.closed = False
        self.cancel_requested = False
        # when to load the code for failures, since a long job may end when this Python is replaced
        self.load = time.monotonic() + _LOAD_S
        self.poll = select.poll()

    # ---------------------------------------------------------------------------------------------------
    # what an engine adds

    def begin(self) -> None:
        """Start the whole job, or wait until that is possible."""
        raise NotImplementedError

    def check_more(self) -> None:
        """Do what has become possible, whenever requests are looked for."""

    def finished(self) -> None:
        """Give back what the job had, since its end is written."""

    # ---------------------------------------------------------------------------------------------------
    # beginning

    def create(self, request: dict[str, Any]) -> dict[str, object]:
        """Make the job's folder, and return the answer to the client."""
        try:
            self.lock, self.place = creation.create_app_with_checkpoints(
                self.home, self.app_id, request, self.state()
            )
        except creation.Refused as refused:
            return refused.answer
        return {"started": True}

    def run(self) -> None:
        """Keep the job up to its end."""
        self.poll.register(self.wake, select.POLLIN)
        self._look_at_folder()
        if self.app.final is None:
            self.begin()
        while not self.step():
            self._wait()
        self.launcher.close()
        self._finish()

    # -----------------------------------------------------------------------------------------------------
    # waiting

    def _wait(self) -> None:
        """Wait until something happens or is due."""
        now = time.monotonic()
        if now >= self.load:
            self.load = float("inf")
            exit_text(-signal.SIGKILL)
            error_line(read_error(b"x"))
            from .tracebacks import traceback_error

            traceback_error(b"")
        left = min(self.pause(), min(self.load, self.look_at) - now)
        if self.poll.poll(max(0.0, left) * 1000 + 0.5):
            self._on_signals()
        if time.monotonic() >= self.look_at:
            self._check_requests()

    def _on_signals(self) -> None:
        numbers = kernel.drain(self.wake)
        if processes.CANCEL in numbers:
            self._cancel()
        if processes.LOOK in numbers:
            self._check_requests()
        if signal.SIGTERM in numbers:
            self._check_requests()  # a cancel does not come by this signal
            self.on_sigterm()

    def on_sigterm(self) -> None:
        """End the job, since the machine or the service is being stopped."""
        self.end("FAILED", "its keeper got SIGTERM: the machine or the service was stopped")

    def _check_requests(self) -> None:
        """Do what is asked for, and what has become possible."""
        self._look_at_folder()
        self.check_more()

    def _look_at_folder(self) -> None:
        """Look whether others asked for the job's end in its folder, or removed the folder.

        It is removed if no link to it is left. An error is no proof. If only a part of it was
        removed, the job can still be cancelled and deleted.
        """
        if layout.is_end_asked(self.folder):
            self._cancel()
        if layout.is_removed(self.place):
            self.end("CANCELLED", "its folder was removed")
        pause = self.look_pause
        if layout.is_removed(self.lock):  # the rest may go at any moment
            pause = self.removal_pause
            self.removal_pause = min(2 * pause, _LOOK_S)
        self.look_at = time.monotonic() + pause

    def _cancel(self) -> None:
        if not self.cancel_requested:
            self.cancel_requested = self.dirty = True
            self.end("CANCELLED", cancelled_for(layout.who_asked(self.folder)))

    # -----------------------------------------------------------------------------------------------------
    # writing

    def state(self) -> dict[str, Any]:
        """Return the state, with more fields for whoever finds the job without a keeper."""
        state = super().state()
        state["cancel_requested"] = self.cancel_requested
        state["keeper"] = self.keeper
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Add a state to those of the job."""
        layout.add_state(self.folder, layout.dumps(state))

    def on_failed_write(self, error: OSError) -> None:
        """Look whether the job's folder is there."""
        if error.errno == errno.ENOENT:
            self._look_at_folder()

    def _finish(self) -> None:
        """Write the end, once, since nothing runs any more."""
        self.app.finish(layout.now())
        data = layout.dumps(self.state())
        while not self.closed:
            try:
                layout.add_state(self.folder, data)
                self.closed = True
            except OSError:
                if self._has_moved():
                    break  # there is nowhere to write to
                self._note_end()
                time.sleep(_RETRY_WRITE_S)  # on a full disk its details may still find room
        self.closed = True
        self.finished()

    def _has_moved(self) -> bool:
        """Tell whether the job's folder was removed, or is somewhere else now."""
        try:
            os.lstat(self.folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return layout.is_removed(self.place)

    def _note_end(self) -> None:
        """Let at least the end be seen. The job may be removed from then on."""
        assert self.app.final is not None
        if self.lock >= 0 and layout.note_end(self.folder, self.app.final[0]):
            os.close(self.lock)
            self.lock = -1

    def log(self, text: str) -> None:
        """Write into the job's ``keeper.log``, if there is room."""
        try:
            fd = layout.open_own(
                f"{self.folder}/keeper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT
            )
        except OSError:
            return  # there is no such job any more
        try:
            os.write(fd, text.encode("utf-8", "replace"))
        except OSError:
            pass  # a full disk
        finally:
            os.close(fd)


class LocalKeeper(Keeper):
    """The keeper of a job whose replicas are processes of this machine.

    Args:
        home: folder of the scheduler.
        request: what the client asks for.
        wake: gives the numbers of signals.
        umask: the client's.
    """

    launcher: Processes

    def __init__(self, home: str, request: dict[str, Any], wake: int, umask: int) -> None:
        app = Gang(request["roles"], request["timeout"], segment=request["segment"])
        launcher = Processes(request, app.replicas, umask)
        super().__init__(home, request["record"], app, launcher, time.monotonic, wake)
        for replica in app.replicas:
            replica.host = launcher.host
        self.request = request
        self.gpu_table = str(request["record"].get("gpus") or "")  # its folder
        self.waiting_for_gpus = False

    def begin(self) -> None:
        """Start the whole job, or wait for GPUs."""
        if self.request["gpus"] is not None and not self._take_gpus(self.request["gpus"]):
            return
        self.app.begin(time.monotonic())
        self.start(self.app.replicas)

    def _take_gpus(self, machine: list[str]) -> bool:
        """Take GPUs of the machine for all replicas, or return False if the job has to wait."""
        from . import gpus  # few jobs need it

        wanted = sum(role["gpu"] * len(role["replicas"]) for role in self.app.roles)
        path = self.request["env"].get("PATH", os.defpath)
        grant = gpus.acquire(self.gpu_table, self.folder, wanted, machine, path)
        ids = grant.ids
        self.waiting_for_gpus = ids is None
        self.look_pause = _LOOK_S if ids is not None else _LOOK_AGAIN_S
        if ids is None:
            self.look_at = min(self.look_at, time.monotonic() + _LOOK_AGAIN_S)
            message = f"waiting for {wanted} of {len(machine)} GPUs"
            if grant.why:
                message += f": {grant.why}"
            if self.app.msg != message:
                self.app.state = "PENDING"
                self.app.msg = message
                self.dirty = True
            return False
        self.app.msg = ""
        for replica in self.app.replicas:
            count = self.app.roles[replica.role]["gpu"]
            self.launcher.gpus[replica] = ids[:count]
            ids = ids[count:]
        return True

    def check_more(self) -> None:
        """Look once more for GPUs."""
        if self.waiting_for_gpus and self.app.final is None:
            self.begin()

    def state(self) -> dict[str, Any]:
        """Return the state, with more fields for `finalise`."""
        state = super().state()
        state["processes"] = [
            [*process, replica.role, replica.k] for replica, process in self.launcher.mains.items()
        ]
        return state

    def finished(self) -> None:
        """Give its GPUs to jobs that wait for them."""
        if self.request["gpus"] is None:
            return
        from . import gpus

        try:
            gpus.release(self.gpu_table, self.folder)
        except OSError as exc:
            self.log(f"its GPUs are given back when this process is gone: {exc}\n")

    def abandon(self, problem: str) -> None:
        """End everything after an error in the keeper itself.

        The job fails, unless its end was decided before.
        """
        self.log(problem)

        def mine() -> tuple[processes.Snapshot, set[int]]:
            self.launcher.events()
            living = processes.snapshot()
            return living, processes.below(living, {os.getpid()})

        processes.kill(mine)
        last = problem.strip().rsplit("\n", 1)[-1]
        self.app.end("FAILED", f"internal error of the keeper: {last} (see keeper.log)")
        self._finish()


def main(home: str, waits: float) -> None:
    """Become the keeper of the job that a client asks for on standard input.

    Args:
        home: folder of the local scheduler.
        waits: the seconds after which it ends without a request.
    """
    umask = leave(home)
    kernel.become_subreaper()
    wake = kernel.wake_on(signal.SIGCHLD, signal.SIGTERM, processes.LOOK, processes.CANCEL)
    request = read_request(waits)
    if request is None:
        os._exit(0)
    keeper = LocalKeeper(home, request, wake, umask)
    try:
        answer(keeper.create(request))
        if keeper.lock >= 0:  # else the job is another keeper's, or there is none
            keeper.run()
    except Exception:  # nothing may be left behind, whatever happened
        if keeper.lock < 0:
            raise
        keeper.abandon(kernel.exception_text())
    os._exit(0)


def leave(home: str) -> int:
    """Leave the client for good, and return its umask.

    The client's child ends at once. So a client that lives long has no zombies.

    Args:
        home: folder of the scheduler, in which this process works from now on.
    """
    if os.fork():
        os._exit(0)
    kernel.close_from(3)
    umask = os.umask(0o077)
    os.chdir(home)
    kernel.set_name(processes.NAME)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return umask


def read_request(waits: float) -> dict[str, Any] | None:
    """Return what the client asks for in a line, or None if it has broken off.

    What it has forked may keep the pipe open, so the end of the line counts.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    data = bytearray()
    while not data.endswith(b"\n"):
        part = os.read(0, 1 << 16) if poll.poll(waits * 1000) else b""
        if not part:
            return None
        waits = _REQUEST_S
        data += part
    request: dict[str, Any] = layout.loads(bytes(data))
    return request


def answer(said: dict[str, object]) -> None:
    """Answer the client, and leave its pipes. If it is gone, the job goes on."""
    try:
        os.write(1, layout.dumps(said) + b"\n")
    except OSError:
        pass
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
