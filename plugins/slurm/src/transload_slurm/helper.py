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
from collections.abc import Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable, SubmitError, TransloadError
from transload.runtime import untrusted
from transload.schedulers.cancelling import cancelling_for
from transload_slurm import wire
from transload_slurm.apps import Apps
from transload_slurm.blobs import Blobs
from transload_slurm.watch import SlurmWatch

_PER_MINUTE: Final = 12  # a login node has many users
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
        self._apps = Apps(root, _PER_MINUTE, self._blobs)
        self._watches: dict[int, SlurmWatch] = {}
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
        answer: dict[str, Any] = {"id": message["id"]}
        data = b""
        try:
            more = {"payload": payload} if payload else {}
            result = getattr(self, f"do_{message['method']}")(**message["arguments"], **more)
            if isinstance(result, bytes):
                answer["result"], data = len(result), result
            else:
                answer["result"] = result
        except TransloadError as exc:
            answer["error"] = wire.error_to_dict(exc)
        except Exception as exc:
            answer["error"] = wire.error_to_dict(
                SchedulerUnavailable(f"on {os.uname().nodename}: {exc!r}")
            )
        finally:
            with self._lock:
                self._busy -= 1
        with contextlib.suppress(OSError):
            self._channel.send(answer, data)

    # -- what can be asked

    def do_ping(self) -> None:
        """Tell that we are here."""

    def do_submit(
        self, app_id: str, mark: str, request: Any, submission: Any, until: float
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
        given = wire.submission_from_dict(submission)
        asked = wire.request_from_dict(request, submission["tracker_base"])
        return self._apps.submit(asked, app_id, given, mark, check)

    def do_withdraw(self, app_id: str, mark: str) -> None:
        """Take back a submit whose submitter does not want it any more."""
        self._apps.withdraw(app_id, mark)

    def do_describe(self, app_ids: list[str]) -> dict[str, Any]:
        """Tell what is known of jobs."""
        found = self._apps.describe(app_ids)
        return {
            app_id: None if each is None else wire.description_to_dict(each)
            for app_id, each in found.items()
        }

    def do_chain(self, prefix: str) -> list[Any]:
        """Return number and description of each job of a chain."""
        return [
            [number, None if each is None else wire.description_to_dict(each)]
            for number, each in self._apps.chain(prefix)
        ]

    def do_checkpoints(self, app_id: str) -> list[Any]:
        """Return the folders of checkpoints of a job."""
        found = self._apps.checkpoints(app_id)
        return [[each.role, each.path, each.size, each.changed] for each in found]

    def do_missing_packages(self, names: list[str]) -> list[str]:
        """Return those of these files, beside the jobs, that are not there."""
        return self._apps.missing_packages(names)

    def do_lay_packages(self, listed: str) -> None:
        """Put the files of this list, which were sent, beside the jobs."""
        with tempfile.TemporaryDirectory(prefix="transload-") as made:
            self._blobs.lay(listed, f"{made}/files")
            self._apps.lay_packages(f"{made}/files")

    def do_prefetch(self, words: list[str], variables: dict[str, str]) -> None:
        """Have uv fetch packages into its cache."""
        self._apps.prefetch(words, variables)

    def do_list(self) -> list[Any]:
        """Return the rows of `Apps.list`."""
        return [wire.row_to_dict(row) for row in self._apps.list()]

    def do_existed(self, app_id: str) -> bool:
        """Tell whether a job is, or was, here."""
        return self._apps.existed(app_id)

    def do_cancel(self, app_ids: list[str], who: str) -> list[str]:
        """Cancel jobs, and return those that there are."""
        with cancelling_for(who):
            return sorted(self._apps.cancel(app_ids))

    def do_signal(self, app_id: str, replicas: list[Any], name: str) -> None:
        """Send a signal to replicas."""
        self._apps.signal(app_id, [(role, k) for role, k in replicas], name)

    def do_exec_command(
        self, app_id: str, role: str, k: int, words: list[str], terminal: bool
    ) -> list[str]:
        """Return the command line that runs a command where a replica runs."""
        return list(self._apps.exec_command(app_id, role, k, words, terminal=terminal).argv)

    def do_delete(self, app_id: str) -> bool:
        """Delete a job."""
        return self._apps.delete(app_id)

    def do_prune(
        self,
        older_than: float | None,
        max_size: int | None,
        now: float | None,
        dry_run: bool,
    ) -> list[str]:
        """Delete jobs that have ended, and files of workspaces that nobody has used for long."""
        return list(self._apps.prune(older_than, max_size, now, dry_run=dry_run))

    def do_diagnose(self) -> list[Any]:
        """Look whether Slurm can be used from here."""
        return [list(check) for check in self._apps.diagnose()]

    def do_log(self, app_id: str, query: dict[str, Any]) -> dict[str, Any]:
        """Return a page of a log."""
        return wire.page_to_dict(self._apps.log_read(app_id, wire.query_from_dict(query)))

    def do_want(self, entries: Any) -> Any:
        """Keep the list of a workspace, and tell which files are missing."""
        return self._blobs.want(entries)

    def do_put(self, name: str, offset: int, last: bool, upload: str, payload: bytes = b"") -> None:
        """Store a piece of a file."""
        self._blobs.put(name, payload, offset, last, upload)

    def do_entries(self, folder: str) -> list[Any]:
        """List a folder.

        Returns:
            For each entry its name, and whether it is a folder.
        """
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as listing:
            for entry in listing:
                found.append([entry.name, entry.is_dir(follow_symlinks=False)])
        return found

    def do_is_folder(self, path: str) -> bool:
        """Tell whether there is a folder."""
        return os.path.isdir(path)

    def do_walk(self, folder: str, start: str) -> list[Any]:
        """List the files below a folder, and what was refused."""
        try:
            return list(untrusted.walk(folder, start))
        except OSError as exc:
            return [[], {start: untrusted.reason_of(exc)}]

    def do_read(
        self, folder: str, path: str, offset: int = 0, size: int = -1
    ) -> bytes | dict[str, Any] | None:
        """Return a piece of a job's file.

        Returns:
            None if there is no such file, and a dict with the reason if it cannot be read.
        """
        try:
            with open(untrusted.open_file(folder, path), "rb") as file:
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
