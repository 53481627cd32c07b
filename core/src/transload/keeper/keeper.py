"""Start and supervise the replicas of a job, and write down what they do."""

from __future__ import annotations

import errno
import os
import select
import time

from transload.keeper.failures import LONGEST_ERROR, error_line, exit_text, read_error
from transload.keeper.rules import Gang, Replica, Restart, cancelled_for
from transload.keeper.signs import (
    UPDATE_S,
    ProgressMeter,
    Watch,
    furthest_behind,
    stalled_text,
    with_handler,
)

from . import creation, kernel, layout, logindex, processes
from .kernel import signal

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from resource import struct_rusage
    from typing import Any

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_BY_SIGNAL = 128  # exit codes above are signals
_REQUIREMENTS = "TRANSLOAD_REQUIREMENTS"  # the variable of a replica that uv has started
_MAXRSS_BYTES = 1024 if kernel.LINUX else 1  # of the unit in which the kernel counts memory
_STATE_TICK_S = 0.02  # many replicas that end together are one change of state
_SHORT_S = 0.003  # what ends sooner was never shown as RUNNING
_RETRY_WRITE_S = 0.5
_LOOK_AGAIN_S = 2.0  # between looks for free GPUs, should a wake-up be lost
_LOOK_S = 5.0  # between looks at its folder
_REMOVAL_S = 0.05  # between looks at a folder that is being removed
_LOAD_S = 5.0  # a job that ends sooner is spared what that costs
_REQUEST_S = 60.0  # a client that was stopped within its request


