"""Submit jobs by making all containers, then the record, and starting all, or else nothing.

The record is what makes the job exist. Before it nothing has run, and what is there is removed as
rubbish. After it the supervisor will start what its submitter could not start.
"""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

from transload.errors import (
    AppExists,
    SchedulerUnavailable,
    SubmitError,
    TransloadError,
    UnsupportedFeature,
)
from transload.schedulers.api import Submission
from transload.schedulers.asked import asked_words
from transload.specs import MASK, looks_secret, masked_env, masked_url
from transload_docker import images, names, networks
from transload_docker.convert import ContainerRequest, DockerRequest, bind
from transload_docker.decide import Renewal
from transload_docker.engine import (
    CONFLICT,
    NOT_FOUND,
    SERVER_ERROR,
    Engine,
    EngineError,
    in_parallel,
    path_of,
)
from transload_docker.gpus import assigned
from transload_docker.home import Home
from transload_docker.host_config import mount_entry
from transload_docker.plan import GRACE_S, RECORD, Container, Facts, Plan
from transload_docker.states import seconds

_STALE_S: Final = 300.0
_PERMANENT: Final = (
    "already allocated",
    "executable",
    "device driver",
    "device information",
    "unable to find user",
    "unable to find group",
    "no such file or directory",
)
"""What an engine says with the code of a fault of its own, though trying again would not help."""


def submit(
    engine: Engine, home: Home, request: DockerRequest, app_id: str, submission: Submission
) -> bool:
    """Start a job, or reattach to it.

    Returns:
        True if it was started, False if the same job is there already.

    Raises:
        AppExists: if the id is taken by another job, or was one that has been deleted.
        SubmitError: if it was not started. Nothing is left of it.
        SchedulerUnavailable: if the engine cannot be reached.
    """
    with home.lock(app_id):
        facts = engine.facts(app_id).get(app_id, Facts())
        if facts.plan is not None and home.is_withdrawn(facts.plan.uid):
            take_back(engine, app_id, facts)
            facts = engine.facts(app_id).get(app_id, Facts())
        if facts.plan is not None:
            _check_same(app_id, facts.plan.digest, submission)
            return False
        if facts.unread:
            raise AppExists(app_id, f"job {app_id!r} is there: {facts.unread}")
        if facts.deleted is not None:
            raise AppExists(
                app_id, f"job id {app_id!r} was a job that has been deleted; choose another id"
            )
        refuse_what_never_fits(engine, request)
        _clear_rubbish(engine, home, app_id, facts)
        return _Submit(
            engine, home, bind(request, app_id, submission, engine.reach), app_id, submission
        ).run()


def refuse_what_never_fits(engine: Engine, request: DockerRequest) -> None:
    """Refuse a container that wants more than the engine's machine has.

    Raises:
        UnsupportedFeature: by the path of the field, with what is there.
    """
    roles = [role.name for role in request.roles]
    for container in request.containers:
        config = container.body.get("HostConfig", {})
        memory = config.get("Memory") or 0
        cpus = (config.get("NanoCpus") or 0) / 1e9
        if not memory and not cpus:
            continue
        has_memory, has_cpus = engine.machine()
        path = f"roles[{roles.index(container.role)}].resource"
        if has_memory and memory > has_memory:
            raise UnsupportedFeature(
                f"{path}.memMB={memory >> 20}: the machine of the engine {masked_url(engine.url)} "
                f"has {has_memory >> 20} in all, so this would never fit",
                f"{path}.memMB",
            )
        if has_cpus and cpus > has_cpus:
            raise UnsupportedFeature(
                f"{path}.cpu={cpus:g}: the machine of the engine {masked_url(engine.url)} has "
                f"{has_cpus:g} in all, so this would never fit",
                f"{path}.cpu",
            )


def release_checkpoints(engine: Engine, home: Home, name: str | None) -> None:
    """Remove the checkpoints that are kept under a name, unless the record of a job has it.

    Args:
        engine: where the jobs are.
        home: where the checkpoints are.
        name: the name. With None, nothing is done.
    """
    if name is None:
        return
    with home.locked_checkpoints(name):
        for facts in engine.notes().values():
            # what cannot be read may have that name
            if facts.unread or (facts.plan is not None and facts.plan.checkpoints == name):
                return
        home.remove_checkpoints(name)


