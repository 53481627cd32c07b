"""Set what a task has besides its component, as resources, retries, mounts, labels and nodes.

Settings that no pod can have are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.specs import AppDef, Resource, VolumeMount, nearest
from transload_kfp.ports import has_mark, read_as_placeholder
from transload_kfp.refusals import refuse_timed_retries

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

METADATA: Final = "kfp."
"""What keys of a role's metadata that this adapter reads begin with."""

_METADATA: Final = {"labels": dict, "annotations": dict, "node_selector": dict, "tolerations": list}

GPU: Final = "nvidia.com/gpu"

LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
_TOLERATION: Final = ("key", "operator", "value", "effect", "toleration_seconds")


def _number(value: Any, least: float = -math.inf) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= least
    )


def _amount(value: Any) -> bool:
    return _number(value, 0) or (_number(value) and value == -1)


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value, 0)


def _text(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


_RULES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "retries": (_count, "an int, 0 or more"),
    "cpu": (_amount, "a number of cores, 0 or more, or -1 for unset"),
    "mem_mb": (
        lambda value: _amount(value) and not value % 1,
        "a whole number of MB, 0 or more, or -1 for unset",
    ),
    "backoff": (lambda value: value is None or _number(value, 0), "a number of seconds, 0 or more"),
    "backoff_factor": (lambda value: value is None or _number(value, 1), "a number, 1 or more"),
    "backoff_max": (
        lambda value: value is None or _number(value, 0),
        "a number of seconds, 0 or more",
    ),
    "timeout": (
        lambda value: value is None or _number(value, math.ulp(0.0)),
        "a number of seconds above 0",
    ),
    "tolerations": (lambda value: isinstance(value, list | tuple), "a list of mappings"),
    "caching": (lambda value: value in (None, True, False), "True, False or None"),
    "display_name": (lambda value: value is None or _text(value), "a str"),
}
"""Setting → what tells whether a value will do, and what it must be."""

_LABEL_RULE: Final = (
    lambda name, value: _text(name, value) and bool(LABEL.match(name) and LABEL_VALUE.match(value)),
    "at most 63 letters, digits, '-', '_', '.', and its name too",
)
_ENTRIES: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "labels": _LABEL_RULE,
    "node_selector": _LABEL_RULE,
    "annotations": (_text, "a str"),
    "claims": (_text, "a str"),
    "env": (_text, "a str"),
    "accelerators": (lambda name, count: _text(name) and _count(count), "an int, 0 or more"),
    "secrets": (
        lambda _, pair: (
            isinstance(pair, list | tuple) and len(pair) == 2 and _text(*pair) and all(pair)
        ),
        "a pair, (name of a secret, key in it)",
    ),
}
"""Setting that is a mapping → the same for each of its entries."""


class TaskOptions(TypedDict, total=False):
    """The arguments of `TaskSettings`, described there."""

    retries: int
    backoff: float | None
    backoff_factor: float | None
    backoff_max: float | None
    cpu: float | None
    mem_mb: int | None
    accelerators: Mapping[str, int]
    claims: Mapping[str, str]
    secrets: Mapping[str, tuple[str, str]]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]
    timeout: float | None
    caching: bool | None
    display_name: str | None


