"""Find plugins, set broken ones aside, and return what they registered.

The core's own names are there without any plugin, and pluggy is loaded with the first one only.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import ConfigError, PluginError, TransloadError
from transload.plugins.builtins import BUILTINS
from transload.plugins.distributions import (
    distributed_names,
    find_distribution,
    install_hint,
)
from transload.plugins.entry_points import third_party_installed
from transload.plugins.events import AppEvent
from transload.plugins.project import PLUGIN, load_plugin_file, plugin_file
from transload.runtime.forks import fork_lock
from transload.specs import AppDef
from transload.specs.checks import closest, nearest
from transload.specs.sizes import ResourceFactory, builtin_named_resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pluggy

    from transload.specs import CfgVal

    hookimpl = pluggy.HookimplMarker("transload")
    """Marks a function as the implementation of the hook of its name."""

__all__ = [
    "GROUP",
    "PluginInfo",
    "Plugins",
    "get_plugins",
    "hookimpl",
    "load_attribute",
    "third_party_installed",
]

GROUP: Final = "transload"
"""The entry-point group that plugins are found in."""

DISABLE: Final = "TRANSLOAD_DISABLE_PLUGINS"
"""Environment variable with the plugins (names of entry points, or ``*``) that are not loaded."""

CORE: Final = "transload"
"""The name under which `Plugins.infos` lists what the core itself brings."""

_KINDS: Final = (
    "schedulers",
    "trackers",
    "components",
    "named_resources",
    "adapters",
    "suggesters",
    "cli_commands",
)


def __getattr__(name: str) -> Any:
    if name != "hookimpl":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pluggy

    return pluggy.HookimplMarker("transload")


@dataclass
class PluginInfo:
    """A plugin as `Plugins.infos` lists it.

    Args:
        name: name of its entry point.
        value: what the entry point names, the path of a project's own plugin, or who registered it.
        dist: the distribution that brought it, ``""`` for the core.
        version: version of that distribution.
        status: ``loaded``, ``disabled`` or ``broken``.
        error: the traceback of a broken one.
        provides: kind → names that it registered.
    """

    name: str
    value: str
    dist: str = ""
    version: str = ""
    status: str = "loaded"
    error: str = ""
    provides: dict[str, list[str]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """What brought it: a distribution with its version, a file, or the core."""
        return f"{self.dist} {self.version}".strip() or self.value


class _Entry(NamedTuple):
    thing: Any
    plugin: str
    dist: str


def load_attribute(reference: str) -> Any:
    """Import ``"package.module:attribute"`` and return the attribute (dots allowed).

    Raises:
        ValueError: if it is not of that form.
        ImportError: if the module cannot be imported.
        AttributeError: if it has no such attribute.
    """
    module, colon, attribute = reference.partition(":")
    if not colon or not module or not attribute:
        raise ValueError(f"{reference!r}: must be of the form package.module:attribute")
    thing: Any = importlib.import_module(module)
    for part in attribute.split("."):
        thing = getattr(thing, part)
    return thing


class Plugins:
    """All plugins of this process, and what the core brings.

    Args:
        entry_points: the ``(name, value, distribution, version)`` of plugins to load. None means
            those installed.
        disabled: names that are not loaded. None means those in ``TRANSLOAD_DISABLE_PLUGINS``.
    """

    def __init__(
        self,
        entry_points: list[tuple[str, str, str, str]] | None = None,
        disabled: set[str] | None = None,
    ) -> None:
        self._pluggy: pluggy.PluginManager | None = None
        self._lock = fork_lock()
        self._infos: dict[str, PluginInfo] = {CORE: PluginInfo(CORE, "built in")}
        self._registries: dict[str, dict[str, _Entry]] = {}
        self._no_policy = ""
        """Why nobody knows the project's policy: its plugin cannot be loaded."""
        if disabled is None:
            disabled = {
                name.strip() for name in os.environ.get(DISABLE, "").split(",") if name.strip()
            }
        of_project = entry_points is None
        for name, value, dist, version in _installed() if entry_points is None else entry_points:
            shown = f"{name} ({dist})" if name in self._infos else name
            load = load_attribute if ":" in value else importlib.import_module
            info = PluginInfo(shown, value, dist, version)
            self._load(info, partial(load, value), name in disabled or "*" in disabled)
        if of_project:
            self._load_project(PLUGIN in disabled or "*" in disabled)

    def _load(self, info: PluginInfo, load: Callable[[], object], disabled: bool) -> None:
        """Register a plugin, or set it aside as disabled or broken."""
        self._infos[info.name] = info
        if disabled:
            info.status = "disabled"
            return
        try:
            self._add(load(), info.name)
        except (Exception, SystemExit):
            info.status = "broken"
            info.error = _trace()

    def _load_project(self, disabled: bool) -> None:
        """Register the plugin in one file that lies beside the project's configuration."""
        try:
            path = plugin_file(os.environ)
        except ConfigError:  # whoever reads the settings says it
            return
        if path is None:
            return
        info = PluginInfo(PLUGIN, path)
        self._load(info, partial(load_plugin_file, path, os.environ), disabled)
        if info.status == "broken":
            last = info.error.strip().rpartition("\n")[2]
            self._no_policy = f"{path}: {last} (`transload info {PLUGIN}` says more)"

    def _add(self, plugin: object, name: str) -> None:
        """Register a plugin with pluggy. One that it refuses is not registered afterwards."""
        import pluggy

        if self._pluggy is None:
            from transload.plugins import hookspecs

            self._pluggy = pluggy.PluginManager("transload")
            self._pluggy.add_hookspecs(hookspecs)
        try:
            self._pluggy.register(plugin, name=name)
            self._pluggy.check_pending()
        except ValueError as exc:  # it is registered under another name
            raise PluginError(f"plugin {name!r}: {exc}", name, self._infos[name].dist) from exc
        except pluggy.PluginValidationError as exc:
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
            dist = self._infos[name].dist
            raise PluginError(
                f"plugin {name!r}: {exc} (transload.plugins.hookspecs has the hooks)", name, dist
            ) from exc

    def register(self, plugin: object, name: str, dist: str = "") -> None:
        """Add a plugin object to this process (for programs and tests).

        Raises:
            PluginError: if the name is taken, or the plugin implements a hook that does not exist.
        """
        with self._lock:
            if name in self._infos:
                raise PluginError(f"plugin {name!r} is registered already", name, dist)
            self._infos[name] = PluginInfo(name, "this process", dist)
            try:
                self._add(plugin, name)
            except PluginError:
                del self._infos[name]
                raise
            self._registries.clear()

    def unregister(self, name: str) -> None:
        """Take a plugin out of this process again. Nothing happens if it is not there."""
        with self._lock:
            known = self._infos.pop(name, None) is not None
            if known and self._pluggy is not None and self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
            self._registries.clear()

    def infos(self) -> list[PluginInfo]:
        """Return the core and all plugins, loaded, disabled and broken.

        Each has what it registered.
        """
        for kind in _KINDS:
            self.registry(kind)
        return list(self._infos.values())

    def registry(self, kind: str) -> dict[str, _Entry]:
        """Return by name what the core brings and what was registered.

        Plugins register through the hook ``transload_<kind>``.
        """
        with self._lock:
            found = self._registries.get(kind)
            if found is None:
                found = self._collect(kind)
                self._registries[kind] = found
            return found

    def _collect(self, kind: str) -> dict[str, _Entry]:
        own: Mapping[str, Any] = BUILTINS.get(kind, {})
        if kind == "named_resources":
            own = builtin_named_resources()
        found = {name: _Entry(thing, CORE, "") for name, thing in own.items()}
        if kind in BUILTINS:
            self._infos[CORE].provides[kind] = sorted(found)
        for info, hook in self._implementations(f"transload_{kind}"):
            mine: dict[str, _Entry] = {}
            try:
                hook(register=_registrar(kind, info, found, mine))
            except Exception:
                info.status = "broken"
                info.error = _trace()
                continue
            found.update(mine)
            if mine:
                info.provides[kind] = sorted(mine)
        return found

    def _implementations(self, hook: str) -> Iterator[tuple[PluginInfo, pluggy.HookCaller]]:
        """Yield each plugin that implements a hook, with a caller of its implementation alone.

        The plugins come in the order of their registration, the first one first. Each one is called
        alone so that a failure is the failure of one plugin, whose name is known.
        """
        if self._pluggy is None:
            return
        plugins = self._pluggy.list_name_plugin()
        for name, plugin in plugins:
            others = [other for _, other in plugins if other is not plugin]
            caller = self._pluggy.subset_hook_caller(hook, remove_plugins=others)
            if caller.get_hookimpls():
                yield self._infos[name], caller

    def names(self, kind: str) -> list[str]:
        """Return the registered names of a kind (``schedulers``, ``trackers`` …), sorted."""
        return sorted(self.registry(kind))

    def get(self, kind: str, name: str) -> Any:
        """Return what is registered under ``name``. A string is imported now.

        Raises:
            KeyError: if no such name is registered.
            PluginError: if it cannot be imported.
        """
        thing, plugin, dist = self.registry(kind)[name]
        if not isinstance(thing, str):
            return thing
        try:
            return load_attribute(thing)
        except Exception as exc:
            what = f"{kind.rstrip('s').replace('_', ' ')} {name!r} of plugin {plugin!r}"
            raise PluginError(
                f"{what} cannot be loaded: {type(exc).__name__}: {exc}", plugin, dist
            ) from exc

    def hint(self, kind: str, name: str, known: Sequence[str] = ()) -> str:
        """Return what to say when ``name`` is not registered.

        That is what to install, or the nearest name. It also says which plugins are broken, if any
        are.

        Args:
            kind: ``schedulers``, ``trackers`` …
            name: the name that was asked for.
            known: names that are valid beside the registered ones, such as those of clusters.
        """
        hint = self._missing(kind, name) or self._nearest(kind, name, known)
        broken = [info.name for info in self._infos.values() if info.status == "broken"]
        return (
            f"{hint} (broken plugins, see `transload info`: {', '.join(broken)})"
            if broken
            else hint
        )

    def _missing(self, kind: str, name: str) -> str:
        """Return why a name that a distribution of this project registers is not registered.

        Returns:
            The reason, or ``""`` for any other name.
        """
        distribution = find_distribution(kind, name)
        if distribution is None:
            return ""
        info = self._infos.get(distribution.plugin)
        if info is None:
            return install_hint(distribution)
        if info.status == "disabled":
            return f"the plugin {info.name!r} is disabled by {DISABLE}"
        if info.status == "broken":
            return f"the plugin {info.name!r} is broken"
        return f"the plugin {info.name!r} does not register it"

    def _nearest(self, kind: str, name: str, known: Sequence[str]) -> str:
        """Return the nearest name, installed or not, else all names.

        The text says which of them are not installed.
        """
        there = sorted({*self.names(kind), *known})
        missing = [each for each in distributed_names(kind) if each not in there]
        close = closest(name, [*there, *missing])
        if close is not None:
            return f"did you mean {close!r}?"
        if not missing:
            return nearest(name, there)
        return f"{nearest(name, there)}; not installed: {', '.join(missing)}"

    def named_resources(self) -> dict[str, ResourceFactory]:
        """Return the factories of all named resources, built-in and registered."""
        return {
            name: self.get("named_resources", name) for name in self.registry("named_resources")
        }

    def before_submit(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> AppDef:
        """Return ``app`` as the house policies leave it (see `hookspecs.transload_before_submit`).

        Raises:
            TransloadError: as a policy raised it.
            PluginError: if a policy failed, or did not return an AppDef, or if the project's own
                plugin is broken, so that nobody knows its policy.
        """
        if self._no_policy:
            raise PluginError(self._no_policy, PLUGIN)
        for info, hook in self._implementations("transload_before_submit"):
            what = f"plugin {info.name!r}"
            try:
                results = hook(app=app, scheduler=scheduler, cfg=cfg)
            except TransloadError:
                raise
            except Exception as exc:
                reason = f"{type(exc).__name__}: {exc}"
                raise PluginError(
                    f"{what} failed in transload_before_submit: {reason}", info.name, info.dist
                ) from exc
            for changed in results:  # one, or none for a plugin that returned None
                if not isinstance(changed, AppDef):
                    kind = type(changed).__name__
                    raise PluginError(
                        f"{what}: transload_before_submit returned {kind}, not an AppDef or None",
                        info.name,
                        info.dist,
                    )
                app = changed
        return app

    def app_link(self, handle: str) -> str | None:
        """Return a page about a job, if a plugin offers one. An error is logged."""
        if self._pluggy is None:
            return None
        try:
            link: str | None = self._pluggy.hook.transload_app_link(handle=handle)
        except Exception:
            _log().exception("transload_app_link failed for %s", handle)
            return None
        return link

    def listen(self) -> bool:
        """Tell whether any plugin takes note of events."""
        return any(True for _ in self._implementations("transload_app_event"))

    def emit(self, event: AppEvent) -> None:
        """Report an event to every plugin. Errors are logged."""
        for info, hook in self._implementations("transload_app_event"):
            try:
                hook(event=event)
            except Exception:
                _log().exception(
                    "plugin %r failed in transload_app_event (%s)", info.name, event.id
                )


def _registrar(
    kind: str, info: PluginInfo, taken: dict[str, _Entry], mine: dict[str, _Entry]
) -> Callable[[str, Callable[..., Any] | str], None]:
    def register(name: str, thing: Callable[..., Any] | str) -> None:
        if not isinstance(name, str) or not name or any(c.isspace() for c in name):
            raise PluginError(
                f"{kind}: {name!r}: a name must be a str without spaces", info.name, info.dist
            )
        if not callable(thing) and not (isinstance(thing, str) and ":" in thing):
            message = (
                f"{kind}: {name!r}: must be callable or 'package.module:attribute', not {thing!r}"
            )
            raise PluginError(message, info.name, info.dist)
        owner = {**taken, **mine}.get(name)
        if owner is not None:
            raise PluginError(
                f"{kind}: {name!r} is registered already by {owner.plugin!r}", info.name, info.dist
            )
        mine[name] = _Entry(thing, info.name, info.dist)

    return register


def _trace() -> str:
    import traceback

    return traceback.format_exc()


def _log() -> Any:
    import logging

    return logging.getLogger("transload.plugins")


def _installed() -> list[tuple[str, str, str, str]]:
    """Return the installed entry points of our group.

    All metadata are read only where one may be.
    """
    if not third_party_installed():
        return []
    from importlib.metadata import distributions

    found: dict[tuple[str, str], tuple[str, str, str, str]] = {}
    for dist in distributions():
        for entry in dist.entry_points:
            if entry.group == GROUP:
                # a distribution that lies twice on the path is the first one; two are two
                key = (entry.name, str(dist.name).lower().replace("_", "-").replace(".", "-"))
                found.setdefault(key, (entry.name, entry.value, dist.name, dist.version))
    return [found[key] for key in sorted(found)]


_plugins: Plugins | None = None
_plugins_lock = fork_lock()


def get_plugins() -> Plugins:
    """Return the plugins of this process, loading them at the first call."""
    global _plugins
    with _plugins_lock:
        if _plugins is None:
            _plugins = Plugins()
        return _plugins
