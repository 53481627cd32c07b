"""Run jobs as containers of a Docker engine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from transload.errors import (
    AppNotFound,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    UnsupportedFeature,
)
from transload.keeper.signs import newest_change
from transload.runtime.tracking import Store, open_store
from transload.schedulers import OpenReadings
from transload.schedulers.api import (
    EVERY_FIELD,
    AppDescription,
    CheckpointFolder,
    ExecCommand,
    JobFiles,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Submission,
    Visibility,
    Watch,
    cancel_each,
    check_replica,
)
from transload.schedulers.chains import number_in_chain
from transload.schedulers.patience import backoff
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    MountType,
    RetryPolicy,
    Role,
    make_app_handle,
    masked_url,
)
from transload.specs.interruptions import SIGNALS
from transload_docker import convert as _convert
from transload_docker import images, names, notices
from transload_docker import packages as _packages
from transload_docker.decide import END, decide, is_alive
from transload_docker.diagnose import diagnose
from transload_docker.engine import Engine, EngineError, in_parallel
from transload_docker.home import Home
from transload_docker.host_config import covered
from transload_docker.logview import MAX_OPEN, Key, LogView, Reading
from transload_docker.names import base_name
from transload_docker.options import DockerConnection, DockerOptions
from transload_docker.plan import DELETED, RECORD, STOP, Container, Facts, Plan
from transload_docker.signs import add_last_reports
from transload_docker.sizes import folder_size, sizes_of_apps
from transload_docker.submit import release_checkpoints, submit
from transload_docker.supervisor import cancel_note
from transload_docker.watch import EngineWatch

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages

_DELETE_S: Final = 30.0
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 1.0


class DockerScheduler(SchedulerBase[DockerOptions]):
    """Runs jobs as containers of a Docker engine.

    Args:
        session_name: name of the session, kept with each job.
        name: name of the scheduler.
    """

    reach: Visibility = "host"  # of an engine on this machine
    fields = EVERY_FIELD - {"segment", "progress_server"}
    retries = frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION})
    mounts = frozenset(MountType)
    notice_signals = frozenset(SIGNALS)
    since_until = True
    shares_disk = False
    options = DockerOptions
    connection = DockerConnection

    def __init__(self, session_name: str, name: str = "docker") -> None:
        self.session = session_name
        self.name = name
        self.connect(DockerConnection())

    def connect(self, connection: DockerConnection) -> None:
        """Use the engine that these settings name."""
        self._engine = Engine(connection.docker_host)
        self._logs: OpenReadings[Key, Reading] = OpenReadings(MAX_OPEN)
        self._home = Home(self._engine.url)
        self._supervised: set[str] = set()  # ids of jobs that need a supervisor on this machine
        self._signs_at: dict[str, int] = {}  # when their supervisor last wrote what it saw of them
        self.reach = self._engine.reach

    def location(self) -> str:
        """Return where the engine is."""
        return masked_url(self._engine.url)

    # -- submitting

    def convert(self, app: AppDef, opts: DockerOptions) -> _convert.DockerRequest:
        """Return the request, with one body for each container. No request is sent.

        Raises:
            UnsupportedFeature: for a field that an engine cannot express, by its path.
            SpecError: for an argument that names a file of another job, which no container has by
                itself.
        """
        self._refuse_unseen(app)
        return _convert.convert(app, opts, self.name, self._engine.reach, _convert.app_id_of(app))

    def _refuse_unseen(self, app: AppDef) -> None:
        """Refuse an argument with a path in another job's folder, unless a mount covers it."""
        if not _convert.has_app_id(app):  # the job's own folder is not known yet
            return
        own = base_name(_convert.app_id_of(app))
        base = os.path.dirname(self._home.results_folder("x"))
        below = re.compile(rf"{re.escape(base)}/(?P<name>[\w.%-]+)[^\s'\"]*")
        for index, role in enumerate(app.roles):
            targets = [mount.dst_path for mount in role.mounts]
            for number, arg in enumerate(role.args):
                others = [
                    found["name"]
                    for found in below.finditer(arg)
                    if found["name"] != own and not covered(found[0], targets)
                ]
                if not others:
                    continue
                handle = make_app_handle(self.name, self.session, others[0])
                raise SpecError(
                    f"roles[{index}].args[{number}]={arg!r}: is a file of another job, which the "
                    f"container does not have; transload run --mount job={handle}:outputs,dst=/in "
                    "mounts its outputs at /in"
                )

    def format_request(self, request: _convert.DockerRequest) -> str:
        """Return a request as text, secrets masked."""
        return _convert.format_request(request)

    def prepare(self, app: AppDef, opts: DockerOptions) -> AppDef:
        """Build the images that carry the workspaces of roles, unless they are there already.

        Raises:
            SubmitError: if an image is missing or cannot be built.
        """
        try:
            return images.with_workspaces(self._engine, self._home, app, opts)
        except EngineError as exc:
            raise SubmitError(f"the image of a workspace cannot be built: {exc}") from exc

    def with_packages(self, role: Role, packages: Packages, opts: DockerOptions) -> Role:
        """Return a role that is started by the uv of a volume."""
        return _packages.with_packages(role, packages, opts)

    def bring_packages(
        self,
        role: Role,
        packages: Packages,
        opts: DockerOptions,
        variables: Mapping[str, str],
    ) -> None:
        """Put uv and the file of requirements into their volume.

        Raises:
            SubmitError: if the image is missing, or uv does not run in it.
        """
        try:
            _packages.bring(self._engine, role, packages, opts)
        except EngineError as exc:
            raise SubmitError(f"environment {packages.environment}: {exc}") from exc

    def submit(self, request: _convert.DockerRequest, app_id: str, submission: Submission) -> bool:
        """Start the job under ``app_id``, or reattach to it.

        Raises:
            AppExists: if the id is taken by another job, or was one that has been deleted.
            SubmitError: if it was not started. Nothing is left of it then.
            SchedulerUnavailable: if the engine cannot be reached.
        """
        try:
            started = submit(self._engine, self._home, request, app_id, submission)
        except EngineError as exc:
            raise SubmitError(f"job {app_id} was not started: {exc}") from exc
        self._home.ensure_supervisor()
        return started

    # -- afterwards

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what is known of jobs, by asking the engine for its lists.

        Raises:
            SchedulerUnavailable: if the engine cannot be reached.
        """
        if not app_ids:
            return {}
        alone = next(iter(app_ids)) if len(app_ids) == 1 else None
        found = self._engine.facts(alone)
        return {app_id: self._description(app_id, found.get(app_id, Facts())) for app_id in app_ids}

    def _facts(self, app_id: str) -> Facts:
        return self._engine.facts(app_id).get(app_id, Facts())

    def _description(self, app_id: str, facts: Facts) -> AppDescription | None:
        plan = facts.plan
        if plan is None and facts.unread:
            return AppDescription(app_id, _unread_status(facts))
        if plan is None:
            return None
        status = self._status(facts)
        status.engine = _in_docker(facts)
        return AppDescription(
            app_id,
            status,
            app=_read_app(plan.app),
            session=plan.session,
            cfg=dict(plan.cfg),
            digest=plan.digest,
            tracker_base=plan.tracker_base,
            parent_run_id=plan.parent_run_id,
            created=plan.created,
            checkpoints=self._checkpoints_of(plan),
            asked=dict(plan.asked or {}),
        )

    def _checkpoints_of(self, plan: Plan) -> str | None:
        """Return the name under which a job's checkpoints are kept here, or None without any."""
        if plan.owner != self._home.owner:
            return None
        return plan.checkpoints

    def _status(self, facts: Facts) -> AppStatus:
        """Return the status of a job. One that goes on gets a new supervisor if that is dead."""
        assert facts.plan is not None
        needs_supervisor = facts.ended is None and facts.plan.owner == self._home.owner
        if needs_supervisor:
            self._home.complete(facts)
            add_last_reports(self._engine, facts)
        try:
            status = decide(facts, time.time()).status
        except (KeyError, ValueError) as exc:  # this version does not understand the record
            return AppStatus(
                AppState.UNKNOWN, msg=f"its record on the engine cannot be read: {exc}"
            )
        self._supervised.discard(facts.plan.app_id)
        if needs_supervisor:
            self._supervised.add(facts.plan.app_id)
            with contextlib.suppress(SchedulerUnavailable):  # the next look tries again
                self._home.ensure_supervisor()
        return status

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        A deleted job counts if the caller gave its id.
        """
        facts = self._engine.notes(app_id).get(app_id, Facts())
        return facts.plan is not None or bool(facts.unread) or facts.deleted is not None

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too, by their label (see the base)."""
        found = {}
        for app_id, facts in self._engine.facts(chain=prefix).items():
            number = number_in_chain(prefix, app_id)
            if number is not None and (facts.plan is not None or facts.unread or facts.deleted):
                found[number] = self._description(app_id, facts)
        return sorted(found.items(), key=lambda each: each[0])

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch on the engine's events, with one connection."""
        return EngineWatch(self._engine, changed, self._check_supervisor)

    def _check_supervisor(self, app_ids: Collection[str]) -> Collection[str]:
        """Replace a supervisor that was killed, while somebody waits for these jobs.

        Returns:
            The jobs of which the supervisor has written progress or stalls since the last call.
        """
        mine = self._supervised.intersection(app_ids)
        if not mine:
            return ()
        with contextlib.suppress(SchedulerUnavailable):
            self._home.ensure_supervisor()
        before = self._signs_at
        self._signs_at = {app_id: self._home.signs_changed(app_id) for app_id in mine}
        return [app_id for app_id, at in self._signs_at.items() if at != before.get(app_id, 0)]

    def list(self) -> list[ListAppResponse]:
        """Return the jobs on the engine, newest first, whoever submitted them."""
        rows = []
        for app_id, facts in self._engine.facts().items():
            if facts.plan is not None:
                status = self._status(facts)
                row = ListAppResponse(app_id, status.state, progress=status.progress)
                row.name = facts.plan.name
                row.created = facts.plan.created
                row.session = facts.plan.session
                rows.append(row)
            elif facts.unread:
                rows.append(ListAppResponse(app_id, _unread_status(facts).state))
        return sorted(rows, key=lambda row: row.created or 0.0, reverse=True)

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Ask for the end of jobs, without waiting for it.

        An ended job stays.

        Returns:
            Those of the ids that there are jobs of.

        Raises:
            SchedulerUnavailable: if one could not be asked to end.
        """
        return cancel_each(app_ids, self._cancel)

    def _cancel(self, app_id: str) -> bool:
        # the lock keeps others from starting containers while this is noted
        with self._home.lock(app_id):
            facts = self._facts(app_id)
            if facts.newer:
                raise SchedulerUnavailable(f"job {app_id}: {facts.unread}")
            if facts.unread:
                self._end_unread(facts)
                return True
            if facts.plan is None or self._status(facts).is_terminal():
                return facts.plan is not None
            try:
                self._engine.note(app_id, STOP, cancel_note(self._home.owner), facts.plan.uid)
                self._give_notice(facts, facts.plan)
            except EngineError as exc:  # a full disk
                raise SchedulerUnavailable(f"job {app_id} could not be cancelled: {exc}") from exc
        self._home.ensure_supervisor()
        return True

    def _give_notice(self, facts: Facts, plan: Plan) -> None:
        """Send a notice to those containers of a job that had none."""
        alive = [
            each for each in facts.containers if is_alive(each) and facts.notice_to(each) is None
        ]
        notices.send(self._engine, plan, alive, END, self._home.owner)

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas' containers."""
        for container in [self._running(app_id, *each) for each in replicas]:
            try:
                self._engine.signal(container.id, f"SIG{name}")
            except EngineError as exc:
                raise SchedulerUnavailable(f"{container.name}: no signal was sent: {exc}") from exc

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how Docker's own client runs a command in a replica's container.

        Raises:
            SchedulerUnavailable: if the client is not installed here, or there is no engine.
        """
        container = self._running(app_id, role, k)
        client = shutil.which("docker")
        if client is None:
            raise SchedulerUnavailable("docker is not installed here: `exec` needs that program")
        options = ["--interactive", "--tty"] if terminal else ["--interactive"]
        return ExecCommand(
            [client, "--host", self._engine.url, "exec", *options, container.id, *command]
        )

    def _running(self, app_id: str, role: str, k: int) -> Container:
        """Return the container in which a replica runs."""
        facts = self._facts(app_id)
        if facts.plan is None:
            raise AppNotFound(app_id)
        sizes = {each.name: each.num_replicas for each in facts.plan.roles}
        check_replica(app_id, sizes, role, k)
        for each in facts.containers:
            if (each.role, each.replica, each.status) == (role, k, "running"):
                return each
        raise SpecError(f"{role}/{k}: it does not run (any more)")

    def _end_unread(self, facts: Facts) -> None:
        """Send SIGTERM to the containers of a job whose record cannot be read."""
        alive = [container for container in facts.containers if is_alive(container)]
        in_parallel(lambda container: self._engine.signal(container.id, "SIGTERM"), alive)

    def delete(self, app_id: str) -> bool:
        """Delete a job, which is ended first if it runs.

        The record of an id that the caller gave stays.

        Returns:
            False if there is no such job.

        Raises:
            SchedulerUnavailable: if the job does not end.
        """
        facts = self._facts(app_id)
        if facts.unread:
            return self._delete_damaged(app_id)
        if facts.plan is None:
            return False
        if not self._status(facts).is_terminal():
            self._cancel(app_id)
            plan = facts.plan
            self._await_end(app_id, max(plan.seconds_to_end(role.name) for role in plan.roles))
        try:
            with self._home.lock(app_id):
                self._remove(app_id)
        except EngineError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be deleted: {exc}") from exc
        return True

    def _delete_damaged(self, app_id: str) -> bool:
        """Delete a job whose record is damaged, once its containers had their time to end.

        Raises:
            SchedulerUnavailable: if a newer version wrote the record, or the engine refuses.
        """
        try:
            with self._home.lock(app_id):
                facts = self._facts(app_id)
                if facts.newer:
                    raise SchedulerUnavailable(f"job {app_id}: {facts.unread}")
                if not facts.unread:
                    return False  # another process was faster
                alive = [container for container in facts.containers if is_alive(container)]
                in_parallel(lambda container: self._engine.stop(container.id), alive)
                # perhaps the caller gave its id: that is not known any more
                self._note_deleted(app_id, digest="", uid=names.short_hash(app_id))
                self._forget_all(app_id, facts)
                self._engine.remove_network(names.network_name(app_id))
                self._home.remove_results(self._home.results_folder(app_id))
        except EngineError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be deleted: {exc}") from exc
        return True

    def _await_end(self, app_id: str, grace: float) -> None:
        deadline = time.monotonic() + grace + _DELETE_S
        pause = _FIRST_LOOK_S
        while not self._is_over(app_id):
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(
                    f"job {app_id} does not end: a container of it cannot be killed"
                )
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_LOOK_S)

    def _is_over(self, app_id: str) -> bool:
        facts = self._facts(app_id)
        return facts.plan is None or self._status(facts).is_terminal()

    def _remove(self, app_id: str) -> None:
        facts = self._facts(app_id)
        plan = facts.plan
        if plan is None:
            return
        if plan.id_given:
            self._note_deleted(app_id, plan.digest, plan.uid)
        self._forget_all(app_id, facts)
        if plan.network:
            self._engine.remove_network(names.network_name(app_id))
        if plan.results and plan.owner == self._home.owner:
            self._home.remove_results(plan.results)
        if plan.owner == self._home.owner:
            self._home.remove_signs(app_id)
            release_checkpoints(self._engine, self._home, plan.checkpoints)

    def _note_deleted(self, app_id: str, digest: str, uid: str) -> None:
        """Note that a job was deleted, so that its id is not given again."""
        self._engine.note(app_id, DELETED, json.dumps({"digest": digest}), uid)

    def _forget_all(self, app_id: str, facts: Facts) -> None:
        """Remove a job's notes and containers.

        Without its record there is no such job. So that goes first: a supervisor clears the rest
        should this process die.
        """
        self._engine.forget(app_id, RECORD)
        errors = in_parallel(
            lambda container: self._engine.remove_container(container.id), facts.containers
        )
        if errors:
            raise errors[0]
        for kind in facts.kinds - {RECORD, DELETED}:
            self._engine.forget(app_id, kind)

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete jobs of this owner that have ended, and workspace images that no container uses.

        The size is that of the containers' own layers and the folders of results. Logs count where
        this user may read the engine's files. All else is as in `SchedulerBase.prune`.
        """
        if now is None:
            now = time.time()
        ended = self._ended()
        too_old: list[str] = []
        if older_than is not None:
            too_old = [app_id for end, app_id in ended if now - end >= older_than]
        rest = [app_id for _, app_id in ended if app_id not in too_old]
        too_much: set[str] = set()
        if max_size is not None:
            too_much = self._oldest_beyond(max_size, rest)
        chosen = [app_id for _, app_id in ended if app_id in too_old or app_id in too_much]
        if not dry_run:
            for app_id in chosen:
                self.delete(app_id)
            images.remove_workspace_images(self._engine)
        return chosen

    def _ended(self) -> Sequence[tuple[float, str]]:
        """Return the jobs of this owner that have ended, each after the time of its end.

        The oldest comes first.
        """
        found = []
        for app_id, facts in self._engine.facts().items():
            if facts.plan is None or facts.plan.owner != self._home.owner:
                continue
            status = self._status(facts)
            if status.is_terminal():
                ends = [
                    replica.end_time
                    for role in status.roles
                    for replica in role.replicas
                    if replica.end_time
                ]
                found.append((max(ends, default=facts.plan.created), app_id))
        return sorted(found)

    def _oldest_beyond(self, limit: int, ended: Sequence[str]) -> set[str]:
        """Return the oldest jobs, so many that the others take at most ``limit`` bytes."""
        sizes = sizes_of_apps(self._engine, self._home, ended)
        left = sum(sizes.values())
        chosen: set[str] = set()
        for app_id in ended:
            if left <= limit:
                break
            chosen.add(app_id)
            left -= sizes[app_id]
        return chosen

    # -- logs

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, without waiting for more of it.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a malformed cursor.
        """
        view = LogView(self._engine, app_id, query, lambda: self._facts(app_id), self._logs)
        return view.log_page()

    # -- rest

    def results_folder(self, app_id: str, opts: DockerOptions) -> str | None:
        """Return a folder that all containers get at the same path, or None for a remote engine."""
        if self._engine.reach != "host":
            return None
        return self._home.results_folder(app_id)

    def checkpoint_folder(self, name: str, role: Role, opts: DockerOptions) -> str | None:
        """Return the folder of a role's checkpoints, which every container gets at the same path.

        Raises:
            UnsupportedFeature: if the engine is on another machine. It mounts nothing of this one.
        """
        if self._engine.reach != "host":
            raise UnsupportedFeature(
                f"role {role.name!r}: checkpoints: the engine {self.location()} is on another "
                "machine, and mounts no folder of this one; submit the job on that machine, or "
                "write checkpoints to a store that both reach",
                "checkpoints",
            )
        return self._home.checkpoint_folder(name, role.name)

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, with size and age where they are here."""
        found = []
        for role, folder in self._checkpoint_folders(app_id).items():
            if not os.path.isdir(folder):
                found.append(CheckpointFolder(role, folder))
                continue
            _, changed = newest_change(folder)
            size = folder_size(folder)
            found.append(CheckpointFolder(role, folder, size=size, changed=changed or None))
        return found

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if there are none on this machine."""
        folder = self._checkpoint_folders(app_id).get(role)
        if folder is None or not os.path.isdir(folder):
            return None
        return open_store(folder)

    def _checkpoint_folders(self, app_id: str) -> dict[str, str]:
        """Return the folder of each role that has checkpoints, of a job submitted from here."""
        plan = self._facts(app_id).plan
        if plan is None:
            raise AppNotFound(app_id)
        app = _read_app(plan.app)
        name = self._checkpoints_of(plan)
        if app is None or name is None:
            return {}
        return {
            role.name: self._home.checkpoint_folder(name, role.name)
            for role in app.roles
            if role.checkpoints
        }

    def mounts_jobs(self, role: Role, opts: DockerOptions) -> JobFiles:
        """Tell how a role gets at another job's files, which an engine of this machine mounts."""
        if self._engine.reach != "host":
            return "out of reach"
        return "mounted"

    def diagnose(self) -> list[tuple[str, bool, str]]:  # type: ignore[valid-type]  # ``list`` is a method here
        """Return the checks of ``transload doctor``, each ``(subject, ok, details)``."""
        return diagnose(self._engine, self._home)

    def close(self) -> None:
        """Close the connection. Jobs go on, and it may be called more than once."""
        self._logs.close()
        self._engine.close()


