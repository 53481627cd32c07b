"""Run a real engine for the tests, on a private socket, in namespaces that end with it.

Its processes are below one process id namespace, its bridges and packet filter rules in one network
namespace, its mounts in one mount namespace. Killing the first process of the namespace ends all of
it, containers included. That process dies with the test process.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_LOOPBACK_UP = (
    "import fcntl,socket,struct;s=socket.socket();"
    # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
    "fcntl.ioctl(s,0x8914,struct.pack('16sh14x',b'lo',0x1|0x40))"
)
_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
# Debian's busybox has no such applet.
PRINTENV = '#!/bin/sh\nenv | grep -q "^$1=" && env | sed -n "s/^$1=//p"\n'
APPLETS = (
    "cat cut date dd echo env false grep head hostname kill ls mkdir nc ping printf pwd sed seq sh "
    "sleep sort test "
    "touch tr true wc yes"
)


class PrivateEngine:
    """An engine that can be stopped, killed and started again.

    Args:
        in_memory: keep images and containers in memory, which vanish at once. Nobody outside sees
            these files.
    """

    def __init__(self, *, in_memory: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tl-dk-", dir="/tmp"))
        self.socket = self.folder / "S"
        self.url = f"unix://{self.socket}"
        self.cgroup = f"transload-test-{os.getpid()}"
        self.log = self.folder / "dockerd.log"
        self._environment = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:{_FOLDERS}"}
        self._daemon: subprocess.Popen[bytes] | None = None
        self._registry: subprocess.Popen[bytes] | None = None
        self._holder = self._hold()
        self.pid = self._first_process()
        self.run(sys.executable, "-c", _LOOPBACK_UP)
        if in_memory:
            (self.folder / "D").mkdir()
            self.run("mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(self.folder / "D"))

    def _hold(self) -> subprocess.Popen[bytes]:
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ]
        # the shell reaps what is orphaned to it. `wait` alone would end at once
        script = "trap : CHLD; while :; do sleep 3600 & wait; done"
        return subprocess.Popen(
            [*command, "--mount-proc", "sh", "-c", script],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )

    def _first_process(self) -> int:
        deadline = time.monotonic() + 60
        path = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(path.read_text().split()[0])
                if Path(f"/proc/{pid}/comm").read_text().strip() != "unshare":
                    return pid
            time.sleep(0.01)
        raise RuntimeError("the namespaces of the test engine did not come up")

    def enter(self, *command: str) -> list[str]:
        """Return a command that runs another one inside the engine's namespaces."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--", *command]

    def run(self, *command: str) -> str:
        """Run a command inside the engine's namespaces, and return its output."""
        done = subprocess.run(
            self.enter(*command),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *programs: Path) -> None:
        """Start the daemon and wait until it answers. It finds programs in these folders too."""
        places = {"data-root": "D", "exec-root": "E", "pidfile": "P"}
        options = [f"--{name}={self.folder / place}" for name, place in places.items()]
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                self.enter(
                    "dockerd", f"--host={self.url}", f"--cgroup-parent={self.cgroup}", *options
                ),
                env=self._environment
                | {
                    "TMPDIR": "/tmp",
                    "PATH": ":".join([self._environment["PATH"], *map(str, programs)]),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the test engine did not start:\n{self.log.read_text()[-3000:]}"
                )
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
            link.settimeout(5)
            link.connect(str(self.socket))
            link.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in link.recv(4096)
        return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the daemon, by SIGTERM (containers are ended) or SIGKILL (they go on for now)."""
        if self._daemon is None:
            return
        pid = (self.folder / "P").read_text().strip()
        self.run("sh", "-c", f"kill -{int(number)} {pid}")
        self._daemon.wait(60)
        self._daemon = None
        if number == signal.SIGKILL:
            (self.folder / "P").unlink(missing_ok=True)

    def freeze(self, seconds: float) -> None:
        """Stop the daemon for a while. nsenter stops itself with it, and is continued by nobody
        else.
        """
        pid = (self.folder / "P").read_text().strip()
        assert self._daemon is not None
        self.run("sh", "-c", f"kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}")
        self._daemon.send_signal(signal.SIGCONT)

    def sweep(self) -> list[str]:
        """Remove what is on the engine apart from images, and return its names.

        The network that jobs share may stay.
        """
        import docker  # noqa: TID251 - the tests of the plugin may

        client, left = docker.APIClient(base_url=self.url), []
        try:
            for row in client.containers(all=True):
                left.append(f"container {row['Names']}")
                client.remove_container(row["Id"], force=True, v=True)
            for row in client.networks():
                if row["Name"] not in ("bridge", "host", "none"):
                    if not row["Name"].startswith("transload-"):
                        left.append(f"network {row['Name']}")
                    client.remove_network(row["Id"])
            for row in client.volumes().get("Volumes") or ():
                left.append(f"volume {row['Name']}")
                client.remove_volume(row["Name"], force=True)
        finally:
            client.close()
        return left

    def close(self) -> None:
        """End everything, so that nothing is left, even after a failure."""
        self._holder.kill()
        self._holder.wait(30)
        for process in (self._daemon, self._registry):
            if process is not None:
                process.wait(30)
        self._remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            left = [
                *Path("/sys/fs/cgroup").glob(f"{self.cgroup}"),
                *Path("/sys/fs/cgroup").glob(f"*/{self.cgroup}"),
            ]
            for top in left:
                for folder, _, _ in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
            if not left:
                return
            time.sleep(0.02)

    # -- a registry, for the engine alone: on the loopback interface of its namespace

    registry = "127.0.0.1:5000"
    """Name of the registry, which images in it begin with. It is on loopback without encryption."""

    def start_registry(self) -> None:
        """Start an empty registry and wait until it answers. It ends with the namespaces."""
        config = self.folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: "
            f"{self.folder}/R}}}}\n"
            f"http: {{addr: '{self.registry}'}}\n"
        )
        program = shutil.which("docker-registry", path=f"{self._environment['PATH']}")
        assert program is not None
        with (self.folder / "registry.log").open("ab") as log:
            self._registry = subprocess.Popen(
                self.enter(program, "serve", str(config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        host, _, port = self.registry.partition(":")
        ask = (
            "import socket, sys, time\n"
            "end = time.monotonic() + 60\n"
            "while True:\n"
            f"    try: sys.exit(socket.create_connection(({host!r}, {port}), 5).close())\n"
            "    except OSError:\n"
            "        if time.monotonic() > end: raise\n"
            "        time.sleep(0.05)\n"
        )
        self.run(sys.executable, "-c", ask)

    # -- images

    def load(self, archive: Path, name: str) -> None:
        """Make an image of a tar archive of its root."""
        import docker  # noqa: TID251 - the tests of the plugin may

        client = docker.APIClient(base_url=self.url, timeout=120)
        repository, _, tag = name.rpartition(":")
        client.import_image_from_file(str(archive), repository=repository, tag=tag)
        client.close()

    def busybox_image(self, name: str = "transload-test/busybox:1") -> str:
        """Make the image that most tests run, and return its name."""
        archive = self.folder / "busybox.tar"
        with tarfile.open(archive, "w") as tar:
            self._add_busybox(tar, APPLETS)
            _script(tar, "bin/printenv", PRINTENV)
            _folder(tar, "tmp", 0o1777)
        self.load(archive, name)
        return name

    def _add_busybox(self, tar: tarfile.TarFile, applets: str) -> None:
        program = shutil.which("busybox", path=self._environment["PATH"])
        assert program is not None
        tar.add(program, "bin/busybox")
        for applet in applets.split():
            _link(tar, f"bin/{applet}", "busybox")

    def python_image(
        self,
        name: str = "transload-test/python:1",
        packages: Sequence[str] = ("scikit-learn",),
        folders: Mapping[str, Path] | None = None,
        applets: str = "",
        also: Sequence[str] = (),
    ) -> str:
        """Make an image of this very Python with some packages, at the same paths. Return its name.

        Args:
            name: the image.
            packages: distributions, each with all that it requires (scikit-learn brings NumPy).
            folders: path in the image → folder that goes there.
            applets: names of small programs that the image has too, as the one with a shell does.
            also: Pythons of other environments, which are there as well, with the same packages.
        """
        if (
            "scikit-learn" in packages
        ):  # else each container compiles it, which is lost with the container
            subprocess.run([sys.executable, "-c", "import sklearn.datasets"], check=True)
        archive = self.folder / "python.tar"
        with tarfile.open(archive, "w") as tar:
            _add_python(tar, packages, folders or {})
            if applets:
                self._add_busybox(tar, applets)
                # a link would not find the environment that the interpreter belongs to
                _script(tar, "usr/local/bin/python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            for other in {Path(each).parents[1] for each in also} - {Path(sys.prefix)}:
                _add_environment(tar, other)
            _folder(tar, "tmp", 0o1777)
        self.load(archive, name)
        archive.unlink()
        return name


_LEFT_OUT = frozenset(
    {"site-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip"}
)


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _script(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o755, len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))


def _folder(tar: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _add_python(tar: tarfile.TarFile, packages: Sequence[str], folders: Mapping[str, Path]) -> None:
    """Add the interpreter, its library, some packages and every shared library that they link
    to.
    """
    base, environment = Path(sys.base_prefix), Path(sys.prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    binary = Path(os.path.realpath(sys.executable))
    parts = [binary, base / "lib" / version]
    site = environment / "lib" / version / "site-packages"
    parts += [site / name for name in sorted(set().union(*map(_packages, packages)))]
    for link in [part for part in parts if part.suffix == ".pth"]:  # of an editable distribution
        parts += [Path(line) for line in link.read_text().splitlines() if line.startswith("/")]
    native: set[str] = {str(binary)}
    for part in (part for part in parts if part.exists()):
        tar.add(part, str(part).lstrip("/"), filter=_slim)
        native |= {
            str(path)
            for path in part.rglob("*.so*")
            if not _LEFT_OUT & set(path.parts[len(part.parts) :])
        }
    for library in sorted(_libraries(native)):
        tar.add(os.path.realpath(library), library.lstrip("/"))
    for path, folder in folders.items():
        tar.add(folder, path.lstrip("/"), filter=_slim)
    if environment != base:
        _add_environment(tar, environment)


def _add_environment(tar: tarfile.TarFile, environment: Path) -> None:
    """Add an environment of the interpreter, with the packages of the running one."""
    tar.add(environment / "pyvenv.cfg", str(environment / "pyvenv.cfg").lstrip("/"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in ("python", "python3", version):
        _link(tar, str(environment / "bin" / program).lstrip("/"), os.path.realpath(sys.executable))
    if environment != Path(sys.prefix):
        _link(tar, str(environment / "lib").lstrip("/"), str(Path(sys.prefix) / "lib"))


def _packages(wanted: str) -> set[str]:
    """Return the top-level files and folders of a distribution and of all that it requires."""
    import importlib.metadata
    import re

    found: set[str] = set()
    seen: set[str] = set()
    left = [wanted]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        found |= {
            file.parts[0]
            for file in distribution.files or ()
            if file.parts[0] not in ("..", "__pycache__")
        }
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement:
                left.append(re.split(r"[^A-Za-z0-9._-]", requirement)[0])
    return found


def _slim(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    # numpy and scikit-learn import some of their own test folders
    library = "site-packages" in parts[:-1]
    unwanted = set() if library else _LEFT_OUT
    return None if parts[-1] in unwanted or parts[-1].startswith("config-3") else entry


def _libraries(native: set[str]) -> set[str]:
    """Return the files that the dynamic linker would load for these programs and libraries, itself
    included.
    """
    found: set[str] = set()
    done = subprocess.run(
        ["ldd", *sorted(native)], capture_output=True, text=True, check=False, timeout=120
    )
    for line in done.stdout.splitlines():
        for word in line.split():
            if word.startswith("/") and ".so" in word and not word.endswith(":"):
                found.add(word)
    return {path for path in found if "site-packages" not in path and "lib-dynload" not in path}
