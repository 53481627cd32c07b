"""Convert an `AppDef` to Kubernetes objects, an Indexed Job for each role, and Services.

This is pure. It sends no request and reads no file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import SpecError, UnsupportedFeature
from transload.specs import (
    AppDef,
    BindMount,
    RetryPolicy,
    Role,
    parse_app_handle,
)
from transload_kubernetes import jobset as _jobset
from transload_kubernetes import names
from transload_kubernetes.checkpoints import refuse_without_claim
from transload_kubernetes.interruptions import failure_rule, refuse_bound
from transload_kubernetes.names import Attempt
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.overlay import merge
from transload_kubernetes.plan import RolePlan
from transload_kubernetes.pod import ROOT_KEY, Context, hidden, named_image, template

OVERLAY: Final = "kubernetes.job"
"""Key of a role's metadata for an overlay of its Job, applied by strategic merge."""
_OWN: Final = {
    "metadata.name": "name the job (run --name)",
    "metadata.namespace": "use the run option namespace",
    "spec.completions": "use the role's num_replicas",
    "spec.parallelism": "use the role's num_replicas",
    "spec.completionMode": "leave it out, because replicas need an index",
    "spec.backoffLimit": "use the role's max_retries",
    "spec.backoffLimitPerIndex": "use the role's max_retries, with the policy REPLICA",
    "spec.maxFailedIndexes": "use the role's min_replicas",
    "spec.activeDeadlineSeconds": "use the timeout of the app definition",
}
"""Fields of a Job that an overlay may not contain, and what to use in their place."""


@dataclass(slots=True)
class KubernetesRequest:
    """The objects that a submit creates for a job.

    Attributes:
        app_id: the id of the job.
        namespace: the namespace of its objects.
        base: the prefix of their names.
        services: its Services.
        jobs: its Jobs of the first attempt. A caller may change them before the submit.
        roles: how its roles are run, for its record.
        hidden: values that look secret, for the job's Secret, by key.
        references: keys of the job's Secret, by role and variable. Submit resolves their values.
        timeout: seconds for the whole job, or None for no limit.
        jobset: its JobSet, in place of Services and Jobs.
        source: the app definition from which the request was made.
    """

    app_id: str
    namespace: str
    base: str
    services: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    roles: list[RolePlan]
    hidden: dict[str, str] = field(default_factory=dict, repr=False)
    references: dict[tuple[str, str], str] = field(default_factory=dict)
    timeout: float | None = None
    jobset: dict[str, Any] | None = None
    source: AppDef | None = field(default=None, repr=False, compare=False)

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects to create, except for the job's record and Secret."""
        found = [*self.services, *self.jobs]
        if self.jobset:
            found.append(self.jobset)
        return found


def app_id_of(app: AppDef) -> str:
    """Return the id that the runner put into the environment, or else the app's name."""
    for role in app.roles:
        handle = role.env.get("TRANSLOAD_JOB_ID")
        if handle:
            return parse_app_handle(handle).app_id
    return app.name


def convert(
    app: AppDef, options: KubernetesOptions, scheduler: str, app_id: str
) -> KubernetesRequest:
    """Return the request for a job.

    Args:
        app: the app definition, with ``${app_id}`` already replaced.
        options: the run options.
        scheduler: the name of the scheduler, for messages.
        app_id: the id of the job.

    Raises:
        SpecError: if a value is not allowed. The message has its path.
        UnsupportedFeature: if this scheduler does not support a field. The message has its path.
    """
    _refuse_for_queue(app, options)
    base = names.base_name(app_id)
    is_single = sum(role.num_replicas for role in app.roles) == 1
    context = Context(app_id, base, options, _rank0_host(app, base, options, is_single=is_single))
    labels = {**options.labels, **names.id_labels(app_id)}
    request = KubernetesRequest(
        app_id=app_id,
        namespace=options.namespace or names.DEFAULT_NAMESPACE,
        base=base,
        services=[],
        jobs=[],
        roles=[],
        timeout=app.timeout,
        source=app,
    )
    roles = [_with_native_policy(role, app) for role in app.roles]
    for index, role in enumerate(roles):
        path = f"roles[{index}]"
        refuse_bound(role, path)
        refuse_without_claim(role, options, f"{path}.checkpoints")
        image = named_image(role, options.image or "", path)
        if role.image.startswith("/") and not role.workspace:
            # a folder of the node is mounted at the same path
            role.mounts = [*role.mounts, BindMount(role.image, role.image, read_only=True)]
            role.metadata = {**role.metadata, ROOT_KEY: role.image}
        role.image = image
        request.jobs.append(_job(role, path, context, labels, app.timeout))
        request.roles.append(_role_plan(role))
        for parts in hidden(role, context).values():
            for name, value in parts.items():
                request.hidden[names.secret_key(role.name, name)] = value
        for name, source in role.secrets.items():
            if not source.startswith("k8s:"):
                request.references[role.name, name] = names.secret_key(role.name, name)
    if options.makes_jobset:
        request.jobset = _jobset.jobset(app_id, base, roles, request.jobs, labels, options)
        request.jobs = []
    elif not is_single:
        request.services = _services(app, base, labels)
    return request


