"""One task of a Slurm job. It starts and ends a replica on request, and reports what becomes of it.

Requests are lines on its standard input, which ``srun`` gives to all tasks of a role: ``start K RUN
HOST RETRY`` (HOST of rank 0), ``notice K``, ``stop K``, ``signal K NUMBER``. K is a number or
``*``. The end of the input ends everything. The task answers by lines of JSON on its standard
output.

One runs beside each replica, on nodes that have other work. So it imports next to nothing.
``json``, ``subprocess``, ``ctypes``, ``contextlib`` and ``signal`` would take four times the
interpreter's own start.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from transload.keeper import kernel, layout
from transload.keeper.launcher import Ended, Event, NotStarted, Progressed, Stalled, Started
from transload.keeper.processes import below, passing_on, send, snapshot
from transload.keeper.replica import Processes, make_outputs
from transload.keeper.rules import Attempt, Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import Any
else:
    import _signal as signal  # without the enumerations

STREAMS = ("stdout.log", "stderr.log")
_LONGEST_REPORT = 900  # bytes: srun cuts longer lines into pieces
_SHORT_TEXT = 60
_NOT_SHARED = "not on this node: name a shared folder (-c checkpoint_base=FOLDER)"
LOOK_S = 10.0
"""Seconds between looks whether the job goes on."""
_TICK_S = 0.05
"""Seconds between looks for what a replica has left behind that Slurm has signalled."""
_HEARD_S = 1.0
_HEAR_S = 0.1
_OURS = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
}
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
SENT = [
    number
    for number in range(1, signal.NSIG)
    if number not in _OURS | _FAULTS and number not in (32, 33)
]
"""The signals that a user may send to the program, which our own processes must survive.

