"""Define and check the run options of the scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transload.errors import ConfigError
from transload.specs import CfgVal, runopts
from transload_kubernetes import names

CHOICES: Final = {
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "jobset": ("auto", "always", "never"),
    "pod_security": ("restricted",),
}
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


def run_opts() -> runopts:
    """Return the options of this scheduler."""
    opts = runopts()
    opts.add(
        "namespace",
        str,
        "namespace of the job; default: that of the pod in which this runs with the pod's own "
        "account, else default",
    )
    opts.add("service_account", str, "service account of the pods; default: the namespace's")
    opts.add("priority_class", str, "priority class of the pods")
    opts.add("queue", str, "name of a Kueue local queue; the job waits until the queue admits it")
    opts.add("queue_priority", str, "name of a Kueue workload priority class")
    opts.add(
        "queue_topology",
        str,
        "required:LABEL or preferred:LABEL; a role's pods go to nodes with one value of that label",
    )
    opts.add(
        "queue_min_parallelism",
        int,
        "fewest replicas with which the queue may start a role; default: all",
    )
    opts.add(
        "jobset",
        str,
        "make one JobSet in place of Jobs: always, never, or auto (if the job needs one and JobSet "
        "is installed)",
        "auto",
    )
    opts.add("node_selector", dict[str, str], "labels that a node must have")
    opts.add("tolerations", list[str], "taints that the pods tolerate, each KEY[=VALUE][:EFFECT]")
    opts.add("labels", dict[str, str], "more labels for every object of the job")
    opts.add("annotations", dict[str, str], "more annotations for the pods")
    opts.add(
        "image",
        str,
        "image for roles without one; if a role's image is a folder, it is mounted from the node",
    )
    opts.add("image_pull_policy", str, "Always, IfNotPresent or Never; default: the cluster's")
    opts.add("image_pull_secrets", list[str], "names of Secrets with the registry's credentials")
    opts.add("gpu_resource", str, "resource that a role's gpu requests", "nvidia.com/gpu")
    opts.add(
        "ttl",
        int,
        "seconds after a job's end until the cluster deletes its Jobs and logs; default: never",
    )
    opts.add(
        "share_process_namespace",
        bool,
        "the program is not process 1, so that signals end it as on other schedulers",
        True,
    )
    opts.add(
        "pod_security",
        str,
        "restricted: give pods what namespaces of that Pod Security level require",
    )
    opts.add(
        "privileged",
        bool,
        "give containers the rights of root on the node; device mounts need it",
        False,
    )
    opts.add(
        "checkpoint_claim",
        str,
        "name of the claim (PersistentVolumeClaim) that keeps checkpoints; roles of several "
        "replicas need one with ReadWriteMany",
    )
    opts.add(
        "checkpoint_mount",
        str,
        "folder where this machine has that claim mounted: get --checkpoints reads them there",
    )
    opts.add("overlay", str, "YAML or JSON to merge into every Job, before a role's own overlay")
    opts.add(
        "workspace_url",
        str,
        "fsspec URL of a folder to which workspaces are uploaded, and from which pods fetch them",
    )
    opts.add(
        "workspace_image",
        str,
        "image with Python (and fsspec) that fetches workspaces; default: the role's image",
    )
    opts.add(
        "image_repo",
        str,
        "repository to which images with workspaces are pushed, in place of workspace_url",
    )
    opts.mark_local_paths("checkpoint_mount")
    return opts


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options, under the names of `run_opts`."""

    cfg: Mapping[str, Any]
    tolerations: list[dict[str, Any]]
    overlay: dict[str, Any]
    jobset: bool  # whether a JobSet is made for certain

    def text(self, name: str) -> str:
        """Return an option of type str, or ``""`` if it is not set."""
        return str(self.cfg.get(name) or "")

    def map(self, name: str) -> dict[str, str]:
        """Return an option of type dict, or {} if it is not set."""
        return dict(self.cfg.get(name) or {})

    def architecture(self) -> str:
        """Return the architecture of the nodes, which chooses among images for several."""
        return self.map("node_selector").get(_ARCHITECTURE, "amd64")

    def queue_labels(self) -> dict[str, str]:
        """Return the labels of a Job or JobSet for its queue, or {} without a queue."""
        found = {names.QUEUE: self.text("queue"), names.QUEUE_PRIORITY: self.text("queue_priority")}
        return {name: value for name, value in found.items() if value}

    def of_the_whole(self) -> dict[str, Any]:
        """Return the fields of a Job or JobSet for its deletion and for its wait in a queue."""
        found = {
            "ttlSecondsAfterFinished": self.cfg.get("ttl"),
            "suspend": True if self.text("queue") else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def pod_annotations(self) -> dict[str, str]:
        """Return the annotations of the pods."""
        match = _TOPOLOGY.match(self.text("queue_topology"))
        return {
            **self.map("annotations"),
            **({names.QUEUE_TOPOLOGY.format(match[1]): match[2]} if match else {}),
        }

    @staticmethod
    def of(cfg: Mapping[str, CfgVal]) -> Options:
        """Check resolved run options.

        Raises:
            ConfigError: for a value that is not allowed.
        """
        for name, allowed in CHOICES.items():
            if cfg.get(name) and cfg[name] not in allowed:
                raise ConfigError(
                    f"run option {name}={cfg[name]!r}: must be one of {', '.join(allowed)}"
                )
        for name, least, unit in (
            ("ttl", 0, "seconds"),
            (QUEUED[2], 1, "replicas"),
        ):
            value = cfg.get(name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(f"run option {name}={value!r}: must be {least} or more {unit}")
        for name in QUEUED:
            if cfg.get(name) and not cfg.get("queue"):
                raise ConfigError(
                    f"run option {name}={cfg[name]!r}: it only applies to a Kueue queue; set run "
                    "option queue, too"
                )
        if cfg.get("checkpoint_mount") and not cfg.get("checkpoint_claim"):
            raise ConfigError(
                f"run option checkpoint_mount={cfg['checkpoint_mount']!r}: it is where a claim is "
                "mounted here; set run option checkpoint_claim, too"
            )
        own: dict[str, Any] = {**cfg, "namespace": cfg.get("namespace") or names.DEFAULT_NAMESPACE}
        own["gpu_resource"] = cfg.get("gpu_resource") or "nvidia.com/gpu"
        for name, (pattern, wanted) in FORMS.items():
            if own.get(name) and not pattern.match(str(own[name])):
                raise ConfigError(f"run option {name}={own[name]!r}: must be {wanted}")
        if cfg.get("image_repo") and cfg.get("workspace_url"):
            what = f"run options image_repo={cfg['image_repo']!r} and workspace_url"
            raise ConfigError(f"{what}: only one of them can be used; leave out the other")
        tolerations = [toleration(text) for text in own.get("tolerations") or ()]
        return Options(
            own, tolerations, _overlay(own.get("overlay")), own.get("jobset") == "always"
        )


def refuse_short_ttl(cfg: Mapping[str, CfgVal]) -> None:
    """Refuse an option ``ttl`` with which an orchestrator's later try might not find the job.

    Raises:
        ConfigError: if the option is set and too short.
    """
    ttl = cfg.get("ttl")
    if isinstance(ttl, int) and ttl < LEAST_TTL_S:
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
