"""The schedulers of a runner, each made once, when it is first asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from transload._forks import fork_lock
from transload.errors import ConfigError, PluginError
from transload.specs import UnknownSchedulerException, nearest

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase, SchedulerFactory


def declared(factory: SchedulerFactory) -> list[str]:
    """Return the names of the parameters that a factory declares after the session; ``**params`` declares none."""
    from inspect import Parameter, signature

    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [each.name for each in list(signature(factory).parameters.values())[1:] if each.kind in named]


class Schedulers:
    """Schedulers by name.

    Args:
        session: name of the session, given to each factory.
        factories: name → factory; None: all that are built in or installed as plugins.
        params: keyword arguments; each factory gets those that it declares.
    """

    def __init__(
        self, session: str, factories: Mapping[str, SchedulerFactory] | None, params: Mapping[str, object]
    ) -> None:
        self._session = session
        self._factories = factories
        self._params = dict(params)
        self._made: dict[str, SchedulerBase] = {}
        self._lock = fork_lock()

    def names(self) -> list[str]:
        """Return the names that can be asked for."""
        if self._factories is not None:
            return list(self._factories)
        from transload.plugins import get_plugins

        return get_plugins().names("schedulers")

    def get(self, name: str) -> SchedulerBase:
        """Return the scheduler of that name.

        Raises:
            UnknownSchedulerException: if there is none; the nearest name is suggested.
            PluginError: if its plugin is broken.
        """
        with self._lock:
            found = self._made.get(name)
            if found is None:
                factory = self._factory(name)
                names = declared(factory) if self._params else ()
                params = {key: self._params[key] for key in names if key in self._params}
                found = self._made[name] = factory(self._session, **params)
            return found

    def check_params(self) -> None:
        """Refuse parameters that no scheduler takes.

        Raises:
            ConfigError: naming the parameter, and the nearest one that some scheduler takes.
        """
        if not self._params:
            return
        known: set[str] = set()
        for name in self.names():
            with contextlib.suppress(PluginError):  # told when that scheduler is asked for
                known.update(declared(self._factory(name)))
        for param in self._params:
            if param not in known:
                raise ConfigError(f"{param}: no scheduler here takes this parameter: {nearest(param, sorted(known))}")

    def close(self) -> None:
        """Close all that were made; running apps go on."""
        with self._lock:
            schedulers = list(self._made.values())
            self._made.clear()
        for scheduler in schedulers:
            scheduler.close()

    def _factory(self, name: str) -> SchedulerFactory:
        if self._factories is not None:
            if name not in self._factories:
                raise UnknownSchedulerException(name, list(self._factories))
            return self._factories[name]
        from transload.plugins import get_plugins

        plugins = get_plugins()
        if name not in plugins.registry("schedulers"):
            raise UnknownSchedulerException(name, plugins.names("schedulers"))
        return cast("SchedulerFactory", plugins.get("schedulers", name))
