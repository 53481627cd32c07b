"""The schedulers of a runner, each made once, when it is first asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from transload._forks import fork_lock
from transload.errors import ConfigError, PluginError
from transload.specs import UnknownSchedulerException, nearest

if TYPE_CHECKING:
    from transload.runner.config import Settings
    from transload.schedulers.api import SchedulerBase, SchedulerFactory


def declared(factory: SchedulerFactory) -> dict[str, Any]:
    """Return the parameters that a factory declares after the session, with their types; ``**params`` declares none."""
    from inspect import Parameter, signature
    from typing import get_type_hints

    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    found = [each.name for each in list(signature(factory).parameters.values())[1:] if each.kind in named]
    hints = get_type_hints(factory) if found else {}
    return {name: hints.get(name, Any) for name in found}


class Schedulers:
    """Schedulers by name: those of plugins, and the clusters that settings give a name of their own.

    Args:
        session: name of the session, given to each factory.
        factories: name → factory; None: all that are built in or installed as plugins.
        params: keyword arguments; each factory gets those that it declares, a named cluster none.
        settings: the settings in force.
    """

    def __init__(
        self,
        session: str,
        factories: Mapping[str, SchedulerFactory] | None,
        params: Mapping[str, object],
        settings: Callable[[], Settings],
    ) -> None:
        self._session = session
        self._factories = factories
        self._params = dict(params)
        self._settings = settings
        self._made: dict[str, SchedulerBase] = {}
        self._lock = fork_lock()

    def kinds(self) -> list[str]:
        """Return the names of the schedulers that are built in or installed."""
        if self._factories is not None:
            return list(self._factories)
        from transload.plugins import get_plugins

        return get_plugins().names("schedulers")

    def names(self) -> list[str]:
        """Return the names that can be asked for."""
        kinds = self.kinds()
        return kinds + [name for name in self._settings().clusters() if name not in kinds]

    def kind(self, name: str) -> str:
        """Return the kind of a scheduler: what its table says, else its own name.

        Raises:
            ConfigError: if its table says another kind than the installed scheduler of that name.
            UnknownSchedulerException: if there is none; the nearest name is suggested.
        """
        kinds = self.kinds()
        kind = self._settings().clusters().get(name, name)
        if kind != name and name in kinds:
            taken = f"{name!r} is the name of an installed scheduler"
            raise ConfigError(f"[schedulers.{name}] kind={kind!r}: {taken}: choose another name")
        if kind not in kinds:
            known = self.names() if kind == name else kinds
            raise UnknownSchedulerException(kind, known)
        return kind

    def connection(self, name: str) -> dict[str, Any]:
        """Return the settings of a scheduler's kind that say which cluster it leads to, and their types."""
        return {key: type_ for key, type_ in declared(self._factory(self.kind(name))).items() if key != "name"}

    def get(self, name: str) -> SchedulerBase:
        """Return the scheduler of that name.

        Raises:
            UnknownSchedulerException: if there is none; the nearest name is suggested.
            ConfigError: if its settings are wrong.
            PluginError: if its plugin is broken.
        """
        with self._lock:
            found = self._made.get(name)
            if found is None:
                found = self._made[name] = self._make(name)
            return found

    def _make(self, name: str) -> SchedulerBase:
        kind, factory = self.kind(name), self._factory(self.kind(name))
        settings = self._settings()
        if not self._params and not settings.has_table(name):
            return factory(self._session)
        known = declared(factory)
        connection = settings.connection(name, {key: known[key] for key in known if key != "name"})
        if name == kind:
            given = {key: self._params[key] for key in known if key in self._params}
            return factory(self._session, **connection, **{key: given[key] for key in given if key not in connection})
        if "name" not in known:
            raise ConfigError(f"[schedulers.{name}] kind={kind!r}: a scheduler of this kind has no other name")
        return factory(self._session, name=name, **connection)

    def check_params(self) -> None:
        """Refuse parameters that no scheduler takes.

        Raises:
            ConfigError: naming the parameter, and the nearest one that some scheduler takes.
        """
        if not self._params:
            return
        known: set[str] = set()
        for name in self.kinds():
            with contextlib.suppress(PluginError):  # told when that scheduler is asked for
                known.update(declared(self._factory(name)))
        for param in self._params:
            if param not in known or param == "name":
                raise ConfigError(f"{param}: no scheduler here takes this parameter: {nearest(param, sorted(known))}")

    def close(self) -> None:
        """Close all that were made; running apps go on."""
        with self._lock:
            schedulers = list(self._made.values())
            self._made.clear()
        for scheduler in schedulers:
            scheduler.close()

    def _factory(self, kind: str) -> SchedulerFactory:
        if self._factories is not None:
            return self._factories[kind]
        from transload.plugins import get_plugins

        return cast("SchedulerFactory", get_plugins().get("schedulers", kind))
