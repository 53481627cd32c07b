"""Ask for the jobs of a cluster behind ssh through a connection, as `Apps` does on this machine."""

from __future__ import annotations

import json
import os
import queue
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.cli.progress import progress
from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.runtime.tracking import local_path
from transload.schedulers import environments
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    ListAppResponse,
    LogPage,
    LogQuery,
    Submission,
)
from transload.schedulers.cancelling import asker
from transload.schedulers.feeding import FedWatch, Feeder
from transload.specs import Workspace
from transload_slurm import blobs, ssh, wire
from transload_slurm.connection import THREAD, Connection, InDoubt, Link, shared
from transload_slurm.convert import SlurmRequest
from transload_slurm.diagnose import Check
from transload_slurm.results import RemoteStore

if TYPE_CHECKING:
    from transload.schedulers.environments import Recipe
    from transload_slurm.options import Making

_SUBMIT_S: Final = 180.0
_AGAIN_S: Final = 60.0
_SOON_S: Final = 2.0
_WITHDRAW_S: Final = 10.0
_DELETE_S: Final = 200.0
_AHEAD: Final = 16
_LOOK_S: Final = 0.5
_WITHOUT_INDEX: Final = (
    "where the cluster reaches no index, set offline = true (in its settings, or -c offline=true): "
    "wheels are then fetched here and sent"
)


class RemoteApps:
    """Does what `Apps` does, on a login node.

    Args:
        host: the login node, as ssh knows it.
        root: the folder of the jobs there, where ``~/`` is the user's home.
        python: the Python there.
    """

    def __init__(self, host: str, root: str, python: str = "python3") -> None:
        self.root = root
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

    def make_environment(
        self,
        recipe: Recipe,
        how: Making,
        variables: Mapping[str, str],
    ) -> str:
        """Return the folder of an environment there, as `Apps.make_environment` does.

        If it is made offline, its packages are fetched here, and sent.

        Raises:
            SubmitError: if it cannot be made, or the login node cannot be reached.
        """
        try:
            if recipe.needs_uv and (how.offline or not self.connection.call("has_uv")):
                recipe = environments.as_requirements(recipe)
            link = self.connection.link()
            order: dict[str, Any] = {
                "recipe": recipe.to_dict(),
                "python": how.python,
                "prologue": how.prologue,
                "variables": dict(variables),
            }
            if how.offline:
                order["variables"] = {}
                order["wheels"] = _bring_wheels(link, recipe, order, variables)
            made = environments.follow_making(
                _Making(link).lines(order), recipe.environment, without_index=_WITHOUT_INDEX
            )
        except SchedulerUnavailable as exc:
            raise SubmitError(
                f"environment {recipe.environment}: cannot be made: {exc}",
                transient=not isinstance(exc, ssh.Refused),
            ) from exc
        return str(made["path"])

    # -- afterwards

    def environments(self) -> Sequence[dict[str, Any]]:
        """Return the records of the environments there, each with ``in_use``."""
        return list(self.connection.call("environments", _DELETE_S))

    def delete_environments(
        self, older_than: float | None, *, dry_run: bool
    ) -> Sequence[dict[str, Any]]:
        """Delete environments there that no job uses, as `Environments.delete` does."""
        found = self.connection.call(
            "delete_environments", _DELETE_S, older_than=older_than, dry_run=dry_run
        )
        return list(found)

    def describe_many(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
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
        found = self.describe_many([app_id])[app_id]
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

    def watch(self, logs: bool = False) -> FedWatch:
        """Return a new watch, to which the helper tells what changes."""
        return _RemoteWatch(self.connection, logs)

    def list(self) -> list[ListAppResponse]:
        """Return the user's jobs, newest first."""
        return [wire.row_from_dict(data) for data in self.connection.call("list")]

    def cancel(self, app_id: str) -> bool:
        """Ask for the end of a job."""
        return bool(self.connection.call("cancel", app_id=app_id, who=asker()))

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


def _bring_wheels(
    link: Link, recipe: Recipe, order: Mapping[str, Any], variables: Mapping[str, str]
) -> str:
    """Fetch the wheels of an environment here, and send them. Return the name of their list.

    Nothing is fetched if the environment is there.
    """
    asked = {name: order[name] for name in ("recipe", "python", "prologue")}
    wanted = link.call("python_there", _SUBMIT_S, **asked)
    if not wanted:
        return ""
    with tempfile.TemporaryDirectory(prefix="transload-") as folder:
        target = environments.WheelTarget(**wanted)
        wheels = environments.fetch_wheels(recipe, target, variables, folder)
        sent = _bring(link, Workspace({wheels: ""}))
    return sent or ""


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


class _Making:
    """What the helper says while it makes an environment.

    Args:
        link: the connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()

    def lines(self, order: Mapping[str, Any]) -> Iterator[bytes]:
        """Send the order, and yield lines as the program that makes environments writes them.

        Raises:
            SchedulerUnavailable: if the connection breaks: the helper stops then.
        """
        began = time.monotonic()
        last = ""
        key = self._link.listen(self._hear)
        try:
            asked = self._link.ask("make_environment", listener=key, **order)
            while not asked.done():
                try:
                    last = self._heard.get(timeout=_LOOK_S)
                except queue.Empty:
                    if not last or asked.done():
                        continue
                seconds = round(time.monotonic() - began, 1)
                yield json.dumps({"line": last, "seconds": seconds}).encode()
            result, _ = asked.result()
            yield json.dumps(result).encode()
        finally:
            self._link.unlisten(key)

    def _hear(self, message: Mapping[str, Any]) -> None:
        self._heard.put(str(message["line"]))


class _RemoteWatch(FedWatch):
    """A watch that the helper feeds. After every break, all jobs count as changed."""

    def __init__(self, connection: Connection, logs: bool) -> None:
        super().__init__()
        self._connection = connection
        self._logs = logs
        self._watched: list[str] = []
        self._at: tuple[Link, int] | None = None
        self._feeder = Feeder(f"{THREAD}-watch", self._keep, longest_pause=15.0)

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        super().update(app_ids)
        self._watched = list(app_ids)
        at = self._at
        if at is not None:
            at[0].ask("watch", listener=at[1], app_ids=self._watched, logs=self._logs)

    def _keep(self, feeder: Feeder) -> None:
        """Have the helper tell us, until the connection is lost."""
        link = self._connection.link()
        key = link.listen(self._heard)
        ended = link.lost
        try:
            if not feeder.opened(lambda: self._leave(link, key)):
                return
            self._at = (link, key)
            if self._watched:
                link.ask("watch", listener=key, app_ids=self._watched, logs=self._logs)
            self.feed_all()
            while not feeder.stopped and not ended.wait(0.5):
                pass
        finally:
            self._at = None

    def _leave(self, link: Link, key: int) -> None:
        link.unlisten(key)
        if link.alive:
            link.ask("watch", listener=key, app_ids=[], logs=self._logs)

    def _heard(self, message: Mapping[str, Any]) -> None:
        for app_id, kind in message["changes"]:
            self.feed_ids([app_id], kind)

    def end(self) -> None:
        """End the thread."""
        self._feeder.stop()
