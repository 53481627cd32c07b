"""Define and check the run options of the scheduler."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from transload.errors import ConfigError
from transload.specs import Connection, LocalPath, Options, option
from transload.specs.values import Count, at_least
from transload_kubernetes import names

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ARCHITECTURE: Final = "kubernetes.io/arch"
QUEUED: Final = ("queue_priority", "queue_topology", "queue_min_parallelism")
"""Options that only apply to a queue."""
_TOPOLOGY: Final = re.compile(r"(required|preferred):(\S+)\Z")
FORMS: Final = {
    "namespace": (names.NAMESPACE, "1 to 63 lower-case letters, digits and '-'"),
    "queue_topology": (_TOPOLOGY, "required|preferred:LABEL"),
    "image_repo": (re.compile(r"([^@/][^@]*/)?[^@:/]+\Z"), "REGISTRY/NAME, without a tag"),
}
LEAST_TTL_S: Final = 7 * 86_400
"""Seconds for which a job that an orchestrator has submitted must be found after its end."""
_TOLERATION: Final = re.compile(r"(?P<key>[^=:]*)(=(?P<value>[^:]*))?(:(?P<effect>\w+))?\Z")


@dataclass(frozen=True, kw_only=True)
class KubernetesConnection(Connection):
    """The settings that select the cluster."""

    context: str | None = option("context of the client's configuration; default: its current one")
    kubeconfig: LocalPath | None = option(
        "path or text of the client's configuration; default: KUBECONFIG, else ~/.kube/config"
    )


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions(Options):
    """The run options of the Kubernetes scheduler."""

    namespace: str | None = option(
        "namespace of the job; default: that of the pod in which this runs with the pod's own "
        "account, else default"
    )
    service_account: str | None = option("service account of the pods; default: the namespace's")
    priority_class: str | None = option("priority class of the pods")
    queue: str | None = option(
        "name of a Kueue local queue; the job waits until the queue admits it"
    )
    queue_priority: str | None = option("name of a Kueue workload priority class")
    queue_topology: str | None = option(
        "required:LABEL or preferred:LABEL; a role's pods go to nodes with one value of that label"
    )
    queue_min_parallelism: Annotated[int, at_least(1)] | None = option(
        "fewest replicas with which the queue may start a role; default: all"
    )
    jobset: Literal["auto", "always", "never"] = option(
        "make one JobSet in place of Jobs: always, never, or auto (if the job needs one and JobSet "
        "is installed)",
        "auto",
    )
    node_selector: dict[str, str] = option("labels that a node must have", {})
    tolerations: list[str] = option("taints that the pods tolerate, each KEY[=VALUE][:EFFECT]", [])
    labels: dict[str, str] = option("more labels for every object of the job", {})
    annotations: dict[str, str] = option("more annotations for the pods", {})
    image: str | None = option(
        "image for roles without one; if a role's image is a folder, it is mounted from the node"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = option(
        "when images are pulled; default: the cluster's"
    )
    image_pull_secrets: list[str] = option("names of Secrets with the registry's credentials", [])
    gpu_resource: str = option("resource that a role's gpu requests", "nvidia.com/gpu")
    ttl: Count | None = option(
        "seconds after a job's end until the cluster deletes its Jobs and logs; default: never"
    )
    share_process_namespace: bool = option(
        "the program is not process 1, so that signals end it as on other schedulers", True
    )
    pod_security: Literal["restricted"] | None = option(
        "give pods what namespaces of that Pod Security level require"
    )
    privileged: bool = option(
        "give containers the rights of root on the node; device mounts need it", False
    )
    checkpoint_claim: str | None = option(
        "name of the claim (PersistentVolumeClaim) that keeps checkpoints; roles of several "
        "replicas need one with ReadWriteMany"
    )
    checkpoint_mount: LocalPath | None = option(
        "folder where this machine has that claim mounted: get --checkpoints reads them there"
    )
    overlay: str | None = option(
        "YAML or JSON to merge into every Job, before a role's own overlay"
    )
    workspace_url: str | None = option(
        "fsspec URL of a folder to which workspaces are uploaded, and from which pods fetch them"
    )
    workspace_image: str | None = option(
        "image with Python (and fsspec) that fetches workspaces; default: the role's image"
    )
    image_repo: str | None = option(
        "repository to which images with workspaces are pushed, in place of workspace_url"
    )

    def __post_init__(self) -> None:
        """Refuse values that do not fit together, or have another form.

        Raises:
            ConfigError: by the option.
        """
        for name in QUEUED:
            value = getattr(self, name)
            if value and not self.queue:
                raise ConfigError(
                    f"run option {name}={value!r}: it only applies to a Kueue queue; set run "
                    "option queue, too"
                )
        if self.checkpoint_mount and not self.checkpoint_claim:
            raise ConfigError(
                f"run option checkpoint_mount={self.checkpoint_mount!r}: it is where a claim is "
                "mounted here; set run option checkpoint_claim, too"
            )
        for name, (pattern, wanted) in FORMS.items():
            value = getattr(self, name)
            if value and not pattern.match(value):
                raise ConfigError(f"run option {name}={value!r}: must be {wanted}")
        if self.image_repo and self.workspace_url:
            what = f"run options image_repo={self.image_repo!r} and workspace_url"
            raise ConfigError(f"{what}: only one of them can be used; leave out the other")
        self.tolerated()
        self.merged()

    @property
    def makes_jobset(self) -> bool:
        """Tell whether a JobSet is made for certain."""
        return self.jobset == "always"

    def tolerated(self) -> list[dict[str, Any]]:
        """Return the tolerations of the pods."""
        return [toleration(text) for text in self.tolerations]

    def merged(self) -> dict[str, Any]:
        """Return what is merged into every Job."""
        return _overlay(self.overlay)

    def architecture(self) -> str:
        """Return the architecture of the nodes, which chooses among images for several."""
        return self.node_selector.get(_ARCHITECTURE, "amd64")

    def queue_labels(self) -> dict[str, str]:
        """Return the labels of a Job or JobSet for its queue, or {} without a queue."""
        found = {names.QUEUE: self.queue, names.QUEUE_PRIORITY: self.queue_priority}
        return {name: value for name, value in found.items() if value}

    def of_the_whole(self) -> dict[str, Any]:
        """Return the fields of a Job or JobSet for its deletion and for its wait in a queue."""
        found = {
            "ttlSecondsAfterFinished": self.ttl,
            "suspend": True if self.queue else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def pod_annotations(self) -> dict[str, str]:
        """Return the annotations of the pods."""
        match = _TOPOLOGY.match(self.queue_topology or "")
        if match is None:
            return dict(self.annotations)
        return {**self.annotations, names.QUEUE_TOPOLOGY.format(match[1]): match[2]}


def refuse_short_ttl(ttl: int | None) -> None:
    """Refuse an option ``ttl`` with which an orchestrator's later try might not find the job.

    Raises:
        ConfigError: if the option is set and too short.
    """
    if ttl is not None and ttl < LEAST_TTL_S:
        raise ConfigError(
            f"run option ttl={ttl}: must be {LEAST_TTL_S} (7 days) or more where an orchestrator "
            "submits, since its next try asks how the job ended; or leave it out, and remove old "
            "jobs by: transload delete --older-than 7d -s kubernetes"
        )


def _overlay(text: Any) -> dict[str, Any]:
    if not text:
        return {}
    import yaml  # type: ignore[import-untyped,unused-ignore]

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigError(
            f"run option overlay: must be YAML or JSON: {' '.join(str(exc).split())}"
        ) from exc
    if not isinstance(found, dict):
        raise ConfigError(
            f"run option overlay={text!r}: must be a mapping, a strategic-merge overlay of a Job"
        )
    return found


def toleration(text: str) -> dict[str, Any]:
    """Parse ``KEY[=VALUE][:EFFECT]``. An empty key tolerates every taint."""
    match = _TOLERATION.match(text)
    if match is None or (match["effect"] and match["effect"] not in EFFECTS):
        raise ConfigError(
            f"run option tolerations={text!r}: must be KEY[=VALUE][:{'|'.join(EFFECTS)}]"
        )
    made: dict[str, Any] = {"operator": "Equal"}
    if match["value"] is None:
        made["operator"] = "Exists"
    made.update({name: match[name] for name in ("key", "value", "effect") if match[name]})
    return made
