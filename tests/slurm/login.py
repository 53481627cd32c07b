"""Run a real sshd as login node, with a home of its own, whose Slurm is the cluster's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

_CONFIG = """
Port {port}
ListenAddress {address}
HostKey {base}/host_key
PidFile {base}/sshd.pid
AuthorizedKeysFile {base}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
SetEnv SLURM_CONF={conf} PATH={tools}:{path} HOME={home} XDG_RUNTIME_DIR=/nowhere
"""

_CLIENT = """
Host login
    HostName {address}
    Port {port}
    IdentityFile {base}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {base}/known_hosts
    StrictHostKeyChecking yes
"""


class Login:
    """A login node to ``start`` and ``stop``.

    Args:
        base: a folder for all its files, with a short name.
        env: the environment of the cluster's tools.
        address: where it listens.
    """

    def __init__(self, base: Path, env: dict[str, str], address: str = "127.0.0.1") -> None:
        self.base, self.address = base, address
        self.home = base / "home"
        self.client = base / "client"
        self.tools = base / "tools"
        """What lies here is found before all else on the login node."""
        self.leads = {
            "PATH": f"{self.client}/bin:/usr/bin:/bin",
            "XDG_RUNTIME_DIR": f"{self.client}/run",
        }
        """The environment of a client that has ssh alone."""
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()
        self.port = 0

    def start(self) -> None:
        """Make keys, a home and a client ``ssh`` that knows the node as ``login``, and listen."""
        for folder in (self.home, self.tools, self.client / "bin", self.client / "run"):
            folder.mkdir(parents=True, mode=0o700)
        for name in ("host_key", "user_key"):
            command = [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                name,
                "-f",
                str(self.base / name),
            ]
            subprocess.run(command, check=True)
        (self.base / "authorized_keys").write_text((self.base / "user_key.pub").read_text())
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            self.port = probe.getsockname()[1]
        key = (self.base / "host_key.pub").read_text()
        (self.base / "known_hosts").write_text(f"[{self.address}]:{self.port} {key}")
        (self.base / "sshd_config").write_text(
            _CONFIG.format(
                port=self.port,
                address=self.address,
                base=self.base,
                conf=self._env["SLURM_CONF"],
                path=self._env["PATH"],
                tools=self.tools,
                home=self.home,
            )
        )
        (self.base / "ssh_config").write_text(
            _CLIENT.format(address=self.address, port=self.port, base=self.base)
        )
        wrapper = self.client / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.base}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        self.listen()

    def listen(self) -> None:
        """Start sshd, and return when it listens."""
        os.makedirs("/run/sshd", exist_ok=True)
        with open(self.base / "sshd.log", "ab") as log:
            command = [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "/usr/sbin/sshd",
                "-D",
                "-e",
                "-f",
                str(self.base / "sshd_config"),
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            if time.monotonic() > end:
                raise TimeoutError((self.base / "sshd.log").read_text())
            time.sleep(0.02)

    def let_in(self) -> None:
        """Listen again, if it does not."""
        if self._process is None:
            self.listen()

    def refuse(self) -> None:
        """End sshd alone. Nobody gets in any more, and open sessions stay."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)  # else one more may come in meanwhile
            self._sessions |= set(self._children())
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut(self) -> None:
        """Kill the server's end of every connection."""
        for pid in {*self._sessions, *self._children()}:
            _kill(pid)
        self._sessions = set()

    def freeze(self, frozen: bool) -> None:
        """Stop the server's end of every connection, and sshd itself, or let them go on."""
        for pid in [*self._children(), *([self._process.pid] if self._process else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def _children(self) -> list[int]:
        """Return the server's processes below the first, two for each connection of late."""
        servers = [pid for pid in _pids() if _read(pid, "comm").startswith(b"sshd")]
        found = [self._process.pid] if self._process else []
        for own in found:
            found += [pid for pid in servers if _parent(pid) == own]
        return found[1:]

    def sessions(self) -> list[int]:
        """Return the process ids of the server's ends of connections."""
        return self._children()

    def helpers(self) -> list[int]:
        """Return the process ids of the helpers."""
        home = f"HOME={self.home}".encode()
        return [
            pid
            for pid in _pids()
            if b"/bin/helper-" in _read(pid, "cmdline") and home in _read(pid, "environ")
        ]

    def hang_up(self) -> None:
        """End the clients' shared connections."""
        run = str(self.client / "run").encode()
        for pid in _pids():
            if run in _read(pid, "cmdline"):
                _kill(pid)

    def remove_sockets(self) -> None:
        """Remove the sockets of shared connections, which a killed client leaves behind."""
        for path in (self.client / "run").rglob("*"):
            if path.is_socket():
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End all connections, helpers and sshd."""
        self.hang_up()
        self.refuse()
        self.cut()
        for pid in self.helpers():
            _kill(pid)


def _pids() -> list[int]:
    return [
        int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()
    ]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