class Keeper:
    """The loop of a keeper.

    Args:
        home: folder of the local scheduler.
        request: what the client asks for.
        wake: gives the numbers of signals.
        umask: the client's.
    """

    def __init__(self, home: str, request: dict[str, Any], wake: int, umask: int) -> None:
        self.home = home
        self.app_id: str = request["record"]["app_id"]
        self.request = request
        self.folder = layout.app_folder(home, self.app_id)
        self.app = Gang(request["roles"], request["timeout"], segment=request["segment"])
        for replica in self.app.replicas:
            replica.host = os.uname().nodename
        self.by_pid: dict[int, Replica] = {}
        self.processes: dict[Replica, tuple[int, int]] = {}  # its pid and start time
        self.gpus: dict[Replica, list[str]] = {}
        self.gpu_table = str(request["record"].get("gpus") or "")  # its folder
        self.ends_by: float | None = None  # seconds since the epoch
        self.began_at: dict[Replica, int] = {}  # where in its stderr the latest attempt begins
        self.wake = wake
        self.umask = umask
        self.lock = self.place = -1
        self.look_at = 0.0  # when to check requests, though nothing happens
        self.pause = _REMOVAL_S  # before the next look at a folder that is being removed
        self.keeper = [os.getpid(), processes.start_time(os.getpid())]
        self.endings: dict[Restart | None, processes.Termination] = {}  # None for the whole job's
        self.grace = processes.GRACE_S
        self.ending = self.closed = False
        self.childless = True
        self.cancel_requested = self.dirty = self.waiting_for_gpus = False
        self.oom_kills = kernel.oom_kills()
        self.stuck = ""
        # when to load the code for failures, since a long job may end when this Python is replaced
        self.load = time.monotonic() + _LOAD_S
        self._written = 0.0
        self._shown = self.app.state
        self._launched = 0.0
        self.base_env: dict[str, str] = request["env"]
        self.cookie: str = request["record"]["cookie"]
        self.logs = logindex.index_of(
            [self._log_folder(r) for r in self.app.replicas], request["max_log"]
        )
        self.watches = {replica: self._watch(replica) for replica in self.app.replicas}
        self.meters: dict[Replica, ProgressMeter] = {}  # of those that have reported progress
        self.progress_due = float("inf")
        self.progress_pause = UPDATE_S
        self.poll = select.poll()

    # ---------------------------------------------------------------------------------------------------
    # beginning

    def begin(self) -> dict[str, object]:
        """Make the job's folder, and return the answer to the client."""
        try:
            self.lock, self.place = creation.create_app_with_checkpoints(
                self.home, self.app_id, self.request, self._state()
            )
        except creation.Refused as refused:
            return refused.answer
        return {"started": True}

    def run(self) -> None:
        """Supervise the job up to its end."""
        self.poll.register(self.wake, select.POLLIN)
        self._look_at_folder()
        if self.app.final is None:
            self._start()
        while not self._decide():
            self._wait()
        logindex.look(self.logs, time.monotonic())
        self._finish()

    def _start(self) -> None:
        """Start the whole job, or wait for GPUs."""
        if self.request["gpus"] is not None and not self._take_gpus(self.request["gpus"]):
            return
        self.app.begin(time.monotonic())
        if self.app.timeout is not None:
            self.ends_by = layout.now() + self.app.timeout
        self._launch(self.app.replicas)

    def _take_gpus(self, machine: list[str]) -> bool:
        """Take GPUs of the machine for all replicas, or return False if the job has to wait."""
        from . import gpus  # few jobs need it

        wanted = sum(role["gpu"] * len(role["replicas"]) for role in self.app.roles)
        path = self.base_env.get("PATH", os.defpath)
        grant = gpus.acquire(self.gpu_table, self.folder, wanted, machine, path)
        ids = grant.ids
        self.waiting_for_gpus = ids is None
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
            self.gpus[replica] = ids[:count]
            ids = ids[count:]
        return True

    def _watch(self, replica: Replica) -> Watch:
        """Return what looks for the signs of life of a replica."""
        role = self.app.roles[replica.role]
        env = role["replicas"][replica.k]["env"]
        names = ("TRANSLOAD_TRACKER_BASE", "TRANSLOAD_CHECKPOINT_DIR")
        folders = [env.get(name, "") for name in names]
        logs = self._log_folder(replica)
        return Watch(logs, layout.end_of_own, folders, role["stall_after"])

    # ----------------------------------------------------------------------------------------------------
    # replicas

    def _log_folder(self, replica: Replica) -> str:
        name = self.request["roles"][replica.role]["name"]
        return f"{self.request['record']['logs']}/{name}/{replica.k}"

    def _plan(self, replica: Replica) -> dict[str, Any]:
        role = self.app.roles[replica.role]
        part = role["replicas"][replica.k]
        error = self._error_file(replica)
        own = {"TRANSLOAD_ERROR_FILE": error, "TORCHELASTIC_ERROR_FILE": error}
        env = {**self.base_env, **own, **part["env"], **role["secrets"]}
        env.update(
            TRANSLOAD_APP_ID=self.app_id,
            TRANSLOAD_ROLE=role["name"],
            TRANSLOAD_REPLICA_ID=str(replica.k),
            TRANSLOAD_NUM_REPLICAS=str(len(role["replicas"])),
            TRANSLOAD_RANK0_HOST="localhost",
            TRANSLOAD_RETRY=str(replica.restarts),
            TRANSLOAD_INTERRUPTIONS=str(replica.interruptions),
            TRANSLOAD_PROGRESS_FILE=self.watches[replica].progress_file,
        )
        outputs = env.get("TRANSLOAD_OUTPUT_DIR", "")
        if outputs.startswith("/"):  # it may be a URL
            layout.make_folders(outputs)
        env[processes.COOKIE] = f"{self.cookie}:{replica.role}:{replica.k}"
        if self.request["gpus"] is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[replica])
        return {
            "exe": role["exe"],
            "argv": [role["argv0"], *part["args"]],
            "env": env,
            "cwd": role["cwd"],
            "logs": self._log_folder(replica),
            "umask": self.umask,
        }

    def _launch(self, replicas: list[Replica]) -> None:
        """Start replicas. If one cannot be started, the job ends."""
        reader, writer = os.pipe()
        self.childless = False
        failed: dict[int, str] = {}
        for index, replica in enumerate(replicas):
            self.app.starting(replica)
            layout.unlink(self._error_file(replica))  # the one before's
            self._begin_signs(replica)
            began = layout.now()  # it may write before this process goes on
            try:
                pid = processes.start_replica(self._plan(replica), index, writer)
            except OSError as exc:
                failed[index] = f"cannot fork: {exc.strerror}"
                break
            self.by_pid[pid] = replica
            self.processes[replica] = (pid, processes.start_time(pid))
            self.app.started(replica, began, replica.host)
        self._launched = time.monotonic()
        os.close(writer)
        failed.update(processes.failed_starts(reader))
        os.close(reader)
        for index in sorted(failed):
            replica = replicas[index]
            # the end of its process is no end of the replica, whose program did not start
            self.app.ended(replica, None, layout.now())
            pid, _ = self.processes.pop(replica, (0, 0))
            self.by_pid.pop(pid, None)
            self.grace = 0.0
            self.app.end("FAILED", f"{self.app.name(replica)} did not start: {failed[index]}")
        self.dirty = True

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                self.childless = False
                return
            self.dirty = True
            replica = self.by_pid.pop(pid, None)
            if replica is not None:  # else an orphan of some replica
                del self.processes[replica]
                self._note_end_of(replica, os.waitstatus_to_exitcode(status), used)

    def _note_end_of(self, replica: Replica, code: int, used: struct_rusage) -> None:
        """Report the end of a replica's main process to the rules."""
        env = self.app.roles[replica.role]["replicas"][replica.k]["env"]
        if code > _BY_SIGNAL and _REQUIREMENTS in env:
            code = _BY_SIGNAL - code  # uv reports the signal that has ended its program
        error = ""
        if code != 0:
            error = self._error_of(replica, code)
        self.watches[replica].end()
        self._note_progress(replica)
        replica.attempt.usage = {
            "peak_memory": used.ru_maxrss * _MAXRSS_BYTES,
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
        }
        why = ""
        if code in _KILLED and self._oom_killed():
            why = "out of memory: the kernel killed it"
        self.app.ended(replica, code, layout.now(), time.monotonic(), why=why, error=error)

    def _error_file(self, replica: Replica) -> str:
        return f"{self._log_folder(replica)}/error.json"

    def _oom_killed(self) -> bool:
        """Tell whether the kernel has killed a process for want of memory since the last call."""
        before = self.oom_kills
        self.oom_kills = kernel.oom_kills()
        return self.oom_kills > before

    def _error_of(self, replica: Replica, code: int) -> str:
        """Return a replica's report of its failure, else the exception at the end of its output."""
        said = read_error(layout.part_of_own(self._error_file(replica), LONGEST_ERROR))
        if said or code != 1:  # what an interpreter exits with
            return said
        log = f"{self._log_folder(replica)}/{logindex.STDERR}"
        return _traceback_error(
            layout.end_of_own(log, LONGEST_ERROR, self.began_at.get(replica, 0))
        )

    # ------------------------------------------------------------------------------------------------------
    # ending

    def _end(self, state: str, reason: str) -> None:
        """Bring the job to an end, with this result, unless another one was decided before."""
        self._reap()
        self.dirty = self.app.end(state, reason) or self.dirty
        self.waiting_for_gpus = False

    def _decide(self) -> bool:
        """Do what follows from all that has happened, and return True when the job has ended."""
        self._reap()
        now = time.monotonic()
        decided = self.app.final
        for replica in self.app.notices(now):
            self._give_notice(replica, now)
        self.app.decide(now)
        self.dirty = self.dirty or self.app.final is not decided
        self._begin_endings(now)
        self._step_endings(now)
        if self.app.final is not None and not self.endings:
            return True
        self.app.refresh()
        if self.dirty and now >= self._writes():
            self._write(now)
        if now >= self.logs.due:
            logindex.look(self.logs, now)
        if self.app.final is None:
            self._look_for_signs(now)
        return False

    def _give_notice(self, replica: Replica, now: float) -> None:
        """Send a replica's main process the signal that its end is near."""
        pid, started = self.processes.get(replica, (0, 0))
        number = self.app.roles[replica.role]["notice_signal"]
        if processes.send(pid, started, number):
            processes.send(pid, started, signal.SIGCONT)  # a stopped one could do nothing
        self.app.notified(replica, now)

    def _give_notices(self, replicas: list[Replica], now: float) -> None:
        """Give those that are to be ended their notice, unless they had it."""
        for replica in replicas:
            wanted = self.app.roles[replica.role]["notice"] and self.grace
            if wanted and replica in self.processes and replica.attempt.kill_at is None:
                self._give_notice(replica, now)

    def _begin_signs(self, replica: Replica) -> None:
        """Expect signs of life of a new attempt."""
        now = time.monotonic()
        self.watches[replica].begin(now)
        if replica in self.meters:
            self.meters[replica].pause()
        self.progress_pause = UPDATE_S
        self.progress_due = min(self.progress_due, now + UPDATE_S)

    def _look_for_signs(self, now: float) -> None:
        """See how far the replicas are, and whether one has stalled."""
        living = [each for each in self.app.replicas if each.attempt.alive]
        if now >= self.progress_due:
            self.progress_pause = min(2 * self.progress_pause, logindex.SILENT_S)
            if [each for each in living if self._note_progress(each)]:
                self.progress_pause = UPDATE_S
            self.progress_due = now + self.progress_pause
        for replica in living:
            if not replica.attempt.stopping and self.watches[replica].look(now):
                self.dirty = True
                self._answer_stall(replica, now)

    def _note_progress(self, replica: Replica) -> bool:
        """Note a replica's progress, and return False if it has reported none."""
        report = self.watches[replica].report()
        if not report:
            return False
        if replica not in self.meters:
            self.meters[replica] = ProgressMeter()
        if self.meters[replica].update(report):
            self.dirty = True
            if "step" in report:
                self.app.advanced(replica, report["step"])
        return True

    def _answer_stall(self, replica: Replica, now: float) -> None:
        """Send a replica that has stalled its signal, if its role names one."""
        number = self.app.roles[replica.role]["stall_signal"]
        if number is None or not self.watches[replica].stalled:
            return
        self.watches[replica].ignore_answer(now)
        living = processes.snapshot()
        pid, _ = self.processes.get(replica, (0, 0))
        mine = processes.trees(living, {pid: None}) if pid in living else ()
        for each in with_handler(mine, number):
            processes.send(each, living[each][1], number)

    def _begin_endings(self, now: float) -> None:
        """Begin to end what the rules say, the whole job or the replicas of each restart."""
        if self.app.final is not None and not self.ending:
            self.ending = True
            self.endings = {} if self.childless else {None: self._ending(None, now)}
        elif self.app.final is None:
            # what a wider restart covers is in it
            restarts = self.app.restarts
            self.endings = {
                each: self.endings.get(each) or self._ending(each, now) for each in restarts
            }

    def _ending(self, restart: Restart | None, now: float) -> processes.Termination:
        """Give notices to replicas, and begin to end them. None means those of the whole job."""
        if restart is None:
            self._give_notices(self.app.replicas, now)
            return processes.Termination(None, self.processes, self.cookie, self.grace, now)
        self._give_notices(restart.replicas, now)
        return processes.Termination(restart.replicas, self.processes, self.cookie, self.grace, now)

    def _step_endings(self, now: float) -> None:
        """Continue what is being ended, and start again what has ended."""
        for restart, ending in list(self.endings.items()):
            ending.done = ending.done or ending.finished(now, self.childless)
            if not ending.done:
                continue
            if restart is None:
                self._reap()
                self.endings = {}
            elif self.app.final is None and restart.is_ready(now):
                del self.endings[restart]
                self._again(restart, now)
        stuck = "; ".join(
            ending.stuck for ending in self.endings.values() if ending.stuck and not ending.done
        )
        if stuck != self.stuck:
            self.stuck = stuck
            self.dirty = True

    def _again(self, restart: Restart, now: float) -> None:
        """Start the replicas of a restart again."""
        for replica in self.app.renew(restart, now):
            logindex.end_lines(self._log_folder(replica))
            self.began_at[replica] = logindex.size_of(
                f"{self._log_folder(replica)}/{logindex.STDERR}"
            )
        # note what the attempts before wrote, before these start
        logindex.look(self.logs, time.monotonic())
        self.app.refresh()
        self._write(now)
        if self.app.final is None:  # its folder is there
            self._launch(restart.replicas)

    # -----------------------------------------------------------------------------------------------------
    # waiting

    def _wait(self) -> None:
        """Wait until something happens or is due."""
        now = time.monotonic()
        if now >= self.load:
            self.load = float("inf")
            exit_text(-signal.SIGKILL)
            error_line(read_error(b"x"))
            _traceback_error(b"")
        dues = [
            restart.due if restart and ending.done else ending.due
            for restart, ending in self.endings.items()
        ]
        dues += [self.load, self.look_at, self.logs.due]
        dues += [due for due in (self.app.next_end(), self.app.failure_due()) if due is not None]
        if self.app.final is None:
            dues.append(self.progress_due)
            dues += [watch.due for watch in self.watches.values()]
        if self.dirty:
            dues.append(self._writes())
        if self.poll.poll(max(0.0, min(dues) - now) * 1000 + 0.5):
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
            self._end(
                "FAILED",
                "its keeper got SIGTERM: the machine or the service was stopped",
            )

    def _check_requests(self) -> None:
        """Do what is asked for, and what has become possible."""
        self._look_at_folder()
        if self.waiting_for_gpus and self.app.final is None:
            self._start()

    def _look_at_folder(self) -> None:
        """Look whether others asked for the job's end in its folder, or removed the folder.

        It is removed if no link to it is left. An error is no proof. If only a part of it was
        removed, the job can still be cancelled and deleted.
        """
        if layout.is_end_asked(self.folder):
            self._cancel()
        if layout.is_removed(self.place):
            self._end("CANCELLED", "its folder was removed")
        pause = _LOOK_AGAIN_S if self.waiting_for_gpus else _LOOK_S
        if layout.is_removed(self.lock):  # the rest may go at any moment
            pause = self.pause
            self.pause = min(2 * pause, _LOOK_S)
        self.look_at = time.monotonic() + pause

    def _cancel(self) -> None:
        if not self.cancel_requested:
            self.cancel_requested = self.dirty = True
            self._end("CANCELLED", cancelled_for(layout.who_asked(self.folder)))

    # -----------------------------------------------------------------------------------------------------
    # writing

    def _state(self) -> dict[str, object]:
        """Return the state in the JSON form of an AppStatus, with more fields for `finalise`."""
        state = self.app.as_json()
        stalled = self._stalled()
        state["msg"] = "; ".join(filter(None, (self.app.msg, self.stuck, *stalled)))
        if stalled:
            state["stalled"] = True
        progress = furthest_behind(meter.latest for meter in self.meters.values())
        if progress:
            state["progress"] = progress
        state["cancel_requested"] = self.cancel_requested
        state["keeper"] = self.keeper
        state["processes"] = [
            [*process, replica.role, replica.k] for replica, process in self.processes.items()
        ]
        if self.app.timeout is not None:
            state["time_limit"] = self.app.timeout
        if self.ends_by is not None:
            state["ends_by"] = self.ends_by
        segment_end = self.app.segment_end
        if segment_end is not None:
            state["segment_ends"] = round(layout.now() + segment_end - time.monotonic(), 3)
        return state

    def _stalled(self) -> list[str]:
        """Return what the status says of replicas that have stalled."""
        if self.app.final is not None:
            return []
        stalled = [replica for replica, watch in self.watches.items() if watch.stalled]
        return [
            stalled_text(self.app.name(each), self.app.roles[each.role]["stall_after"])
            for each in stalled
        ]

    def _writes(self) -> float:
        """Return when the state is to be written, if there is something new in it."""
        if self.app.state != self._shown:
            return self._launched + _SHORT_S
        return self._written + _STATE_TICK_S

    def _write(self, now: float) -> bool:
        """Write the state, and return False if that is not possible now."""
        self._written = now
        self._shown = self.app.state
        try:
            layout.add_state(self.folder, layout.dumps(self._state()))
        except OSError as exc:
            self._written = now + _RETRY_WRITE_S
            if exc.errno == errno.ENOENT:
                self._look_at_folder()
            return False
        self.dirty = False
        return True

    def _finish(self) -> None:
        """Write the end, once, since nothing runs any more."""
        self.app.finish(layout.now())
        data = layout.dumps(self._state())
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
        if self.request["gpus"] is not None:
            self._release_gpus()

    def _release_gpus(self) -> None:
        """Give its GPUs to jobs that wait for them."""
        from . import gpus

        try:
            gpus.release(self.gpu_table, self.folder)
        except OSError as exc:
            self._log(f"its GPUs are given back when this process is gone: {exc}\n")

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

    def abandon(self, problem: str) -> None:
        """End everything after an error in the keeper itself.

        The job fails, unless its end was decided before.
        """
        self._log(problem)

        def mine() -> tuple[processes.Snapshot, set[int]]:
            self._reap()
            living = processes.snapshot()
            return living, processes.below(living, {os.getpid()})

        processes.kill(mine)
        last = problem.strip().rsplit("\n", 1)[-1]
        self.app.end("FAILED", f"internal error of the keeper: {last} (see keeper.log)")
        self._finish()

    def _log(self, text: str) -> None:
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