@dataclass(kw_only=True)
class TaskSettings:
    """Settings of a task. Those that are not given follow from the job.

    Args:
        retries: how often KFP tries again, by default the role's ``max_retries``.
        backoff: seconds before the first retry, or None for KFP's default.
        backoff_factor: by how much the pause grows, or None for KFP's default.
        backoff_max: longest pause in seconds, or None for KFP's default.
        cpu: cores, as request and limit, or -1 for unset.
        mem_mb: memory in MB, as request and limit, or -1 for unset.
        accelerators: how many of a kind of accelerator, of which there may be one.
        claims: path in the container → name of a persistent volume claim.
        secrets: environment variable → (name of a Kubernetes secret, key in it).
        env: environment variables besides the role's.
        labels: labels of the pod.
        annotations: annotations of the pod.
        node_selector: labels that the node must have.
        tolerations: ``{"key": …, "operator": …, "value": …, "effect": …, "toleration_seconds":
            …}``.
        timeout: seconds for a try, or None for no limit.
        caching: with False, never taken from the cache. None means False for a launcher or a
            search, else what KFP is set to.
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
    def of(app: AppDef, **given: Unpack[TaskOptions]) -> TaskSettings:
        """Return the settings that follow from a job of one role, with what was given besides.

        Raises:
            UnsupportedFeature: for metadata with the job's id in it.
            SpecError: for metadata that no pod can have, or retries of a job with a time limit.
            ConfigError: for an unknown setting or a wrong value.
        """
        role = app.roles[0]
        resource = role.resource
        claims = {
            mount.dst_path: mount.src for mount in role.mounts if isinstance(mount, VolumeMount)
        }
        made = TaskSettings(
            retries=role.max_retries,
            cpu=resource.cpu,
            mem_mb=resource.memMB,
            accelerators=_accelerators(resource),
            claims=claims,
            secrets={name: _secret(source) for name, source in role.secrets.items()},
            node_selector={name: str(value) for name, value in resource.capabilities.items()},
            timeout=app.timeout,
        )
        made = made.with_metadata(app).updated(**given)
        if given.get("timeout") is None:  # the setting of this name is meant for each try
            refuse_timed_retries(app, made.retries)
        return made

    def with_metadata(self, app: AppDef) -> TaskSettings:
        """Return the settings with what the job's and the role's metadata say."""
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}  # what cannot be a label
        for key, value in app.metadata.items():
            if not LABEL.match(key):
                raise SpecError(
                    f"metadata[{key!r}]: must be letters, digits, '-', '_', '.': it becomes a "
                    "label of the pod"
                )
            text = str(value)
            place = labels if LABEL_VALUE.match(text) else annotations
            place[key] = text
        made = replace(self, labels=labels, annotations=annotations)
        for key, value in app.roles[0].metadata.items():
            if not key.startswith(METADATA):
                continue
            name = key.removeprefix(METADATA)
            _check_metadata(name, value, f"roles[0].metadata[{key!r}]")
            changes: dict[str, Any] = {name: value}
            if isinstance(value, dict):
                texts = {str(label): str(each) for label, each in value.items()}
                changes[name] = {**getattr(made, name), **texts}
            made = replace(made, **changes)
        return made

    def updated(
        self, others: Collection[str] = (), /, **given: Unpack[TaskOptions]
    ) -> TaskSettings:
        """Return the settings with those that were given. Mappings are added to.

        Args:
            others: settings that the user may give besides, for the message.
            given: value of each setting.

        Raises:
            ConfigError: for an unknown setting or a wrong value.
        """
        known = [each.name for each in fields(self)]
        changes: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                hint = _nearest_setting(name, [*sorted(others), *known])
                raise ConfigError(f"unknown setting {name!r}: {hint}")
            if value is None:
                continue
            before = getattr(self, name)
            if not isinstance(before, Mapping):
                changes[name] = value
            elif isinstance(value, Mapping):
                changes[name] = {**before, **value}
            else:
                raise ConfigError(f"{name}={value!r}: must be a mapping")
        made = replace(self, **changes)
        _check(made)
        return made

    def apply(self, task: PipelineTask) -> PipelineTask:
        """Give a task these settings, and return it."""
        self._apply_own(task)
        of_pods = (
            self.claims,
            self.secrets,
            self.labels,
            self.annotations,
            self.node_selector,
            self.tolerations,
        )
        if any(of_pods) or self.timeout is not None:
            self._apply_kubernetes(task)
        return task

    def _apply_own(self, task: PipelineTask) -> None:
        if self.cpu > 0:
            cores = f"{max(1, round(self.cpu * 1000))}m"
            task.set_cpu_request(cores).set_cpu_limit(cores)
        if self.mem_mb > 0:
            task.set_memory_request(f"{self.mem_mb}M").set_memory_limit(f"{self.mem_mb}M")
        for kind, count in self.accelerators.items():
            if count:
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


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(0, round(seconds))}s"


def _accelerators(resource: Resource) -> dict[str, int]:
    """Return kind of accelerator → how many a role asks for."""
    devices = {name: count for name, count in resource.devices.items() if count}
    if devices or resource.gpu <= 0:
        return devices
    return {GPU: resource.gpu}


def _secret(source: str) -> tuple[str, str]:
    secret, _, key = source.partition(":")[2].partition("/")
    return secret, key


def _check_metadata(name: str, value: Any, path: str) -> None:
    """Refuse metadata of a role that no pod can have.

    Args:
        name: the key, without what keys for this adapter begin with.
        value: what is there.
        path: where it is, for messages.
    """
    kind = _METADATA.get(name)
    if kind is None:
        known = ", ".join(METADATA + each for each in _METADATA)
        raise SpecError(f"{path}: must be {known}")
    if has_mark(json.dumps(value, ensure_ascii=False, default=str)):
        raise UnsupportedFeature(
            f"{path}: the job's id is known only when the pipeline runs, and what a pod is called "
            "before; it can be in args and env",
            path,
        )
    if not isinstance(value, kind):
        raise SpecError(f"{path}={value!r}: must be a {kind.__name__}")


def _nearest_setting(name: str, known: Sequence[str]) -> str:
    """Return the settings that may have been meant."""
    meant = name
    if name == "args":
        meant = "component_args"
    return nearest(meant, ["component_args", *known])


def _check(settings: TaskSettings) -> None:
    """Refuse values that no pod can have."""
    for name, (fits, what) in _RULES.items():
        value = getattr(settings, name)
        if not fits(value):
            raise ConfigError(f"{name}={value!r}: must be {what}")
    for name, (fits_entry, what) in _ENTRIES.items():
        for key, value in getattr(settings, name).items():
            if not fits_entry(key, value):
                raise ConfigError(f"{name}[{key!r}]={value!r}: must be {what}")
    kinds = [kind for kind, count in settings.accelerators.items() if count]
    if len(kinds) > 1:
        raise ConfigError(
            f"accelerators: only one kind can be asked for, not {', '.join(kinds)}; 0 takes one "
            "away"
        )
    for index, each in enumerate(settings.tolerations):
        unknown: list[Any] = [each]
        if isinstance(each, Mapping):
            unknown = [key for key in each if key not in _TOLERATION]
        if unknown:
            raise ConfigError(
                f"tolerations[{index}]: {unknown[0]!r}: must be a mapping of "
                f"{', '.join(_TOLERATION)}"
            )
    for name, value in settings.env.items():
        found = read_as_placeholder(value)
        if found is not None:
            raise ConfigError(
                f"env[{name!r}]={value!r}: would be read as a placeholder of Kubeflow Pipelines "
                f"({found!r})"
            )
