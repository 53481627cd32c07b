"""Find the project: its configuration file, and the plugin in one file that may lie beside it."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from transload.errors import ConfigError, PluginError

CONFIG: Final = "TRANSLOAD_CONFIG"
"""Environment variable with the path of a file that replaces the project's configuration."""

PLUGIN: Final = "transload_plugins"
"""Name of the project's own plugin, and of its module ``transload_plugins.py``."""

_INSIDE: Final = "TRANSLOAD_JOB_ID"


def project_file(environ: Mapping[str, str], start: str | None = None) -> str | None:
    """Return the project's configuration file, or None where there is none.

    It is the one that ``TRANSLOAD_CONFIG`` names, else the first ``transload.toml``, or
    ``pyproject.toml`` with a table ``[tool.transload]``, from the folder ``start`` (default: the
    working directory) upwards.

    Raises:
        ConfigError: if ``TRANSLOAD_CONFIG`` names no file, or a ``pyproject.toml`` is not TOML.
    """
    if named := environ.get(CONFIG):
        if not os.path.isfile(named):
            raise ConfigError(f"environment variable {CONFIG}={named!r}: there is no such file")
        return os.path.abspath(named)
    here = Path(start or os.getcwd()).absolute()
    for folder in (here, *here.parents):
        own = folder / "transload.toml"
        if own.is_file():
            return str(own)
        shared = folder / "pyproject.toml"
        if shared.is_file() and _mentions_us(shared) and "transload" in _tools(str(shared)):
            return str(shared)
    return None


def _mentions_us(path: Path) -> bool:
    # this check is faster than importing and running the TOML parser
    try:
        return b"transload" in path.read_bytes()
    except OSError:
        return False


def _tools(path: str) -> dict[str, Any]:
    tools = read_toml(path).get("tool", {})
    return tools if isinstance(tools, dict) else {}


def read_project_table(path: str) -> Any:
    """Return what a configuration file says about transload, unchecked."""
    if os.path.basename(path) == "pyproject.toml":
        return _tools(path).get("transload", {})
    return read_toml(path)


def read_toml(path: str) -> dict[str, Any]:
    """Return what is in a TOML file.

    Raises:
        ConfigError: if it cannot be read.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path}: cannot be read as TOML: {exc}") from exc
    return parse_toml(text, path)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return what a TOML text says; ``source`` stands in errors.

    Raises:
        ConfigError: if it is not TOML.
    """
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as exc:
        raise ConfigError(f"{source}: cannot be read as TOML: it is nested too deep") from exc
    except ValueError as exc:
        raise ConfigError(f"{source}: cannot be read as TOML: {exc}") from exc


def plugin_file(environ: Mapping[str, str]) -> str | None:
    """Return the path of ``transload_plugins.py`` beside the project's configuration, or None.

    A job has none: its workspace may hold a copy, which is not asked to decide anything there.
    """
    if environ.get(_INSIDE):
        return None
    found = project_file(environ)
    if found is None:
        return None
    path = os.path.join(os.path.dirname(found), f"{PLUGIN}.py")
    return path if os.path.isfile(path) else None


def load_plugin_file(path: str, environ: Mapping[str, str]) -> ModuleType:
    """Run a ``transload_plugins.py`` and return its module.

    A folder above the working directory may be another user's. So a file that was found by
    searching must belong to this user or root, and not everybody may write to it.

    Raises:
        PluginError: if it is another user's, or everybody can write to it.
    """
    if not environ.get(CONFIG):
        _refuse_strangers(path)
    spec = importlib.util.spec_from_file_location(PLUGIN, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PLUGIN] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[PLUGIN]
        raise
    return module


def _refuse_strangers(path: str) -> None:
    for each in (path, os.path.dirname(path)):
        found = os.stat(each)
        why = ""
        if found.st_uid not in (os.geteuid(), 0):
            why = f"belongs to user {found.st_uid}"
        elif found.st_mode & stat.S_IWOTH:
            why = f"can be written by everybody (mode {stat.S_IMODE(found.st_mode):o})"
        if why:
            raise PluginError(
                f"{path}: is not run, because {each} {why}; set {CONFIG} to the configuration "
                f"beside it if you trust it, or TRANSLOAD_DISABLE_PLUGINS={PLUGIN} to leave it out",
                PLUGIN,
            )
