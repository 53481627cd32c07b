"""The replicas of a job that are processes of this machine: to start, warn, stop, kill and reap them."""

from __future__ import annotations

import os
import time

from . import kernel, layout, logindex
from .kernel import signal
from .launcher import ERROR_FILE, Ended, Event, Launcher, NotStarted, Progressed, Stalled, Started
from .processes import (
    CANCEL,
    COOKIE,
    LOOK,
    cannot_end,
    cookie_of,
    is_keeper,
    passing_on,
    send,
    signal_all,
    snapshot,
    start_time,
    trees,
)
from .rules import Replica, Restart
from .signs import UPDATE_S, Watch, with_handler

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from collections.abc import Sequence
    from resource import struct_rusage
    from typing import Any

    from .processes import Snapshot

__all__ = ["Processes", "make_outputs"]

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_BY_SIGNAL = 128  # exit codes above are signals
_REQUIREMENTS = "TRANSLOAD_REQUIREMENTS"  # the variable of a replica that uv has started
_MAXRSS_BYTES = 1024 if kernel.LINUX else 1  # of the unit in which the kernel counts memory


def make_outputs(env: dict[str, str]) -> None:
    """Make the folder of a replica's output files, unless that is a URL."""
    outputs = env.get("TRANSLOAD_OUTPUT_DIR", "")
    if outputs.startswith("/"):
        layout.make_folders(outputs)