def _refuse_for_queue(app: AppDef, options: KubernetesOptions) -> None:
    """Refuse an app definition that cannot be a JobSet or cannot wait in a queue."""
    if options.makes_jobset:
        _jobset.refuse(app)
    elif options.queue and len(app.roles) > 1:
        may_become_set = options.jobset == "auto" and _jobset.is_wanted(app)
        if not may_become_set:
            raise queue_of_roles(app, options.jobset)
    least = options.queue_min_parallelism
    if least is not None and options.makes_jobset:
        option = f"run option queue_min_parallelism={least!r}"
        why = "not possible with a JobSet, because a queue admits it as a whole; leave it out"
        raise UnsupportedFeature(f"{option}: {why}", "queue_min_parallelism")


def _rank0_host(app: AppDef, base: str, options: KubernetesOptions, *, is_single: bool) -> str:
    """Return the host name of the first replica of the first role."""
    if is_single:
        return "localhost"
    if options.makes_jobset:
        # the pod's own name stays the same when the JobSet is restarted
        return f"{base}-{names.role_label(app.roles[0].name)}-0-0.{base}"
    return names.rank0_name(base)


def _role_plan(role: Role) -> RolePlan:
    """Return the record's entry for a role."""
    return RolePlan(
        name=role.name,
        replicas=role.num_replicas,
        needed=role.needed_replicas,
        retries=role.max_retries,
        policy=role.retry_policy.value,
        checkpoints=role.checkpoints,
    )


def queue_of_roles(app: AppDef, jobset: str) -> UnsupportedFeature:
    """Return the error for several Jobs in a queue.

    Without a JobSet, one of them might hold its GPUs while the other waits for its own.

    Args:
        app: the app definition.
        jobset: the run option of that name.
    """
    reason = "the cluster has none; install JobSet on the cluster"
    if jobset == "never":
        reason = "run option jobset=never forbids one; leave that out"
    try:
        _jobset.refuse(app)
    except UnsupportedFeature as exc:
        reason = f"it cannot be one: {exc}; change that"
    return UnsupportedFeature(
        f"roles: {len(app.roles)} roles with run option queue: a queue admits several roles "
        f"together only as a JobSet, and {reason}, or leave out run option queue",
        "roles",
    )


def _with_native_policy(role: Role, app: AppDef) -> Role:
    """Return a copy of a role whose retry policy the cluster itself can follow, if there is one."""
    role = copy.copy(role)
    is_only_role = len(app.roles) == 1
    if role.num_replicas == 1 and (is_only_role or role.retry_policy is RetryPolicy.ROLE):
        role.retry_policy = RetryPolicy.REPLICA
    elif is_only_role and role.retry_policy is RetryPolicy.ROLE:
        role.retry_policy = RetryPolicy.APPLICATION
    return role


def _services(app: AppDef, base: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    """Return the Service for all pods of a job, and the Service for its first replica."""
    all_pods = {names.LABEL_APP: base}
    rank0 = {**all_pods, names.LABEL_ROLE: names.role_label(app.roles[0].name), names.INDEX: "0"}
    return [
        _service(base, labels, all_pods),
        _service(names.rank0_name(base), labels, rank0),
    ]


def _service(name: str, labels: dict[str, str], selector: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(labels)},
        # replicas look for each other before they are ready
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
    }


def _job(
    role: Role, path: str, context: Context, labels: dict[str, str], timeout: float | None
) -> dict[str, Any]:
    """Return the Job of a role in its first attempt."""
    options = context.options
    retries = 0
    if role.retry_policy is RetryPolicy.REPLICA:
        retries = role.max_retries
    own = {
        **labels,
        names.LABEL_ROLE: names.role_label(role.name),
        names.LABEL_ATTEMPT: names.attempt_text((0, 0)),
    }
    pods = template(role, path, context)
    pods["metadata"]["labels"] = dict(own)
    spec = {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        "backoffLimitPerIndex": retries,
        "maxFailedIndexes": role.num_replicas - role.needed_replicas,
        "template": pods,
    }
    spec["podFailurePolicy"] = {"rules": [failure_rule(role)]}
    if timeout is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(timeout))
    annotations = {names.ANNOTATION_APP_ID: context.app_id}
    if not options.makes_jobset:  # otherwise they belong to the JobSet
        own.update(options.queue_labels())
        spec.update(options.of_the_whole())
        least = options.queue_min_parallelism
        if least is not None and least < role.num_replicas:  # Kueue refuses all of them
            annotations[names.QUEUE_MIN] = str(least)
    metadata = {
        "name": names.job_name(context.base, role.name),
        "labels": own,
        "annotations": annotations,
    }
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec,
    }
    _refuse_own(options.merged(), "run option overlay")
    job = merge(job, options.merged(), "run option overlay")
    overlay = role.metadata.get(OVERLAY, {})
    if not isinstance(overlay, dict):
        raise SpecError(
            f"{path}.metadata[{OVERLAY!r}]: must be a mapping with fields to merge into the Job"
        )
    _refuse_own(overlay, f"{path}.metadata[{OVERLAY!r}]")
    merged: dict[str, Any] = merge(job, overlay, f"{path}.metadata[{OVERLAY!r}]")
    return merged


