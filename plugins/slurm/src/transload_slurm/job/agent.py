"""One task of a Slurm job. It starts and ends a replica on request, and notes when its log grew.

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

from transload.keeper import layout
from transload.keeper.signs import UPDATE_S, Watch, with_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal  # without the enumerations

STREAMS = ("stdout.log", "stderr.log")
ERROR_FILE = "error.json"
"""The file beside the streams with a replica's report of its failure."""
PROGRESS_FILE = "progress.json"
"""The file beside the streams with a replica's progress."""
_LONGEST_REPORT = 900  # bytes: srun cuts longer lines into pieces
_SHORT_TEXT = 60
_NOT_SHARED = "not on this node: name a shared folder (-c checkpoint_base=FOLDER)"
_TICK_S = (0.05, 0.5)  # between looks at the log: soon after it grew, then less and less
_KILL_AGAIN_S = 0.05
LOOK_S = 10.0
"""Seconds between looks whether the job goes on."""
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
_SUBREAPER = 36
_DEATH_SIGNAL = 1
_RANK0 = "TRANSLOAD_RANK0_HOST"


_REQUIREMENTS = "TRANSLOAD_REQUIREMENTS"
"""The variable of a replica that uv has started."""
_BY_SIGNAL = 128
"""Exit codes of uv above this are the signals that have ended its program."""
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
            try:
                os.makedirs(container[-2] + word.rpartition(":")[2], exist_ok=True)
            except OSError:
                pass  # charliecloud reports a missing one


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
        self.folder = folder
        self.grace = float(task["grace"])
        self.task = task
        self.k = k
        self.prefix = f"TRANSLOAD_SECRET_{role}_"
        self.host = os.uname().nodename
        self.orders = orders
        self.reports = report
        self.logs = os.path.join(folder, "logs", task["name"], str(k))
        self.child = 0  # its pid
        self.run_number = 0
        self.notice: float | None = task["notice"]  # seconds between it and KILL
        self.noticed = False
        self.retry = "0"
        self.watch: Any = None  # a Watch, once the replica shows what it looks for
        self.watched_at = 0.0
        self.began_at = 0  # where in its stderr this run begins
        self.buffer = b""
        self.open = True
        # how the replica ended, while its other processes still have time
        self.ended: dict[str, Any] = {}
        self.kill_at: float | None = None
        self.signalled = False
        self.heard: dict[int, float] = {}  # signal -> when Slurm sent it, to the replica too
        self.passing: dict[int, float] = {}  # signal -> when to pass it on
        self.start: StartFolder | None = None
        self.looked = time.monotonic()
        self.sizes = (0, 0)
        self.pause = _TICK_S[0]

    def main(self) -> None:
        """Serve until the orders end and nothing runs."""
        _prctl(_SUBREAPER, 1)  # grandchildren that left their session stay ours
        patiently(lambda: os.makedirs(self.logs, mode=0o700, exist_ok=True))
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        # Slurm signals every process of a step itself, so also the replica
        catch([signal.SIGCHLD, *SENT])
        while self.open or self.child:
            sources = [wake]
            if self.open:
                sources.append(self.orders)
            ready, _, _ = select.select(sources, [], [], self._timeout())
            if wake in ready:
                try:
                    self._hear(os.read(wake, 4096))
                except BlockingIOError:
                    pass
            if self.orders in ready:
                self._listen()
            self._pass_on()
            self._look()
            self._reap()

    def _timeout(self) -> float | None:
        """Return the seconds until there is something to do, though nothing happens."""
        if not self.child and not self.start:
            return None
        if not self.child:
            return LOOK_S
        dues = list(self.passing.values())
        if self.kill_at is not None:
            dues.append(self.kill_at)
        now = time.monotonic()
        return min([self.pause, *(max(0.0, due - now) for due in dues)])

    def _hear(self, numbers: bytes) -> None:
        """Note the signals that Slurm has sent to all of this step."""
        self.heard.update(dict.fromkeys(numbers, time.monotonic()))
        is_new = signal.SIGTERM in numbers and not self.signalled
        self.signalled = self.signalled or is_new
        if self.notice is not None and self.task["notice_signal"] != "TERM":
            is_new = is_new or getattr(signal, f"SIG{self.task['notice_signal']}") in numbers
        if is_new and self.child:
            self._report("signalled")  # with a time of grace the supervisor gets no signal itself

    def _pass_on(self) -> None:
        """Give the replica the signals that reached the supervisor alone."""
        now = time.monotonic()
        for number in [number for number, due in self.passing.items() if due <= now]:
            del self.passing[number]
            if self.child and now - self.heard.get(number, -_HEARD_S) >= _HEARD_S:
                self.signalled = self.signalled or number == signal.SIGTERM
                self._signal(number)

    def _listen(self) -> None:
        data = os.read(self.orders, 1 << 16)
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            word, who, *more = line.decode().split()
            if who not in ("*", str(self.k)):
                continue
            if word == "start" and not self.child:
                self.retry = more[2]
                self._start(int(more[0]), more[1])
            elif word == "notice":
                self._warn()
            elif word == "stop":
                self._stop()
            elif word == "signal":
                self.passing[int(more[0])] = time.monotonic() + _HEAR_S
        if not data:
            self.open = False  # the supervisor is gone, or needs this task no more
            self._stop()

    # ------------------------------------------------------------------------------------------------------
    # replica

    def _start(self, run: int, rank0: str) -> None:
        """Start the replica for a run, or report why that is not possible."""
        self.run_number = run
        self.kill_at = None
        self.signalled = False
        self.noticed = False
        task = self.task
        argv = [task["entrypoint"], *(self._numbered(arg) for arg in task["args"])]
        env = self._environment(run, rank0)
        streams: list[int] = []
        layout.unlink(os.path.join(self.logs, ERROR_FILE))  # that of the run before
        try:
            for name in STREAMS:
                streams.append(
                    layout.open_own(
                        os.path.join(self.logs, name), os.O_RDWR | os.O_CREAT | os.O_APPEND
                    )
                )
                os.set_blocking(streams[-1], True)
                _end_line(streams[-1])
            self.began_at = os.fstat(streams[1]).st_size
            self._look()  # at the output of the run before, which is older than this start
            if "/" in argv[0]:
                argv[0] = os.path.join(task["cwd"], argv[0])
            _make_mount_points(task["container"])
            argv = [*task["container"], *argv]
            if task["checkpoints"] and not os.path.isdir(task["checkpoints"]):
                raise FileNotFoundError(errno.ENOENT, _NOT_SHARED, task["checkpoints"])
            self._begin_watch(env)
            # taken before the start, since the next look may see all that the replica writes
            began = time.time()
            self.child = spawn(argv, task["cwd"], env, streams)
            self._report("started", time=began)
        except OSError as exc:
            self._report_no_start(argv[0], exc, streams)
        finally:
            for fd in streams:
                os.close(fd)

    def _report_no_start(self, program: str, exc: OSError, streams: list[int]) -> None:
        """Report that a program could not be started, in its log if there is one."""
        why = f"cannot run {program!r}: {exc.strerror}: {exc.filename}"
        unlogged: dict[str, Any] = {}
        if len(streams) == len(STREAMS):
            os.write(streams[1], f"transload: {why}\n".encode("utf-8", "replace"))
        else:
            unlogged = {"why": why}
        self._look()
        code = 126
        if isinstance(exc, FileNotFoundError):
            code = 127
        self._report("ended", code=code, **unlogged)

    def _begin_watch(self, env: dict[str, str]) -> None:
        """Watch the run that begins for stalls, if the role asks for that."""
        names = ("TRANSLOAD_TRACKER_BASE", "TRANSLOAD_CHECKPOINT_DIR")
        folders = [env.get(name, "") for name in names]
        self.watch = Watch(self.logs, layout.end_of_own, folders, self.task["stall_after"])
        self.watch.begin(time.monotonic())

    def _numbered(self, text: str) -> str:
        """Return a text with the number of this replica in place of its token."""
        return text.replace("${replica_id}", str(self.k))

    def _environment(self, run: int, rank0: str) -> dict[str, str]:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TRANSLOAD_SECRET_")
        }
        for number, name in enumerate(self.task["secrets"]):
            env[name] = os.environ.get(f"{self.prefix}{number}", "")
        env[_RANK0] = rank0
        env["TRANSLOAD_ERROR_FILE"] = env["TORCHELASTIC_ERROR_FILE"] = os.path.join(
            self.logs, ERROR_FILE
        )
        # a step of the program's own would wait for ever for what this step has
        env.setdefault("SLURM_OVERLAP", "1")
        env.update({name: self._numbered(value) for name, value in self.task["env"].items()})
        if self.task["container"]:  # container runtimes need it
            env.setdefault("USER", os.environ.get("SLURM_JOB_USER", ""))
        env["TRANSLOAD_APP_ID"] = self.task["app_id"]
        env["TRANSLOAD_ROLE"] = self.task["name"]
        env["TRANSLOAD_REPLICA_ID"] = str(self.k)
        env["TRANSLOAD_NUM_REPLICAS"] = str(self.task["num_replicas"])
        env["TRANSLOAD_RETRY"] = self.retry
        env["TRANSLOAD_INTERRUPTIONS"] = str(run - int(self.retry))
        env["TRANSLOAD_PROGRESS_FILE"] = os.path.join(self.logs, PROGRESS_FILE)
        outputs = env.get("TRANSLOAD_OUTPUT_DIR", "")
        if outputs.startswith("/"):  # it may be a URL
            try:
                os.makedirs(outputs, exist_ok=True)
            except OSError:
                pass  # the program gets the error
        return env

    def _stop(self) -> None:
        if not self.child or self.kill_at is not None:
            return
        if self.notice is not None:
            self._warn()
            return
        self._signal(signal.SIGTERM)
        self.kill_at = time.monotonic() + self.grace

    def _warn(self) -> None:
        """Send the main process its notice, and set the time of its end."""
        if not self.child or self.noticed or self.ended:
            return
        self.noticed = True
        number = getattr(signal, f"SIG{self.task['notice_signal']}")
        try:
            os.kill(self.child, number)
        except OSError:
            pass  # it has just ended
        self.kill_at = time.monotonic() + (self.notice or 0.0)

    def _signal(self, number: int) -> bool:
        """Signal all descendants of this process, and tell whether there were any.

        The main process comes first, so that it does not report the end of others.
        """
        found = False
        pids = _descendants(os.getpid())
        if number == signal.SIGTERM and len(pids) > 1 and _REQUIREMENTS in self.task["env"]:
            pids.discard(self.child)  # uv would pass it on to the program, which gets it as well
        for pid in sorted(pids, key=lambda pid: pid != self.child):
            found = _send(pid, number) or found
        return found

    def _reap(self) -> None:
        if not self.child:
            return
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._signal(signal.SIGKILL)
            self.kill_at = time.monotonic() + _KILL_AGAIN_S
        if not self.ended:
            pid, status, used = os.wait4(self.child, os.WNOHANG)
            if pid == 0:
                _reap_orphans(self.child)
                return
            code = os.WEXITSTATUS(status)
            if os.WIFSIGNALED(status):
                code = -os.WTERMSIG(status)
            elif code > _BY_SIGNAL and _REQUIREMENTS in self.task["env"]:
                code = _BY_SIGNAL - code
            usage = {
                "peak_memory": used.ru_maxrss * 1024,
                "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            }
            self.ended = {"code": code, "usage": usage}
            if self.signalled and self.kill_at is None:
                self.kill_at = time.monotonic() + self.grace
            if self.noticed and self.kill_at is not None:
                # the processes that it has left behind had no signal yet
                self._signal(signal.SIGTERM)
                self.kill_at = min(self.kill_at, time.monotonic() + self.grace)
        _reap_orphans(0)
        if self.kill_at is not None and _descendants(os.getpid()):
            return  # each of its processes has the time that the first one had
        while self._signal(signal.SIGKILL):
            _reap_orphans(0)
            time.sleep(0.005)
        ended = self.ended
        self.child = 0
        self.ended = {}
        self.kill_at = None
        self._look()
        if self.watch is not None:
            self._report_progress()
            self.watch = None
        self._report("ended", **ended, signalled=self.signalled)

    def _report(self, event: str, **more: Any) -> None:
        """Report an event of this run, which is one of now unless ``more`` has its time."""
        about = {
            "e": event,
            "k": self.k,
            "run": self.run_number,
            "host": self.host,
            "began_at": self.began_at,
            "time": time.time(),
        }
        try:
            layout.write_all(self.reports, layout.dumps({**about, **more}) + b"\n")
        except BrokenPipeError:
            pass

    def _look(self) -> None:
        """Note in the index how long the streams are, if they have grown.

        Now and then, look whether this start of the job was replaced.
        """
        if self.start and time.monotonic() >= self.looked + LOOK_S:
            self.looked = time.monotonic()
            if self.start.is_gone():
                self.open = False  # the supervisor may not know of this task any more
                self._stop()
        self._look_for_signs()
        sizes = tuple(_size(os.path.join(self.logs, name)) for name in STREAMS)
        if sizes == self.sizes:
            self.pause = min(self.pause * 1.5, _TICK_S[1])
            return
        self.sizes = sizes  # type: ignore[assignment]
        self.pause = _TICK_S[0]
        from _struct import pack

        # an entry of the index, as the local scheduler's: time, size of stdout, size of stderr
        entry = pack("<dQQ", time.time(), *sizes)
        try:
            fd = layout.open_own(os.path.join(self.logs, "index"), os.O_WRONLY | os.O_CREAT)
            try:  # over a piece that a full disk has left
                os.pwrite(fd, entry, os.fstat(fd).st_size // len(entry) * len(entry))
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk costs the order of lines, not the job

    def _look_for_signs(self) -> None:
        """Report progress, at most once a second, and a stall, when it begins and when it ends."""
        now = time.monotonic()
        if self.watch is None or self.ended or self.kill_at is not None:
            return
        if now >= self.watched_at + UPDATE_S:
            self.watched_at = now
            self._report_progress()
        if not self.watch.look(now):
            return
        if not self.watch.stalled:
            self._report("alive")
            return
        self._report("stalled")
        if self.task["on_stall"] == "dump":
            self.watch.ignore_answer(now)
            number = getattr(signal, f"SIG{self.task['stall_signal']}")
            for pid in with_handler(_descendants(os.getpid()), number):
                _send(pid, number)

    def _report_progress(self) -> None:
        """Report how far the replica is, if it has said something new."""
        report = self.watch.report()
        if len(layout.dumps(report)) > _LONGEST_REPORT:
            report["text"] = report["text"][:_SHORT_TEXT]
        if report and len(layout.dumps(report)) <= _LONGEST_REPORT:
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


def spawn(argv: list[str], cwd: str, env: dict[str, str], streams: list[int]) -> int:
    """Start a program in a separate session, with ``streams`` as its output, and return its pid.

    Raises:
        OSError: if it cannot be started. ``filename`` names what is missing.
    """
    failed, failure = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:
        _become(argv, cwd, env, [null, *streams], failure)
    os.close(null)
    os.close(failure)
    try:
        said = os.read(failed, 1 << 16)
    finally:
        os.close(failed)
    if said:
        os.waitpid(pid, 0)
        number, _, name = said.decode("utf-8", "surrogateescape").partition(" ")
        raise OSError(int(number), os.strerror(int(number)), name)
    return pid


def _become(
    argv: list[str], cwd: str, env: dict[str, str], streams: list[int], failure: int
) -> None:
    """Turn this process, a fork, into the program. If that fails, report to ``failure`` and exit."""
    name = cwd
    try:
        os.setsid()
        # Slurm may not find a replica in a separate session if the agent is killed
        _prctl(_DEATH_SIGNAL, int(signal.SIGKILL))
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        _close_all_but(failure)
        os.chdir(cwd)
        name = argv[0]
        try:
            os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is what is wanted
        except FileNotFoundError:
            if name != "python":
                raise
            os.execvpe("python3", argv, env)  # noqa: S606, S607 - many systems have it by this name alone
    except OSError as exc:
        os.write(failure, f"{exc.errno or 0} {name}".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)


def _close_all_but(spare: int) -> None:
    """Close all inherited descriptors except the standard streams."""
    try:
        opened = [int(fd) for fd in os.listdir("/proc/self/fd")]
    except OSError:
        opened = list(range(256))
    for fd in opened:
        if fd > 2 and fd != spare:
            try:
                os.close(fd)
            except OSError:
                pass


def _prctl(option: int, value: int) -> None:
    """Call ``prctl`` where there is one, if possible without importing all of ``ctypes``.

    That would take longer than all the rest.
    """
    arguments = (option, value, 0, 0, 0)
    try:
        try:
            import _ctypes

            library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
            _ctypes.call_function(_ctypes.dlsym(library, "prctl"), arguments)
        except (AttributeError, TypeError):
            import ctypes

            ctypes.CDLL(None).prctl(*arguments)
    except (ImportError, AttributeError, OSError):
        pass  # this system has no prctl


def _send(pid: int, number: int) -> bool:
    """Send a process a signal, and return False if it has just ended."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _end_line(fd: int) -> None:
    """End an unfinished last line, so that a new run starts a new one."""
    size = os.fstat(fd).st_size
    try:
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
    except OSError:
        pass  # a full disk, perhaps by that very stream, costs the end of a line, not the run


def _descendants(root: int) -> set[int]:
    """Return the living descendants of a process, without zombies."""
    parents = _parents()
    found: set[int] = set()
    grown = True
    while grown:
        more = {
            pid
            for pid, parent in parents.items()
            if (parent == root or parent in found) and pid not in found
        }
        found |= more
        grown = bool(more)
    return found


def _parents() -> dict[int, int]:
    """Return the parent of each living process, or {} where there is no /proc."""
    found: dict[int, int] = {}
    if not os.path.isdir("/proc/self"):
        return found
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        # a program whose first thread ends before the others looks like a zombie, but lives
        if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
            found[int(entry)] = int(fields[1])
    return found


def _reap_orphans(spare: int) -> None:
    """Reap adopted processes, but never the replica itself, whose exit code is needed."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            children = [int(pid) for pid in file.read().split()]
    except OSError:
        return
    for pid in children:
        if pid != spare:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def start_number() -> int:
    """Return how many starts of the job there were before this one."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def root_of(folder: str) -> str:
    """Return the folder of all jobs, which has that of a job in its folder ``apps``."""
    return os.path.dirname(os.path.dirname(folder))


def main(folder: str, role: str) -> None:
    """Serve as one task of a step, whose standard input and output belong to the supervisor."""
    task = layout.read_json(os.path.join(folder, f"role-{role}"))
    assert task is not None
    report = os.dup(1)
    os.dup2(2, 1)  # a stray print must not be taken for a report
    agent = Agent(folder, task, int(role), int(os.environ.get("SLURM_PROCID", "0")), 0, report)
    mine = os.path.join(folder, f".start-{start_number()}")
    agent.start = StartFolder(mine, root_of(folder))
    agent.main()
    sys.exit(0)