def take_back(engine: Engine, app_id: str, facts: Facts) -> None:
    """Remove a job that was made although its submitter had given up, as the engine hung."""
    engine.forget(app_id, RECORD)
    in_parallel(lambda container: engine.remove_container(container.id), facts.containers)
    engine.remove_network(names.network_name(app_id))


def _check_same(app_id: str, digest: str, submission: Submission) -> None:
    if digest != submission.digest:
        raise AppExists(app_id)


def _clear_rubbish(engine: Engine, home: Home, app_id: str, facts: Facts) -> None:
    """Remove what a submit has left that died before it made its record."""
    for container in facts.containers:
        row = _row(engine, container)
        labels = row["Config"]["Labels"]
        age = engine.now() - (seconds(row["Created"]) or 0.0)
        if labels.get(names.LABEL_OWNER) != home.owner and age < _STALE_S:
            raise SubmitError(
                f"job {app_id} is being submitted from another place ({container.name})",
                transient=True,
            )
    for error in in_parallel(lambda c: engine.remove_container(c.id), facts.containers):
        raise error


def _row(engine: Engine, container: Container) -> dict[str, Any]:
    row: dict[str, Any] = engine.query(lambda api: api.inspect_container(container.id))
    return row


_NO_POOL: Final = "non-overlapping"
"""What an engine says, in each of its versions, when it has no addresses left for a network."""