def _traceback_error(tail: bytes) -> str:
    """Return the exception at the end of an output. What finds it is loaded when it is needed."""
    from transload.keeper.tracebacks import traceback_error

    return traceback_error(tail)


def main(home: str, waits: float) -> None:
    """Become the keeper of the job that a client asks for on standard input.

    The client's child ends at once. So a client that lives long has no zombies.

    Args:
        home: folder of the local scheduler.
        waits: the seconds after which it ends without a request.
    """
    if os.fork():
        os._exit(0)
    kernel.close_from(3)
    umask = os.umask(0o077)
    os.chdir(home)
    kernel.set_name(processes.NAME)
    kernel.become_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    wake = kernel.wake_on(signal.SIGCHLD, signal.SIGTERM, processes.LOOK, processes.CANCEL)
    request = _request(waits)
    if request is None:
        os._exit(0)
    keeper = Keeper(home, request, wake, umask)
    try:
        _answer(keeper.begin())
        if keeper.lock >= 0:  # else the job is another keeper's, or there is none
            keeper.run()
    except Exception:  # nothing may be left behind, whatever happened
        if keeper.lock < 0:
            raise
        keeper.abandon(kernel.exception_text())
    os._exit(0)


def _request(waits: float) -> dict[str, Any] | None:
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


def _answer(answer: dict[str, object]) -> None:
    """Answer the client, and leave its pipes. If it is gone, the job goes on."""
    try:
        os.write(1, layout.dumps(answer) + b"\n")
    except OSError:
        pass
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
