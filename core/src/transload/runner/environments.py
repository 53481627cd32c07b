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
from typing import Final

from transload.components.programs.record import START
from transload.components.programs.torchrun import script_of_torchrun
from transload.errors import SpecError
from transload.schedulers.environments import Header, read_environment, read_header
from transload.specs import (
    AppDef,
    Environment,
    Notice,
    Role,
    Workspace,
    looks_secret,
    macros,
    nearest,
)
from transload.specs.app import as_environment
from transload.specs.checks import shorten
from transload.specs.secrets import check_source
from transload.specs.text import parse_duration, parse_size

_PYTHON: Final = r"python(3(\.\d+)?)?\Z"
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take the next word."""
_NO_SCRIPT: Final = ("-m", "-c", "-")
_HEADER_KEYS: Final[dict[str, tuple[type, ...]]] = {
    "image": (str,),
    "replicas": (int,),
    "gpu": (int,),
    "cpu": (int, float),
    "mem": (str, int),
    "time-limit": (str, int, float),
    "scheduler": (str,),
    "name": (str,),
    "notice": (str, int, float),
    "env": (dict,),
    "secrets": (dict,),
}
"""The keys of ``[tool.transload]`` in a header, and their types."""


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
    if program == "bash" and left[:1] == ["-c"]:
        return script_of_torchrun(" ".join(left[1:2]))
    if not re.match(_PYTHON, os.path.basename(program)):
        return None
    while left:
        word = left.pop(0)
        if word == "-c" and left[:1] == [START]:
            del left[:1]  # what follows is run by Python's own rules (see `recorded`)
            continue
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
    if not path.endswith(".py") or read_header(path) is None:
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
        header = read_header(script)
        if header is not None:
            found[role.name] = header
    return found


def with_header_settings(
    app: AppDef, headers: Mapping[str, Header], *, names_app: bool = False
) -> AppDef:
    """Return a job with what the headers of its scripts say filled in where it is open.

    Args:
        app: the job, which is not changed.
        headers: role → header.
        names_app: the name that a header gives goes before the job's, which nobody has chosen.

    Raises:
        SpecError: for an unknown key or a wrong value, with file and line.
    """
    for name, header in headers.items():
        settings = HeaderSettings(header)
        app = settings.apply(app, name, names_app=names_app)
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
            found = read_environment(wanted, folder, f"roles[{index}].environment")
        if found != role.environment:
            is_changed = True
            role = replace(role, environment=found)
        roles.append(role)
    if not is_changed:
        return app
    return replace(app, roles=roles)


def _is_run_by_uv(role: Role, header: Header | None) -> bool:
    """Tell whether a role runs a script by itself whose first line names uv.

    uv then installs what the script needs (``#!/usr/bin/env -S uv run --script``).
    """
    return header is not None and role.entrypoint.endswith(".py") and "uv" in header.interpreter


def environment_of(header: Header | None) -> Environment | None:
    """Return the packages that the header of a script asks for, or None if it names none."""
    if header is None or "dependencies" not in header.table:
        return None
    source = os.path.abspath(header.path)
    return Environment("script", os.path.basename(source), source=source)


class HeaderSettings:
    """What ``[tool.transload]`` in the header of a script says of its job.

    Args:
        header: the header.

    Raises:
        SpecError: for an unknown key, a wrong value, or a secret that is not a reference, with file
            and line.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._table = header.tool("transload")
        for key, value in self._table.items():
            self._check(key, value)

    def _where(self, key: str) -> str:
        return f"{self._header.path}:{self._header.line_of(key)}: [tool.transload] {key}"

    def _check(self, key: str, value: object) -> None:
        where = self._where(key)
        if key not in _HEADER_KEYS:
            raise SpecError(f"{where}: unknown key: {nearest(key, list(_HEADER_KEYS))}")
        kind = _HEADER_KEYS[key]
        if isinstance(value, bool) or not isinstance(value, kind):
            names = " or ".join(_TYPES[each] for each in kind)
            raise SpecError(f"{where}={shorten(value)}: must be {names}")
        if isinstance(value, dict):
            self._check_variables(key, value)

    def _check_variables(self, key: str, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            where = f"{self._where(name)} in {key}"
            if not isinstance(value, str):
                raise SpecError(f"{where}: must be a text")
            if key == "secrets":
                check_source(value, where)
            elif looks_secret(name):
                raise SpecError(
                    f"{where}: looks like a secret, which must not be written in a script; give "
                    f'its source, secrets = {{ {name} = "env:{name}" }}'
                )

    @property
    def scheduler(self) -> str | None:
        """Return the name of the scheduler on which the script is to run."""
        return self._table.get("scheduler")

    def apply(self, app: AppDef, role_name: str, *, names_app: bool) -> AppDef:
        """Return a job where what it leaves open, it and one of its roles, is filled in.

        Raises:
            SpecError: for a value that is not allowed.
        """
        if not self._table:
            return app
        values = self._table
        try:
            roles = [
                self._apply_to_role(role) if role.name == role_name else role for role in app.roles
            ]
            app = replace(app, roles=roles)
            if "time-limit" in values and app.timeout is None:
                app = replace(app, timeout=_seconds(values["time-limit"], "time-limit"))
            if "name" in values and names_app:
                app = replace(app, name=values["name"])
        except SpecError as exc:
            where = f"{self._header.path}:{self._header.line_of('[tool.transload]')}"
            raise SpecError(f"{where}: [tool.transload]: {exc}") from exc
        return app

    def _apply_to_role(self, role: Role) -> Role:
        values = self._table
        mem = values.get("mem")
        if isinstance(mem, str):
            mem = parse_size(mem, "mem")
        resource = role.resource
        if "cpu" in values and resource.cpu < 0:
            resource = replace(resource, cpu=values["cpu"])
        if "gpu" in values and resource.gpu < 0:
            resource = replace(resource, gpu=values["gpu"])
        if mem is not None and resource.memMB < 0:
            resource = replace(resource, memMB=-(-mem // (1 << 20)))
        replicas = role.num_replicas
        if replicas == 1:
            replicas = values.get("replicas", 1)
        notice = role.notice
        if notice is None and "notice" in values:
            notice = Notice(_seconds(values["notice"], "notice"))
        secrets = {
            name: source
            for name, source in values.get("secrets", {}).items()
            if name not in role.env
        }
        env = {
            name: value for name, value in values.get("env", {}).items() if name not in role.secrets
        }
        return replace(
            role,
            image=role.image or values.get("image", ""),
            num_replicas=replicas,
            resource=resource,
            notice=notice,
            env={**env, **role.env},
            secrets={**secrets, **role.secrets},
        )


_TYPES: Final = {str: "a text", int: "a whole number", float: "a number", dict: "a table"}


def _seconds(value: str | float, what: str) -> float:
    if isinstance(value, str):
        return parse_duration(value, what)
    return float(value)


def scheduler_of(header: Header | None) -> str | None:
    """Return the scheduler that the header of a script names, or None if it names none."""
    if header is None:
        return None
    return HeaderSettings(header).scheduler
