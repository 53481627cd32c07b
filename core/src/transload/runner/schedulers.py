"""Find the schedulers of a runner by name, those of plugins and clusters with a name of their own."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from transload.errors import ConfigError, SchedulerUnavailable, TransloadError
from transload.plugins.distributions import find_distribution
from transload.runtime.forks import fork_lock
from transload.specs import (
    AppState,
    AppStatus,
    CfgVal,
    SpecError,
    UnknownSchedulerException,
    looks_secret,
    parse_app_handle,
    resolve_secret,
)
from transload.specs.checks import shorten
from transload.specs.secrets import check_source

if TYPE_CHECKING:
    from transload.runner.config import Settings
    from transload.schedulers.api import SchedulerBase, SchedulerFactory


_NAME: Final = r"[a-z][a-z0-9_-]{0,62}"
_CONTROL: Final = r"[\x00-\x1f\x7f]"


@dataclass
class Cluster:
    """A scheduler with its own name.

    Orchestrators keep one with each handle, so that any process finds the same cluster.

    Args:
        name: its name in handles.
        kind: the installed scheduler. The default is the scheduler with its name.
        connection: the settings that select the cluster, without secrets.
        secrets: setting → source of its value, which is ``env:NAME``, ``file:PATH``, or a source
            that the orchestrator resolves (``secret_sources`` of a runner).

    Raises:
        ConfigError: if a value is not valid.
    """

    name: str
    kind: str = ""
    connection: Mapping[str, CfgVal] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise ConfigError(f"cluster {self.name!r}: kind={shorten(self.kind)}: must be a str")
        self.kind = self.kind or self.name
        if not isinstance(self.name, str) or (
            self.kind != self.name and not re.fullmatch(_NAME, self.name)
        ):
            rule = "a letter a-z, then up to 62 of a-z, 0-9, _ and -"
            raise ConfigError(f"{self.name!r}: the name of a cluster must be {rule}")
        for table in ("connection", "secrets"):
            if not isinstance(getattr(self, table), Mapping):
                raise ConfigError(
                    f"cluster {self.name!r}: {table}={shorten(getattr(self, table))}: must be a "
                    "mapping"
                )
        for key, value in self.connection.items():
            if looks_secret(key):
                raise ConfigError(
                    f"cluster {self.name!r}: {key}: is a secret: name where it is found in secrets"
                )
            # some of these become part of a command line or a URL
            if isinstance(value, str) and (value.startswith("-") or re.search(_CONTROL, value)):
                rule = "must not begin with '-' or hold control characters"
                raise ConfigError(f"cluster {self.name!r}: {key}={shorten(value)}: {rule}")
        for key, source in self.secrets.items():
            try:
                check_source(source, f"cluster {self.name!r}: secrets[{key!r}]")
            except SpecError as exc:
                raise ConfigError(str(exc)) from exc

    def to_dict(self) -> dict[str, Any]:
        """Return the cluster as JSON values, with the sources of secrets, but not their values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "connection": dict(self.connection),
            "secrets": dict(self.secrets),
        }

    def to_json(self) -> str:
        """Return `to_dict` as text, which is the same for equal clusters."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Cluster:
        """Create a cluster from the values of `to_dict`, and ignore unknown fields.

        Raises:
            ConfigError: if it is not such a mapping.
        """
        if not isinstance(data, Mapping) or "name" not in data:
            raise ConfigError(
                f"cluster: {shorten(data)}: must be an object with name, kind, connection, secrets"
            )
        return Cluster(
            data["name"],
            data.get("kind") or "",
            data.get("connection") or {},
            data.get("secrets") or {},
        )


class Schedulers:
    """Find schedulers by name, both those of plugins and clusters with a name of their own.

    Args:
        session: name of the session, given to each factory.
        factories: name → factory. None means all that are built in or installed as plugins.
        settings: the settings in force. What they say of a cluster goes before ``clusters``.
        clusters: those that the caller names.
        sources: kind of a source → what finds the value, for secrets of clusters beside ``env`` and
            ``file``.
    """

    def __init__(
        self,
        session: str,
        factories: Mapping[str, SchedulerFactory] | None,
        settings: Callable[[], Settings],
        clusters: Iterable[Cluster] = (),
        sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
    ) -> None:
        self._session = session
        self._factories = factories
        self._settings = settings
        self._sources = sources
        self._made: dict[tuple[object, ...], SchedulerBase] = {}
        self._keys: dict[str, tuple[object, ...]] = {}
        self._lock = fork_lock()
        self._clusters: dict[str, Cluster] = {}
        self._found: dict[str, tuple[str, Cluster | None]] = {}
        self._name_them(clusters)

    def with_clusters(
        self, clusters: Iterable[Cluster], sources: Mapping[str, Callable[[str], str]]
    ) -> Schedulers:
        """Return these schedulers with other clusters beside them, and sources of their secrets.

        All are closed together. Equal clusters whose secrets have equal values are the same
        scheduler. The values are asked for once.
        """
        other = copy.copy(self)
        other._clusters = dict(self._clusters)
        other._found = {}
        other._keys = {}
        other._sources = {**self._sources, **sources}
        other._name_them(clusters)
        return other

    def _name_them(self, clusters: Iterable[Cluster]) -> None:
        for cluster in clusters:
            alike = [
                each
                for each in self._clusters
                if each.replace("-", "_") == cluster.name.replace("-", "_")
            ]
            if any(each != cluster.name for each in alike):
                raise ConfigError(
                    f"clusters {alike[0]!r} and {cluster.name!r} differ only in '-' and '_'"
                )
            self._clusters[cluster.name] = cluster

    def kinds(self) -> list[str]:
        """Return the names of the schedulers that are built in or installed."""
        if self._factories is not None:
            return list(self._factories)
        from transload.plugins import get_plugins

        return get_plugins().names("schedulers")

    def names(self) -> list[str]:
        """Return the names that can be asked for."""
        return list(dict.fromkeys([*self.kinds(), *self._settings().clusters(), *self._clusters]))

    def cluster(self, name: str) -> Cluster:
        """Return which cluster a name means.

        It is as its table says, else as it was given, else the scheduler of that name.

        Raises:
            ConfigError: if it has the name of an installed scheduler of another kind, or its
                settings are wrong.
            UnknownSchedulerException: if there is none. The nearest name is suggested.
        """
        kind, cluster = self._find(name)
        return cluster or Cluster(kind)

    def knows(self, cluster: Cluster) -> bool:
        """Tell whether the name of a cluster means that very cluster here."""
        with contextlib.suppress(TransloadError):
            return self.cluster(cluster.name) == cluster
        return False

    def get(self, name: str) -> SchedulerBase:
        """Return the scheduler of that name.

        Raises:
            ConfigError: as in `cluster`.
            UnknownSchedulerException: as in `cluster`.
            PluginError: if its plugin is broken.
        """
        return self._make(*self._find(name))

    def configured(self, name: str) -> dict[str, CfgVal]:
        """Return the options that files and the environment set for a scheduler.

        Raises:
            ConfigError: for an option that the scheduler does not have, saying where it was set.
        """
        scheduler = self.get(name)
        return self._settings().cfg(name, scheduler.options, scheduler.connection)

    def statuses(self, handles: Sequence[str]) -> dict[str, AppStatus | None]:
        """Return the status of each job, with one query per scheduler.

        The state is UNKNOWN where the scheduler cannot be reached.
        """
        grouped: dict[str, dict[str, str]] = {}
        for handle in handles:
            parsed = parse_app_handle(handle)
            grouped.setdefault(parsed.scheduler_backend, {})[handle] = parsed.app_id
        found: dict[str, AppStatus | None] = {}
        for name, ids in grouped.items():
            try:
                described = self.get(name).describe(list(ids.values()))
            except SchedulerUnavailable as exc:
                found.update({handle: AppStatus(AppState.UNKNOWN, msg=str(exc)) for handle in ids})
                continue
            for handle, app_id in ids.items():
                description = described.get(app_id)
                found[handle] = None if description is None else description.status
        return {handle: found[handle] for handle in handles}

    def _find(self, name: str) -> tuple[str, Cluster | None]:
        """Return the kind of a scheduler, and which cluster it is, if anybody says so."""
        found = self._found.get(name)
        if found is None:
            found = self._which(name)
            self._found[name] = found
        return found

    def _which(self, name: str) -> tuple[str, Cluster | None]:
        given = self._clusters.get(name)
        kind = self._settings().clusters().get(name)
        if not kind and given is not None:
            kind = given.kind
        kind = kind or name
        kinds = self.kinds()
        if kind != name and name in kinds:
            taken = f"{name!r} is the name of an installed scheduler"
            raise ConfigError(f"cluster {name!r}: kind={kind!r}: {taken}: choose another name")
        if kind not in kinds:
            raise self._unknown(name, kind)
        table = self._settings().cluster(name, kind, self._make(kind, None).connection)
        if table is not None and given is not None and table != given:
            _warn_once(name)
        cluster = table or given
        if cluster == Cluster(kind):
            cluster = None
        return kind, cluster

    def _unknown(self, name: str, kind: str) -> UnknownSchedulerException:
        """Return the error for a kind of scheduler that is not there, with what to do about it."""
        known = self.names() if kind == name else self.kinds()
        if self._factories is not None:
            return UnknownSchedulerException(kind, known)
        from transload.plugins import get_plugins

        if find_distribution("adapters", kind) is not None:
            where = f"jobs are started from it, and run on one of: {', '.join(sorted(known))}"
            return UnknownSchedulerException(kind, known, f"{kind} is an orchestrator: {where}")
        hint = get_plugins().hint("schedulers", kind, known)
        if find_distribution("schedulers", kind) is not None:
            return UnknownSchedulerException(kind, known, hint)
        file = self._settings().scheduler_tables().get(name)
        if file is None:
            about = "a cluster has its name by a table [schedulers.NAME] in transload.toml"
            files = ", ".join(self._settings().files())
            where = files or "there is none from here upwards; TRANSLOAD_CONFIG=FILE names one"
            hint = f"{hint} ({about}: {where})"
        elif kind == name:
            hint = f'{file}: [schedulers.{name}] lacks its kind, such as kind = "slurm"'
        else:
            hint = f"{hint} ({file}: schedulers.{name}.kind)"
        return UnknownSchedulerException(kind, known, hint)

    def _make(self, kind: str, cluster: Cluster | None) -> SchedulerBase:
        name = kind if cluster is None else cluster.to_json()
        key = self._keys.get(name)
        if key is None:
            # without the lock, since the source of secrets may need a thread that waits for the
            # lock, such as an event loop
            secrets = () if cluster is None else self._secrets_of(cluster)
            key = self._keys.setdefault(name, (name, *secrets))
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make_new(kind, cluster, dict(key[1:]))  # type: ignore[arg-type]
            return self._made[key]

    def _make_new(
        self, kind: str, cluster: Cluster | None, secrets: Mapping[str, CfgVal]
    ) -> SchedulerBase:
        factory = self._factory(kind)
        given: dict[str, str] = {}
        if cluster is not None and cluster.name != kind:
            if "name" not in signature(factory).parameters:
                raise ConfigError(
                    f"cluster {cluster.name!r}: a scheduler of kind {kind!r} has no other name"
                )
            given["name"] = cluster.name
        made = factory(self._session, **given)
        made.defaults = partial(self.configured, made.name)
        if cluster is not None and (cluster.connection or secrets):
            try:
                connection = {**cluster.connection, **secrets}
                made.connect(made.connection.read(connection))
            except ConfigError as exc:
                raise ConfigError(
                    f"cluster {cluster.name!r} (kind {cluster.kind!r}): {exc}"
                ) from exc
        return made

    def _secrets_of(self, cluster: Cluster) -> list[tuple[str, str]]:
        """Return the values of a cluster's secrets."""
        try:
            return [
                (key, resolve_secret(source, f"secrets[{key!r}]", kinds=self._sources))
                for key, source in sorted(cluster.secrets.items())
            ]
        except (SpecError, ConfigError) as exc:
            raise ConfigError(f"cluster {cluster.name!r} (kind {cluster.kind!r}): {exc}") from exc

    def close(self) -> None:
        """Close all schedulers that were made. Running jobs go on."""
        with self._lock:
            schedulers = list(self._made.values())
            self._made.clear()
        # without this module nobody has followed a job
        following = sys.modules.get("transload.schedulers.follower")
        for scheduler in schedulers:
            if following is not None:
                following.release(scheduler)
            scheduler.close()

    def _factory(self, kind: str) -> SchedulerFactory:
        if self._factories is not None:
            return self._factories[kind]
        from transload.plugins import get_plugins

        return cast("SchedulerFactory", get_plugins().get("schedulers", kind))


_warned: set[str] = set()


def _warn_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        words = (
            "cluster %r: the table [schedulers.%s] of the settings is used, not the orchestrator's"
        )
        logging.getLogger("transload.runner").warning(words, name, name)
