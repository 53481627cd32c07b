"""Starting replicas: fork, a few system calls, exec. What goes wrong in the child comes back
through a pipe.
"""

from __future__ import annotations

import os
import resource

from . import kernel, layout
from .kernel import signal

TYPE_CHECKING = False  # typing itself would cost the fork server its speed
if TYPE_CHECKING:
    from typing import Any

_CHANGED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGIO,
)
"""What the fork server, its supervisors or Python itself handle or ignore: all else is as the
system has it."""


def start(plan: dict[str, Any], index: int, report: int) -> int:
    """Fork one replica and let it exec; return its pid. What goes wrong is told through the pipe
    ``report``.
    """
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(plan, supervisor)
        except BaseException as exc:  # a forked child must not return into the supervisor's code
            reason = (
                exc.strerror
                if isinstance(exc, OSError) and exc.strerror
                else f"{type(exc).__name__}: {exc}"
            )
            line = layout.dumps([index, str(reason)[:400]]) + b"\n"
            os.write(report, line)  # shorter than PIPE_BUF: lines do not mix
        finally:
            os._exit(127)
    return pid


def reports(reader: int) -> dict[int, str]:
    """Wait until each child has exec'ed or failed; return what went wrong, by index."""
    data = b""
    while part := os.read(reader, 65536):
        data += part
    return dict(map(layout.loads, data.splitlines()))


def _become(plan: dict[str, Any], supervisor: int) -> None:
    os.setsid()
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != supervisor:  # it died before the line above
        os._exit(127)
    signal.set_wakeup_fd(-1)
    for number in _CHANGED:
        signal.signal(number, signal.SIG_DFL)
    os.umask(plan["umask"])
    _open_streams(plan["logs"])
    _limits(plan)
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


def _limits(plan: dict[str, Any]) -> None:
    """Give the replica the submitter's resource limits, niceness and CPUs, as far as the system
    lets us.
    """
    for number, limits in plan["rlimits"]:
        try:
            resource.setrlimit(number, tuple(limits))
        except (OSError, ValueError):
            pass
    try:
        if plan["nice"] > os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, plan["nice"])
        if plan["cpus"]:
            os.sched_setaffinity(0, plan["cpus"])
    except (OSError, AttributeError):
        pass
