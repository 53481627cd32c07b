"""Read settings from files, the environment and arguments, with the source of each.

The project's configuration is in ``transload.toml``, or in ``pyproject.toml`` with a
``[tool.transload]`` table. It is searched from the working directory upwards. The user's own file
``$XDG_CONFIG_HOME/transload/config.toml`` has lower priority. ``TRANSLOAD_CONFIG`` names a file that
replaces the project's. The text in ``TRANSLOAD_SETTINGS`` goes before both.
docs/reference/configuration.md has all keys and variables with examples.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import ConfigError, SpecError
from transload.plugins.project import parse_toml, project_file, read_project_table, read_toml
from transload.runner.schedulers import Cluster
from transload.specs import CfgVal, Connection, Option, Options
from transload.specs.checks import nearest, shorten
from transload.specs.settings import SETTINGS, read_table

if TYPE_CHECKING:
    from transload.components import Component

__all__ = ["load_settings"]


KEYS: Final[dict[str, type]] = {
    **dict.fromkeys(("scheduler", "workspace", "tracker_base"), str),
    "pass_env": list,
    **dict.fromkeys(("job", "schedulers", "component", "tracker", "plugins"), dict),
}
"""The keys of a configuration and their types."""

DEFAULT_SCHEDULER: Final = "local"
_ENV: Final = {"scheduler": "TRANSLOAD_SCHEDULER", "workspace": "TRANSLOAD_WORKSPACE"}
_ENV_TRACKERS: Final = "TRANSLOAD_TRACKERS"
_ENV_SETTINGS: Final = "TRANSLOAD_SETTINGS"
_JOB: Final = "job."
"""How the keys of settings of all jobs begin."""
_PROVENANCE: Final = "provenance"  # key of [job] that is about its record alone
_SECRETS: Final = "secrets"  # connection setting → the source of its value, in a scheduler's table


class Setting(NamedTuple):
    """A setting with its source.

    Args:
        key: dotted name, for example ``schedulers.slurm.partition``.
        value: its value.
        source: the file, the environment variable, or ``default``.
        folder: what a local path in it is relative to, that of the project's file. It is ``""`` for
            the working directory.
    """

    key: str
    value: Any
    source: str
    folder: str = ""


class Defaults(dict[str, Any]):
    """The default of each argument. ``sources`` has the file of each."""

    sources: Mapping[str, str] = MappingProxyType({})


class Settings:
    """The current settings. `load_settings` reads them."""

    def __init__(self, values: dict[str, Setting], environ: Mapping[str, str]) -> None:
        self._values = values
        self._environ = environ

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a dotted key, or ``default``."""
        found = self._values.get(key)
        if found is None:
            return default
        return found.value

    @property
    def scheduler(self) -> str:
        """Return the name of the default scheduler."""
        return str(self.get("scheduler", DEFAULT_SCHEDULER))

    @property
    def provenance(self) -> bool:
        """Tell whether jobs keep who asked for them (``[job] provenance``)."""
        return bool(self.get(f"{_JOB}{_PROVENANCE}", default=True))

    def all(self) -> list[Setting]:
        """Return all settings, sorted by key."""
        shown = dict(self._values)
        shown.setdefault("scheduler", Setting("scheduler", DEFAULT_SCHEDULER, "default"))
        for name, config in self.trackers().items():
            key = f"tracker.{name}.config"
            if key not in shown or shown[key].value != config:
                shown[key] = Setting(key, config, f"environment {_ENV_TRACKERS}")
        return [shown[key] for key in sorted(shown)]

    def clusters(self) -> dict[str, str]:
        """Return the kind of each cluster with its own name (``[schedulers.NAME] kind = …``)."""
        found = {}
        for key, setting in self._table("schedulers.").items():
            name, _, option = key.rpartition(".")
            if option == "kind" and setting.value != name:
                found[name] = str(setting.value)
        return found

    def files(self) -> list[str]:
        """Return the configuration files whose settings these are."""
        sources = {setting.source for setting in self._values.values()}
        return sorted(filter(os.path.isabs, sources))

    def scheduler_tables(self) -> dict[str, str]:
        """Return name → file for each table ``[schedulers.NAME]``."""
        tables = self._table("schedulers.")
        return {key.rpartition(".")[0]: item.source for key, item in tables.items()}

    def _table(self, prefix: str) -> dict[str, Setting]:
        """Return the settings below a prefix, by the rest of their keys."""
        return {
            key.removeprefix(prefix): item
            for key, item in self._values.items()
            if key.startswith(prefix)
        }

    def cluster(self, name: str, kind: str, settings: type[Connection]) -> Cluster | None:
        """Return the cluster in a scheduler's table, or None if it selects none.

        Args:
            name: the scheduler.
            kind: its kind.
            settings: the connection settings of that kind.

        Raises:
            ConfigError: if a value is not allowed. The message says where it was set.
        """
        connection: dict[str, CfgVal] = {}
        table = self._table(f"schedulers.{name}.")
        for option in settings.table().values():
            setting = table.get(option.name)
            if setting is not None:
                settings.read_one(option.name, setting.value, f"{setting.source}: {setting.key}")
                connection[option.name] = _option_value(setting, option)
        secrets = self.get(f"schedulers.{name}.{_SECRETS}", {})
        if not connection and not secrets and name not in self.clusters():
            return None
        try:
            return Cluster(name, kind, connection, secrets)
        except ConfigError as exc:
            source = next(item.source for item in table.values())
            raise ConfigError(f"{source}: {exc}") from exc

    def cfg(
        self, scheduler: str, options: type[Options], connection: type[Connection] = Connection
    ) -> dict[str, CfgVal]:
        """Return the options in a scheduler's table.

        Args:
            scheduler: its name.
            options: its options.
            connection: its settings that select a cluster.

        Raises:
            ConfigError: if the scheduler does not have an option, or its value is wrong. The
                message says where it was set.
        """
        cfg: dict[str, CfgVal] = {}
        for name, setting in self._table(f"schedulers.{scheduler}.").items():
            where = f"{setting.source}: {setting.key}"
            option = options.table().get(name)
            if option is not None:
                options.read_one(name, setting.value, where)
                cfg[name] = _option_value(setting, option)
            elif name not in ("kind", _SECRETS, *connection.table()):
                hint = options.hint(name, connection.table())
                raise ConfigError(f"{where}: unknown option: {hint}")
        return cfg

    def job(self) -> dict[str, Any]:
        """Return what is set in all jobs that leave it open, read (``[job]``).

        Raises:
            ConfigError: for a value that no job can have. The message says where it was set.
        """
        return _job_settings(self._table(_JOB))

    def component_defaults(self, component: Component) -> Defaults:
        """Return the configured argument defaults of a component."""
        found = {
            name: item
            for name, item in self._of_component(component).items()
            if component.parameter(name) is not None or name not in SETTINGS
        }
        defaults = Defaults({name: item.value for name, item in found.items()})
        defaults.sources = {name: item.source for name, item in found.items()}
        return defaults

    def component_settings(self, component: Component) -> dict[str, Any]:
        """Return what is set in the jobs of a component, read.

        Its table has arguments of the component, and settings of the job under all other names.

        Raises:
            ConfigError: for a value that no job can have. The message says where it was set.
        """
        found = {
            name: item
            for name, item in self._of_component(component).items()
            if component.parameter(name) is None and name in SETTINGS
        }
        return _job_settings(found)

    def _of_component(self, component: Component) -> dict[str, Setting]:
        """Return the settings in the table of a component.

        A file may be spelled in any way, relative to the working directory or to that of the
        settings file, with or without the function.
        """
        found = {}
        for key, item in self._table("component.").items():
            name, _, entry = key.rpartition(".")
            if _is_same_component(name, component.name, item.source):
                found[entry] = item
        return found

    def plugin(self, name: str, known: Mapping[str, type]) -> dict[str, Any]:
        """Return the checked settings of ``[plugins.NAME]``.

        Args:
            name: the plugin, by the name of its entry point.
            known: the allowed keys, and the type of each.

        Raises:
            ConfigError: if a key or a type is wrong. The message says where it was set.
        """
        table = self._table(f"plugins.{name}.")
        for option, item in table.items():
            where = f"{item.source}: {item.key}"
            if option not in known:
                raise ConfigError(f"{where}: unknown key: {nearest(option, list(known))}")
            if not isinstance(item.value, known[option]):
                raise ConfigError(
                    f"{where}={shorten(item.value)}: must be a {known[option].__name__}"
                )
        return {option: item.value for option, item in table.items()}

    def plugin_path(self, name: str, option: str) -> str | None:
        """Return the local path that ``[plugins.NAME]`` has for an option, or None without it."""
        found = self._values.get(f"plugins.{name}.{option}")
        return None if found is None else beside(found.folder, str(found.value))

    def trackers(self) -> dict[str, str | None]:
        """Return name → configuration text, or None, for the configured trackers.

        ``TRANSLOAD_TRACKERS`` (comma-separated names) replaces the names set in files.
        """
        keys = self._table("tracker.")
        if not keys and not self._environ.get(_ENV_TRACKERS):
            return {}
        from transload.tracker import tracker_config_env_var_name, trackers_in_environ

        if self._environ.get(_ENV_TRACKERS):
            listed = trackers_in_environ(self._environ)
        else:
            names = dict.fromkeys(key.rpartition(".")[0] for key in keys)
            listed = {name: self._environ.get(tracker_config_env_var_name(name)) for name in names}
        found = {}
        for name, config in listed.items():
            if config is None:
                config = self.get(f"tracker.{name}.config")
            found[name] = config
        return found