class Processes(Launcher):
    """Replicas that are children of this process.

    Args:
        request: what the client asks for.
        replicas: all of the job.
        umask: the client's.

    Attributes:
        gpus: the GPUs of each replica, if the request has any.
        mains: pid and start time of the main process of each replica that lives.
        log_tick_s: least seconds between two looks at a log.
    """

    log_tick_s = logindex.TICK_S

    def __init__(self, request: dict[str, Any], replicas: list[Replica], umask: int) -> None:
        super().__init__()
        self.request = request
        self.roles: list[dict[str, Any]] = request["roles"]
        self.replicas = replicas
        self.umask = umask
        self.app_id: str = request["record"]["app_id"]
        self.cookie: str = request["record"]["cookie"]
        self.host = os.uname().nodename
        self.gpus: dict[Replica, list[str]] = {}
        self.mains: dict[Replica, tuple[int, int]] = {}
        self.grace = GRACE_S
        self.childless = True
        self._by_pid: dict[int, Replica] = {}
        self._terminations: dict[Restart | None, Termination] = {}  # None for the whole job's
        self._began_at: dict[Replica, int] = {}  # where in its stderr the latest attempt begins
        self._oom_kills = kernel.oom_kills()
        folders = [self.logs_of(replica) for replica in replicas]
        self._logs = logindex.index_of(folders, request["max_log"], self.log_tick_s)
        self._watches = {replica: self._watch(replica) for replica in replicas}
        self._progress_due = float("inf")
        self._progress_pause = UPDATE_S
        self._events: list[Event] = []

    def _watch(self, replica: Replica) -> Watch:
        """Return what looks for the signs of life of a replica."""
        role = self.roles[replica.role]
        env = role["replicas"][replica.k]["env"]
        names = ("TRANSLOAD_TRACKER_BASE", "TRANSLOAD_CHECKPOINT_DIR")
        folders = [env.get(name, "") for name in names]
        return Watch(self.logs_of(replica), layout.end_of_own, folders, role["stall_after"])

    def logs_of(self, replica: Replica) -> str:
        """Return the folder of a replica's output."""
        name = self.roles[replica.role]["name"]
        return f"{self.request['record']['logs']}/{name}/{replica.k}"

    # ----------------------------------------------------------------------------------------------------
    # starting

    def start(self, replicas: Sequence[Replica]) -> None:
        """Start replicas, and return when each is its program or has failed to become it."""
        self._end_lines([replica for replica in replicas if replica.run])
        reader, writer = os.pipe()
        self.childless = False
        failed: dict[int, tuple[str, int]] = {}
        for index, replica in enumerate(replicas):
            layout.unlink(f"{self.logs_of(replica)}/{ERROR_FILE}")  # the one before's
            self._begin_signs(replica)
            began = layout.now()  # it may write before this process goes on
            try:
                pid = start_replica(self.plan(replica), index, writer)
            except OSError as exc:
                failed[index] = (f"cannot fork: {exc.strerror}", exc.errno or 0)
                break
            self._by_pid[pid] = replica
            self.mains[replica] = (pid, start_time(pid))
            self._events.append(Started(replica, began, self.host))
        os.close(writer)
        failed.update(failed_starts(reader))
        os.close(reader)
        for index in sorted(failed):
            # the end of its process is no end of the replica, whose program did not start
            pid, _ = self.mains.pop(replicas[index], (0, 0))
            self._by_pid.pop(pid, None)
            self._events.append(NotStarted(replicas[index], *failed[index]))

    def _end_lines(self, replicas: list[Replica]) -> None:
        """Note what the attempts before have written, before the next ones of these start."""
        for replica in replicas:
            folder = self.logs_of(replica)
            logindex.end_lines(folder)
            self._began_at[replica] = logindex.size_of(f"{folder}/{logindex.STDERR}")
        if replicas:
            logindex.look(self._logs, time.monotonic())

    def plan(self, replica: Replica) -> dict[str, Any]:
        """Return what `start_replica` needs to start a replica."""
        role = self.roles[replica.role]
        part = role["replicas"][replica.k]
        env = {**self.request["env"], **self.files(replica), **part["env"], **role["secrets"]}
        env.update(self.variables(replica, len(role["replicas"])), TRANSLOAD_RANK0_HOST="localhost")
        make_outputs(env)
        env[COOKIE] = f"{self.cookie}:{replica.role}:{replica.k}"
        if self.request["gpus"] is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus[replica])
        return {
            "exe": role["exe"],
            "argv": [role["argv0"], *part["args"]],
            "env": env,
            "cwd": role["cwd"],
            "logs": self.logs_of(replica),
            "umask": self.umask,
        }

    def files(self, replica: Replica) -> dict[str, str]:
        """Return the variables of files that a replica may report its failure in."""
        error = f"{self.logs_of(replica)}/{ERROR_FILE}"
        return {"TRANSLOAD_ERROR_FILE": error, "TORCHELASTIC_ERROR_FILE": error}

    def variables(self, replica: Replica, of: int) -> dict[str, str]:
        """Return what a replica is told of itself.

        Args:
            replica: which.
            of: the number of replicas of its role.
        """
        return {
            "TRANSLOAD_APP_ID": self.app_id,
            "TRANSLOAD_ROLE": self.roles[replica.role]["name"],
            "TRANSLOAD_REPLICA_ID": str(replica.k),
            "TRANSLOAD_NUM_REPLICAS": str(of),
            "TRANSLOAD_RETRY": str(replica.restarts),
            "TRANSLOAD_INTERRUPTIONS": str(replica.interruptions),
            "TRANSLOAD_PROGRESS_FILE": self._watches[replica].progress_file,
        }

    # ----------------------------------------------------------------------------------------------------
    # what happens

    def events(self) -> list[Event]:
        """Return the starts and ends of main processes, and signs of life, since the last call."""
        self._reap()
        now = time.monotonic()
        if now >= self._logs.due:
            logindex.look(self._logs, now)
        self._look_for_signs(now)
        found = self._events
        self._events = []
        return found

    def due(self) -> float:
        """Return when to look again for signs of life, or for what is being ended."""
        dues: list[float] = [self._logs.due]
        dues += [each.due for each in self._terminations.values() if not each.done]
        living = self._living()
        if living:
            dues.append(self._progress_due)
            dues += [self._watches[replica].due for replica in living]
        return min(dues)

    def _living(self) -> list[Replica]:
        """Return the replicas of which signs of life are expected."""
        return [each for each in self.replicas if each.attempt.alive and not each.attempt.stopping]

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
            replica = self._by_pid.pop(pid, None)
            if replica is not None:  # else an orphan of some replica
                del self.mains[replica]
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self._note_end_of(replica, code, used)

    def _note_end_of(self, replica: Replica, code: int, used: struct_rusage) -> None:
        """Note the end of a replica's main process."""
        env = self.roles[replica.role]["replicas"][replica.k]["env"]
        if code > _BY_SIGNAL and _REQUIREMENTS in env:
            code = _BY_SIGNAL - code  # uv reports the signal that has ended its program
        self._watches[replica].end()
        self._note_progress(replica)
        usage = {
            "peak_memory": used.ru_maxrss * _MAXRSS_BYTES,
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
        }
        why = ""
        if code in _KILLED and self._oom_killed():
            why = "out of memory: the kernel killed it"
        since = self._began_at.get(replica, 0)
        ended = Ended(replica, code, layout.now(), why=why, usage=usage, since=since)
        self._events.append(ended)

    def _oom_killed(self) -> bool:
        """Tell whether the kernel has killed a process for want of memory since the last call."""
        before = self._oom_kills
        self._oom_kills = kernel.oom_kills()
        return self._oom_kills > before

    def _begin_signs(self, replica: Replica) -> None:
        """Expect signs of life of a new attempt."""
        now = time.monotonic()
        self._watches[replica].begin(now)
        self._progress_pause = UPDATE_S
        self._progress_due = min(self._progress_due, now + UPDATE_S)

    def _look_for_signs(self, now: float) -> None:
        """See how far the replicas are, and whether one has stalled."""
        living = self._living()
        if now >= self._progress_due:
            self._progress_pause = min(2 * self._progress_pause, logindex.SILENT_S)
            if [each for each in living if self._note_progress(each)]:
                self._progress_pause = UPDATE_S
            self._progress_due = now + self._progress_pause
        for replica in living:
            watch = self._watches[replica]
            if watch.look(now):
                self._events.append(Stalled(replica, watch.stalled))
                if watch.stalled:
                    self._answer_stall(replica, now)

    def _note_progress(self, replica: Replica) -> bool:
        """Note what a replica reports, and return False if it has reported nothing."""
        report = self._watches[replica].report()
        if report:
            self._events.append(Progressed(replica, report))
        return bool(report)

    def _answer_stall(self, replica: Replica, now: float) -> None:
        """Send a replica that has stalled its signal, if its role names one."""
        number = self.roles[replica.role]["stall_signal"]
        if number is None:
            return
        self._watches[replica].ignore_answer(now)
        living = snapshot()
        pid, _ = self.mains.get(replica, (0, 0))
        mine = trees(living, {pid: None}) if pid in living else ()
        for each in with_handler(mine, number):
            send(each, living[each][1], number)

    # ----------------------------------------------------------------------------------------------------
    # ending

    def signal(self, replica: Replica, number: int) -> None:
        """Send a signal to a main process. A stopped one, which could do nothing, goes on."""
        pid, started = self.mains.get(replica, (0, 0))
        if send(pid, started, number):
            send(pid, started, signal.SIGCONT)

    def stop(self, restarts: Sequence[Restart] | None) -> None:
        """End the whole trees of these replicas, or all that descends from this process."""
        if self.childless:
            self._terminations = {}
            self.stuck = ""
            return
        now = time.monotonic()
        before = self._terminations
        wanted: Sequence[Restart | None] = [None] if restarts is None else restarts
        # what a wider restart covers is in it
        self._terminations = {each: before.get(each) or self._ending(each, now) for each in wanted}
        for each in self._terminations.values():
            each.done = each.done or each.finished(now, self.childless)
        late = [each.stuck for each in self._terminations.values() if not each.done]
        self.stuck = "; ".join(filter(None, late))

    def _ending(self, restart: Restart | None, now: float) -> Termination:
        replicas = None if restart is None else restart.replicas
        return Termination(replicas, self.mains, self.cookie, self.grace, now)

    def is_stopped(self, restart: Restart | None) -> bool:
        """Tell whether no process is left of these replicas."""
        ending = self._terminations.get(restart)
        return ending is None or ending.done

    def kill(self) -> None:
        """Give nothing any time from now on."""
        self.grace = 0.0

    def close(self) -> None:
        """Note the last output."""
        logindex.look(self._logs, time.monotonic())