class _Submit:
    """One submit."""

    def __init__(
        self,
        engine: Engine,
        home: Home,
        request: DockerRequest,
        app_id: str,
        submission: Submission,
    ) -> None:
        self.engine = engine
        self.home = home
        self.request = request
        self.app_id = app_id
        self.submission = submission
        self.uid = uuid.uuid4().hex
        self.made: list[tuple[ContainerRequest, str]] = []
        self.network = False
        self.progress: str | None = None
        # an engine that is given no folder of this machine may not see its disk, as one whose
        # socket was handed into a container
        if engine.reach == "host" and request.folders:
            self.progress = home.progress_folder(app_id)

    def run(self) -> bool:
        try:
            self._prepare()
            with self._checkpoints():
                with assigned(self.engine, self.home, self.request):
                    self._make()
                is_first = self._record()
            if not is_first:
                self._undo()
                return self._reattach()
        except (EngineError, OSError) as exc:
            self._undo()
            raise self._error(exc) from exc
        except BaseException:  # no answer, a Ctrl-C: what was asked for last may be done later
            self._withdraw()
            self._undo()
            raise
        try:
            return self._start()
        except Exception:
            raise  # what is to be taken back has been
        except BaseException:  # a Ctrl-C: nobody would know of the job
            self._withdraw()
            self._undo()
            raise

    @contextlib.contextmanager
    def _checkpoints(self) -> Iterator[None]:
        """Make the folders of checkpoints. Nobody removes them before the record names them."""
        if not self.request.checkpoints:
            yield
            return
        with self.home.locked_checkpoints(self.app_id):
            for folder in self.request.checkpoints:
                self.home.make_folder(folder)
            yield

    def _withdraw(self) -> None:
        with contextlib.suppress(OSError):
            self.home.withdraw(self.uid)

    def _prepare(self) -> None:
        for image in sorted({container.body["Image"] for container in self.request.containers}):
            images.ensure(self.engine, image, self.request.pull)
        for folder in self.request.folders:
            self.home.make_folder(folder)
        self.home.remove_signs(self.app_id)
        if self.progress is not None:
            self.home.make_folder(self.progress)
        name = self.request.network
        if name:
            labels = {
                **names.id_labels(self.app_id),
                names.LABEL_UID: self.uid,
                names.LABEL_OWNER: self.home.owner,
            }
            # ours by its name, so what is there is what an earlier, dead submit has left
            self.engine.remove_network(name)
            self.network = True  # may be there from now on, whatever interrupts this
            networks.create(self.engine, self.home, name, labels, len(self.request.containers))

    def _make(self) -> None:
        first, *rest = self.request.containers  # the first one's name is a lock among machines
        self._make_one(first)
        for error in in_parallel(self._make_one, rest):
            raise error

    def _make_one(self, container: ContainerRequest) -> None:
        body = copy.deepcopy(container.body)
        secrets = self.submission.secrets.get(container.role, {})
        body["Env"] = [
            *body.get("Env", []),
            *(f"{name}={value}" for name, value in secrets.items()),
            f"TRANSLOAD_PROGRESS_FILE={self._progress_file(container)}",
        ]
        self._mount_progress(body)
        body["Labels"] = {
            **body.get("Labels", {}),
            names.LABEL_UID: self.uid,
            names.LABEL_OWNER: self.home.owner,
            **self._asked_labels(),
        }
        made = self.engine.call(lambda api: api.create_container_from_config(body, container.name))[
            "Id"
        ]
        if body.get("Entrypoint") == ["python"] and self._has_python3_alone(made):
            self.engine.remove_container(made)
            body["Entrypoint"] = ["python3"]
            made = self.engine.call(
                lambda api: api.create_container_from_config(body, container.name)
            )["Id"]
        self.made.append((container, made))

    def _asked_labels(self) -> dict[str, str]:
        words = asked_words(self.submission.asked)
        return {f"{names.LABEL_ASKED}{name}": str(value) for name, value in words.items()}

    def _progress_file(self, container: ContainerRequest) -> str:
        """Return where a container says how far it is."""
        if self.progress is None:
            return names.PROGRESS_FILE
        return f"{self.progress}/{names.progress_file(container.role, container.replica)}"

    def _mount_progress(self, body: dict[str, Any]) -> None:
        if self.progress is None:
            return
        host = body.setdefault("HostConfig", {})
        mount = mount_entry("bind", self.progress, self.progress, read_only=False)
        host["Mounts"] = [*(host.get("Mounts") or ()), mount]

    def _has_python3_alone(self, container_id: str) -> bool:
        """Tell whether a container has no ``python``, and a ``python3`` in its place."""
        row = self.engine.query(lambda api: api.inspect_container(container_id))
        path = path_of(row["Config"])
        if self.engine.find_program(container_id, "python", path):
            return False
        return bool(self.engine.find_program(container_id, "python3", path))

    def _record(self) -> bool:
        return self.engine.note(self.app_id, RECORD, self._plan().to_json(), self.uid)

    def _plan(self) -> Plan:
        submission = self.submission
        request = self.request
        own = self.home.results_folder(self.app_id)
        return Plan(
            app_id=self.app_id,
            uid=self.uid,
            owner=self.home.owner,
            roles=tuple(request.roles),
            created=time.time(),
            timeout=request.timeout,
            grace=GRACE_S,
            network=request.network,
            digest=submission.digest,
            session=submission.session,
            name=submission.app.name,
            id_given=submission.id_given,
            tracker_base=submission.tracker_base,
            parent_run_id=submission.parent_run_id,
            results=own if own in request.folders else "",
            cfg=_shown(submission),
            app=submission.app.masked().to_json(),
            checkpoints=submission.checkpoints,
            asked=dict(submission.asked) or None,
            progress=self.progress,
        )

    def _reattach(self) -> bool:
        facts = self.engine.facts(self.app_id).get(self.app_id, Facts())
        if facts.plan is None:
            raise SubmitError(
                f"job {self.app_id} was submitted from another place and removed again",
                transient=True,
            )
        _check_same(self.app_id, facts.plan.digest, self.submission)
        return False

    def _start(self) -> bool:
        self.home.ensure_supervisor()  # first: it is to see what programs use that end soon
        ordered = sorted(self.made, key=lambda each: self.request.containers.index(each[0]))
        errors = in_parallel(
            lambda each: self._start_one(each[1]), ordered[:1]
        )  # rank 0 first: the others look for it
        errors = errors or in_parallel(lambda each: self._start_one(each[1]), ordered[1:])
        refusals = [error for error in errors if isinstance(error, EngineError)]
        if refusals:
            self._undo()
            raise self._error(refusals[0]) from refusals[0]
        # the supervisor starts the rest when an engine that has the record is back
        unexpected = [error for error in errors if not isinstance(error, TransloadError)]
        if unexpected:
            self._undo()
            raise unexpected[0]
        return True

    def _start_one(self, container_id: str) -> None:
        self.engine.call(lambda api: api.start(container_id))

    def _undo(self) -> None:
        """Remove all that was made, the record first, so that a death in between leaves no job."""
        try:
            self._forget_own()
            in_parallel(lambda each: self.engine.remove_container(each[1]), self.made)
            release_checkpoints(self.engine, self.home, self.submission.checkpoints)
            if self.network:
                self.engine.remove_network(self.request.network)
        except (SchedulerUnavailable, EngineError):
            return  # the engine is gone, and the supervisor clears what has no record
        finally:
            self.home.remove_results(self.home.results_folder(self.app_id))
            self.home.remove_signs(self.app_id)

    def _forget_own(self) -> None:
        noted = self.engine.notes(self.app_id).get(self.app_id)
        if noted is not None and noted.plan is not None and noted.plan.uid == self.uid:
            self.engine.forget(self.app_id, RECORD)

    def _error(self, exc: Exception) -> Exception:
        if not isinstance(exc, EngineError):
            return SubmitError(f"job {self.app_id} was not started: {exc}")
        text = str(exc)
        if exc.code == CONFLICT and "name" in text:
            text += " It is not this job's: remove or rename it, or choose another job id"
        if _NO_POOL in text:
            text += " Each job of several replicas has a network: remove the unused ones (docker network prune)"
            return SubmitError(f"job {self.app_id} was not started: {text}", transient=True)
        if exc.code == NOT_FOUND and "network" in text:
            text += " (run option network)"
        if "device driver" in text:
            text += ": the engine has no GPUs to give (see transload doctor)"
        transient = exc.code >= SERVER_ERROR and not any(words in text for words in _PERMANENT)
        return SubmitError(f"job {self.app_id} was not started: {text}", transient=transient)


