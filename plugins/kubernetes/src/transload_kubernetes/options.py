"""The run options of the scheduler, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import ConfigError, SpecError
from transload.specs import CfgVal, runopts
from transload_kubernetes.images import is_repository
from transload_kubernetes.names import DEFAULT_NAMESPACE, check_namespace

PULL: Final = ("Always", "IfNotPresent", "Never")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION: Final = re.compile(r"(?P<key>[^=:]*)(=(?P<value>[^:]*))?(:(?P<effect>\w+))?\Z")


def run_opts() -> runopts:
    """Return the options of this scheduler."""
    opts = runopts()
    opts.add("namespace", str, "namespace of the app", DEFAULT_NAMESPACE)
    opts.add("service_account", str, "service account of the pods; default: the namespace's")
    opts.add("priority_class", str, "priority class of the pods")
    opts.add("queue", str, "name of a Kueue local queue: the Jobs are suspended until it admits them")
    opts.add(
        "jobset", bool, "one JobSet instead of Jobs: its controller, which the cluster must have, starts again", False
    )
    opts.add("node_selector", dict[str, str], "labels that a node must have")
    opts.add("tolerations", list[str], "taints that are tolerated: KEY[=VALUE][:EFFECT]")
    opts.add("labels", dict[str, str], "more labels for every object of the app")
    opts.add("annotations", dict[str, str], "more annotations for the pods")
    opts.add("image_pull_policy", str, "Always, IfNotPresent or Never; default: the cluster's")
    opts.add("image_pull_secrets", list[str], "names of Secrets with the registry's credentials")
    opts.add("gpu_resource", str, "resource that a role's gpu asks for", "nvidia.com/gpu")
    opts.add("grace_period", int, "seconds between SIGTERM and SIGKILL when a pod is ended", 30)
    opts.add("startup_timeout", float, "seconds that a pod may be pending before the app fails; 0: any time", 1800.0)
    opts.add("workspace_url", str, "fsspec URL of a folder that workspaces are uploaded to and fetched from")
    opts.add("workspace_image", str, "image with Python (and fsspec) that fetches workspaces; default: the role's own")
    opts.add(
        "image_repo", str, "repository that images with workspaces are pushed to, built by the engine of DOCKER_HOST"
    )
    return opts


@dataclass(frozen=True, slots=True)
class Options:
    """The options as the conversion uses them. Names are those of `run_opts`."""

    namespace: str
    gpu_resource: str
    grace_period: int
    startup_timeout: float
    tolerations: list[dict[str, Any]]
    texts: Mapping[str, str] = field(default_factory=dict)
    maps: Mapping[str, dict[str, str]] = field(default_factory=dict)
    image_pull_secrets: list[str] = field(default_factory=list)
    jobset: bool = False

    def text(self, name: str) -> str:
        """Return an option of type str, ``""`` if it is not set."""
        return self.texts.get(name, "")

    def map(self, name: str) -> dict[str, str]:
        """Return an option of type dict, empty if it is not set."""
        return self.maps.get(name, {})

    @staticmethod
    def of(cfg: Mapping[str, CfgVal]) -> Options:
        """Read resolved run options.

        Raises:
            ConfigError: for a value that is not allowed.
        """
        policy = cfg.get("image_pull_policy")
        if policy and policy not in PULL:
            raise ConfigError(f"run option image_pull_policy={policy!r}: must be one of {', '.join(PULL)}")
        for name in ("grace_period", "startup_timeout"):
            value = cfg.get(name)
            if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ConfigError(f"run option {name}={value!r}: must be 0 or more seconds")
        namespace = str(cfg.get("namespace") or DEFAULT_NAMESPACE)
        try:
            check_namespace(namespace, f"run option namespace={namespace!r}")
        except SpecError as exc:
            raise ConfigError(str(exc)) from exc
        repository = str(cfg.get("image_repo") or "")
        if repository and not is_repository(repository):
            raise ConfigError(f"run option image_repo={repository!r}: must be REGISTRY/NAME, without a tag")
        if repository and cfg.get("workspace_url"):
            raise ConfigError(f"run options image_repo={repository!r} and workspace_url: only one of them can be used")
        tolerations, pull_secrets = cfg.get("tolerations"), cfg.get("image_pull_secrets")
        return Options(
            namespace,
            str(cfg.get("gpu_resource") or "nvidia.com/gpu"),
            int(str(cfg["grace_period"])),
            float(str(cfg["startup_timeout"])),
            [toleration(text) for text in (tolerations if isinstance(tolerations, list) else [])],
            {name: value for name, value in cfg.items() if isinstance(value, str)},
            {name: dict(value) for name, value in cfg.items() if isinstance(value, dict)},
            list(pull_secrets) if isinstance(pull_secrets, list) else [],
            bool(cfg.get("jobset")),
        )


def toleration(text: str) -> dict[str, Any]:
    """Read ``KEY[=VALUE][:EFFECT]``; an empty key tolerates every taint.

    Raises:
        ConfigError: if it is not of that form, or the effect is none that Kubernetes knows.
    """
    match = _TOLERATION.match(text)
    if match is None or (match["effect"] and match["effect"] not in EFFECTS):
        raise ConfigError(f"run option tolerations={text!r}: must be KEY[=VALUE][:{'|'.join(EFFECTS)}]")
    made: dict[str, Any] = {"operator": "Exists" if match["value"] is None else "Equal"}
    made.update({name: match[name] for name in ("key", "value", "effect") if match[name]})
    return made