32 and 33 are the C library's.
"""
_OPTIONAL = ("notice", "notice_signal", "checkpoints", "stall_after", "on_stall", "stall_signal")


def task_of(plan: dict[str, Any], role: int) -> dict[str, Any]:
    """Return the part of ``plan.json`` that the agents of one role need."""
    names = ("name", "entrypoint", "args", "env", "cwd", "num_replicas", "secrets", "container")
    return {
        "app_id": plan["app_id"],
        "grace": plan["grace"],
        **{name: plan["roles"][role][name] for name in (*names, *_OPTIONAL)},
    }


def _make_mount_points(container: list[str]) -> None:
    """Make the folders of an image that charliecloud binds to, since it does not make them."""
    if container[:1] != ["ch-run"]:
        return
    for word in container:
        if word.startswith("--bind="):
            layout.make_folders(container[-2] + word.rpartition(":")[2])


class Task(Processes):
    """The one replica of a task.

    Args:
        folder: the job's folder.
        task: what `task_of` returns.
        role: number of the role.
        k: number of the replica.
    """

    log_tick_s = 0.05  # the folder is on a file server

    def __init__(self, folder: str, task: dict[str, Any], role: int, k: int) -> None:
        self.task = task
        self.prefix = f"TRANSLOAD_SECRET_{role}_"
        self.rank0 = ""
        self.replica = Replica(0, k, {})
        env = {name: self._numbered(value, k) for name, value in task["env"].items()}
        number = None
        if task["on_stall"] == "dump":
            number = getattr(signal, f"SIG{task['stall_signal']}")
        one = {**task, "replicas": {k: {"env": env}}, "stall_signal": number}
        record = {"app_id": task["app_id"], "cookie": "", "logs": f"{folder}/logs"}
        request = {"record": record, "roles": [one], "max_log": 0, "gpus": None}
        umask = os.umask(0)
        os.umask(umask)
        super().__init__(request, [self.replica], umask)

    def _numbered(self, text: str, k: int) -> str:
        """Return a text with the number of this replica in place of its token."""
        return text.replace("${replica_id}", str(k))

    def start(self, replicas: Sequence[Replica]) -> None:
        """Start the replica, unless its checkpoints are not on this node."""
        folder = self.task["checkpoints"]
        _make_mount_points(self.task["container"])
        if folder and not os.path.isdir(folder):
            self._events.append(NotStarted(self.replica, f"{_NOT_SHARED}: {folder}", errno.ENOENT))
        else:
            super().start(replicas)

    def plan(self, replica: Replica) -> dict[str, Any]:
        """Return what `start_replica` needs to start the replica."""
        task = self.task
        words = [task["entrypoint"], *(self._numbered(arg, replica.k) for arg in task["args"])]
        if "/" in words[0]:
            words[0] = os.path.join(task["cwd"], words[0])
        argv = [*task["container"], *words]
        env = self._environment()
        return {
            "exe": _found(argv[0], env.get("PATH", os.defpath), task["cwd"]),
            "argv": argv,
            "env": env,
            "cwd": task["cwd"],
            "logs": self.logs_of(replica),
            "umask": self.umask,
        }

    def _environment(self) -> dict[str, str]:
        task = self.task
        secret = "TRANSLOAD_SECRET_"  # noqa: S105 - a prefix of names
        env = {name: value for name, value in os.environ.items() if not name.startswith(secret)}
        for number, name in enumerate(task["secrets"]):
            env[name] = os.environ.get(f"{self.prefix}{number}", "")
        env["TRANSLOAD_RANK0_HOST"] = self.rank0
        # a step of the program's own would wait for ever for what this step has
        env.setdefault("SLURM_OVERLAP", "1")
        env.update(self.files(self.replica))
        env.update(self.roles[0]["replicas"][self.replica.k]["env"])
        if task["container"]:  # container runtimes need it
            env.setdefault("USER", os.environ.get("SLURM_JOB_USER", ""))
        env.update(self.variables(self.replica, task["num_replicas"]))
        make_outputs(env)
        return env


def _found(program: str, path: str, cwd: str) -> str:
    """Return the path of a program. Many systems have ``python`` as ``python3`` alone.

    If there is none it is the name, which cannot be executed.
    """
    if "/" in program:
        return os.path.join(cwd, program)
    for name in (program, "python3") if program == "python" else (program,):
        for folder in path.split(os.pathsep):
            each = os.path.join(cwd, folder, name)
            if os.access(each, os.X_OK) and not os.path.isdir(each):
                return each
    return program


class Agent:
    """Runs one replica.

    Args:
        folder: the job's folder.
        task: what `task_of` returns.
        role: number of the role.
        k: number of the replica.
        orders: file descriptor to read orders from.
        report: file descriptor to write reports to.
    """

    def __init__(
        self, folder: str, task: dict[str, Any], role: int, k: int, orders: int, report: int
    ) -> None:
        self.k = k
        self.orders = orders
        self.reports = report
        self.task = task
        self.launcher = Task(folder, task, role, k)
        self.replica = self.launcher.replica
        self.notice_signal: int = getattr(signal, f"SIG{task['notice_signal']}")
        self.running = False
        self.ended: Ended | None = None  # while other processes of the replica still have time
        self.signalled = False
        self.rest_until = 0.0  # what it has left behind had Slurm's signal, and has this time
        self.heard: dict[int, float] = {}  # signal -> when Slurm sent it, to the replica too
        self.passing: dict[int, float] = {}  # signal -> when to pass it on
        self.buffer = b""
        self.open = True
        self.start: StartFolder | None = None
        self.looked = time.monotonic()

    def main(self) -> None:
        """Serve until the orders end and nothing runs."""
        kernel.become_subreaper()  # grandchildren that left their session stay ours
        logs = self.launcher.logs_of(self.replica)
        patiently(lambda: os.makedirs(logs, mode=0o700, exist_ok=True))
        # Slurm signals every process of a step itself, so also the replica
        wake = kernel.wake_on(signal.SIGCHLD)
        catch(SENT)
        while self.open or self.running:
            sources = [wake, self.orders] if self.open else [wake]
            ready, _, _ = select.select(sources, [], [], self._timeout())
            if wake in ready:
                self._hear(kernel.drain(wake))
            if self.orders in ready:
                self._listen()
            self._look()
            self._pass_on()
            self._go_on()

    def _timeout(self) -> float | None:
        """Return the seconds until there is something to do, though nothing happens."""
        now = time.monotonic()
        dues = []
        if self.start:
            dues.append(self.looked + LOOK_S)
        if self.rest_until:
            dues.append(now + _TICK_S)
        if self.running:
            dues += [self.launcher.due(), *self.passing.values()]
            kill_at = self.replica.attempt.kill_at
            if kill_at is not None and not self.replica.attempt.stopping:
                dues.append(kill_at)
        return max(0.0, min(dues) - now) if dues else None

    def _hear(self, numbers: bytes) -> None:
        """Note the signals that Slurm has sent to all of this step."""
        self.heard.update(dict.fromkeys(numbers, time.monotonic()))
        is_new = signal.SIGTERM in numbers and not self.signalled
        self.signalled = self.signalled or is_new
        if self.task["notice"] is not None and self.notice_signal != signal.SIGTERM:
            is_new = is_new or self.notice_signal in numbers
        if is_new and self.running:
            self._report("signalled")  # with a time of grace the keeper gets no signal itself

    def _pass_on(self) -> None:
        """Give the replica the signals that reached the keeper alone."""
        now = time.monotonic()
        for number in [number for number, due in self.passing.items() if due <= now]:
            del self.passing[number]
            if self.running and now - self.heard.get(number, -_HEARD_S) >= _HEARD_S:
                self.signalled = self.signalled or number == signal.SIGTERM
                self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        """Signal all descendants, the main process first, so that it does not report their end."""
        living = snapshot()
        mine = below(living, {os.getpid()})
        if number == signal.SIGTERM:
            mine -= passing_on(living, mine)
        main, _ = self.launcher.mains.get(self.replica, (0, 0))
        for pid in sorted(mine, key=lambda pid: pid != main):
            send(pid, living[pid][1], number)

    def _listen(self) -> None:
        data = os.read(self.orders, 1 << 16)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            word, who, *more = line.decode().split()
            if who not in ("*", str(self.k)):
                continue
            if word == "start" and not self.running:
                self._start(int(more[0]), more[1], int(more[2]))
            elif word == "notice":
                self._warn()
            elif word == "stop":
                self._stop()
            elif word == "signal":
                self.passing[int(more[0])] = time.monotonic() + _HEAR_S
        if not data:
            self.open = False  # the keeper is gone, or needs this task no more
            self._stop()

    def _look(self) -> None:
        """Look now and then whether this start of the job was replaced."""
        if not self.start or time.monotonic() < self.looked + LOOK_S:
            return
        self.looked = time.monotonic()
        if self.start.is_gone():
            self.open = False  # the keeper may not know of this task any more
            self._stop()

    # ------------------------------------------------------------------------------------------------------
    # replica

    def _start(self, run: int, rank0: str, retry: int) -> None:
        """Start the replica for a run."""
        self.running = True
        self.signalled = False
        self.ended = None
        self.replica.restarts = retry
        self.replica.interruptions = run - retry
        self.replica.attempt = Attempt("PENDING")
        self.replica.attempt.alive = True
        self.launcher.rank0 = rank0
        self.launcher.grace = float(self.task["grace"])
        self.launcher.start([self.replica])

    def _stop(self) -> None:
        """Begin to end the replica, with a notice if it is to have one."""
        if self.running and self.ended is None:
            if self.task["notice"] is not None:
                self._warn()
            self.replica.attempt.stopping = True

    def _warn(self) -> None:
        """Send the main process its notice, and set the time of its end."""
        attempt = self.replica.attempt
        if not self.running or self.ended or attempt.stopping or attempt.kill_at is not None:
            return
        self.launcher.signal(self.replica, self.notice_signal)
        attempt.kill_at = time.monotonic() + (self.task["notice"] or 0.0)

    def _go_on(self) -> None:
        """Report what has happened, and go on with what is being ended."""
        if not self.running:
            return
        attempt = self.replica.attempt
        events = self.launcher.events()
        if any(isinstance(event, NotStarted) for event in events):
            events = [event for event in events if isinstance(event, NotStarted)]
        for event in events:
            self._report_event(event)
        if attempt.kill_at is not None and time.monotonic() >= attempt.kill_at:
            attempt.stopping = True
        if self.rest_until and not self._rests():
            self.rest_until = 0.0
        if (attempt.stopping or self.ended) and not self.rest_until:
            self.launcher.stop(None)
        if self.ended and not self.rest_until and self.launcher.is_stopped(None):
            self.launcher.stop([])
            self._report_end(self.ended)

    def _report_event(self, event: Event) -> None:
        if isinstance(event, Started):
            self._report("started", time=event.at)
        elif isinstance(event, Progressed):
            self._report_progress(event.report)
        elif isinstance(event, Stalled):
            self._report("stalled" if event.now else "alive")
        elif isinstance(event, Ended):
            self._begin_end(event)
        elif isinstance(event, NotStarted):
            self._report_no_start(event)

    def _begin_end(self, ended: Ended) -> None:
        """End what the main process has left behind, which has the time that it had."""
        attempt = self.replica.attempt
        self.ended = ended
        attempt.alive = False
        now = time.monotonic()
        if attempt.kill_at is not None:
            self.launcher.grace = min(max(0.0, attempt.kill_at - now), self.launcher.grace)
        elif not attempt.stopping:
            self.launcher.kill()
            if self.signalled:
                self.rest_until = now + float(self.task["grace"])

    def _rests(self) -> bool:
        """Tell whether something is left of the replica that still has time."""
        left = below(snapshot(), {os.getpid()})
        return bool(left) and time.monotonic() < self.rest_until

    def _report_end(self, ended: Ended) -> None:
        self.running = False
        self.launcher.close()
        more: dict[str, Any] = {"code": ended.code, "usage": ended.usage}
        self._report("ended", **more, signalled=self.signalled, began_at=ended.since)

    def _report_no_start(self, event: NotStarted) -> None:
        """Report that the program could not be started, in its log if there is one."""
        self.running = False
        log = f"{self.launcher.logs_of(self.replica)}/{STREAMS[1]}"
        unlogged: dict[str, Any] = {}
        try:
            fd = layout.open_own(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(fd, f"transload: {event.why}\n".encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            unlogged = {"why": event.why}
        self.launcher.close()
        code = 127 if event.errno == errno.ENOENT else 126
        self._report("ended", code=code, **unlogged)

    def _report(self, event: str, **more: Any) -> None:
        """Report an event of this run, which is one of now unless ``more`` has its time."""
        about = {
            "e": event,
            "k": self.k,
            "run": self.replica.run,
            "host": self.launcher.host,
            "time": time.time(),
        }
        try:
            layout.write_all(self.reports, layout.dumps({**about, **more}) + b"\n")
        except BrokenPipeError:
            pass

    def _report_progress(self, report: dict[str, Any]) -> None:
        """Report how far the replica is."""
        if len(layout.dumps(report)) > _LONGEST_REPORT:
            report["text"] = report["text"][:_SHORT_TEXT]
        if len(layout.dumps(report)) <= _LONGEST_REPORT:
            self._report("progress", report=report)


class StartFolder:
    """The folder of one start of a job, which is looked at now and then.

    A newer start takes it away, and so does a delete.

    Args:
        path: its path.
        root: the folder of all apps.
    """

    def __init__(self, path: str, root: str) -> None:
        self.path, self._root = path, root
        self._missed: float | None = None

    def is_gone(self) -> bool:
        """Tell whether it is gone for sure.

        One proof is a newer start's folder in its place. The other is that it was missing twice, 10
        s apart, while the folder around it could be read. Other errors, such as a stale handle or
        an absent file server, are no proof.
        """
        names = missing_from(self.path, self._root)
        if names is None:
            self._missed = None  # it is there, or nobody can tell
            return False
        if self._is_replaced(names):
            return True
        now = time.monotonic()
        if self._missed is None:
            self._missed = now
        return now >= self._missed + LOOK_S

    def _is_replaced(self, names: list[str]) -> bool:
        prefix, _, number = self.path.rpartition("/")[2].rpartition("-")
        found = [name[len(prefix) + 1 :] for name in names if name.startswith(prefix + "-")]
        return any(other.isdigit() and int(other) > int(number) for other in found)


def missing_from(path: str, root: str) -> list[str] | None:
    """Return the content of a path's folder if the path is proved to be missing there, else None.

    Args:
        path: below ``root``. If its folder is missing too, that folder is looked for instead.
        root: the folder of all jobs. Without `MADE_FIRST` it proves nothing, since an empty folder
            may be one where nothing is mounted now.
    """
    parent, _, name = path.rpartition("/")
    try:
        os.stat(path)
        return None
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        if not parent.startswith(f"{root}/"):
            return None
        return missing_from(parent, root)
    except OSError:
        return None
    if name in names:
        return None
    if parent == root and MADE_FIRST not in names:
        return None
    return names


MADE_FIRST = "gone"
"""The name that is in the folder of all jobs before there is a job."""


def patiently(action: Any) -> Any:
    """Do an action that writes. On a full disk it waits until there is room."""
    while True:
        try:
            return action()
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            time.sleep(1.0)


def catch(numbers: list[int]) -> None:
    """Survive signals. The descriptor that wakes this process gets their numbers."""
    for number in numbers:
        try:
            signal.signal(number, lambda *_: None)
        except (OSError, ValueError):
            pass  # not one of this system's


def start_number() -> int:
    """Return how many starts of the job there were before this one."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def root_of(folder: str) -> str:
    """Return the folder of all jobs, which has that of a job in its folder ``apps``."""
    return os.path.dirname(os.path.dirname(folder))


def main(folder: str, role: str) -> None:
    """Serve as one task of a step, whose standard input and output belong to the keeper."""
    task = layout.read_json(os.path.join(folder, f"role-{role}"))
    assert task is not None
    kernel.close_from(3)
    report = os.dup(1)
    os.dup2(2, 1)  # a stray print must not be taken for a report
    agent = Agent(folder, task, int(role), int(os.environ.get("SLURM_PROCID", "0")), 0, report)
    mine = os.path.join(folder, f".start-{start_number()}")
    agent.start = StartFolder(mine, root_of(folder))
    agent.main()
    sys.exit(0)
