"""Answer for the jobs of a cluster, on its login node, while a client is connected."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from transload.errors import SchedulerUnavailable, SubmitError, TransloadError
from transload.runtime import untrusted
from transload.runtime.tracking import LocalStore
from transload.schedulers.api import Submission, Watch
from transload.schedulers.cancelling import cancelling_for
from transload_slurm import wire
from transload_slurm.apps import Apps
from transload_slurm.blobs import Blobs
from transload_slurm.convert import RoleRequest, SlurmRequest

_END_S: Final = 60.0
_AT_ONCE: Final = ("ping", "watch")  # in the order in which they were asked
_OLD_S: Final = 30 * 86400.0


class Helper:
    """Does what is asked of it, each thing in a thread of its own.

    Args:
        channel: to the process that asks.
        root: the folder of the apps.
    """

    def __init__(self, channel: wire.Channel, root: str) -> None:
        self._channel = channel
        self._blobs = Blobs(root)
        self._apps = Apps(root, self._blobs)
        self._watches: dict[int, Watch] = {}
        self._busy = 0
        self._lock = threading.Lock()
        self.heard = time.monotonic()

    def serve(self) -> None:
        """Answer until the input ends. Work under way then may take another minute."""
        for message, payload in self._channel.messages():
            self.heard = time.monotonic()
            with self._lock:
                self._busy += 1
            if message["method"] in _AT_ONCE:
                self._answer(message, payload)
                continue
            threading.Thread(target=self._answer, args=(message, payload), daemon=True).start()
        end = time.monotonic() + _END_S
        while self._busy and time.monotonic() < end:
            time.sleep(0.05)

    def _answer(self, message: dict[str, Any], payload: bytes) -> None:
        answer: dict[str, Any] = {"id": message["id"], "is_bytes": False}
        data = b""
        try:
            result = self._called(message, payload)
            answer["is_bytes"] = isinstance(result, bytes)
            if isinstance(result, bytes):
                data = result
            else:
                answer["result"] = wire.to_json(result)
        except TransloadError as exc:
            answer["error"] = wire.error_to_json(exc)
        except Exception as exc:
            failed = SchedulerUnavailable(f"on {os.uname().nodename}: {exc!r}")
            answer["error"] = wire.error_to_json(failed)
        finally:
            with self._lock:
                self._busy -= 1
        with contextlib.suppress(OSError):
            self._channel.send(answer, data)

    def _called(self, message: dict[str, Any], payload: bytes) -> Any:
        """Call what a message asks for: a method of ours, or else of the scheduler."""
        method = getattr(self, f"do_{message['method']}", None)
        if method is None:
            method = getattr(self._apps, message["method"])
        named = wire.from_json(message["named"])
        if payload:
            named["payload"] = payload
        with cancelling_for(message["asker"]):
            return method(*wire.from_json(message["arguments"]), **named)

    # -- what can be asked, besides the methods of the scheduler

    def do_ping(self) -> None:
        """Tell that we are here."""

    def do_submit(
        self, request: SlurmRequest, app_id: str, given: Submission, mark: str, until: float
    ) -> bool:
        """Submit a job, unless its submitter has given up by now, as this machine's clock says.

        This process may have been stopped, or what it was sent may have come late.
        """

        def check() -> None:
            if wire.clock() >= until:
                raise SubmitError(
                    f"job {app_id!r} was not submitted in time: its submitter has given up"
                )

        check()
        request = _at_home(request, given.tracker_base)
        base = given.tracker_base and os.path.expanduser(given.tracker_base)
        # of the environment a job gets the allow-list, as it is on the login node
        given = replace(given, tracker_base=base, inherit_env=False)
        return self._apps.submit_once(request, app_id, given, mark, check)

    def do_lay_packages(self, listed: str) -> None:
        """Put the files of this list, which were sent, beside the jobs."""
        with tempfile.TemporaryDirectory(prefix="transload-") as made:
            self._blobs.lay(listed, f"{made}/files")
            self._apps.lay_packages(f"{made}/files")

    def do_want(self, entries: Any) -> Any:
        """Keep the list of a workspace, and tell which files are missing."""
        return self._blobs.want(entries)

    def do_put(self, name: str, offset: int, last: bool, upload: str, payload: bytes = b"") -> None:
        """Store a piece of a file."""
        self._blobs.put(name, payload, offset, last, upload)

    def do_entries(self, base: str, folder: str) -> list[Any]:
        """List a folder below a base."""
        return LocalStore(base).entries(folder)

    def do_is_missing(self, base: str) -> bool:
        """Tell whether there is no such folder."""
        return LocalStore(base).is_missing()

    def do_walk(self, base: str, folder: str) -> tuple[list[str], dict[str, str]]:
        """List the files below a folder, and what was refused."""
        return LocalStore(base).walk(folder)

    def do_read(
        self, base: str, path: str, offset: int, size: int
    ) -> bytes | dict[str, Any] | None:
        """Return a piece of a job's file.

        Returns:
            None if there is no such file, and a dict with the reason if it cannot be read.
        """
        try:
            with open(untrusted.open_file(base, path), "rb") as file:
                file.seek(offset)
                return file.read(size) or b""
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            return {"folder": True}
        except untrusted.RefusedFile as exc:
            return {"refused": exc.reason}

    def do_watch(self, listener: int, app_ids: list[str]) -> None:
        """Report changes of these jobs from now on. An empty list ends the watch."""
        watch = self._watches.pop(listener, None)
        if not app_ids:
            if watch is not None:
                watch.close()
            return
        if watch is None:
            watch = self._apps.watch(lambda changed: self._report(listener, changed))
        self._watches[listener] = watch
        watch.update(app_ids)

    def _report(self, listener: int, changed: Collection[str]) -> None:
        with contextlib.suppress(OSError):  # who asked is gone, and this process ends soon
            self._channel.send({"listener": listener, "changed": list(changed)})


def _at_home(request: SlurmRequest, tracker_base: str | None) -> SlurmRequest:
    """Return a request with paths in the user's home made absolute, since here it is known.

    Args:
        request: the request.
        tracker_base: where the job reports, as it was sent. Arguments, variables and options may
            have it anywhere in their text.
    """
    return replace(
        request,
        roles=[_role_at_home(role, tracker_base) for role in request.roles],
        python=os.path.expanduser(request.python),
        job_dir=request.job_dir and os.path.expanduser(request.job_dir),
        checkpoint_base=request.checkpoint_base and os.path.expanduser(request.checkpoint_base),
    )


def _role_at_home(role: RoleRequest, tracker_base: str | None) -> RoleRequest:
    own = [folder for folder in (tracker_base, role.checkpoints, role.packages) if folder]
    return replace(
        role,
        entrypoint=_with_absolute(own, role.entrypoint),
        args=[_with_absolute(own, text) for text in role.args],
        sbatch=[_with_absolute(own, text) for text in role.sbatch],
        srun=[_with_absolute(own, text) for text in role.srun],
        env={
            name: _with_absolute(own, _at_home_if_ours(name, value))
            for name, value in role.env.items()
        },
        cwd=role.cwd and os.path.expanduser(role.cwd),
        checkpoints=role.checkpoints and os.path.expanduser(role.checkpoints),
        image=os.path.expanduser(role.image),
        packages=os.path.expanduser(role.packages),
    )


def _with_absolute(folders: Sequence[str], text: str) -> str:
    """Return a text in which these folders of a job are absolute. They have its id or name."""
    for folder in folders:
        if folder.startswith("~"):
            text = text.replace(folder, os.path.expanduser(folder))
    return text


def _at_home_if_ours(name: str, value: str) -> str:
    """Return the value of a variable, with ``~/`` in one of ours replaced by the home folder."""
    if name.startswith("TRANSLOAD_") and value.startswith("~/"):
        return os.path.expanduser(value)
    return value


def _tools() -> None:
    """Look where a login shell would find Slurm's tools, if this one does not."""
    if shutil.which("sbatch") is not None:
        return
    shell = os.environ.get("SHELL") or "/bin/sh"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            [shell, "-lc", "env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=20,
            check=False,
        ).stdout.decode("utf-8", "surrogateescape")
        for line in said.splitlines():
            name, _, value = line.partition("=")
            if name == "PATH" or name.startswith("SLURM_"):
                os.environ[name] = value


def _clean(own: str) -> None:
    """Remove helpers of other versions that are old."""
    folder = os.path.dirname(own)
    with contextlib.suppress(OSError):
        os.utime(own)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith("helper-") and time.time() - os.stat(path).st_mtime > _OLD_S:
                os.unlink(path)


def main() -> None:
    """Serve on standard input and output until they end, or a minute passes without a message."""
    reads, writes = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    channel = wire.Channel(reads, writes)
    _tools()
    _clean(os.path.abspath(sys.argv[0]))
    root = os.path.abspath(os.path.expanduser(sys.argv[1]))
    helper = Helper(channel, root)

    def guard() -> None:
        while time.monotonic() - helper.heard < wire.SILENCE_S:
            time.sleep(1.0)
        os._exit(0)

    threading.Thread(target=guard, daemon=True).start()
    hello = {
        "root": root,
        "host": os.uname().nodename,
        "python": sys.version.split()[0],
        "pid": os.getpid(),
    }
    hello["clock"] = wire.clock()
    channel.raw(f"{wire.HELLO} ready {json.dumps(hello)}\n".encode())
    helper.serve()
    os._exit(0)