def renewed(engine: Engine, app_id: str, renewal: Renewal, network: str) -> None:
    """Make the container of a replica's next attempt, unless it is there already.

    Raises:
        EngineError: if the engine refuses.
    """
    last = renewal.last
    row = _row(engine, last)
    body = {
        **row["Config"],
        "Image": row["Image"],
        "HostConfig": row["HostConfig"],
    }  # its id: a tag may have moved
    labels = dict(body["Labels"])
    labels[names.LABEL_ATTEMPT] = str(renewal.attempt)
    labels[names.LABEL_RESTARTS] = renewal.restarts.to_text()
    counts = {"TRANSLOAD_RETRY": renewal.retry, "TRANSLOAD_INTERRUPTIONS": 0}
    if renewal.interruptions is not None:
        labels[names.LABEL_INTERRUPTIONS] = renewal.interruptions.to_text()
        counts["TRANSLOAD_INTERRUPTIONS"] = renewal.interruptions.replica
    body["Labels"] = labels
    kept = [item for item in body.get("Env") or () if item.partition("=")[0] not in counts]
    body["Env"] = [*kept, *(f"{name}={count}" for name, count in counts.items())]
    mode = row["HostConfig"].get("NetworkMode") or ""
    if network or mode not in ("", "default", "bridge", "host", "none"):
        host = labels.get(names.LABEL_HOST, "")
        body["NetworkingConfig"] = {"EndpointsConfig": {network or mode: {"Aliases": [host]}}}
    name = names.container_name(app_id, last.role, last.replica, renewal.attempt)
    try:
        engine.call(lambda api: api.create_container_from_config(body, name))
    except EngineError as exc:
        if exc.code != CONFLICT:
            raise


def _shown(submission: Submission) -> dict[str, object]:
    """Return the run options fit to be kept, in which values that look secret are masked."""
    cfg: dict[str, object] = {}
    for key, value in submission.cfg.items():
        if isinstance(value, dict):
            value = masked_env(value)
        cfg[key] = MASK if value and looks_secret(key) else value
    return cfg
