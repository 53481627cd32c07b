"""Services of the operating system that the os module lacks, such as prctl and holes in files."""

from __future__ import annotations

import os
import sys

from . import layout

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    import signal as signal
    from typing import Any
else:
    import _signal as signal  # its enumerations cost 2 ms

__all__ = ["become_subreaper", "boot_id", "close_from", "drain", "exception_text", "wake_on"]

LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_FALLOC_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02

_libc: Any = None


def libc() -> Any:
    """Return the C library, loaded once."""
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def _prctl(option: int, argument: int | bytes) -> None:
    """Make the system call, where there is one, by the C part of ctypes, as the rest costs 2 ms."""
    if LINUX:
        import _ctypes

        c: Any = _ctypes
        c.call_function(c.dlsym(c.dlopen(None, 0), "prctl"), (option, argument, 0, 0, 0))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent dies (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def set_name(name: bytes) -> None:
    """Set the short name that process lists show."""
    _prctl(_PR_SET_NAME, name[:15])


def punch_hole(fd: int, start: int, length: int) -> bool:
    """Free the blocks of a part of a file, without changing its size.

    Returns:
        False where the file system cannot do that.
    """
    if not LINUX or length <= 0:
        return length <= 0
    import ctypes

    call = libc().fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    result: int = call(fd, _FALLOC_KEEP_SIZE_PUNCH_HOLE, start, length)
    return result == 0


def boot_id() -> str:
    """Return what distinguishes one boot of this machine from another.

    Returns:
        The text, or ``""`` where the system does not say.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _mac_boot_time() if sys.platform == "darwin" else ""


def _mac_boot_time() -> str:
    import ctypes

    buffer = ctypes.create_string_buffer(16)
    size = ctypes.c_size_t(16)
    failed = libc().sysctlbyname(b"kern.boottime", buffer, ctypes.byref(size), None, 0)
    return "" if failed else str(int.from_bytes(buffer.raw[:8], sys.byteorder))


def _oom_file() -> str:
    """Return the file in which the kernel counts what it kills in our control group.

    Returns:
        The path, or ``""`` if there is none.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as groups:
            for group in groups:
                _, kinds, path = group.rstrip("\n").split(":", 2)
                place = (
                    f"{path}/memory.events" if not kinds else f"/memory{path}/memory.oom_control"
                )
                if kinds in ("", "memory") and os.path.exists(f"/sys/fs/cgroup{place}"):
                    return f"/sys/fs/cgroup{place}"
    except (OSError, ValueError):
        pass
    return ""


_oom: str | None = None


def oom_kills() -> int:
    """Return how many processes of our control group the kernel has killed for want of memory.

    Returns:
        The number, or 0 if the kernel does not say.
    """
    global _oom
    if _oom is None:
        _oom = _oom_file()
    lines = layout.part_of(_oom, 4096).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))


def close_from(first: int) -> None:
    """Close all descriptors from ``first`` on that are open."""
    folder = "/proc/self/fd" if LINUX else "/dev/fd"
    for name in os.listdir(folder):
        if int(name) >= first:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that the folder was read by


def exception_text() -> str:
    """Return the traceback of the exception that is being handled.

    The module for it is loaded in that case only.
    """
    import traceback

    return traceback.format_exc()


def wake_on(*numbers: int) -> int:
    """Return a descriptor from which the numbers of these signals can be read as they come."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def drain(fd: int) -> bytes:
    """Return all that can be read now."""
    data = b""
    try:
        while part := os.read(fd, 4096):
            data += part
    except BlockingIOError:
        pass
    return data
