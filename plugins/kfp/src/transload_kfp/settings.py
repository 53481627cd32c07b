"""What a task gets besides its component: resources, retries, mounts, labels, where it may run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.specs import AppDef, VolumeMount, nearest
from transload_kfp.marks import has_mark
from transload_kfp.refusals import refuse_timed_retries
from transload_kfp.settings_check import LABEL, LABEL_VALUE, check_settings

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

METADATA: Final = "kfp."
"""What keys of a role's metadata that this adapter reads begin with."""

_METADATA: Final = {"labels": dict, "annotations": dict, "node_selector": dict, "tolerations": list}

GPU: Final = "nvidia.com/gpu"


@dataclass(kw_only=True)
class TaskSettings:
    """Settings of a task. Those that are not given follow from the app.

    Args:
        retries: how often KFP tries again; default: the role's ``max_retries``.
        backoff: seconds before the first retry; None: KFP's default.
        backoff_factor: by how much the pause grows; None: KFP's default.
        backoff_max: longest pause in seconds; None: KFP's default.
        cpu: cores, as request and limit; -1: unset.
        mem_mb: memory in MB, as request and limit; -1: unset.
        accelerators: kind of accelerator → how many; at most one kind.
        claims: path in the container → name of a persistent volume claim.
        secrets: environment variable → (name of a Kubernetes secret, key in it).
        env: environment variables besides the role's.
        labels: labels of the pod.
        annotations: annotations of the pod.
        node_selector: labels that the node must have.
        tolerations: ``{"key": …, "operator": …, "value": …, "effect": …, "toleration_seconds": …}``.
        timeout: seconds for a try; None: no limit.
        caching: False: never taken from the cache; None: as KFP is set up.
        display_name: shown instead of the task's name.
    """

    retries: int = 0
    backoff: float | None = None
    backoff_factor: float | None = None
    backoff_max: float | None = None
    cpu: float = -1
    mem_mb: int = -1
    accelerators: Mapping[str, int] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    timeout: float | None = None
    caching: bool | None = None
    display_name: str | None = None

    @staticmethod
    def of(app: AppDef, **given: Any) -> TaskSettings:
        """Return the settings that follow from an app of one role, with what was given besides.

        Raises:
            UnsupportedFeature: for metadata with the app's id in it.
            SpecError: for metadata that no pod can have, or retries of an app with a time limit.
            ConfigError: for an unknown setting or a wrong value.
        """
        role = app.roles[0]
        made = TaskSettings(
            retries=role.max_retries,
            cpu=role.resource.cpu,
            mem_mb=role.resource.memMB,
            accelerators={name: count for name, count in role.resource.devices.items() if count}
            or ({GPU: role.resource.gpu} if role.resource.gpu > 0 else {}),
            claims={mount.dst_path: mount.src for mount in role.mounts if isinstance(mount, VolumeMount)},
            secrets={name: _secret(source) for name, source in role.secrets.items()},
            node_selector={name: str(value) for name, value in role.resource.capabilities.items()},
            timeout=app.timeout,
        )
        made = made.with_metadata(app).updated(**given)
        if given.get("timeout") is None:  # the setting of this name is meant for each try
            refuse_timed_retries(app, made.retries)
        return made

    def with_metadata(self, app: AppDef) -> TaskSettings:
        """Return the settings with what the app's and the role's metadata say."""
        labels, annotations = _split_metadata(app.metadata)
        made = replace(self, labels=labels, annotations=annotations)
        for key, value in app.roles[0].metadata.items():
            if not key.startswith(METADATA):
                continue
            name, path = key.removeprefix(METADATA), f"roles[0].metadata[{key!r}]"
            if name not in _METADATA:
                raise SpecError(f"{path}: must be {', '.join(METADATA + each for each in _METADATA)}")
            if has_mark(json.dumps(value, ensure_ascii=False, default=str)):
                why = "the app's id is known only when the pipeline runs, and what a pod is called before"
                raise UnsupportedFeature(f"{path}: {why}; it can be in args and env", path)
            if not isinstance(value, _METADATA[name]):
                raise SpecError(f"{path}={value!r}: must be a {_METADATA[name].__name__}")
            if isinstance(value, dict):
                value = {**getattr(made, name), **{str(label): str(text) for label, text in value.items()}}
            changes: dict[str, Any] = {name: value}
            made = replace(made, **changes)
        return made

    def updated(self, **given: Any) -> TaskSettings:
        """Return the settings with those that were given; mappings are added to.

        Raises:
            ConfigError: for an unknown setting or a wrong value.
        """
        known = [each.name for each in fields(self)]
        for name in given:
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}: {nearest(name, known)}")
        for name, value in given.items():
            if value is not None and isinstance(getattr(self, name), Mapping) and not isinstance(value, Mapping):
                raise ConfigError(f"{name}={value!r}: must be a mapping")
        merged: dict[str, Any] = {
            name: {**getattr(self, name), **value} if isinstance(getattr(self, name), Mapping) else value
            for name, value in given.items()
            if value is not None
        }
        made = replace(self, **merged)
        check_settings(made)
        return made

    def apply(self, task: PipelineTask) -> PipelineTask:
        """Give a task these settings; return it."""
        self._apply_own(task)
        if any((self.claims, self.secrets, self.labels, self.annotations, self.node_selector, self.tolerations)) or (
            self.timeout is not None
        ):
            self._apply_kubernetes(task)
        return task

    def _apply_own(self, task: PipelineTask) -> None:
        if self.cpu > 0:
            task.set_cpu_request(cpu_text(self.cpu)).set_cpu_limit(cpu_text(self.cpu))
        if self.mem_mb > 0:
            task.set_memory_request(f"{self.mem_mb}M").set_memory_limit(f"{self.mem_mb}M")
        for kind, count in ((kind, count) for kind, count in self.accelerators.items() if count):
            task.set_accelerator_type(kind).set_accelerator_limit(count)
        if self.retries:
            task.set_retry(
                self.retries,
                backoff_duration=_duration(self.backoff),
                backoff_factor=self.backoff_factor,
                backoff_max_duration=_duration(self.backoff_max),
            )
        for name, value in self.env.items():
            task.set_env_variable(name, value)
        if self.caching is not None:
            task.set_caching_options(self.caching)
        if self.display_name is not None:
            task.set_display_name(self.display_name)

    def _apply_kubernetes(self, task: PipelineTask) -> None:
        from kfp import kubernetes

        for path, claim in self.claims.items():
            kubernetes.mount_pvc(task, claim, path)
        for variable, (secret, key) in self.secrets.items():
            kubernetes.use_secret_as_env(task, secret, {key: variable})
        for name, value in self.labels.items():
            kubernetes.add_pod_label(task, name, value)
        for name, value in self.annotations.items():
            kubernetes.add_pod_annotation(task, name, value)
        for name, value in self.node_selector.items():
            kubernetes.add_node_selector(task, name, value)
        for toleration in self.tolerations:
            kubernetes.add_toleration(task, **toleration)
        if self.timeout is not None:
            kubernetes.set_timeout(task, max(1, math.ceil(self.timeout)))


def cpu_text(cores: float) -> str:
    """Return cores as Kubernetes has them: ``2000m``."""
    return f"{max(1, round(cores * 1000))}m"


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(0, round(seconds))}s"


def _secret(source: str) -> tuple[str, str]:
    secret, _, key = source.partition(":")[2].partition("/")
    return secret, key


def _split_metadata(metadata: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what of an app's metadata can be labels, and the rest as annotations."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for name, value in metadata.items():
        if not LABEL.match(name):
            raise SpecError(
                f"metadata[{name!r}]: must be letters, digits, '-', '_', '.': it becomes a label of the pod"
            )
        (labels if LABEL_VALUE.match(str(value)) else annotations)[name] = str(value)
    return labels, annotations
