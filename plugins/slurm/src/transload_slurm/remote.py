"""Ask for the jobs of a cluster behind ssh through a connection, as `Apps` does on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.runtime.progress_lines import progress
from transload.runtime.tracking import local_path
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    ExecCommand,
    ListAppResponse,
    LogPage,
    LogQuery,
    Submission,
    Watch,
)
from transload.schedulers.cancelling import asker
from transload.schedulers.changes import Feeder
from transload.specs import Workspace
from transload_slurm import blobs, ssh, wire
from transload_slurm.connection import THREAD, Connection, InDoubt, Link, shared
from transload_slurm.convert import SlurmRequest
from transload_slurm.diagnose import Check
from transload_slurm.results import RemoteStore

_SUBMIT_S: Final = 180.0
_AGAIN_S: Final = 60.0
_SOON_S: Final = 2.0
_WITHDRAW_S: Final = 10.0
_DELETE_S: Final = 200.0
_INSIDE_S: Final = 150.0
_AHEAD: Final = 16
_PREFETCH_S: Final = 1800.0


class RemoteApps:
    """Does what `Apps` does, on a login node.

    Args:
        host: the login node, as ssh knows it.
        root: the folder of the jobs there, where ``~/`` is the user's home.
        python: the Python there.
    """

    def __init__(self, host: str, root: str, python: str = "python3") -> None:
        self.home = root
        self.where = f"ssh {host}"
        self.connection = shared(ssh.check_host(host), root, python, user=self)

    def place(self, folder: str) -> str:
        """Return a ``job_dir`` as it is on the cluster."""
        return folder

    def close(self) -> None:
        """Let the connection go."""
        self.connection.close(self)

    # -- submit

    def submit(self, request: SlurmRequest, app_id: str, given: Submission) -> bool:
        """Submit a job, or reattach to it.

        If the answer is lost, the same submit is sent again, and finds what it has begun.

        Raises:
            SubmitError: if the login node cannot be reached, or Slurm did not take it.
        """
        mark = os.urandom(16).hex()
        sent = False
        give_up = 0.0
        doubts = 0
        while True:
            try:
                link = self.connection.link(_SOON_S) if sent else self.connection.link()
                travels = wire.request_to_dict(
                    request, [_bring(link, role.workspace) for role in request.roles]
                )
                secret = wire.submission_to_dict(given)
                if not sent:
                    sent = True
                    give_up = time.monotonic() + _SUBMIT_S + _AGAIN_S
                left = max(0.0, give_up - time.monotonic())
                made = link.call(
                    "submit",
                    min(left, _SUBMIT_S),
                    app_id=app_id,
                    mark=mark,
                    request=travels,
                    submission=secret,
                    until=link.there(left),
                )
                return bool(made)
            except InDoubt as exc:
                lost: SchedulerUnavailable = exc
                doubts += 1
            except SchedulerUnavailable as exc:
                if not sent:
                    transient = not isinstance(exc, ssh.Refused)
                    raise SubmitError(
                        f"job {app_id!r} was not submitted: {exc}", transient=transient
                    ) from exc
                lost = exc
            except OSError as exc:
                raise SubmitError(
                    f"job {app_id!r} was not submitted: its workspace cannot be read: {exc}"
                ) from exc
            except BaseException as exc:
                # a Ctrl-C, or a refusal, though what was sent before may still be under way
                if sent and (doubts or not isinstance(exc, Exception)):
                    self._withdraw(app_id, mark)
                raise
            # only a submit that may have reached the cluster is worth insisting on
            if time.monotonic() >= give_up:
                self._withdraw(app_id, mark)
                message = f"job {app_id!r}: whether it was submitted is not known; it will not be any more: {lost}"
                raise SubmitError(message, transient=True)
            time.sleep(0.2)

    def _withdraw(self, app_id: str, mark: str) -> None:
        try:
            self.connection.call("withdraw", _WITHDRAW_S, app_id=app_id, mark=mark)
        except SchedulerUnavailable:
            pass  # it cannot be reached: what has been submitted runs, under its id

    def missing_packages(self, names: Collection[str]) -> list[str]:
        """Return those of these files, beside the jobs there, that are missing."""
        return list(self.connection.call("missing_packages", names=list(names)))

    def lay_packages(self, folder: str) -> None:
        """Send the files of a folder, and put them beside the jobs there."""
        link = self.connection.link()
        listed = _bring(link, Workspace({folder: ""}))
        link.call("lay_packages", _SUBMIT_S, listed=listed)

    def prefetch(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Have uv there fetch packages into its cache."""
        self.connection.call("prefetch", _PREFETCH_S, words=list(words), variables=dict(variables))

    # -- afterwards

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what is known of jobs.

        Raises:
            SchedulerUnavailable: if the login node cannot be reached.
        """
        found = self.connection.call("describe", app_ids=list(app_ids))
        return {
            app_id: None if each is None else wire.description_from_dict(each)
            for app_id, each in found.items()
        }

    def results_store(self, app_id: str) -> RemoteStore | None:
        """Return a job's results, or None if they are in a store that is reached from here, too.

        Raises:
            AppNotFound: if there is no such app.
        """
        found = self.describe([app_id])[app_id]
        if found is None:
            raise AppNotFound(app_id)
        base = found.tracker_base
        return RemoteStore(self.connection, base) if base and local_path(base) == base else None

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, as `Apps.checkpoints` does."""
        found = self.connection.call("checkpoints", app_id=app_id)
        return [CheckpointFolder(*each) for each in found]

    def folder_store(self, folder: str) -> RemoteStore:
        """Return what is in a folder of the cluster."""
        return RemoteStore(self.connection, folder)

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is here, or was."""
        return bool(self.connection.call("existed", app_id=app_id))

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too."""
        return [
            (number, None if each is None else wire.description_from_dict(each))
            for number, each in self.connection.call("chain", prefix=prefix)
        ]

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch:
        """Return a new watch, of which the helper reports changes."""
        return _RemoteWatch(self.connection, changed)

    def list(self) -> list[ListAppResponse]:
        """Return the user's jobs, newest first."""
        return [wire.row_from_dict(data) for data in self.connection.call("list")]

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Ask for the end of jobs."""
        return set(self.connection.call("cancel", app_ids=list(app_ids), who=asker()))

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas."""
        chosen = [list(each) for each in replicas]
        self.connection.call("signal", _INSIDE_S, app_id=app_id, replicas=chosen, name=name)

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how ssh runs a command where a replica runs."""
        there = self.connection.call(
            "exec_command",
            _INSIDE_S,
            app_id=app_id,
            role=role,
            k=k,
            words=list(command),
            terminal=terminal,
        )
        return ExecCommand(ssh.run(self.connection.host, there, terminal=terminal))

    def delete(self, app_id: str) -> bool:
        """Delete a job, which is ended first if it runs."""
        return bool(self.connection.call("delete", _DELETE_S, app_id=app_id))

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete ended jobs as `Apps.prune` does, and files of workspaces unused for a month."""
        found = self.connection.call(
            "prune",
            _DELETE_S,
            older_than=older_than,
            max_size=max_size,
            now=now,
            dry_run=dry_run,
        )
        return list(found)

    def diagnose(self) -> Sequence[Check]:
        """Tell whether the login node answers, and what Slurm says there."""
        try:
            hello = self.connection.link().hello
            found = self.connection.call("diagnose", 200.0)
        except SchedulerUnavailable as exc:
            return [("ssh", False, str(exc))]
        server = f"{self.connection.host} is {hello['host']}; Python {hello['python']}, folder {hello['root']}"
        return [("ssh", True, server), *((what, well, said) for what, well, said in found)]

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log."""
        return wire.page_from_dict(
            self.connection.call("log", app_id=app_id, query=wire.query_to_dict(query))
        )


def _bring(link: Link, workspace: Any) -> str | None:
    """Send what the cluster lacks of a workspace, and return the name of its list."""
    if workspace is None:
        return None
    entries, places = blobs.listed(workspace)
    name, missing = link.call("want", _SUBMIT_S, entries=entries)
    upload = os.urandom(6).hex()
    under_way: list[Any] = []
    with progress(
        "sending the workspace", sum(os.path.getsize(places[digest]) for digest in missing)
    ) as step:
        for digest in missing:
            for offset, piece, last in blobs.pieces(places[digest]):
                answer = link.ask(
                    "put", piece, name=digest, offset=offset, last=last, upload=upload
                )
                step(len(piece))
                if offset or not last:  # of a large file: one behind the other
                    link.answer(answer, _SUBMIT_S)
                    continue
                under_way.append(answer)
                if len(under_way) >= _AHEAD:
                    link.answer(under_way.pop(0), _SUBMIT_S)
        for answer in under_way:
            link.answer(answer, _SUBMIT_S)
    return str(name)


class _RemoteWatch:
    """A watch of which the helper reports changes. After every break, all jobs count as changed."""

    def __init__(
        self, connection: Connection, changed: Callable[[Collection[str]], object]
    ) -> None:
        self._connection = connection
        self._changed = changed
        self._watched: list[str] = []
        self._at: tuple[Link, int] | None = None
        self._feeder = Feeder(f"{THREAD}-watch", self._keep, longest_pause=15.0)

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        self._watched = list(app_ids)
        at = self._at
        if at is not None:
            at[0].ask("watch", listener=at[1], app_ids=self._watched)

    def close(self) -> None:
        """End the thread."""
        self._feeder.stop()

    def _keep(self, feeder: Feeder) -> None:
        """Have the helper report changes, until the connection is lost."""
        link = self._connection.link()
        key = link.listen(self._heard)
        ended = link.lost
        try:
            if not feeder.opened(lambda: self._leave(link, key)):
                return
            self._at = (link, key)
            if self._watched:
                link.ask("watch", listener=key, app_ids=self._watched)
            self._changed(self._watched)
            while not feeder.stopped and not ended.wait(0.5):
                pass
        finally:
            self._at = None

    def _heard(self, message: Mapping[str, Any]) -> None:
        self._changed(message["changed"])

    def _leave(self, link: Link, key: int) -> None:
        link.unlisten(key)
        if link.alive:
            link.ask("watch", listener=key, app_ids=[])
