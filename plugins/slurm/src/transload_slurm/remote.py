"""Call the scheduler on the login node of a cluster behind ssh, through a connection."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runtime.progress_lines import progress
from transload.schedulers.api import Submission, Watch
from transload.schedulers.changes import Feeder
from transload.specs import Workspace
from transload_slurm import blobs, ssh
from transload_slurm.connection import ANSWER_S, THREAD, Connection, InDoubt, Link, shared
from transload_slurm.convert import SlurmRequest
from transload_slurm.diagnose import Check
from transload_slurm.results import RemoteStore

_SUBMIT_S: Final = 180.0
_AGAIN_S: Final = 60.0
_SOON_S: Final = 2.0
_AHEAD: Final = 16
_SECONDS: Final = {
    "delete": 200.0,
    "diagnose": 200.0,
    "prefetch": 1800.0,
    "prune": 200.0,
    "signal": 150.0,
    "step_beside": 150.0,
    "withdraw": 10.0,
}
"""Method → for how long its answer is waited for. The others have `ANSWER_S`."""


class LoginNode:
    """A login node of a cluster behind ssh, where `Apps` has the same methods as here.

    Args:
        host: the login node, as ssh knows it.
        root: the folder of the jobs there, where ``~/`` is the user's home.
        python: the Python there.
    """

    def __init__(self, host: str, root: str, python: str) -> None:
        self.host = host
        self.connection = shared(ssh.check_host(host), root, python, user=self)

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of `Apps` there, with its errors.

        Raises:
            SchedulerUnavailable: if the login node cannot be reached, or does not answer.
        """
        seconds = _SECONDS.get(method, ANSWER_S)
        return self.connection.call(method, *arguments, timeout=seconds, **named)

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
                roles = [
                    replace(role, workspace=_bring(link, role.workspace)) for role in request.roles
                ]
                if not sent:
                    sent = True
                    give_up = time.monotonic() + _SUBMIT_S + _AGAIN_S
                left = max(0.0, give_up - time.monotonic())
                made = link.call(
                    "submit",
                    replace(request, roles=roles),
                    app_id,
                    given,
                    mark,
                    link.there(left),
                    timeout=min(left, _SUBMIT_S),
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
            self.call("withdraw", app_id, mark)
        except SchedulerUnavailable:
            pass  # it cannot be reached: what has been submitted runs, under its id

    def lay_packages(self, folder: str) -> None:
        """Send the files of a folder, and put them beside the jobs there."""
        link = self.connection.link()
        listed = _bring(link, Workspace({folder: ""}))
        link.call("lay_packages", listed, timeout=_SUBMIT_S)

    # -- afterwards

    def store(self, folder: str) -> RemoteStore:
        """Return what is in a folder of the cluster."""
        return RemoteStore(self.connection, folder)

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch:
        """Return a new watch, of which the helper reports changes."""
        return _RemoteWatch(self.connection, changed)

    def command(self, words: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command of this machine that runs a command on the login node."""
        return ssh.run(self.host, words, terminal=terminal)

    def diagnose(self) -> Sequence[Check]:
        """Tell whether the login node answers, and what Slurm says there."""
        try:
            hello = self.connection.link().hello
            found = self.call("diagnose")
        except SchedulerUnavailable as exc:
            return [("ssh", False, str(exc))]
        server = f"{self.host} is {hello['host']}; Python {hello['python']}, folder {hello['root']}"
        return [("ssh", True, server), *found]


def _bring(link: Link, workspace: Any) -> str | None:
    """Send what the cluster lacks of a workspace, and return the name of its list."""
    if workspace is None:
        return None
    entries, places = blobs.listed(workspace)
    name, missing = link.call("want", entries, timeout=_SUBMIT_S)
    upload = os.urandom(6).hex()
    under_way: list[Any] = []
    with progress(
        "sending the workspace", sum(os.path.getsize(places[digest]) for digest in missing)
    ) as step:
        for digest in missing:
            for offset, piece, last in blobs.pieces(places[digest]):
                answer = link.ask("put", digest, offset, last, upload, payload=piece)
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
            at[0].ask("watch", at[1], self._watched)

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
                link.ask("watch", key, self._watched)
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
            link.ask("watch", key, [])
