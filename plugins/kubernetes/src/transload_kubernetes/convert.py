"""From an `AppDef` to Kubernetes objects: an Indexed Job for each role and a headless Service.
Pure.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import SpecError, UnsupportedFeature
from transload.schedulers.api import Capabilities, Stream, refuse_unsupported
from transload.specs import (
    AppDef,
    BindMount,
    CfgVal,
    MountType,
    RetryPolicy,
    Role,
    parse_app_handle,
)
from transload_kubernetes import jobset as _jobset
from transload_kubernetes import names
from transload_kubernetes.names import Attempt
from transload_kubernetes.options import Options
from transload_kubernetes.overlay import merge
from transload_kubernetes.plan import RolePlan
from transload_kubernetes.pod import ROOT_KEY, Context, hidden, named_image, template

OVERLAY: Final = "kubernetes.job"
"""Key of a role's metadata: a strategic-merge overlay of its Job."""
_OWN: Final = {
    "metadata.name": "use an app id (run --name)",
    "metadata.namespace": "use the run option namespace",
    "spec.completions": "use the role's num_replicas",
    "spec.parallelism": "use the role's num_replicas",
    "spec.completionMode": "leave it out: replicas are told apart by their index",
    "spec.backoffLimit": "use the role's max_retries",
    "spec.backoffLimitPerIndex": "use the role's max_retries, with the policy REPLICA",
    "spec.maxFailedIndexes": "use the role's min_replicas",
    "spec.activeDeadlineSeconds": "use the app's timeout",
}
"""Fields of a Job that no overlay may hold, and what to do in their place."""

CAPABILITIES: Final = Capabilities(
    retries=frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION}),
    mounts=frozenset(MountType),
    ports=True,
    retry_delay=False,  # the cluster's own: 10 s, doubled up to 6 minutes
    # a cluster starts each pod when it has room for it; Kueue admits a Job, or a JobSet, as a whole
    gangs=False,
    since_until=True,
    streams=frozenset({Stream.COMBINED}),  # a cluster merges both
    shares_disk=False,
    delete=True,
    reachable_from="network",
)


@dataclass(slots=True)
class KubernetesRequest:
    """What is asked of a cluster for an app."""

    app_id: str
    namespace: str
    base: str  # what the names start with
    services: list[dict[str, Any]]
    jobs: list[
        dict[str, Any]
    ]  # in the first attempt; may be changed between a dry-run and the submit
    roles: list[RolePlan]  # how the app is kept
    # for the app's Secret: key → value of what looks secret; role and variable → key of what is
    # resolved at submit
    hidden: dict[str, str] = field(default_factory=dict, repr=False)
    references: dict[tuple[str, str], str] = field(default_factory=dict)
    timeout: float | None = None  # seconds for the whole app, or None
    jobset: dict[str, Any] | None = None  # instead of Services and Jobs
    source: AppDef | None = field(
        default=None, repr=False, compare=False
    )  # the app that it was made of

    def objects(self) -> list[dict[str, Any]]:
        """Return what is to be made, beside the app's record and Secret."""
        return [*self.services, *self.jobs, *([self.jobset] if self.jobset else [])]


def app_id_of(app: AppDef) -> str:
    """Return the id that the runner has put into the environment of an app; a placeholder where it
    has not.
    """
    handle = next(filter(None, (role.env.get("TRANSLOAD_JOB_ID") for role in app.roles)), None)
    return parse_app_handle(handle).app_id if handle else app.name