# -------------------------------------------------------------------------------------------------
# starting replicas by fork, a few system calls, and exec. Errors come back through a pipe

_CHANGED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGTERM,
    LOOK,
    CANCEL,
)
"""Signals that keepers or Python itself handle or ignore."""


def start_replica(plan: dict[str, Any], index: int, report: int) -> int:
    """Fork one replica, which becomes its program by exec, and return its pid.

    Errors come back through the pipe ``report``.
    """
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(plan, keeper)
        except BaseException as exc:  # a forked child must not return into the keeper's code
            reason = (
                exc.strerror
                if isinstance(exc, OSError) and exc.strerror
                else f"{type(exc).__name__}: {exc}"
            )
            number = getattr(exc, "errno", None) or 0
            line = layout.dumps([index, str(reason)[:400], number]) + b"\n"
            os.write(report, line)  # shorter than PIPE_BUF, so lines do not mix
        finally:
            os._exit(127)
    return pid


def failed_starts(reader: int) -> dict[int, tuple[str, int]]:
    """Wait until each child has exec'ed or failed, and return what went wrong, by index.

    Returns:
        Of each that has failed the reason, and the number of the system's error.
    """
    data = b""
    while part := os.read(reader, 65536):
        data += part
    lines = map(layout.loads, data.splitlines())
    return {index: (reason, number) for index, reason, number in lines}