def _refuse_own(overlay: Mapping[str, Any], path: str) -> None:
    """Refuse an overlay that sets fields by which transload finds or controls a Job.

    Raises:
        SpecError: for the first such field. The message says what to use in its place.
    """
    metadata = _mapping(overlay, "metadata")
    spec = _mapping(overlay, "spec")
    of_pods = _mapping(_mapping(spec, "template"), "metadata")
    _refuse_own_marks(metadata, "metadata", path)
    _refuse_own_marks(of_pods, "spec.template.metadata", path)
    given = [f"metadata.{name}" for name in metadata]
    given += [f"spec.{name}" for name in spec]
    for name in given:
        if name in _OWN:
            raise SpecError(f"{path}: {name} is set by transload; {_OWN[name]}")


def _refuse_own_marks(metadata: Mapping[str, Any], place: str, path: str) -> None:
    """Refuse labels and annotations by which jobs are found."""
    for kind in ("labels", "annotations"):
        for name in _mapping(metadata, kind):
            if str(name).startswith(names.OWN):
                what = f"{place}.{kind}[{name!r}]"
                raise SpecError(f"{path}: {what} is set by transload, to find jobs; leave it out")


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field of an overlay that should be a mapping, or {} if it is not one."""
    found = value.get(name)
    if not isinstance(found, Mapping):
        return {}
    return found


def later_attempt(
    job: dict[str, Any],
    base: str,
    role: str,
    attempt: Attempt,
    left: float | None,
    interrupted: int = 0,
) -> dict[str, Any]:
    """Return the Job of a role for a later attempt.

    Args:
        job: the Job of the first attempt.
        base: the prefix of the names of the job's objects.
        role: the name of the role.
        attempt: the later attempt.
        left: the seconds that are left of the timeout, or None for no limit.
        interrupted: how many attempts began because of an interruption.
    """
    job = copy.deepcopy(job)
    text = names.attempt_text(attempt)
    job["metadata"]["name"] = names.job_name(base, role, attempt)
    pods = job["spec"]["template"]
    for metadata in (job["metadata"], pods["metadata"]):
        metadata["labels"][names.LABEL_ATTEMPT] = text
    counts = {"TRANSLOAD_RETRY": max(0, sum(attempt) - interrupted)}
    if interrupted:
        counts["TRANSLOAD_INTERRUPTIONS"] = interrupted
        job["metadata"]["annotations"][names.ANNOTATION_INTERRUPTIONS] = str(interrupted)
    for container in (*pods["spec"].get("initContainers", ()), *pods["spec"]["containers"]):
        for each in container.get("env", ()):
            name = each["name"]
            if name in counts:
                each.clear()
                each.update({"name": name, "value": str(counts[name])})
    if left is not None:
        job["spec"]["activeDeadlineSeconds"] = max(1, math.ceil(left))
    return job


def format_request(request: KubernetesRequest) -> str:
    """Return a request as YAML that ``kubectl`` accepts, with secret values masked."""
    import yaml  # type: ignore[import-untyped,unused-ignore]

    from transload.specs import MASK

    masked = dict.fromkeys(request.hidden, MASK)
    sources: dict[str, dict[str, str]] = {}
    if request.source is not None:
        sources = {role.name: role.secrets for role in request.source.roles}
    for (role, variable), key in request.references.items():
        source = sources.get(role, {}).get(variable)
        masked[key] = MASK
        if source:
            masked[key] += f" from {source}"
    objects = []
    if masked:
        objects.append(secret(request, dict(sorted(masked.items()))))
    for item in request.objects():
        metadata = {**item["metadata"], "namespace": request.namespace}
        objects.append({**item, "metadata": metadata})
    shown = [_masked(item) for item in objects]
    return str(yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True, width=120))


def _masked(value: Any) -> Any:
    """Return a part of a manifest with the secrets in commands and URLs masked."""
    from transload.specs import masked_args, masked_url

    if isinstance(value, str):
        return masked_url(value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: _masked(item) for name, item in value.items()}
    for name in ("command", "args"):
        if isinstance(value.get(name), list):
            found[name] = masked_args(value[name])
    return found


def secret(request: KubernetesRequest, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the job's Secret."""
    labels = names.id_labels(request.app_id)
    metadata = {
        "name": names.secret_name(request.base),
        "namespace": request.namespace,
        "labels": labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "stringData": dict(values),
    }