def convert(
    app: AppDef, cfg: Mapping[str, CfgVal], scheduler: str, app_id: str
) -> KubernetesRequest:
    """Return the request for an app whose ``${app_id}`` is replaced already, or refuse what cannot
    be, by its path.
    """
    refuse_unsupported(app, CAPABILITIES, scheduler)
    options = Options.of(cfg)
    base = names.base_name(app_id)
    single = sum(role.num_replicas for role in app.roles) == 1
    if options.jobset:
        _jobset.refuse(app)
    elif (
        options.text("queue")
        and len(app.roles) > 1
        and not (cfg.get("jobset") == "auto" and _jobset.is_wanted(app))
    ):
        raise queue_of_roles(app)
    least = options.cfg.get("queue_min_parallelism")
    if least is not None and (options.jobset or least > app.roles[0].num_replicas):
        what, field = f"run option queue_min_parallelism={least!r}", "queue_min_parallelism"
        if options.jobset:
            raise UnsupportedFeature(
                f"{what}: not possible with a JobSet: a queue admits it as a whole", field
            )
        role = app.roles[0]
        raise SpecError(
            f"{what}: must be 1 to {role.num_replicas}, the replicas of role {role.name!r}"
        )
    # the first replica's own name in a JobSet, which stays when that is started again; else its
    # Service
    rank0 = (
        f"{base}-{names.role_label(app.roles[0].name)}-0-0.{base}"
        if options.jobset
        else names.rank0_name(base)
    )
    context = Context(app_id, base, options, "localhost" if single else rank0)
    labels = {**options.map("labels"), names.LABEL_MANAGED: names.MANAGED, names.LABEL_APP: base}
    request = KubernetesRequest(
        app_id, options.text("namespace"), base, [], [], [], timeout=app.timeout, source=app
    )
    roles = [_with_native_policy(role, app) for role in app.roles]
    for index, role in enumerate(roles):
        image = named_image(role, options.text("image"), f"roles[{index}]")
        if (
            role.image.startswith("/") and not role.workspace
        ):  # it is mounted from the node, at the same path
            role.mounts = [*role.mounts, BindMount(role.image, role.image, read_only=True)]
            role.metadata = {**role.metadata, ROOT_KEY: role.image}
        role.image = image
        request.jobs.append(_job(role, f"roles[{index}]", context, labels, app.timeout))
        needed = role.num_replicas if role.min_replicas is None else role.min_replicas
        request.roles.append(
            RolePlan(
                role.name, role.num_replicas, needed, role.max_retries, role.retry_policy.value
            )
        )
        stored = [part for parts in hidden(role, context).values() for part in parts.items()]
        request.hidden.update({names.secret_key(role.name, name): value for name, value in stored})
        for name, source in role.secrets.items():
            if not source.startswith("k8s:"):
                request.references[role.name, name] = names.secret_key(role.name, name)
    if options.jobset:
        jobs, request.jobs = request.jobs, []
        request.jobset = _jobset.jobset(app_id, base, roles, jobs, labels, options)
    elif not single:
        request.services = _services(app, base, labels)
    return request


def queue_of_roles(app: AppDef) -> UnsupportedFeature:
    """Return the refusal of several Jobs in a queue: one may hold its GPUs while the other waits
    for its own.
    """
    reason = "several roles wait in a queue as one only as a JobSet, which the cluster must have installed"
    return UnsupportedFeature(
        f"roles: not possible with run option queue: {len(app.roles)} roles: {reason}", "roles"
    )


def _with_native_policy(role: Role, app: AppDef) -> Role:
    """Return the role with a policy that means the same here, and that the cluster follows by
    itself.
    """
    role, single = copy.copy(role), len(app.roles) == 1
    if role.num_replicas == 1 and (single or role.retry_policy is RetryPolicy.ROLE):
        role.retry_policy = RetryPolicy.REPLICA
    elif single and role.retry_policy is RetryPolicy.ROLE:
        role.retry_policy = RetryPolicy.APPLICATION
    return role


def _services(app: AppDef, base: str, labels: dict[str, str]) -> list[dict[str, Any]]:
    everything = {names.LABEL_APP: base}
    rank0 = {**everything, names.LABEL_ROLE: names.role_label(app.roles[0].name), names.INDEX: "0"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": dict(labels)},
            # replicas look for each other before they are ready
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
        }
        for name, selector in ((base, everything), (names.rank0_name(base), rank0))
    ]


