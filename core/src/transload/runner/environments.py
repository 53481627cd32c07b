"""Find the packages that a job needs installed where it runs.

They are those that were named, else those in the header of its script.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError
from transload.schedulers import environments
from transload.specs import (
    AppDef,
    Environment,
    Options,
    Role,
    Workspace,
    macros,
)
from transload.specs.app import as_environment
from transload.specs.checks import check_str
from transload.specs.settings import SETTINGS, read_table, with_settings

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase
    from transload.schedulers.environments import Header, Packages

_PYTHON: Final = r"python(3(\.\d+)?)?\Z"
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take the next word."""
_NO_SCRIPT: Final = ("-m", "-c", "-")


def script_in(words: Sequence[str]) -> str | None:
    """Return the Python script that a command such as ``python train.py`` or ``train.py`` runs.

    A script that ``dist.ddp`` has torchrun start counts likewise. A script of ``uv run`` does not,
    since uv itself provides its packages.
    """
    left = list(words)
    if not left:
        return None
    program = left.pop(0)
    if program.endswith(".py"):
        return program
    if program == "bash" and left[:1] == ["-c"] and left[2:3] == ["torchrun"]:
        return next((word for word in left[3:4] if word.endswith(".py")), None)
    if not re.match(_PYTHON, os.path.basename(program)):
        return None
    while left:
        word = left.pop(0)
        if word in _NO_SCRIPT:
            return None
        if word in _WITH_VALUE:
            del left[:1]
        elif not word.startswith("-"):
            return word if word.endswith(".py") else None
    return None


def is_script(path: str) -> bool:
    """Tell whether a file is a script with a header and no component, without executing it.

    Raises:
        SpecError: if its header cannot be read, with file and line.
    """
    if not path.endswith(".py") or environments.read_header(path) is None:
        return False
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True  # Python says what is wrong when it runs
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    texts = [ast.unparse(node.returns) for node in functions if node.returns is not None]
    return not any(text.strip("\"'").endswith("AppDef") for text in texts)


def script_of(role: Role, folders: Sequence[str]) -> str | None:
    """Return the local path of the script that a role runs, or None if it runs none that is here.

    Args:
        role: the role.
        folders: where it may lie. The first that holds it counts.
    """
    word = script_in([role.entrypoint, *role.args])
    if word is None:
        return None
    word = word.removeprefix(f"{macros.img_root}/")
    if os.path.isabs(word):
        return word if os.path.isfile(word) else None
    for path in _candidates(word, role, folders):
        if os.path.isfile(path):
            return path
    return None


def _candidates(word: str, role: Role, folders: Sequence[str]) -> Iterable[str]:
    """Return the paths where a script may lie, the likeliest first."""
    for folder, target in _projects(role.workspace).items():
        inner = os.path.normpath(word)
        if target:
            inner = os.path.relpath(inner, target)
        if not inner.startswith(".."):
            yield os.path.join(os.path.expanduser(folder), inner)
    if role.workspace:
        return
    image = os.path.expanduser(role.image)
    if role.image and os.path.isdir(image):
        yield os.path.join(image, word)
        return
    for folder in folders:
        yield os.path.join(folder, word)


def _projects(workspace: Workspace | None) -> Mapping[str, str]:
    return workspace.projects if workspace is not None else {}


def script_of_function(fn: object) -> str | None:
    """Return the path of the script that defines a function, or None if there is none."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return file if file is not None and file.endswith(".py") else None


def is_installed_folder(path: str) -> bool:
    """Tell whether a folder of the module path belongs to Python or its installed packages."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    return any(path == each or path.startswith(f"{each}{os.sep}") for each in folders)


def headers_of(app: AppDef, folders: Mapping[str, Sequence[str]]) -> dict[str, Header]:
    """Return the headers of the scripts that roles run, by role.

    Args:
        app: the job.
        folders: role → where its script may lie, if it has no workspace.

    Raises:
        SpecError: if one cannot be read, with file and line.
    """
    found = {}
    for role in app.roles:
        script = script_of(role, folders.get(role.name, ()))
        if script is None:
            continue
        header = environments.read_header(script)
        if header is not None:
            found[role.name] = header
    return found


