"""Run jobs as containers of a Docker engine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import (
    AppExists,
    AppNotFound,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    UnsupportedFeature,
)
from transload.keeper import layout, processes
from transload.runtime.tracking import Store
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
    Submission,
    Visibility,
    Watch,
    check_replica,
)
from transload.schedulers.cancelling import request_text
from transload.schedulers.chains import number_in_chain
from transload.schedulers.folder import home as homes
from transload.schedulers.folder import store
from transload.schedulers.folder.kept import KeptScheduler
from transload.schedulers.folder.start import Program, notify_start
from transload.schedulers.patience import backoff
from transload.specs import AppDef, MountType, RetryPolicy, Role, make_app_handle, masked_url
from transload.specs.interruptions import SIGNALS
from transload_docker import convert as _convert
from transload_docker import images
from transload_docker import packages as _packages
from transload_docker.diagnose import diagnose
from transload_docker.elsewhere import Elsewhere, Foreign
from transload_docker.engine import Box, Engine, EngineError, in_parallel
from transload_docker.host_config import covered
from transload_docker.logview import MAX_OPEN, Key, LogView, Reading
from transload_docker.names import MAKING
from transload_docker.options import DockerConnection, DockerOptions
from transload_docker.owner import make_owner, owner_of
from transload_docker.sizes import size_on_engine
from transload_docker.submission import body_of, refuse_what_never_fits
from transload_docker.sweep import sweep
from transload_docker.watch import DockerWatch

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages

_DELETE_S: Final = 60.0
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 1.0
_MAKING_S: Final = 60.0  # another submit of the same job makes its containers
_STALE_S: Final = 300.0  # containers of another machine that were never started
_ADOPT_AGAIN_S: Final = 5.0
_PASSED_ON: Final = frozenset(
    {"HOME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SSH_AUTH_SOCK"}
)
_PASSED_ON_PREFIXES: Final = ("DOCKER_", "PYTHON", "COVERAGE_", "XDG_", "LD_LIBRARY_PATH")


class DockerScheduler(KeptScheduler[DockerOptions]):
    """Runs jobs as containers of a Docker engine.

    Each job has a folder and a keeper on the machine that submitted it. Jobs of other machines are
    seen by their containers.

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
        super().__init__()
        self.session = session_name
        self.name = name
        self.connect(DockerConnection())

    def connect(self, connection: DockerConnection) -> None:
        """Use the engine that these settings name."""
        self._engine = Engine(connection.docker_host)
        self._elsewhere = Elsewhere(self._engine)
        self._logs: OpenReadings[Key, Reading] = OpenReadings(MAX_OPEN)
        self._adopted: dict[str, float] = {}  # when a keeper was started for a job, monotonic
        key = hashlib.sha256(self._engine.url.encode()).hexdigest()[:12]
        self.keep_in(homes.local_home(f"docker-{key}"))
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
        own = _convert.app_id_of(app)
        base = f"{self.home}/apps"
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
        if any(role.workspace for role in app.roles):
            self.ensure_home()
        try:
            return images.with_workspaces(self._engine, self.home, app, opts)
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
            return self._submit(request, app_id, submission)
        except EngineError as exc:
            raise SubmitError(f"job {app_id} was not started: {exc}") from exc

    def _submit(self, request: _convert.DockerRequest, app_id: str, submission: Submission) -> bool:
        deadline = time.monotonic() + _MAKING_S
        pause = _FIRST_LOOK_S
        while True:
            if self.is_there(app_id, submission) and not self._is_being_made(app_id):
                return False
            if not store.is_gone(self.home, app_id):
                there = self._elsewhere.find(self._owner(), app_id=app_id).get(app_id)
                if there is not None and self._is_same(there, submission):
                    return False
            if store.read_record(self.home, app_id) is None:
                answer = self._start(request, app_id, submission)
                if "started" in answer:
                    if answer["started"] or not self._is_being_made(app_id):
                        return bool(answer["started"])
                elif answer.get("error") != "elsewhere":
                    raise self.refusal(app_id, answer)
            if time.monotonic() >= deadline:
                raise SubmitError(f"job {app_id} is still being submitted", transient=True)
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_LOOK_S)

    def _start(
        self, request: _convert.DockerRequest, app_id: str, submission: Submission
    ) -> Mapping[str, Any]:
        """Have a keeper make the job, and return its answer."""
        refuse_what_never_fits(self._engine, request)
        for image in sorted({container.body["Image"] for container in request.containers}):
            images.ensure(self._engine, image, request.pull)
        bound = _convert.bind(request, app_id, submission, self._engine.reach)
        owner = make_owner(self.home)
        return self.hand_over(app_id, body_of(self._engine, self.home, owner, bound, submission))

    def _is_same(self, there: Foreign, submission: Submission) -> bool:
        """Tell whether a job of another machine is the one to be submitted, and has begun.

        What another machine made long ago and never started is removed.

        Raises:
            AppExists: if it is another job.
            SubmitError: if it is being submitted there.
        """
        if there.is_begun:
            if there.digest != submission.digest:
                raise AppExists(there.app_id)
            return True
        if self._engine.now() - min(box.created for box in there.boxes) < _STALE_S:
            raise SubmitError(
                f"job {there.app_id} is being submitted from another place ({there.boxes[0].name})",
                transient=True,
            )
        self._elsewhere.remove(there)
        return False

    def _is_being_made(self, app_id: str) -> bool:
        """Tell whether the containers of a job are still being made and started."""
        state = self.state_of(app_id)
        return state is None or bool(state.get("stage"))

    def _owner(self) -> str:
        return owner_of(self.home)

    def program(self) -> Program:
        """Return the program of its keepers."""
        variables = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        variables[processes.MARK] = "1"
        options = ("-P", "-X", "utf8")
        return Program(options, "from transload_docker import process; process", variables)

    def broken_off(self, app_id: str, *, wanted: bool) -> bool:
        """Take back a job whose containers were not all made, or that nobody wants any more."""
        state = store.read_state(self.home, app_id) or {}
        if wanted and state.get("stage") != MAKING:
            return True
        self._take_back(app_id, wait=True)
        return False

    def keeper_gone(self, app_id: str) -> dict[str, Any] | None:
        """Start a keeper for a job that goes on without, or take back one that was being made."""
        state = store.read_state(self.home, app_id)
        if state is None or isinstance(state, store.DamagedState):
            return state
        if processes.keeper_lives(self.home, app_id):
            return state
        if state.get("stage") == MAKING:
            self._take_back(app_id)
            return store.read_state(self.home, app_id)
        now = time.monotonic()
        if now - self._adopted.get(app_id, -_ADOPT_AGAIN_S) >= _ADOPT_AGAIN_S:
            self._adopted[app_id] = now
            request = {"adopt": app_id, "url": self._engine.url}
            notify_start(self.program(), self.home, request)
        return state

    def _take_back(self, app_id: str, *, wait: bool = False) -> None:
        """Remove a job that was being made when its keeper died. Its containers may come later.

        Args:
            app_id: the job.
            wait: its keeper is dying.
        """
        record = f"{layout.app_folder(self.home, app_id)}/record.json"
        lock = layout.take_lock(record, wait=wait)
        if lock is None:
            return  # somebody else does
        try:
            store.remove(self.home, app_id, self.lock_checkpoints, forget=True)
        finally:
            os.close(lock)
        sweep(self._engine, self.home, self._owner())

    # -- afterwards

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return what is known of jobs. The engine is asked for those of other machines.

        Raises:
            SchedulerUnavailable: if the engine cannot be reached.
        """
        found = super().describe(app_ids)
        missing = [app_id for app_id, description in found.items() if description is None]
        if missing:
            labels = {"app_id": missing[0]} if len(missing) == 1 else {}
            others = self._elsewhere.find(self._owner(), **labels)
            found.update({each: others[each].description() for each in missing if each in others})
        return found

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        A deleted job counts if the caller gave its id.
        """
        return super().existed(app_id) or self._foreign(app_id) is not None

    def _foreign(self, app_id: str) -> Foreign | None:
        """Return a job that was submitted from another machine, or None if there is none."""
        return self._elsewhere.find(self._owner(), app_id=app_id).get(app_id)

    def _is_here(self, app_id: str) -> bool:
        return store.read_record(self.home, app_id) is not None

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, those of other machines by their label (see the base)."""
        found: dict[int, AppDescription | None] = {}
        for app_id, foreign in self._elsewhere.find(self._owner(), chain=prefix).items():
            number = number_in_chain(prefix, app_id)
            if number is not None:
                found[number] = foreign.description()
        found.update(super().chain(prefix))
        return sorted(found.items(), key=lambda each: each[0])

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch of any number of jobs, or None if no descriptor is free."""
        try:
            return DockerWatch(self._engine, self.home, changed, self._elsewhere.doubt)
        except OSError:
            return None

    def list(self) -> list[ListAppResponse]:
        """Return the jobs on the engine, newest first, whoever submitted them."""
        rows = super().list()
        for app_id, foreign in self._elsewhere.find(self._owner()).items():
            record = foreign.record
            row = ListAppResponse(app_id, foreign.status().state)
            row.name = str((record.get("app") or {}).get("name", ""))
            row.created = record.get("created")
            row.session = str(record.get("session") or "")
            rows.append(row)
        return sorted(rows, key=lambda row: row.created or 0.0, reverse=True)

    def cancel_one(self, app_id: str) -> bool:
        """Request the end of a job, and return False if there is none."""
        if not self._is_here(app_id):
            return self._cancel_elsewhere(app_id)
        has_record = bool(store.read_record(self.home, app_id))
        if not has_record and not processes.keeper_lives(self.home, app_id):
            self._end_without_keeper(app_id)
            return True
        return super().cancel_one(app_id)

    def _cancel_elsewhere(self, app_id: str) -> bool:
        foreign = self._foreign(app_id)
        if foreign is None:
            return False
        if foreign.mark is None and not foreign.status().is_terminal():
            try:
                self._elsewhere.cancel(foreign, request_text(), self._owner())
            except EngineError as exc:  # a full disk
                raise SchedulerUnavailable(f"job {app_id} could not be cancelled: {exc}") from exc
        return True

    def _end_without_keeper(self, app_id: str) -> None:
        """End the containers of a job whose record is damaged, so that no keeper can take it over."""
        boxes = self._engine.boxes(app_id=app_id)
        in_parallel(lambda box: self._engine.remove_container(box.id), boxes)
        folder = layout.app_folder(self.home, app_id)
        state = store.read_state(self.home, app_id) or {}
        if state.get("state") not in layout.TERMINAL:
            ended = {"schema": layout.SCHEMA, "state": "CANCELLED", "msg": request_text()}
            layout.write_file(layout.state_file(folder), layout.dumps(ended) + b"\n")

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas' containers."""
        for box in [self._running(app_id, *each) for each in replicas]:
            try:
                self._engine.signal(box.id, f"SIG{name}")
            except EngineError as exc:
                raise SchedulerUnavailable(f"{box.name}: no signal was sent: {exc}") from exc

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how Docker's own client runs a command in a replica's container.

        Raises:
            SchedulerUnavailable: if the client is not installed here, or there is no engine.
        """
        box = self._running(app_id, role, k)
        client = shutil.which("docker")
        if client is None:
            raise SchedulerUnavailable("docker is not installed here: `exec` needs that program")
        options = ["--interactive", "--tty"] if terminal else ["--interactive"]
        return ExecCommand([client, "--host", self._engine.url, "exec", *options, box.id, *command])

    def _running(self, app_id: str, role: str, k: int) -> Box:
        """Return the container in which a replica runs."""
        self._check_replica(app_id, role, k)
        for box in self._engine.boxes(app_id=app_id, role=role, replica=str(k)):
            if box.status == "running":
                return box
        raise SpecError(f"{role}/{k}: it does not run (any more)")

    def _check_replica(self, app_id: str, role: str, k: int) -> Foreign | None:
        """Refuse a replica that a job does not have, and return the job if it is elsewhere."""
        foreign = None
        if self._is_here(app_id):
            roles = (self._readable(app_id).get("app") or {}).get("roles", ())
            sizes = {each["name"]: each.get("num_replicas", 1) for each in roles}
        else:
            foreign = self._foreign(app_id)
            if foreign is None:
                raise AppNotFound(app_id)
            app = foreign.app
            sizes = {each.name: each.num_replicas for each in app.roles} if app else {role: k + 1}
        check_replica(app_id, sizes, role, k)
        return foreign

    def delete(self, app_id: str) -> bool:
        """Delete a job, which is ended first if it runs.

        The record of an id that the caller gave stays.

        Returns:
            False if there is no such job.

        Raises:
            SchedulerUnavailable: if the job does not end.
        """
        if self._is_here(app_id):
            return super().delete(app_id)
        foreign = self._foreign(app_id)
        if foreign is None:
            return False
        deadline = time.monotonic() + _DELETE_S
        while foreign is not None and not foreign.status().is_terminal():
            self._cancel_elsewhere(app_id)
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(f"job {app_id} does not end: {foreign.status().msg}")
            time.sleep(_LONGEST_LOOK_S)
            foreign = self._foreign(app_id)
        if foreign is not None:
            self._elsewhere.remove(foreign)
        return True

    def remove(self, app_id: str) -> None:
        """Remove a job that has ended, with its containers."""
        try:
            for box in self._engine.boxes(app_id=app_id):
                self._engine.remove_container(box.id)
            self._engine.unmark(app_id)
        except EngineError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be deleted: {exc}") from exc
        super().remove(app_id)

    def size_of(self, app_id: str) -> int:
        """Return how many bytes a job takes, here and on the engine."""
        return super().size_of(app_id) + size_on_engine(self._engine, app_id)

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete jobs of this folder that have ended, and workspace images that no container uses.

        The size is that of the folders and of the containers' own layers. Logs count where this
        user may read the engine's files. All else is as in `SchedulerBase.prune`.
        """
        removed = super().prune(older_than, max_size, now, dry_run=dry_run)
        if not dry_run:
            images.remove_workspace_images(self._engine, self.home)
            sweep(self._engine, self.home, self._owner())
        return removed

    # -- what they left

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log, without waiting for more of it.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a malformed cursor.
        """
        foreign = self._check_replica(app_id, query.role, query.replica)
        ended = self.has_ended(app_id) if foreign is None else foreign.status().is_terminal()
        view = LogView(self._engine, app_id, query, ended=ended, kept=self._logs)
        return view.log_page()

    def results_folder(self, app_id: str, opts: DockerOptions) -> str | None:
        """Return a folder that all containers get at the same path, or None for a remote engine."""
        if self._engine.reach != "host":
            return None
        return super().results_folder(app_id, opts)

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
        return super().checkpoint_folder(name, role, opts)

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job that was submitted here."""
        if not self._is_here(app_id) and self._foreign(app_id) is not None:
            return ()
        return super().checkpoints(app_id)

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if there are none on this machine."""
        if not self._is_here(app_id) and self._foreign(app_id) is not None:
            return None
        return super().checkpoint_store(app_id, role)

    # -- rest

    def mounts_jobs(self, role: Role, opts: DockerOptions) -> JobFiles:
        """Tell how a role gets at another job's files, which an engine of this machine mounts."""
        if self._engine.reach != "host":
            return "out of reach"
        return "mounted"

    def diagnose(self) -> Sequence[tuple[str, bool, str]]:
        """Return the checks of ``transload doctor``, each ``(subject, ok, details)``."""
        return diagnose(self._engine, self.home)

    def close(self) -> None:
        """Close the connection. Jobs go on, and it may be called more than once."""
        self._logs.close()
        self._engine.close()


def create_docker(session_name: str, name: str = "docker") -> DockerScheduler:
    """Make the scheduler ``docker``, or one of this kind with another name."""
    return DockerScheduler(session_name, name)


def create_local_docker(session_name: str) -> DockerScheduler:
    """Make the scheduler under TorchX's other name for it, ``local_docker``."""
    return DockerScheduler(session_name, "local_docker")
