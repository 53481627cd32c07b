"""One task of a Slurm job: starts a replica when told, ends it when told, notes when its log grew.

Told by lines on its standard input (which ``srun`` gives to all tasks of a role): ``start K RUN``, ``stop K``, K a
number or ``*``; the end of the input ends everything. Tells by lines of JSON on its standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from typing import Any

ENTRY = struct.Struct("<dQQ")  # of the log index: time, size of stdout, size of stderr (as the local scheduler's)
STREAMS = ("stdout.log", "stderr.log")
_TICK_S = (0.05, 0.5)  # between looks at the log: soon after it grew, then less and less
_KILL_AGAIN_S = 0.05
_SUBREAPER = 36
_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)  # loaded here: nothing may be loaded between fork and exec


class Agent:
    """Runs one replica.

    Args:
        folder: the app's folder.
        plan: its ``plan.json``.
        role: number of the role.
        k: number of the replica.
        orders: file descriptor to read orders from.
        report: file descriptor to write reports to.
    """

    def __init__(self, folder: str, plan: dict[str, Any], role: int, k: int, orders: int, report: int) -> None:
        self.folder, self.grace = folder, float(plan["grace"])
        self.role, self.k = plan["roles"][role], k
        self.secret_names = plan["roles"][role]["secrets"]
        self.prefix = f"TRANSLOAD_SECRET_{role}_"
        self.plan = plan
        self.orders, self.report = orders, report
        self.logs = os.path.join(folder, "logs", self.role["name"], str(k))
        self.child: subprocess.Popen[bytes] | None = None
        self.run_number = 0
        self.buffer = b""
        self.open = True
        self.kill_at: float | None = None
        self.signalled = False
        self.sizes = (0, 0)
        self.pause = _TICK_S[0]

    def main(self) -> None:
        """Serve until the orders end and nothing runs."""
        with contextlib.suppress(OSError, AttributeError):
            _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)  # grandchildren that left their session stay ours
        os.makedirs(self.logs, mode=0o700, exist_ok=True)
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        # Slurm signals every process of the job itself: the replica has got what we got
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        while self.open or self.child:
            ready, _, _ = select.select([wake, *([self.orders] if self.open else [])], [], [], self._timeout())
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self.signalled = self.signalled or signal.SIGTERM in os.read(wake, 4096)
            if self.orders in ready:
                self._listen()
            self._look()
            self._reap()

    def _timeout(self) -> float | None:
        if self.child is None:
            return None
        if self.kill_at is not None:
            return min(self.pause, max(0.0, self.kill_at - time.monotonic()))
        return self.pause

    def _listen(self) -> None:
        data = os.read(self.orders, 1 << 16)
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            word, who, *more = line.decode().split()
            if who not in ("*", str(self.k)):
                continue
            if word == "start" and self.child is None:
                self._start(int(more[0]))
            elif word == "stop":
                self._stop()
        if not data:
            self.open = False  # the supervisor is gone, or has done with us
            self._stop()

    # ------------------------------------------------------------------------------------------------------ replica

    def _start(self, run: int) -> None:
        self.run_number, self.kill_at, self.signalled = run, None, False
        values = {"${img_root}": self.role["cwd"], "${replica_id}": str(self.k)}
        argv = [self.role["entrypoint"], *(_replace(arg, values) for arg in self.role["args"])]
        env = self._environment(run, values)
        streams = []
        try:
            for name in STREAMS:
                streams.append(os.open(os.path.join(self.logs, name), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
                _end_line(streams[-1])
            if "/" in argv[0]:
                argv[0] = os.path.join(self.role["cwd"], argv[0])
            # the child is ended through this object, wherever the agent is by then
            self.child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                cwd=self.role["cwd"],
                env=env,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # the agent has one thread
            )
            self._tell(e="started", host=os.uname().nodename)
        except OSError as exc:
            if len(streams) == len(STREAMS):
                os.write(streams[1], f"transload: cannot run {argv[0]!r}: {exc.strerror}: {exc.filename}\n".encode())
            self._look()
            self._tell(e="ended", host=os.uname().nodename, code=127 if isinstance(exc, FileNotFoundError) else 126)
        finally:
            for fd in streams:
                os.close(fd)

    def _environment(self, run: int, values: dict[str, str]) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("TRANSLOAD_SECRET_")}
        for number, name in enumerate(self.secret_names):
            env[name] = os.environ.get(f"{self.prefix}{number}", "")
        env.update({name: _replace(value, values) for name, value in self.role["env"].items()})
        env["TRANSLOAD_APP_ID"] = self.plan["app_id"]
        env["TRANSLOAD_ROLE"] = self.role["name"]
        env["TRANSLOAD_REPLICA_ID"] = str(self.k)
        env["TRANSLOAD_NUM_REPLICAS"] = str(self.role["num_replicas"])
        env["TRANSLOAD_RETRY"] = str(run)
        return env

    def _stop(self) -> None:
        if self.child is not None and self.kill_at is None:
            self._signal(signal.SIGTERM)
            self.kill_at = time.monotonic() + self.grace

    def _signal(self, number: int) -> bool:
        """Signal all that descends from us; tell whether there was anything."""
        found = False
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                found = True
        return found

    def _reap(self) -> None:
        child = self.child
        if child is None:
            return
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._signal(signal.SIGKILL)
            self.kill_at = time.monotonic() + _KILL_AGAIN_S
        code = child.poll()
        if code is None:
            _reap_orphans(child.pid)
            return
        while self._signal(signal.SIGKILL):  # what it left behind
            _reap_orphans(0)
            time.sleep(0.005)
        self.child, self.kill_at = None, None
        self._look()
        self._tell(e="ended", host=os.uname().nodename, code=code, signalled=self.signalled)

    def _tell(self, **report: Any) -> None:
        line = json.dumps({"k": self.k, "run": self.run_number, "time": round(time.time(), 3), **report}) + "\n"
        with contextlib.suppress(BrokenPipeError):
            os.write(self.report, line.encode())

    def _look(self) -> None:
        """Note in the index how long the streams are, if they have grown."""
        sizes = tuple(_size(os.path.join(self.logs, name)) for name in STREAMS)
        if sizes == self.sizes:
            self.pause = min(self.pause * 1.5, _TICK_S[1])
            return
        self.sizes, self.pause = sizes, _TICK_S[0]  # type: ignore[assignment]
        with contextlib.suppress(OSError):  # a full disk costs the order of lines, not the app
            fd = os.open(os.path.join(self.logs, "index"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(fd, ENTRY.pack(time.time(), *sizes))
            os.close(fd)


def _die_with_parent() -> None:
    """Should the agent be killed, Slurm may lose sight of the replica: it has a session of its own."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def _replace(text: str, values: dict[str, str]) -> str:
    for token, value in values.items():
        text = text.replace(token, value)
    return text


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _end_line(fd: int) -> None:
    """End an unfinished last line: a new run starts a line of its own."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.write(fd, b"\n")


def _descendants(root: int) -> set[int]:
    """Return the living processes below one, zombies left out; nothing where there is no /proc."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents[int(entry)] = int(fields[1])
    found: set[int] = set()
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if (parent == root or parent in found) and pid not in found}
        found |= more
        grown = bool(more)
    return found


def _reap_orphans(spare: int) -> None:
    """Reap processes that became ours; never the replica itself, whose status is wanted."""
    task = f"/proc/self/task/{os.getpid()}/children"
    with contextlib.suppress(OSError):
        with open(task, encoding="ascii") as file:
            children = [int(pid) for pid in file.read().split()]
        for pid in children:
            if pid != spare:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def main(folder: str, role: str) -> None:
    """Serve as one task of a step: standard input and output are the supervisor's."""
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    report = os.dup(1)
    os.dup2(2, 1)  # a stray print must not be taken for a report
    Agent(folder, plan, int(role), int(os.environ.get("SLURM_PROCID", "0")), 0, report).main()
    sys.exit(0)