def _job(
    role: Role, path: str, context: Context, labels: dict[str, str], timeout: float | None
) -> dict[str, Any]:
    options = context.options
    needed = role.num_replicas if role.min_replicas is None else role.min_replicas
    own = {
        **labels,
        names.LABEL_ROLE: names.role_label(role.name),
        names.LABEL_ATTEMPT: names.attempt_text((0, 0)),
    }
    pods = template(role, path, context)
    pods["metadata"]["labels"] = dict(own)
    ignored = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    spec = {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        "backoffLimitPerIndex": role.max_retries if role.retry_policy is RetryPolicy.REPLICA else 0,
        "maxFailedIndexes": role.num_replicas - needed,
        # pre-emption, eviction and lost nodes are no failures of the program
        "podFailurePolicy": {"rules": [ignored]},
        "template": pods,
    }
    if timeout is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(timeout))
    annotations = {names.ANNOTATION_APP_ID: context.app_id}
    if not options.jobset:  # else it is the JobSet that is deleted, and waits
        own.update(options.queue_labels())
        spec.update(options.of_the_whole())
        if least := options.text("queue_min_parallelism"):
            annotations[names.QUEUE_MIN] = least
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
    _refuse_own(options.overlay, "run option overlay")
    job = merge(job, options.overlay, "run option overlay")
    overlay = role.metadata.get(OVERLAY, {})
    if not isinstance(overlay, dict):
        raise SpecError(
            f"{path}.metadata[{OVERLAY!r}]: must be a mapping, a strategic-merge overlay of the Job"
        )
    _refuse_own(overlay, f"{path}.metadata[{OVERLAY!r}]")
    merged: dict[str, Any] = merge(job, overlay, f"{path}.metadata[{OVERLAY!r}]")
    return merged


def _refuse_own(overlay: Mapping[str, Any], path: str) -> None:
    """Refuse what a Job is known and counted by.

    Raises:
        SpecError: for the first such field, with what to use in its place.
    """
    spec = _mapping(overlay, "spec")
    places = {"metadata": _mapping(overlay, "metadata")}
    places["spec.template.metadata"] = _mapping(_mapping(spec, "template"), "metadata")
    for place, metadata in places.items():
        for kind in ("labels", "annotations"):
            for name in _mapping(metadata, kind):
                if str(name).startswith(names.OWN):
                    what = f"{place}.{kind}[{name!r}]"
                    raise SpecError(
                        f"{path}: {what} is set by transload itself: apps are found by it"
                    )
    given = {
        **{f"metadata.{name}": 0 for name in places["metadata"]},
        **{f"spec.{name}": 0 for name in spec},
    }
    for name in given:
        if name in _OWN:
            raise SpecError(f"{path}: {name} is set by transload itself; {_OWN[name]}")


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def later_attempt(
    job: dict[str, Any], base: str, role: str, attempt: Attempt, left: float | None
) -> dict[str, Any]:
    """Return the Job of a role for another attempt, from that of the first; ``left``: seconds of
    the timeout.
    """
    job = copy.deepcopy(job)
    text = names.attempt_text(attempt)
    job["metadata"]["name"] = names.job_name(base, role, attempt)
    pods = job["spec"]["template"]
    for metadata in (job["metadata"], pods["metadata"]):
        metadata["labels"][names.LABEL_ATTEMPT] = text
    for container in (*pods["spec"].get("initContainers", ()), *pods["spec"]["containers"]):
        for each in container.get("env", ()):
            if each["name"] == "TRANSLOAD_RETRY":
                each.clear()
                each.update({"name": "TRANSLOAD_RETRY", "value": str(sum(attempt))})
    if left is not None:
        job["spec"]["activeDeadlineSeconds"] = max(1, math.ceil(left))
    return job


def format_request(request: KubernetesRequest) -> str:
    """Return a request as YAML that ``kubectl`` takes, secret values masked."""
    import yaml  # type: ignore[import-untyped,unused-ignore]

    from transload.specs import MASK

    masked = dict.fromkeys(request.hidden, MASK)
    sources = {role.name: role.secrets for role in request.source.roles} if request.source else {}
    for (role, variable), key in request.references.items():
        source = sources.get(role, {}).get(variable)
        masked[key] = f"{MASK} from {source}" if source else MASK
    shown = [secret(request, dict(sorted(masked.items())))] if masked else []
    space = {"namespace": request.namespace}
    shown += [{**item, "metadata": {**item["metadata"], **space}} for item in request.objects()]
    shown = [_masked(item) for item in shown]
    return str(yaml.safe_dump_all(shown, sort_keys=False, allow_unicode=True, width=120))


def _masked(value: Any) -> Any:
    """Return part of a manifest with the secrets in words of commands, and in URLs, masked."""
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
    """Return the app's Secret."""
    labels = {names.LABEL_MANAGED: names.MANAGED, names.LABEL_APP: request.base}
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
