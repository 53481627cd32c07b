"""Make environments, which are folders of installed packages, each once for its content.

It keeps to the standard library and Python 3.8. It is imported, and it also runs as a program where
nothing of ours is installed. The program reads an order, one line of JSON. While it works it writes
lines ``{"line": …}``, and at last ``{"made": …}`` or ``{"error": …}``. An error says whether it
reached no index (``away``). Its folder, the root, holds::

    <key>.lock      locked (flock) to make or remove it, and shared to begin to use it; goes
                    with it, and where it could not be made
    <key>           a link to the finished one, put there by a rename when all else was done
    <key>.<random>/ the packages (venv), what they were made from (files), environment.json;

A folder that no link leads to is half made. It is never used, and the next maker removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Callable, Iterable

__all__ = [
    "Child",
    "Failure",
    "Say",
    "find",
    "find_uv",
    "hold",
    "is_away",
    "is_whole",
    "key_of",
    "listed",
    "make",
    "may_pass",
    "python_of",
    "remove",
    "satisfies",
]

SCHEMA = 1
RECORD = "environment.json"
KEPT_LINES = 12
"""The number of the installer's last lines that a failure shows."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks. Two makers may both work there, and one of them wins."""
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_AWAY_WORDS = (
    "connection refused",
    "error sending request",
    "failed to fetch",
    "could not fetch",
    "timed out",
    "temporary failure",
    "newconnectionerror",
    "network is unreachable",
    "no route to host",
)
"""What an installer says, in lower case, where it reaches no index."""
ANOTHER_PYTHON = "name another: -c python=PATH on this machine and on Slurm, else an image"
_PASSING_WORDS = (*_AWAY_WORDS, "no space left", "disk quota", "status code: 5", "503 ")
_NOT_INHERITED = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "UV_PROJECT_ENVIRONMENT",
    "__PYVENV_LAUNCHER__",
)
_PR_SET_PDEATHSIG = 1
_VERSION_CODE = "import sys; print('.'.join(map(str, sys.version_info[:3])), sys.executable)"
_CLAUSE = r"\s*(~=|==|!=|<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?[a-z0-9.]*\s*\Z"

Say = Callable[[str], None]
"""Takes a line of the installer."""


class Failure(Exception):
    """The environment was not made, and nothing of it is left that anybody would use.

    Attributes:
        lines: the last lines of the installer.
        transient: the same may succeed later.
    """

    def __init__(self, message: str, lines: Iterable[str] = (), transient: bool = False) -> None:
        super().__init__(message)
        self.lines = list(lines)
        self.transient = transient


