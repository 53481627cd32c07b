"""Keep locks, the supervisor's sign of life, and folders for results in the state folder.

Nothing about a job itself is kept here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload.schedulers.folder.home import make_private, state_home
from transload_docker import names
from transload_docker.plan import Facts

_OWNER: Final = "owner"
_SEEN: Final = "seen.json"
_PATIENCE_S: Final = 120.0
_SPAWN_AGAIN_S: Final = 5.0  # while the last one lives, and may not have the lock yet
_SPAWN_SOON_S: Final = 0.5  # once it has ended
_STALE_WORD_S: Final = 30 * 86400.0
_PASSED_ON: Final = frozenset(
    {"HOME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SSH_AUTH_SOCK"}
)
_PASSED_ON_PREFIXES: Final = ("DOCKER_", "PYTHON", "COVERAGE_", "XDG_", "TRANSLOAD_DOCKER_")

_children: set[int] = set()  # supervisors that this process started, until they are reaped


class Home:
    """What this user has on this machine for one engine.

    Args:
        url: the engine.
        home: the state folder, or None for the user's.
    """

    def __init__(self, url: str, home: str | None = None) -> None:
        self.url = url
        self.root = os.path.join(home or state_home(), "docker")
        self.folder = os.path.join(self.root, hashlib.sha256(url.encode()).hexdigest()[:12])
        self._guard = threading.Lock()
        self._spawned = 0.0
        self._supervisor = 0  # pid of the last one that was started here

    @property
    def owner(self) -> str:
        """The owner of the jobs that are submitted from here, or ``""`` before the first one.

        It is kept in the state folder, because a machine may be renamed.
        """
        try:
            with open(os.path.join(self.root, _OWNER), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""

    def _make_owner(self) -> None:
        """Write a new owner, unless there is one."""
        path = os.path.join(self.root, _OWNER)
        if os.path.exists(path):
            return
        aside = f"{path}.{uuid.uuid4().hex}"
        with open(aside, "x", encoding="utf-8") as file:
            file.write(uuid.uuid4().hex)
        try:
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(aside, path)
        finally:
            os.unlink(aside)

    def ensure(self) -> None:
        """Make the folders, for this user alone.

        Raises:
            ConfigError: if they cannot be made, or the state folder is somebody else's or open to
                others.
        """
        home = os.path.dirname(self.root)
        try:
            make_private(home)
            found = os.stat(home)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                raise ConfigError(
                    f"state folder {home}: must belong to you and be writable for you alone"
                )
            make_private(self.folder)
            self._make_owner()
        except OSError as exc:
            raise ConfigError(
                f"state folder {exc.filename or home}: {exc.strerror} (set TRANSLOAD_HOME)"
            ) from exc

    def results_folder(self, app_id: str) -> str:
        """Return the folder of the host for the results of a job, whether it exists or not."""
        return os.path.join(self.root, "results", names.base_name(app_id))

    def make_folder(self, path: str) -> None:
        """Make a folder to be mounted.

        A folder of our own is open to any user of a container, but its parents are not.
        """
        own = path.startswith(self.root + os.sep)
        make_private(path)
        if own:
            os.chmod(path, 0o777)  # noqa: S103 - below folders that only the owner can enter

    def checkpoint_folder(self, name: str, role: str) -> str:
        """Return the folder of the checkpoints of a role that are kept under a name."""
        return os.path.join(self._checkpoints, name, role)

    @property
    def _checkpoints(self) -> str:
        return os.path.join(self.root, "checkpoints")

    # -- signs of life

    def _signs(self, app_id: str) -> str:
        return os.path.join(self.root, "signs", names.base_name(app_id))

    def progress_folder(self, app_id: str) -> str:
        """Return the folder that is mounted for the replicas' reports of their progress.

        It need not exist.
        """
        return os.path.join(self._signs(app_id), "reported")

    def forget_progress(self, app_id: str, role: str, replica: int) -> None:
        """Remove a replica's reports of its progress, since its next attempt begins anew."""
        path = os.path.join(self.progress_folder(app_id), names.progress_file(role, replica))
        with contextlib.suppress(OSError):
            os.unlink(path)

    def read_signs(self, app_id: str) -> dict[str, Any]:
        """Return what `write_signs` has written, or {} if it has written nothing."""
        try:
            with open(os.path.join(self._signs(app_id), _SEEN), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_signs(self, app_id: str, signs: Mapping[str, Any]) -> None:
        """Write what was seen of a job's progress and of stalls, whole.

        Raises:
            OSError: if that is not possible.
        """
        folder = self._signs(app_id)
        make_private(folder)
        path = os.path.join(folder, _SEEN)
        aside = f"{path}.{os.getpid()}"
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(signs, file)
        os.replace(aside, path)

    def signs_changed(self, app_id: str) -> int:
        """Return when `write_signs` wrote last, in nanoseconds since the epoch, or 0 for never."""
        try:
            return os.stat(os.path.join(self._signs(app_id), _SEEN)).st_mtime_ns
        except OSError:
            return 0

    def remove_signs(self, app_id: str) -> None:
        """Remove what was seen of a job, and what its replicas said."""
        shutil.rmtree(self._signs(app_id), ignore_errors=True)

    # -- what an engine cannot tell

    def complete(self, facts: Facts) -> None:
        """Add what is known here of a job that was submitted from here, and not by its engine."""
        plan = facts.plan
        if plan is None or plan.owner != self.owner or facts.ended is not None:
            return
        facts.signs = self.read_signs(plan.app_id)

    def locked_checkpoints(self, app_id: str) -> contextlib.AbstractContextManager[bool]:
        """Hold the lock under which folders of checkpoints are made and removed."""
        return self.lock(app_id, name="checkpoints.lock")

    def remove_checkpoints(self, name: str) -> None:
        """Remove the checkpoints that are kept under a name, while their lock is held.

        Files of another user, which a container may have made, are left.
        """
        shutil.rmtree(os.path.join(self._checkpoints, name), ignore_errors=True)

    # -- withdrawals

    def _withdrawal(self, uid: str) -> str:
        return os.path.join(self.root, "withdrawn", names.short_hash(uid, 32))

    def withdraw(self, uid: str) -> None:
        """Note that a submit was given up. An engine that hangs may do later what it was asked for.

        Raises:
            OSError: if that cannot be written.
        """
        path = self._withdrawal(uid)
        make_private(os.path.dirname(path))
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def is_withdrawn(self, uid: str) -> bool:
        """Tell whether a submit was given up."""
        return os.path.exists(self._withdrawal(uid))

    def sweep_withdrawals(self) -> None:
        """Forget those that are so old that no engine remembers what it was asked for."""
        folder = os.path.dirname(self._withdrawal(""))
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if time.time() - entry.stat().st_mtime > _STALE_WORD_S:
                    os.unlink(entry.path)

    def remove_results(self, path: str) -> None:
        """Remove a folder of results that is our own."""
        if path.startswith(os.path.join(self.root, "results") + os.sep):
            shutil.rmtree(path, ignore_errors=True)

    # -- locks

    @contextlib.contextmanager
    def lock(self, app_id: str, patience: float = _PATIENCE_S, name: str = "") -> Iterator[bool]:
        """Hold the lock of a job, whatever the URL of its engine.

        It is free again when its holder dies.

        Args:
            app_id: the job. Whoever makes or starts its containers holds its lock.
            name: of another lock, one for all jobs, in place of the job's.
            patience: seconds to wait. With 0, do not wait, but yield False instead.

        Raises:
            SchedulerUnavailable: if it was not free in time.
        """
        self.ensure()
        path = os.path.join(self.root, name or f"lock-{names.short_hash(app_id, 32)}")
        descriptor = _take_file(path, patience)
        if descriptor is None and patience:
            raise SchedulerUnavailable(
                f"job {app_id}: another process has been submitting it for {patience:g} s"
            )
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                if not name:
                    os.unlink(path)
                os.close(descriptor)

    def supervisor_lock(self) -> int | None:
        """Take the lock that only the living supervisor holds.

        Returns its descriptor, or None if there is a supervisor.
        """
        self.ensure()
        descriptor = os.open(
            os.path.join(self.folder, "keeper.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        if _take(descriptor, 0.0):
            return descriptor
        os.close(descriptor)
        return None

    def ensure_supervisor(self) -> None:
        """Start a supervisor unless one lives, without waiting. A second one ends by itself."""
        _reap()
        descriptor = self.supervisor_lock()
        if descriptor is None:
            return
        os.close(descriptor)
        with self._guard:
            now = time.monotonic()
            pause = _SPAWN_AGAIN_S if self._supervisor in _children else _SPAWN_SOON_S
            if self._supervisor and now < self._spawned + pause:
                return
            self._spawned = now
            self._supervisor = self._spawn()

    def _spawn(self) -> int:
        """Start a supervisor, and return its pid."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        environment["TRANSLOAD_HOME"] = os.path.dirname(self.root)
        log = os.path.join(self.folder, "keeper.log")
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "transload_docker.supervisor", self.url],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        except OSError as exc:
            raise SchedulerUnavailable(f"cannot start the supervisor of jobs: {exc}") from exc
        finally:
            os.close(descriptor)
        child.returncode = 0  # no warning that it outlives this process. `_reap` waits for it
        _children.add(child.pid)
        return child.pid


def _reap() -> None:
    """Wait for this process's supervisors that have ended, so that no zombie is left."""
    for pid in list(_children):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:  # forked away from, or reaped by somebody else
            ended = True
        if ended:
            _children.discard(pid)


def _take_file(path: str, patience: float) -> int | None:
    """Return the descriptor of a locked file, or None if it was not free in time.

    Its holder may have removed the file meanwhile, so that the lock is that of another file now.
    """
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _take(descriptor, max(0.0, deadline - time.monotonic())):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


def _take(descriptor: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    pause = 0.002
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(pause)  # flock has no timeout of its own
        pause = min(pause * 1.5, 0.05)
