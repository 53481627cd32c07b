"""Call OpenSSH's client, explain its errors, and share its sessions.

Processes of one machine share connections (``ControlMaster``), eight of them one, since a server
lets in ten.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from typing import Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload.schedulers.folder.home import make_private
from transload_slurm.pack import packed
from transload_slurm.wire import HELLO

SESSIONS: Final = 8
"""How many sessions one connection has at most."""

_OPTIONS: Final = (
    "BatchMode=yes",  # nobody is there to answer
    "ConnectTimeout=15",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=4",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "EscapeChar=none",
    "LogLevel=ERROR",
)
_SHARED: Final = (*_OPTIONS, "ControlMaster=auto", "ControlPersist=60", "RequestTTY=no")
_LONGEST: Final = 80  # a socket's path has 107 bytes, of which ssh takes 17 for a name of its own
_BAD: Final = re.compile(r"[\s\x00-\x1f\x7f]")
_FOR_GOOD: Final = (
    (
        "remote host identification has changed",
        "its host key has changed; how to remove the old one, this says: ssh {host}",
    ),
    (
        "host key verification failed",
        "its host key is not known here; log in once by hand, and check it: ssh {host}",
    ),
    (
        "permission denied",
        (
            "no key, certificate or agent of yours lets you in, and a password cannot be typed here; "
            "to bring a key there, type: ssh-copy-id {host}"
        ),
    ),
    (
        "too many authentication failures",
        "no key or agent of yours lets you in; to bring a key there, type: ssh-copy-id {host}",
    ),
)
"""What ssh says → what it means, and what to type."""

ANOTHER_PYTHON: Final = 'name another in the cluster\'s settings: login_python = "/PATH/python3"'
_CHECK: Final = "this must work first, without a question: ssh {host} true"

_BOOT: Final = """
import sys, os
say = lambda text: os.write(1, ({hello!r} + " " + text + "\\n").encode())
if sys.version_info < (3, 8):
    say("old " + sys.version.split()[0])
    sys.exit(0)
import hashlib
folder = os.path.join(os.path.expanduser({root!r}), "bin")
path = os.path.join(folder, {name!r})
def good():
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == {digest!r}
    except OSError:
        return False
try:
    if not good():
        before = os.umask(0o077)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.umask(before)
        say("send")
        data = b""
        while len(data) < {size}:
            more = os.read(0, {size} - len(data))
            if not more:
                sys.exit(1)
            data += more
        aside = path + "." + str(os.getpid())
        try:
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            os.replace(aside, path)
        except OSError:
            if os.path.exists(aside):
                os.unlink(aside)
            raise
        if not good():
            raise OSError("it is not what was sent")
except OSError as exc:
    say("failed " + str(exc))
    sys.exit(0)
os.execv(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", path, {root!r}])
"""


class Refused(SchedulerUnavailable):
    """The login node cannot be used as things are, and trying again alone does not help."""


def check_host(host: str) -> str:
    """Return ``host`` if it can stand in a command line of ssh.

    Raises:
        ConfigError: if it is none.
    """
    if not host or host.startswith("-") or _BAD.search(host):
        raise ConfigError(
            f"ssh={host!r}: must be [USER@]HOST, or a Host of ~/.ssh/config, without white space"
        )
    return host


def control_folder() -> str:
    """Return the folder of the connections' sockets, which is local and private. Its name is short.

    Raises:
        ConfigError: if it is somebody else's.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = "/tmp"  # noqa: S108
    if runtime and len(runtime) < _LONGEST - 40 and os.access(runtime, os.W_OK):
        base = runtime
    folder = f"{base}/transload-{os.getuid()}"
    make_private(folder)
    stat = os.lstat(folder)
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        raise ConfigError(
            f"{folder}: must be yours alone (mode 0700): the sockets of your ssh connections lie "
            "there"
        )
    return folder


def take_slot(host: str) -> tuple[str, int]:
    """Return the path of a connection's socket, and a descriptor that reserves one of its sessions.

    The session is ours as long as the descriptor is open. Where nothing can be locked, this process
    has a connection of its own.

    Raises:
        OSError: if no file can be made there.
    """
    name = f"{control_folder()}/{hashlib.sha256(host.encode()).hexdigest()[:12]}"
    number = 0
    while True:
        for session in range(SESSIONS):
            fd = os.open(f"{name}-{number}.{session}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            except OSError:
                return f"{name}-{os.getpid()}", fd
            return f"{name}-{number}", fd
        number += 1


def command(host: str, socket: str, python: str, root: str) -> list[str]:
    """Return the command that starts the helper on a login node, or asks for its file.

    Args:
        host: see `check_host`.
        socket: path of the connection's socket.
        python: the Python of the login node.
        root: the folder of the jobs there.
    """
    name, data = packed(control_folder())
    boot = _BOOT.format(
        hello=HELLO, name=name, digest=hashlib.sha256(data).hexdigest(), size=len(data), root=root
    ).encode()
    # nothing that any login shell takes for its own
    code = f"import base64;exec(base64.b64decode('{base64.b64encode(boot).decode()}'))"
    options = _words((*_SHARED, f"ControlPath={socket}"))
    return ["ssh", "-T", *options, "--", host, f'exec {_quoted(python)} -I -S -c "{code}"']


def run(host: str, argv: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that runs a command on a login node, by a connection of its own."""
    how = "-tt" if terminal else "-T"
    return ["ssh", how, *_words(_OPTIONS), "--", host, f"exec {shlex.join(argv)}"]


def _words(options: Sequence[str]) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _quoted(path: str) -> str:
    """Return a path for any login shell. One in the user's home stays so."""
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(path)


def not_started(host: str, exc: OSError) -> SchedulerUnavailable:
    """Return why ssh could not be started on this machine."""
    if exc.filename == "ssh" and isinstance(exc, FileNotFoundError):
        return Refused("ssh is not installed here: OpenSSH's client is needed")
    message = f"ssh {host}: cannot be started on this machine: {exc}"
    if exc.errno in (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
        return Refused(message)
    return SchedulerUnavailable(message)


def explain(host: str, code: int | None, said: str) -> SchedulerUnavailable:
    """Return why ssh has ended before the helper spoke.

    Args:
        host: the login node.
        code: exit code.
        said: what it wrote to its standard error.
    """
    text = said.lower()
    for words, meaning in _FOR_GOOD:
        if words in text:
            remedy = meaning.format(host=host)
            return Refused(f"ssh {host}: {remedy} (ssh: {_last(said)})")
    if code in (126, 127):
        return Refused(f"ssh {host}: no such Python there: {_last(said)}; {ANOTHER_PYTHON}")
    reason = _last(said) or f"ended with exit code {code}"
    return SchedulerUnavailable(f"ssh {host}: {reason}; {_CHECK.format(host=host)}")


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip(" @\r")]
    return lines[-1][:300] if lines else ""