def key_of(recipe: dict[str, Any], python: str = "") -> str:
    """Return the name of an environment.

    It is 32 hex digits of its content, its Python and this kind of machine.

    Args:
        recipe: what `Recipe.to_dict` returned.
        python: the interpreter that was asked for.
    """
    parts = [
        recipe["sha256"],
        sorted(recipe.get("groups") or ()),
        sorted(recipe.get("extras") or ()),
        recipe.get("python") or "",
        python,
        sys.platform,
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def find(root: str, key: str) -> str | None:
    """Return the folder of a finished environment, and note that it is used.

    One whose Python is missing counts as none.

    Returns:
        The folder, or None if there is none.
    """
    link = os.path.join(root, key)
    try:
        folder = os.path.join(root, os.readlink(link))
    except OSError:
        return None
    if not is_whole(folder):
        return None
    try:
        os.utime(os.path.join(folder, RECORD))
    except OSError:
        pass  # of a read-only disk it can be used, too
    return folder


def is_whole(folder: str) -> bool:
    """Tell whether the packages of an environment are there, and its Python if it can be seen."""
    return os.path.exists(os.path.join(folder, "venv", "bin", "python"))


def hold(root: str, key: str, shared: bool = False, wait: bool = True) -> int | None:
    """Return a descriptor that holds the lock of an environment. The caller closes it.

    Args:
        root: the folder of all environments.
        key: which one.
        shared: lock it for use, else for making or removing it.
        wait: wait for it. Otherwise return None if another process has it.

    Raises:
        OSError: if the folder cannot be written.
    """
    path = os.path.join(root, key + ".lock")
    how = fcntl.LOCK_EX
    if shared:
        how = fcntl.LOCK_SH
    if not wait:
        how |= fcntl.LOCK_NB
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
        except OSError as exc:
            if exc.errno in _NO_LOCKS:
                return fd
            os.close(fd)
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        except BaseException:
            os.close(fd)
            raise
        if _is_same(fd, path):
            return fd
        os.close(fd)  # who removed the environment, or could not make it, removed its lock


def _is_same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def make(order: dict[str, Any], say: Say, child: Child | None = None) -> dict[str, Any]:
    """Make an environment, unless it is there.

    Args:
        order: ``root`` and ``recipe`` (of `Recipe.to_dict`). ``python`` is the interpreter to use,
            and ``place`` which one it will be, as far as that is known. ``uv`` is its path, or ""
            to do without it. ``wheels`` is a folder, in place of any index. ``variables`` are for
            the installer, and never kept. All but the first two are optional.
        say: takes the lines of the installer.
        child: ends the installer when it is asked to.

    Returns:
        The keys ``made`` (False if it was there), ``path``, ``key`` and ``seconds``.

    Raises:
        Failure: if it cannot be made.
    """
    began = time.monotonic()
    recipe = order["recipe"]
    root = os.path.expanduser(order["root"])
    python = order.get("python") or order.get("place") or ""
    key = key_of(recipe, python)
    lock = None
    try:
        _make_private(root)
        found = find(root, key)
        made = False
        if found is None:
            lock = hold(root, key, wait=False)
            if lock is None:
                say("another process makes it: waiting")
                lock = hold(root, key)
            found = find(root, key)  # whoever had the lock may have made it
        if found is None:
            found = _make_anew(root, key, order, say, child or Child())
            made = True
    except OSError as exc:
        where = exc.filename or root
        raise Failure(
            f"cannot write {where}: {exc.strerror}", transient=exc.errno in _PASSING
        ) from exc
    finally:
        if lock is not None:
            os.close(lock)
    seconds = round(time.monotonic() - began, 3)
    return {"made": made, "path": found, "key": key, "seconds": seconds}


def _make_anew(root: str, key: str, order: dict[str, Any], say: Say, child: Child) -> str:
    """Make an environment under its lock, link its name to it, and return its folder."""
    for name in os.listdir(root):
        if name.startswith(key + ".") and name != key + ".lock":
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    name = f"{key}.{os.urandom(4).hex()}"
    folder = os.path.join(root, name)
    try:
        os.mkdir(folder, 0o700)
        record = _fill(folder, order, say, child)
        record["key"] = key
        _write(os.path.join(folder, RECORD), json.dumps(record))
        aside = os.path.join(root, f".{name}.link")
        os.symlink(name, aside)
        os.rename(aside, os.path.join(root, key))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        _remove_lock(root, key)
        raise
    return folder


def _remove_lock(root: str, key: str) -> None:
    """Remove the lock of an environment that is not there; the caller holds it.

    Who waits for it takes another one; see `hold`.
    """
    try:
        os.unlink(os.path.join(root, key + ".lock"))
    except OSError:
        pass  # an empty file stays, which the next maker takes


def _fill(folder: str, order: dict[str, Any], say: Say, child: Child) -> dict[str, Any]:
    """Install the packages, and return the record of how."""
    recipe = order["recipe"]
    began = time.monotonic()
    files = os.path.join(folder, "files")
    os.mkdir(files, 0o700)
    for name, text in recipe["files"].items():
        parts = name.split("/")
        if os.path.isabs(name) or ".." in parts:
            raise Failure(f"{name}: must lie below the folder of the environment's file")
        path = os.path.join(files, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(path, text)
    uv = order.get("uv")
    if uv is None:
        uv = find_uv()
    if not uv and recipe.get("needs_uv"):
        raise Failure(
            "{} needs uv, which is not on PATH of {}: pip install uv".format(
                recipe["needs_uv"], platform.node()
            )
        )
    installer = Installer(folder, order, uv or "", say, child)
    version = installer.install()
    return {
        "schema": SCHEMA,
        "kind": recipe["kind"],
        "name": recipe["name"],
        "sha256": recipe["sha256"],
        "groups": recipe.get("groups") or [],
        "extras": recipe.get("extras") or [],
        "python": version,
        "installer": "uv" if uv else "pip",
        "created": time.time(),
        "seconds": round(time.monotonic() - began, 3),
    }


def _make_private(folder: str) -> None:
    """Make a folder for this user alone, and those above it that are missing."""
    missing = []
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            if not os.path.isdir(each):
                raise


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def find_uv() -> str:
    """Return the path of uv, or "" if it is not here."""
    found = shutil.which("uv")
    for folder in ("~/.local/bin", "~/.cargo/bin"):
        if found is None:
            found = shutil.which("uv", path=os.path.expanduser(folder))
    return found or ""


class Child:
    """The installer that runs, and whether it is to end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._die_with_parent = _death_signal()
        self.stopped = False

    def start(self, words: list[str], cwd: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a program in a process group of its own, which ends when this process does."""
        with self._lock:
            if self.stopped:
                raise Failure("it was interrupted", transient=True)
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._die_with_parent,
                cwd=cwd,
                env=env,
            )
            return self._process

    def stop(self) -> None:
        """End what runs, and let nothing more be started. Any thread may call it."""
        with self._lock:
            self.stopped = True
            process = self._process
        if process is not None and process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass


def _death_signal() -> Callable[[], None]:
    """Return what has the kernel end a process when its parent dies, where it can (Linux)."""
    try:
        import ctypes  # before a fork, since nothing may be imported between that and the program

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda: None

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))

    return die_with_parent