def _become(plan: dict[str, Any], keeper: int) -> None:
    os.setsid()
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != keeper:  # it died before the line above
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for number in _CHANGED:
        signal.signal(number, signal.SIG_DFL)
    os.umask(plan["umask"])
    _open_streams(plan["logs"])
    try:
        os.chdir(plan["cwd"])
    except OSError as exc:
        raise OSError(exc.errno, f"cannot enter the folder {plan['cwd']}: {exc.strerror}") from None
    try:
        os.execve(plan["exe"], plan["argv"], plan["env"])  # noqa: S606 - no shell is wanted
    except OSError as exc:
        raise OSError(exc.errno, f"cannot execute {plan['exe']}: {exc.strerror}") from None


def _open_streams(folder: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "stdout.log"), (2, "stderr.log")):
        path = f"{folder}/{name}"
        try:
            fd = layout.open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot write {path}: {exc.strerror}") from None
        os.set_blocking(fd, True)
        os.dup2(fd, number)


# -------------------------------------------------------------------------------------------------
# ending them by SIGTERM to the whole tree and, after some time, SIGKILL until nothing is left. A
# replica with a notice has had its signal. So its tree is not touched before its time is over

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL of processes without a notice."""

# seconds at first, and at last where nothing changes, so that what cannot be killed costs little
_KILL_AGAIN_S = (0.02, 1.0)
_STUCK_S = 2.0


class Termination:
    """The end of some replicas, or of the whole job.

    A replica with a `kill_at` was given a notice. Its processes are killed then. If its main
    process ends before, the processes that it left behind are ended like all others.

    Args:
        replicas: those that are to be started again. None means all that descends from the
            keeper.
        processes: pid and start time of each replica that lives. The caller keeps it current.
        cookie: that of the job, which shows to which replica an orphan belongs.
        grace: seconds between SIGTERM and SIGKILL of processes without a notice.
        now: monotonic seconds.

    Attributes:
        due: when to call `finished` again, though nothing happens.
        stuck: the processes that do not end although they were killed, as text.
    """

    def __init__(
        self,
        replicas: list[Replica] | None,
        processes: dict[Replica, tuple[int, int]],
        cookie: str,
        grace: float,
        now: float,
    ) -> None:
        self.done = False
        self.stuck = ""
        self._everything = replicas is None
        self._replicas = replicas or []
        self._processes = processes
        self._cookie = cookie
        self._grace = grace
        self._left: set[int] = set()
        self._pause = _KILL_AGAIN_S[0]
        self._kill_again = now
        concerned = processes if replicas is None else [r for r in replicas if r in processes]
        # when the processes of each replica are killed (None stands for all without a notice)
        self._deadlines: dict[Replica | None, float] = {
            replica: replica.attempt.kill_at
            for replica in concerned
            if replica.attempt.kill_at is not None
        }
        self._deadlines[None] = now + grace
        living, members = self._members()
        mine = {pid for pid, owner in members.items() if owner is None}
        signal_all(living, mine - passing_on(living, mine), signal.SIGTERM)
        self.due = min(self._deadlines.values())

    def finished(self, now: float, childless: bool) -> bool:
        """Tell whether no process is left, and kill those whose time is over."""
        if childless:
            return True
        living, members = self._members()
        self._end_leftovers(living, members, now)
        # a process has ended when its parent has its exit code, which its last thread may delay
        waiting = bool(self._processes)
        if not self._everything:
            waiting = any(replica in self._processes for replica in self._replicas)
        late = {pid for pid, owner in members.items() if now >= self._deadlines[owner]}
        if late and now >= self._kill_again:
            signal_all(living, late, signal.SIGKILL)
            longer = min(self._pause * 2, _KILL_AGAIN_S[1])
            self._pause = longer if late == self._left else _KILL_AGAIN_S[0]
            self._left = late
            self._kill_again = now + self._pause
        dues = [deadline for deadline in self._deadlines.values() if deadline > now]
        dues.append(self._kill_again if late else now + _KILL_AGAIN_S[1])
        self.due = min(dues)
        is_stuck = now >= max(self._deadlines.values()) + _STUCK_S
        self.stuck = cannot_end(late) if is_stuck else ""
        return not members and not waiting

    def _end_leftovers(
        self, living: Snapshot, members: dict[int, Replica | None], now: float
    ) -> None:
        """Send SIGTERM to the processes that a main process has left behind after a notice."""
        for replica in [each for each in self._deadlines if each is not None]:
            if replica in self._processes:
                continue
            mine = {pid for pid, owner in members.items() if owner is replica}
            signal_all(living, mine, signal.SIGTERM)
            members.update(dict.fromkeys(mine))
            limit = min(self._deadlines.pop(replica), now + self._grace)
            self._deadlines[None] = max(self._deadlines[None], limit)

    def _members(self) -> tuple[Snapshot, dict[int, Replica | None]]:
        """Return the living processes, and of those to be ended the replica whose time counts."""
        living = snapshot()
        own = os.getpid()
        replicas = {pid: replica for replica, (pid, _) in self._processes.items()}
        marks = {
            f"{self._cookie}:{r.role}:{r.k}": r for r in [*self._replicas, *self._deadlines] if r
        }
        roots: dict[int, Replica | None] = {}
        for pid, (parent, _) in living.items():
            replica = replicas.get(pid)
            if replica is not None:
                if self._everything or replica in self._replicas:
                    roots[pid] = replica if replica in self._deadlines else None
            elif parent == own and not is_keeper(pid):
                # an orphan of some replica
                replica = marks.get(cookie_of(pid) or "") if marks else None
                if self._everything or replica is not None:
                    roots[pid] = replica if replica in self._deadlines else None
        return living, trees(living, roots)
