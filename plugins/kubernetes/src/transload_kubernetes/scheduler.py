"""The scheduler ``kubernetes``, which runs jobs as Indexed Jobs of a cluster."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from transload.errors import (
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    SpecError,
    UnsupportedFeature,
)
from transload.schedulers.api import (
    AppDescription,
    CheckpointFolder,
    ExecCommand,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Stream,
    Submission,
    Watch,
    cancel_each,
    check_replica,
)
from transload.schedulers.asked import host_of
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
)
from transload_kubernetes import (
    advice,
    checkpoints,
    names,
    plan,
    results,
    states,
)
from transload_kubernetes import convert as _convert
from transload_kubernetes import packages as _packages
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.collect import store_of
from transload_kubernetes.decide import Decision, is_half_submitted
from transload_kubernetes.diagnose import diagnose
from transload_kubernetes.jobset import is_wanted
from transload_kubernetes.logs import Logs
from transload_kubernetes.lookup import Lookup
from transload_kubernetes.options import KubernetesConnection, KubernetesOptions, refuse_short_ttl
from transload_kubernetes.owner import Owner
from transload_kubernetes.plan import Facts, Plan
from transload_kubernetes.roles import replica_pods
from transload_kubernetes.submit import Submitter
from transload_kubernetes.watch import ClusterWatch
from transload_kubernetes.workspace import with_images, with_uploads

if TYPE_CHECKING:
    from transload.runtime.tracking import Store
    from transload.schedulers.environments import Packages

_log = logging.getLogger("transload.kubernetes")
_DELETE_S: Final = 70.0
_FIRST_LOOK_S: Final = 0.1
_SIGNAL_S: Final = 30.0
_SIGNAL: Final = """
main=
for process in /proc/[0-9]*; do
    [ "$process/ns/mnt" -ef /proc/self/ns/mnt ] || continue
    pid=${{process#/proc/}}
    if [ -z "$main" ] || [ "$pid" -lt "$main" ]; then main=$pid; fi
done
kill -{name} "$main"
"""
"""Signals the first process of a container, which is not always 1: a pod's containers may share pids."""
_LOOKED_S: Final = 1.0  # readers of logs share the facts of a job for this long


class KubernetesScheduler(SchedulerBase[KubernetesOptions]):
    """Runs jobs as Indexed Jobs of a Kubernetes cluster.

    Args:
        session_name: name of the session, kept with each job.
        name: name of the scheduler.
    """

    name = "kubernetes"
    secret_kinds = frozenset({"k8s"})
    # not "retry_delay": a cluster has its own, 10 s, doubled up to 6 minutes
    fields = frozenset({"roles", "num_replicas", "min_replicas", "port_map", "timeout"})
    retries = frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION})
    mounts = frozenset(MountType)
    notice_signals = frozenset({"TERM"})  # kubelet's own signal, the only one
    streams = frozenset({Stream.COMBINED})  # a cluster merges both
    since_until = True
    shares_disk = False
    options = KubernetesOptions
    connection = KubernetesConnection

    def __init__(self, session_name: str, name: str = "kubernetes") -> None:
        self.session = session_name
        self.name = name
        self._looked: dict[str, tuple[float, Facts]] = {}  # job id → when it was read, and facts
        self._lock = threading.Lock()
        self.connect(KubernetesConnection())

    def connect(self, connection: KubernetesConnection) -> None:
        """Use the cluster that these settings select. Nothing is sent yet."""
        self._cluster = Cluster(connection.context, connection.kubeconfig)
        self._lookup = Lookup(self._cluster)
        self._owner = Owner(self._cluster, self._lookup)
        self._submitter = Submitter(self._cluster, self._lookup, self._owner)
        self._logs = Logs(self._cluster)

    def location(self) -> str:
        """Return the context and the configuration file that select the cluster."""
        return self._cluster.location

    def qualified_id(self, app_id: str, opts: KubernetesOptions) -> str:
        """Return ``namespace:name``, because a job can only be found in its namespace."""
        if ":" in app_id:
            return app_id
        return f"{opts.namespace or self._cluster.namespace}:{app_id}"

    # -- submitting

    def convert(self, app: AppDef, opts: KubernetesOptions) -> _convert.KubernetesRequest:
        """Return the objects to create, a Job for each role and Services, without creating any."""
        opts = replace(opts, namespace=opts.namespace or self._cluster.namespace)
        return _convert.convert(app, opts, self.name, _convert.app_id_of(app))

    def format_request(self, request: _convert.KubernetesRequest) -> str:
        """Return a request as YAML, secrets masked."""
        return _convert.format_request(request)

    def takes_workspace(self, opts: KubernetesOptions) -> bool:
        """Tell whether the run options name a place through which workspaces reach the cluster."""
        return bool(opts.image_repo or opts.workspace_url)

    def with_packages(self, role: Role, packages: Packages, opts: KubernetesOptions) -> Role:
        """Return a role that is started by the uv of its image. Secrets stay references."""
        return _packages.with_packages(role, packages)

    def bring_packages(
        self,
        role: Role,
        packages: Packages,
        opts: KubernetesOptions,
        variables: Mapping[str, str],
    ) -> None:
        """Say what the image needs. The packages travel in the pod's own description."""
        _packages.name_the_line(role)

    def prepare(self, app: AppDef, opts: KubernetesOptions) -> AppDef:
        """Upload the workspaces of roles, or push images with them, unless they exist already."""
        if opts.image_repo:
            return with_images(app, opts.image_repo, opts.image or "", opts.architecture())
        return with_uploads(app, opts.workspace_url or "")

    def submit(
        self, request: _convert.KubernetesRequest, app_id: str, submission: Submission
    ) -> bool:
        """Start the job under ``app_id``, all or nothing, or reattach to it.

        Returns:
            Whether this call has started it.
        """
        return self._submitter.submit(self._bound(request, app_id, submission), app_id, submission)

    def _bound(
        self, request: _convert.KubernetesRequest, app_id: str, submission: Submission
    ) -> _convert.KubernetesRequest:
        """Return the request for the id that the job gets, adjusted to what the cluster has."""
        namespace, _ = names.parse_app_id(app_id)
        if namespace != request.namespace:
            named = f"run option namespace={request.namespace!r}"
            raise SpecError(
                f"app_id={app_id!r}: its namespace must be that of {named}; change one of them"
            )
        opts = replace(KubernetesOptions.read(submission.cfg), namespace=namespace)
        if host_of(submission.asked) is not None:
            refuse_short_ttl(opts.ttl)
        app = request.source or submission.app
        is_set = False
        if opts.jobset == "auto" and request.jobset is None and is_wanted(app):
            if self._cluster.has_jobsets(namespace):
                is_set = True
            elif opts.queue and len(app.roles) > 1:
                raise _convert.queue_of_roles(app, "auto")
        if request.app_id == app_id and not is_set:
            return request
        if request != _convert.convert(app, opts, self.name, request.app_id):
            if request.app_id == app_id:
                return request  # the caller has changed it on purpose
            raise ConfigError(
                f"app_id={app_id!r}: the request was changed after it was made for "
                f"{request.app_id!r}; submit it under that id"
            )
        if is_set:
            opts = replace(opts, jobset="always")
        return _convert.convert(app, opts, self.name, app_id)

    # -- afterwards

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return the descriptions of jobs, with three queries for each namespace.

        Of one job alone, it is also asked why it waits.
        """
        if len(app_ids) == 1:
            (app_id,) = app_ids
            return {app_id: self._description(app_id, self._facts(app_id), explained=True)}
        places = {app_id: names.place(app_id) for app_id in app_ids}
        facts: dict[tuple[str, str], Facts] = {}
        for namespace in {namespace for namespace, _ in places.values()}:
            bases = {base for space, base in places.values() if space == namespace}
            facts |= self._lookup.many(namespace, bases)
        found: dict[str, AppDescription | None] = {}
        for app_id, place in places.items():
            found[app_id] = self._description(app_id, facts.get(place, Facts()))
        return found

    def _description(
        self, app_id: str, facts: Facts, *, explained: bool = False
    ) -> AppDescription | None:
        if facts.kind != plan.APP or is_half_submitted(facts, self._cluster.now()):
            return None
        decision = self._owner.decision(app_id, facts, explained=explained)
        made = facts.plan
        if made is None:
            return AppDescription(app_id, decision.status)
        self._say_what_to_do(app_id, made, decision)
        decision.status.engine = _in_cluster(app_id, facts)
        app = None
        with contextlib.suppress(SpecError):  # of a newer schema
            app = AppDef.from_json(facts.data.get("app", ""))
        return AppDescription(
            app_id,
            decision.status,
            app=app,
            session=made.session,
            cfg=dict(made.cfg),
            digest=made.digest,
            tracker_base=made.tracker_base,
            parent_run_id=made.parent_run_id,
            created=made.created,
            needs_reconcile=decision.due,
            checkpoints=made.checkpoints,
            asked=dict(made.asked or {}),
        )

    def _say_what_to_do(self, app_id: str, made: Plan, decision: Decision) -> None:
        """Add to the status what a person can do about a job that may wait forever."""
        status = decision.status
        if status.state not in (AppState.PENDING, AppState.SUBMITTED):
            return
        handle = make_app_handle(self.name, made.session, app_id)
        remedy = advice.on_waiting(status.msg)
        if decision.is_left:
            status.msg += f"; to start it: transload wait {handle}"
        elif remedy is None:
            return
        else:
            status.msg += f"{remedy}; it waits until that is fixed"
        status.msg += f"; to end it: transload cancel {handle}"

    def reconcile(self, app_id: str) -> None:
        """Do the steps that the cluster's controllers cannot do. This may be repeated.

        These are to note the end, to end other roles, and to restart roles.
        """
        with contextlib.suppress(ClusterError):  # this user may only read
            self._owner.reconcile(app_id)

    def existed(self, app_id: str) -> bool:
        """Tell whether a job has or had this id.

        A deleted job counts only if the caller gave its id.
        """
        facts = self._lookup.facts(app_id)
        return facts.kind is not None and not is_half_submitted(facts, self._cluster.now())

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, deleted ones too, by their label (see the base)."""
        namespace, chain = names.parse_app_id(prefix)
        found: dict[int, AppDescription | None] = {}
        for facts in self._lookup.chain(namespace, names.chain_label(prefix)).values():
            app_id = facts.app_id
            number = number_in_chain(chain, names.parse_app_id(app_id)[1])
            if number is not None and not is_half_submitted(facts, self._cluster.now()):
                found[number] = self._description(app_id, facts)
        return sorted(found.items(), key=lambda each: each[0])

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch | None:
        """Return a new watch, with a few connections for each namespace."""
        return ClusterWatch(self._cluster, changed)

    def list(self) -> list[ListAppResponse]:
        """Return the jobs of the namespace that the settings name, newest first.

        If they name none, it is the jobs of all namespaces, as far as this user may list them.
        """
        seen = self._seen()
        known = sorted(self._known(seen), key=lambda each: each[0].created, reverse=True)
        rows: list[ListAppResponse] = []
        for made, decision in known:
            status = decision.status
            row = ListAppResponse(made.app_id, status.state)
            row.name = made.name
            row.created = made.created
            row.session = made.session
            rows.append(row)
        for facts in seen:
            if facts.unreadable:
                rows.append(ListAppResponse(facts.app_id, AppState.UNKNOWN))
        return rows

    def _seen(self) -> Sequence[Facts]:
        """Return the facts of all jobs that can be listed."""
        namespace = self.defaults().get("namespace")
        if namespace:
            return [*self._lookup.many(str(namespace)).values()]
        return [*self._lookup.all(self._cluster.namespace).values()]

    def _known(self, seen: Sequence[Facts]) -> Iterator[tuple[Plan, Decision]]:
        """Yield the plan of each job that has a readable record, and the decision on it."""
        for facts in seen:
            if facts.plan is not None and not is_half_submitted(facts, self._cluster.now()):
                yield facts.plan, self._owner.decision(facts.plan.app_id, facts)

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete jobs that ended more than ``older_than`` seconds ago, and return their ids."""
        if max_size is not None:
            raise UnsupportedFeature(
                "max_size: a cluster does not report the size of a job; use older_than", "max_size"
            )
        if older_than is None:
            return []
        if now is None:
            now = self._cluster.now()
        old: list[tuple[float, str]] = []
        for made, decision in self._known(self._seen()):
            if not decision.status.is_terminal():
                continue
            end = _end_time(decision.status) or made.created
            if now - end >= older_than:
                old.append((end, made.app_id))
        app_ids = [app_id for _, app_id in sorted(old)]
        if not dry_run:
            for app_id in app_ids:
                self.delete(app_id)
        return app_ids

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """End jobs within seconds.

        A job that has ended is not changed.

        Returns:
            Those of the ids that there are jobs of.

        Raises:
            SchedulerUnavailable: if one could not be asked to end.
        """
        return cancel_each(app_ids, self._owner.cancel)

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas' containers, by their own shells.

        Raises:
            SchedulerUnavailable: if an image has no shell, or the cluster refuses.
        """
        words = ["sh", "-c", _SIGNAL.format(name=name)]
        for role, k in replicas:
            made = self.exec_command(app_id, role, k, words, terminal=False)
            try:
                done = subprocess.run(
                    made.argv,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_SIGNAL_S,
                    check=False,
                )
            except subprocess.TimeoutExpired as exc:
                raise SchedulerUnavailable(f"{role}/{k}: kubectl did not answer in time") from exc
            if done.returncode:
                said = " ".join(done.stderr.decode("utf-8", "replace").split())
                raise SchedulerUnavailable(f"{role}/{k}: the signal was not sent: {said}")

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how kubectl runs a command in a replica's container."""
        facts = self._facts(app_id)
        if facts.plan is None:
            raise AppNotFound(app_id)
        check_replica(app_id, {each.name: each.replicas for each in facts.plan.roles}, role, k)
        running = [
            pod
            for pod in replica_pods(facts, role, k)
            if states.program(pod, "running") and not pod["metadata"].get("deletionTimestamp")
        ]
        if not running:
            raise SpecError(f"{role}/{k}: it does not run (any more)")
        meta = running[-1]["metadata"]
        where = ["--namespace", meta["namespace"], meta["name"], "--container", names.MAIN]
        options = ["--stdin", "--tty"] if terminal else ["--stdin"]
        return ExecCommand([*self._cluster.kubectl(), "exec", *options, *where, "--", *command])

    def delete(self, app_id: str) -> bool:
        """Delete a job, after ending it if it runs.

        If the caller gave the id, an empty record of it stays.

        Returns:
            False if there is no such job.
        """
        facts = self._lookup.facts(app_id)
        if facts.kind != plan.APP:
            return False
        if facts.unreadable:
            self._delete_damaged(app_id, facts)
            return True
        if not self._owner.decision(app_id, facts).status.is_terminal():
            self._owner.cancel(app_id)
            facts = self._ended(app_id, facts)
        if facts.kind == plan.APP:
            self._owner.forget(app_id, facts)
        return True

    def _delete_damaged(self, app_id: str, facts: Facts) -> None:
        """Delete a job whose record is damaged, after its pods had their grace period to end.

        Raises:
            SchedulerUnavailable: if a newer version wrote the record, the cluster refuses, or a pod
                does not end.
        """
        self._owner.end_damaged(app_id, facts)
        deadline = time.monotonic() + _DELETE_S + states.grace_of(facts.pods)
        pause = _FIRST_LOOK_S
        while facts.jobs or facts.pods:
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(_does_not_end(app_id))
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
            facts = self._lookup.facts(app_id)
        self._owner.forget_damaged(app_id)

    def _ended(self, app_id: str, facts: Facts) -> Facts:
        """Wait until a cancelled job has ended, and return its facts."""
        deadline = time.monotonic() + _DELETE_S + states.grace_of(facts.pods)
        pause = _FIRST_LOOK_S
        while time.monotonic() < deadline:
            time.sleep(pause)
            pause = backoff(pause, 1.0)
            facts = self._lookup.facts(app_id)
            if facts.kind != plan.APP:
                return facts
            if self._owner.decision(app_id, facts).status.is_terminal():
                return facts
        raise SchedulerUnavailable(_does_not_end(app_id))

    def expand_user(self, path: str) -> str:
        """Refuse a path with ``~``, since the home of an image's user is not known.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"tracker_base={path!r}: the home folder in a container is not known here: give an "
            "absolute path of a volume, or a URL"
        )

    def results_store(self, app_id: str) -> results.PodStore | None:
        """Return the results in the pods' status, or None if the job was given another place."""
        return store_of(app_id, self._lookup.facts(app_id), self._cluster.now())

    def checkpoint_folder(self, name: str, role: Role, opts: KubernetesOptions) -> str | None:
        """Return the folder of a role's checkpoints in its containers.

        Raises:
            UnsupportedFeature: if no claim is named for them.
        """
        checkpoints.refuse_without_claim(role, opts, "checkpoints")
        return checkpoints.folder_of(name, role.name)

    def checkpoints(self, app_id: str) -> Sequence[CheckpointFolder]:
        """Return the folders of checkpoints of a job, with size and age if they are in reach."""
        return checkpoints.found(self._plan(app_id))

    def checkpoint_store(self, app_id: str, role: str) -> Store | None:
        """Return the checkpoints of a role, or None if their claim is not mounted here."""
        return checkpoints.store(self._plan(app_id), role)

    def _plan(self, app_id: str) -> Plan:
        made = self._facts(app_id).plan
        if made is None:
            raise AppNotFound(app_id)
        return made

    # -- logs

    def _facts(self, app_id: str, age: float = 0.0) -> Facts:
        """Return the facts of a job, which may be up to ``age`` seconds old.

        The readers of its replicas' logs share them.
        """
        with self._lock:
            moment, facts = self._looked.get(app_id, (0.0, None))
        if facts is None or time.monotonic() - moment > age:
            moment = time.monotonic()
            facts = self._lookup.facts(app_id)
            with self._lock:
                self._looked = {
                    key: old for key, old in self._looked.items() if moment - old[0] < _LOOKED_S
                }
                self._looked[app_id] = (moment, facts)
        return facts

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next page of a log without waiting. Kubernetes merges stdout and stderr."""
        age = _LOOKED_S if query.cursor else _LOOKED_S / 4
        return self._logs.page(partial(self._facts, app_id, age), app_id, query)

    def why_no_log(self, app_id: str, role_name: str, k: int) -> str:
        """Return why the log of a replica is empty, or ``""`` if it has written nothing."""
        facts = self._facts(app_id)
        if facts.plan is None:
            return ""
        pods = replica_pods(facts, role_name, k)
        status = self._owner.decision(app_id, facts, explained=True).status
        if any(map(states.has_begun, pods)):
            return ""
        if not status.is_terminal():
            return status.msg or "none of its pods has started yet"
        if pods:
            return f"its pod never started; {status.msg}".rstrip("; ")
        if facts.stop is not None and facts.stop.kind == "cancel":
            return "its pod was removed when the job was cancelled, and the log with it"
        gone = "its pod is no longer on the cluster, and the log is gone with it"
        if not status.msg:
            return gone
        return f"{gone}; {status.msg}"

    # -- rest

    def diagnose(self) -> list[tuple[str, bool, str]]:  # type: ignore[valid-type]  # ``list`` is a method here
        """Return the checks of ``transload doctor``, each ``(check, ok, details)``."""
        namespace = self.defaults().get("namespace") or self._cluster.namespace
        return diagnose(self._cluster, str(namespace))

    def close(self) -> None:
        """Close connections. Jobs go on, and it may be called more than once."""
        self._logs.close()
        self._cluster.close()


def _in_cluster(app_id: str, facts: Facts) -> dict[str, str]:
    """Return the names of a job's objects, as far as they are there."""
    namespace, _ = names.place(app_id)
    objects = {"jobs": facts.jobs, "pods": facts.pods}
    if facts.jobset is not None:
        objects = {"jobset": [facts.jobset], **objects}
    return {
        "namespace": namespace,
        **{
            kind: ", ".join(sorted(each["metadata"]["name"] for each in found))
            for kind, found in objects.items()
            if found
        },
    }


def _does_not_end(app_id: str) -> str:
    pods = f"kubectl get pods -l {names.LABEL_APP}={names.base_name(app_id)}"
    return f"job {app_id} does not end, because one of its pods does not; see {pods}"


def _end_time(status: AppStatus) -> float:
    """Return when the last replica ended, in seconds since the epoch, or 0 if it is unknown."""
    replicas = [replica for role in status.roles for replica in role.replicas]
    return max((replica.end_time or 0.0 for replica in replicas), default=0.0)


create_scheduler: Final = KubernetesScheduler
"""Makes the scheduler ``kubernetes``."""