class Installer:
    """Installs the packages of one environment.

    Args:
        folder: its folder. The files that name the packages are in ``files`` in it.
        order: see `make`.
        uv: path of uv, or "" for Python's own venv and pip.
        say: takes the lines of the installer.
        child: ends the installer when it is asked to.
    """

    def __init__(self, folder: str, order: dict[str, Any], uv: str, say: Say, child: Child) -> None:
        self._recipe = order["recipe"]
        self._files = os.path.join(folder, "files")
        self._venv = os.path.join(folder, "venv")
        self._python = order.get("python") or ""
        self._wheels = order.get("wheels") or ""
        self._uv = uv
        self._say = say
        self._child = child
        self._environ = {
            name: value for name, value in os.environ.items() if name not in _NOT_INHERITED
        }
        self._environ["NO_COLOR"] = "1"
        self._environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        self._environ.update(order.get("variables") or {})

    def install(self) -> str:
        """Install the packages, and return the version of Python.

        Raises:
            Failure: if they cannot be installed.
        """
        python, version = self.choose_python()
        self._say(f"Python {version} ({python})")
        inner = os.path.join(self._venv, "bin", "python")
        if not self._uv:
            self._run([python, "-m", "venv", self._venv])
            self._run([inner, "-m", "pip", "install", "--no-input", *self._what()])
            return version
        uv = [self._uv, "--no-progress"]
        if not self._recipe["requirements"]:
            self._environ["UV_PROJECT_ENVIRONMENT"] = self._venv
            self._run([*uv, "sync", "--frozen", "--python", python, *self._sync_options()])
            return version
        self._run([*uv, "venv", "--no-project", "--python", python, self._venv])
        self._run([*uv, "pip", "install", "--python", inner, *self._what()])
        return version

    def _what(self) -> list[str]:
        """Return the words that say which packages are installed, and from where."""
        words = ["-r", self._recipe["requirements"]]
        if self._uv and "pyproject.toml" in self._recipe["files"]:
            words = ["-r", "pyproject.toml"]  # with what its [tool.uv] says
        if self._recipe.get("hashed"):
            words.append("--require-hashes")
        return words + self._offline()

    def _offline(self) -> list[str]:
        if not self._wheels:
            return []
        return ["--no-index", "--find-links", self._wheels]

    def _sync_options(self) -> list[str]:
        words = ["--no-install-project"]
        groups = self._recipe.get("groups") or []
        if "dev" not in groups:
            words.append("--no-dev")
        for group in groups:
            words += ["--group", group]
        for extra in self._recipe.get("extras") or []:
            words += ["--extra", extra]
        return words + self._offline()

    def choose_python(self) -> tuple[str, str]:
        """Return path and version of the Python to use.

        Raises:
            Failure: if there is none that fits. It says what is wanted and what is here.
        """
        tried = []
        minor = self._recipe.get("python") or ""
        names = ["python3", "python", sys.executable]
        if minor:
            names.append("python" + minor)
        if self._python:
            names = [self._python]
        for name in names:
            path, version = self._look_at(shutil.which(name) or "")
            if version and self._fits(version):
                return path, version
            if version:
                tried.append(f"{version} ({path})")
            elif self._python:
                tried.append(f"no {name}")
        if self._uv and not self._python:
            path, version = self._look_at(self._from_uv())
            if version and self._fits(version):
                return path, version
        here = ", ".join(dict.fromkeys(tried)) or "no Python"
        raise Failure(f"wants Python {self._wanted()}; here is {here}; {ANOTHER_PYTHON}")

    def _wanted(self) -> str:
        minor = self._recipe.get("python") or ""
        requires = self._recipe.get("requires_python") or ""
        if minor and requires:
            return f"{minor} (the submitter's) and {requires}"
        if minor:
            return f"{minor} (the submitter's)"
        return requires or "3"

    def _fits(self, version: str) -> bool:
        minor = self._recipe.get("python") or ""
        if minor and version.split(".")[:2] != minor.split("."):
            return False
        return satisfies(version, self._recipe.get("requires_python") or "")

    def _look_at(self, python: str) -> tuple[str, str]:
        """Return the path and the version of an interpreter, or "" if there is none that runs.

        The path is the interpreter's own answer, since a script may have started it.
        """
        if not python:
            return "", ""
        try:
            done = subprocess.run(
                [python, "-I", "-c", _VERSION_CODE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environ,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return "", ""
        version, _, path = done.stdout.decode("utf-8", "replace").strip().partition(" ")
        if done.returncode or not version:
            return "", ""
        return path or python, version

    def _from_uv(self) -> str:
        """Return the path of a Python that uv knows, or fetches, or "" if there is none."""
        wanted = self._recipe.get("python") or self._recipe.get("requires_python") or ""
        find_it = [self._uv, "python", "find", "--no-project", wanted]
        for words in (find_it, [self._uv, "python", "install", wanted], find_it):
            try:
                lines = self._run(words)
            except Failure:
                continue
            if words is find_it and lines:
                return lines[-1]
        return ""

    def _run(self, words: list[str]) -> list[str]:
        """Run a program to its end, and return its last lines.

        Raises:
            Failure: if it fails.
        """
        try:
            process = self._child.start(words, cwd=self._files, env=self._environ)
        except OSError as exc:
            raise Failure(f"cannot run {words[0]}: {exc.strerror}") from exc
        lines: list[str] = []
        assert process.stdout is not None
        try:
            for data in process.stdout:
                line = data.decode("utf-8", "replace").rstrip()
                if line:
                    lines.append(line)
                    del lines[:-KEPT_LINES]
                    self._say(line)
            code = process.wait()
        except BaseException:
            self._child.stop()
            process.wait()
            raise
        finally:
            process.stdout.close()
        if self._child.stopped:
            raise Failure("it was interrupted", lines, transient=True)
        if code:
            raise Failure("the packages cannot be installed", lines, transient=may_pass(lines))
        return lines


def may_pass(lines: Iterable[str]) -> bool:
    """Tell from the last lines of an installer whether the same may succeed later."""
    return _says(lines, _PASSING_WORDS)


def is_away(lines: Iterable[str]) -> bool:
    """Tell from the last lines of an installer whether it reached no index."""
    return _says(lines, _AWAY_WORDS)


def _says(lines: Iterable[str], words: Iterable[str]) -> bool:
    text = "\n".join(lines).lower()
    return any(word in text for word in words)


def python_of(order: dict[str, Any]) -> str:
    """Return the version of the Python that an environment would be made of.

    Args:
        order: see `make`.

    Raises:
        Failure: if there is none that fits.
    """
    uv = order.get("uv")
    if uv is None:
        uv = find_uv()
    installer = Installer("", order, uv, lambda line: None, Child())
    return installer.choose_python()[1]


def satisfies(version: str, requires: str) -> bool:
    """Tell whether a version of Python is one that ``requires-python`` allows.

    Clauses such as ``>=3.9``, ``<4``, ``==3.11.*``, ``~=3.10`` are read (PEP 440, of releases). One
    that cannot be read is left to the installer.
    """
    have = _numbers(version)
    for clause in requires.split(","):
        found = re.match(_CLAUSE, clause)
        if found is None:
            continue
        operator, text, star = found.groups()
        if not _allows(operator, have, _numbers(text), bool(star)):
            return False
    return True


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", text)]


def _allows(operator: str, have: list[int], want: list[int], star: bool) -> bool:
    size = max(len(have), len(want))
    left = have + [0] * (size - len(have))
    right = want + [0] * (size - len(want))
    if operator == "~=":
        return left >= right and have[: len(want) - 1] == want[:-1]
    is_equal = have[: len(want)] == want if star else left == right
    table = {
        "==": is_equal,
        "!=": not is_equal,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }
    return table[operator]


def listed(root: str) -> list[dict[str, Any]]:
    """Return the records of the finished environments.

    Each also has ``path``, ``bytes``, ``files`` and ``last_used``.
    """
    found = []
    root = os.path.expanduser(root)
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    for key in names:
        link = os.path.join(root, key)
        if not os.path.islink(link) or key.startswith("."):
            continue
        folder = os.path.join(root, os.readlink(link))
        record = _read_record(folder)
        if record is None:
            continue
        size, count = _size_of(folder)
        record.update(key=key, path=folder, bytes=size, files=count)
        found.append(record)
    return found


def _read_record(folder: str) -> dict[str, Any] | None:
    path = os.path.join(folder, RECORD)
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        if not isinstance(record, dict):
            return None
        record["last_used"] = os.stat(path).st_mtime
    except (OSError, ValueError):
        return None
    return record


def _size_of(folder: str) -> tuple[int, int]:
    """Return the bytes and the number of files and folders that a folder holds.

    A file that lies elsewhere too, as in uv's cache, counts in full.
    """
    size = 0
    count = 0
    for inside, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        for name in files:
            try:
                size += os.lstat(os.path.join(inside, name)).st_blocks * 512
            except OSError:
                pass
    return size, count


def remove(root: str, key: str, is_used: Callable[[str], bool]) -> bool:
    """Remove an environment that is not in use, nor being made.

    Args:
        root: the folder of all environments.
        key: which one.
        is_used: whether a job uses the environment in this folder. It is asked under the lock.

    Returns:
        Whether it was removed.

    Raises:
        OSError: if it cannot be removed.
    """
    root = os.path.expanduser(root)
    lock = hold(root, key, wait=False)
    if lock is None:
        return False
    try:
        link = os.path.join(root, key)
        if not os.path.islink(link) or is_used(os.path.join(root, os.readlink(link))):
            return False
        os.unlink(link)
        for name in os.listdir(root):
            if name.startswith(key + ".") and name != key + ".lock":
                shutil.rmtree(os.path.join(root, name), ignore_errors=True)
        _remove_lock(root, key)
        return True
    finally:
        os.close(lock)


# -- as a program


def _obey_make(order: dict[str, Any], out: IO[str]) -> None:
    child = Child()
    if order.get("watch"):
        # whoever gave the order is gone when its end of the pipe is
        threading.Thread(target=_watch, args=(child,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, frame: child.stop())
    signal.signal(signal.SIGINT, lambda number, frame: child.stop())
    report = Report(out)
    with report:
        made = make(order, report.line, child)
    _put(out, made)


class Report:
    """Writes the last line of the installer once a second, and at once when it is a new one.

    Args:
        out: where to.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._began = time.monotonic()
        self._last = ""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Report:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def line(self, text: str) -> None:
        """Take a line of the installer."""
        self._last = text
        self._write()

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            if self._last:
                self._write()

    def _write(self) -> None:
        seconds = round(time.monotonic() - self._began, 1)
        with self._lock:
            try:
                _put(self._out, {"line": self._last, "seconds": seconds})
            except OSError:
                pass  # nobody reads it, and `_watch` does the rest


def _watch(child: Child) -> None:
    while os.read(0, 4096):
        pass
    child.stop()


def _obey_list(order: dict[str, Any], out: IO[str]) -> None:
    _put(out, {"environments": listed(order["root"])})


def _obey_remove(order: dict[str, Any], out: IO[str]) -> None:
    """Remove those of ``keys`` that are not ``used`` (folders), nor younger than ``idle`` seconds."""
    used = set(order.get("used") or ())
    idle = float(order.get("idle") or 0.0)

    def is_used(folder: str) -> bool:
        record = _read_record(folder)
        last_used = record["last_used"] if record is not None else 0.0
        return folder in used or time.time() - last_used < idle

    removed = [key for key in order["keys"] if remove(order["root"], key, is_used)]
    _put(out, {"removed": removed})


_ORDERS = {"make": _obey_make, "list": _obey_list, "remove": _obey_remove}


def _put(out: IO[str], value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def main() -> int:
    """Read an order, carry it out, and write the result. Return 1 if it failed."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            break
        line += piece
    out = sys.stdout
    try:
        order = json.loads(line.decode())
        _ORDERS[order.get("do", "make")](order, out)
    except Failure as exc:
        end = {"error": str(exc), "lines": exc.lines, "transient": exc.transient}
        _put(out, {**end, "away": is_away(exc.lines)})
        return 1
    except (OSError, ValueError, KeyError) as exc:
        _put(out, {"error": f"{type(exc).__name__}: {exc}", "lines": []})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