def _in_docker(facts: Facts) -> dict[str, str]:
    """Return the names of the containers of a job, of each replica the latest."""
    latest: dict[tuple[str, int], Container] = {}
    for container in sorted(facts.containers, key=lambda each: each.attempt):
        latest[(container.role, container.replica)] = container
    names = [latest[key].name for key in sorted(latest)]
    return {"containers": ", ".join(names)} if names else {}


def _unread_status(facts: Facts) -> AppStatus:
    """Return the status of a job whose record cannot be read.

    Its end is known if that was noted.
    """
    status = AppStatus(AppState.UNKNOWN)
    if facts.ended is not None:
        status = AppStatus.from_json(facts.ended)
    status.msg = "; ".join(filter(None, (status.msg, facts.unread)))
    return status


def _read_app(text: str) -> AppDef | None:
    try:
        return AppDef.from_json(text)
    except SpecError:
        return None  # of a newer schema


def create_docker(session_name: str, name: str = "docker") -> DockerScheduler:
    """Make the scheduler ``docker``, or one of this kind with another name."""
    return DockerScheduler(session_name, name)


def create_local_docker(session_name: str) -> DockerScheduler:
    """Make the scheduler under TorchX's other name for it, ``local_docker``."""
    return DockerScheduler(session_name, "local_docker")