def with_open_settings(
    app: AppDef,
    headers: Mapping[str, Header],
    defaults: Mapping[str, Any] = MappingProxyType({}),
    *,
    is_command: bool = False,
) -> AppDef:
    """Return a job in which settings are filled in that it leaves open.

    Those in the header of a role's script go before the defaults of all jobs.

    Args:
        app: the job, which is not changed.
        headers: role → header.
        defaults: settings of all jobs, as `transload.specs.settings.read_settings` returns them.
        is_command: the job is made of a command, so that nobody has chosen its name and its number
            of replicas.

    Raises:
        SpecError: for an unknown key or a wrong value, with file and line.
    """
    for role in app.roles:
        found: Mapping[str, Any] = {}
        header = headers.get(role.name)
        if header is not None:
            _, found = settings_of(header)
            try:
                own = {**found, "role": role.name}
                app = with_settings(app, own, only_open=True, is_command=is_command)
            except SpecError as exc:
                where = f"{header.path}:{header.line_of('[tool.transload]')}"
                raise SpecError(f"{where}: [tool.transload]: {exc}") from exc
        rest = {
            name: value
            for name, value in defaults.items()
            if name not in found or SETTINGS[name].adds
        }
        rest["role"] = role.name
        app = with_settings(app, rest, only_open=True, is_command=is_command)
    return app


def with_environments(
    app: AppDef,
    named: Environment | str | None,
    configured: Environment | str | None,
    headers: Mapping[str, Header],
    folder: str,
) -> AppDef:
    """Return a job whose roles say what must be installed for them.

    What was named for the launch goes before what a role says, then comes what the settings say,
    then the header of the role's script.

    Args:
        app: the job, which is not changed.
        named: for the launch.
        configured: by the settings of the scheduler.
        headers: role → header of its script.
        folder: what paths are relative to.

    Raises:
        SpecError: if a file cannot be read, or is wrong.
    """
    given = as_environment(named, "environment")
    settings = as_environment(configured, "environment (settings)")
    roles = []
    is_changed = False
    for index, role in enumerate(app.roles):
        header = None
        if not _is_run_by_uv(role, headers.get(role.name)):
            header = environment_of(headers.get(role.name))
        wanted = given or role.environment or settings or header
        found = None
        if wanted is not None and not wanted.is_none:
            found = environments.read_environment(wanted, folder, f"roles[{index}].environment")
        if found != role.environment:
            is_changed = True
            role = replace(role, environment=found)
        roles.append(role)
    if not is_changed:
        return app
    return replace(app, roles=roles)


def with_packages(
    app: AppDef, scheduler: SchedulerBase, opts: Options
) -> tuple[AppDef, dict[str, Packages]]:
    """Return a job whose roles run with their packages, and what each role needs.

    Args:
        app: the job, which is not changed.
        scheduler: where it goes.
        opts: its run options.

    Raises:
        SpecError: if a file cannot be read, or is wrong.
        ConfigError: if uv is needed here, and there is none.
    """
    needed = {role.name: role.environment for role in app.roles if role.environment is not None}
    if not needed:
        return app, {}
    found = {name: environments.packages_of(environment) for name, environment in needed.items()}
    roles = [
        scheduler.with_packages(role, found[role.name], opts) if role.name in found else role
        for role in app.roles
    ]
    return replace(app, roles=roles), found


def _is_run_by_uv(role: Role, header: Header | None) -> bool:
    """Tell whether a role runs a script by itself whose first line names uv.

    uv then installs what the script needs (``#!/usr/bin/env -S uv run --script``).
    """
    return header is not None and role.entrypoint.endswith(".py") and "uv" in header.interpreter


def environment_of(header: Header | None) -> Environment | None:
    """Return what the header of a script asks for, packages or a Python, or None for neither."""
    if header is None or not {"dependencies", "requires-python"} & set(header.table):
        return None
    source = os.path.abspath(header.path)
    return Environment("script", os.path.basename(source), source=source)


def settings_of(header: Header) -> tuple[str | None, dict[str, Any]]:
    """Return the scheduler and the settings that ``[tool.transload]`` in a header names.

    Raises:
        SpecError: for an unknown key, a wrong value, or a secret that is not a reference, with file
            and line.
    """

    def where(key: str) -> str:
        return f"{header.path}:{header.line_of(key)}: [tool.transload] {key}"

    table = dict(header.tool("transload"))
    scheduler: str | None = table.pop("scheduler", None)
    if scheduler is not None:
        check_str(scheduler, where("scheduler"), empty=False)
    return scheduler, read_table(table, where, ["scheduler"])


def scheduler_of(header: Header | None) -> str | None:
    """Return the scheduler that the header of a script names, or None if it names none."""
    if header is None:
        return None
    return settings_of(header)[0]