def load_settings(start: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the current settings.

    Args:
        start: folder from which to search upwards. The default is the working directory.
        environ: the environment. The default is ``os.environ``. An empty variable counts as not
            set.

    Raises:
        ConfigError: if a file is not TOML, or has an unknown key or a wrong type.
    """
    if environ is None:
        environ = os.environ
    values: dict[str, Setting] = {}
    for path, table in _files(start, environ):
        folder = "" if path == _users_file(environ) else os.path.dirname(path)
        for setting in _flatten(path, table, folder):
            values[setting.key] = setting
    if text := environ.get(_ENV_SETTINGS):
        source = f"environment variable {_ENV_SETTINGS}"
        for setting in _flatten(source, parse_toml(text, source), ""):
            values[setting.key] = setting
    for key, variable in _ENV.items():
        if environ.get(variable):
            values[key] = Setting(key, environ[variable], f"environment {variable}")
    return Settings(values, environ)


def _users_file(environ: Mapping[str, str]) -> str:
    """Return the path of the user's own file, which is about all folders and lies in none."""
    home = environ.get("HOME") or os.path.expanduser("~")
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(folder, "transload", "config.toml")


def _files(start: str | None, environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Return ``(path, table)`` for the configuration files, lowest priority first."""
    found = []
    user = _users_file(environ)
    if os.path.isabs(user) and os.path.isfile(user):  # not so where there is no home folder
        found.append((user, read_toml(user)))
    own = project_file(environ, start)
    if own is not None:
        found.append((own, read_project_table(own)))
    return found


def _flatten(path: str, table: Any, folder: str) -> list[Setting]:
    """Return the checked settings of one file, whose paths are relative to a folder."""
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.transload] must be a table")
    found = []
    for key, value in table.items():
        if key not in KEYS and isinstance(value, dict) and ("kind" in value or "ssh" in value):
            raise ConfigError(f"{path}: [{key}] is no table: did you mean [schedulers.{key}]?")
        if key not in KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}: {nearest(key, list(KEYS))}")
        if isinstance(value, dict) and f"{key}s" in KEYS:
            raise ConfigError(f"{path}: [{key}.…] is no table: did you mean [{key}s.…]?")
        if not isinstance(value, KEYS[key]):
            raise ConfigError(f"{path}: {key}={shorten(value)}: must be a {KEYS[key].__name__}")
        if KEYS[key] is not dict:
            _refuse_empty(path, key, value)
            found.append(Setting(key, _with_place(folder, key, value), path, folder))
            continue
        if f"{key}." == _JOB:
            of_jobs = {
                name: Setting(f"{_JOB}{name}", entry, path, folder)
                for name, entry in table[key].items()
            }
            _check_provenance(of_jobs)
            _job_settings(of_jobs)
            # spelled alike, so that the file with the higher priority counts
            found += [item._replace(key=item.key.replace("_", "-")) for item in of_jobs.values()]
            continue
        for name, entries in table[key].items():
            if not isinstance(entries, dict):
                raise ConfigError(f"{path}: {key}.{name}={shorten(entries)}: must be a table")
            if key == "tracker":
                _check_tracker(path, name, entries)
            if key == "schedulers":
                for option, entry in entries.items():
                    _refuse_empty(path, f"{key}.{name}.{option}", entry)
            found += [
                Setting(
                    f"{key}.{name}.{option}",
                    _with_place(folder, option, entry) if key == "schedulers" else entry,
                    path,
                    folder,
                )
                for option, entry in entries.items()
            ]
            if key == "tracker" and not entries:
                found.append(Setting(f"{key}.{name}.config", None, path))
    _check_clusters(path, table.get("schedulers", {}))
    return found


def _check_provenance(table: Mapping[str, Setting]) -> None:
    item = table.get(_PROVENANCE)
    if item is not None and not isinstance(item.value, bool):
        raise ConfigError(f"{item.source}: {item.key}={shorten(item.value)}: must be true or false")


def _job_settings(table: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the settings of jobs in a table, read.

    Raises:
        ConfigError: for an unknown name, or a value that no job can have.
    """
    table = {name: item for name, item in table.items() if name != _PROVENANCE}
    if not table:
        return {}
    values = {name: _with_place(item.folder, name, item.value) for name, item in table.items()}

    def where(name: str) -> str:
        item = table.get(name)
        if item is not None:
            return f"{item.source}: {item.key}"
        first = next(iter(table.values()))  # it is a variable in env or secrets
        return f"{first.source}: {name}"

    try:
        return read_table(values, where, [_PROVENANCE])
    except SpecError as exc:
        raise ConfigError(str(exc)) from exc


def _with_place(folder: str, key: str, value: Any) -> Any:
    """Return a value of a settings file, whose local paths are relative to a folder.

    What else is a path there only the scheduler or plugin knows that reads it.
    """
    if key == _SECRETS and isinstance(value, dict):
        return {name: _secret_of(folder, source) for name, source in value.items()}
    if not isinstance(value, str):
        return value
    if key == "workspace":
        parts = [part.strip().partition("=") for part in value.replace(";", ",").split(",")]
        return ",".join(f"{beside(folder, path)}{sign}{target}" for path, sign, target in parts)
    if key == "environment":
        name, gap, options = value.strip().partition(" ")
        return value if name == "none" else f"{shlex.quote(beside(folder, name))}{gap}{options}"
    return beside(folder, value) if key == "tracker_base" else value


def _secret_of(folder: str, source: Any) -> Any:
    if not isinstance(source, str) or not source.startswith("file:"):
        return source
    return f"file:{beside(folder, source.removeprefix('file:'))}"


def _option_value(setting: Setting, option: Option) -> Any:
    if option.is_local_path and isinstance(setting.value, str):
        return beside(setting.folder, setting.value)
    return setting.value


def beside(folder: str, text: str) -> str:
    """Return a local path that is relative to a folder, or as it is if that is ``""``.

    URLs, texts of several lines and what begins with ``~`` or a macro are returned unchanged.
    """
    if not folder or "://" in text or "\n" in text or text.startswith(("~", "$")):
        return text
    return os.path.normpath(os.path.join(folder, text))


def _refuse_empty(path: str, key: str, value: object) -> None:
    if isinstance(value, str) and not value.strip():
        raise ConfigError(f"{path}: {key}={value!r}: must not be empty: leave it out for none")


def _check_clusters(path: str, tables: dict[str, Any]) -> None:
    """Refuse names of clusters that do not fit into a handle, or hardly differ."""
    taken: dict[str, str] = {}
    for name, entries in tables.items():
        try:
            Cluster(name, entries.get("kind", name))
        except ConfigError as exc:
            raise ConfigError(f"{path}: schedulers.{name}: {exc}") from exc
        other = taken.setdefault(name.replace("-", "_"), name)
        if other != name:
            raise ConfigError(
                f"{path}: schedulers.{name}: differs from {other!r} only in '-' and '_'; choose "
                "another"
            )


def _check_tracker(path: str, name: str, entries: dict[str, Any]) -> None:
    """Refuse settings that a tracker would ignore. It has only one, its configuration text."""
    for option, entry in entries.items():
        where = f"{path}: tracker.{name}.{option}"
        if option != "config":
            raise ConfigError(
                f"{where}: unknown key; a tracker has one, config (a text; of several settings: "
                "JSON)"
            )
        if not isinstance(entry, str):
            raise ConfigError(
                f"{where}={shorten(entry)}: must be a str; several settings are JSON in it"
            )


def _is_same_component(name: str, component: str, source: str) -> bool:
    """Tell whether a name in a settings file is that of a component.

    For files, the paths and the functions are compared.
    """
    if name == component:
        return True
    file, function = _file_and_function(name)
    wanted, wanted_function = _file_and_function(component)
    if not file or not wanted or (function and wanted_function and function != wanted_function):
        return False
    return os.path.realpath(wanted) in (
        os.path.realpath(file),
        os.path.realpath(os.path.join(source, "..", file)),
    )


def _file_and_function(name: str) -> tuple[str, str]:
    """Split a component's name into file and function. Both are empty if it has no file."""
    file = name
    function = ""
    if ":" in name:
        file, _, function = name.rpartition(":")
    if not file.endswith(".py") and "/" not in file:
        return "", ""
    return file, function
