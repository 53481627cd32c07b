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

from transload.components import Overrides, overrides_of
from transload.components.programs.record import START
from transload.components.programs.torchrun import script_of_torchrun
from transload.errors import SpecError
from transload.schedulers.environments import Header, read_environment, read_header
from transload.specs import (
    AppDef,
    Environment,
    Role,
    Workspace,
    looks_secret,
    macros,
    nearest,
)
from transload.specs.app import as_environment
from transload.specs.checks import check_str
from transload.specs.secrets import check_source

_PYTHON: Final = r"python(3(\.\d+)?)?\Z"
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take the next word."""
_NO_SCRIPT: Final = ("-m", "-c", "-")
_SETTINGS: Final = (
    "image",
    "replicas",
    "gpu",
    "cpu",
    "mem",
    "time-limit",
    "name",
    "notice",
    "env",
    "secrets",
)
"""The settings of a job that ``[tool.transload]`` in a header may have."""


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
    app: AppDef, headers: Mapping[str, Header], *, is_script: bool = False
) -> AppDef:
    """Return a job with what the headers of its scripts say filled in where it is open.

    Args:
        app: the job, which is not changed.
        headers: role → header.
        is_script: the script itself is run, by no component, so that nobody has chosen a name and
            a number of replicas.

    Raises:
        SpecError: for an unknown key or a wrong value, with file and line.
    """
    for name, header in headers.items():
        settings = HeaderSettings(header)
        app = settings.apply(app, name, is_script=is_script)
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
    """Return what the header of a script asks for, packages or a Python, or None for neither."""
    if header is None or not {"dependencies", "requires-python"} & set(header.table):
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
        table = header.tool("transload")
        for key in table:
            if key not in (*_SETTINGS, "scheduler"):
                hint = nearest(key, [*_SETTINGS, "scheduler"])
                raise SpecError(f"{self._where(key)}: unknown key: {hint}")
        self.scheduler: str | None = table.get("scheduler")
        """The scheduler on which the script is to run."""
        if self.scheduler is not None:
            check_str(self.scheduler, self._where("scheduler"), empty=False)
        given = {key.replace("-", "_"): value for key, value in table.items()}
        given.pop("scheduler", None)
        self._values = overrides_of(given, lambda name: self._where(name.replace("_", "-")))
        self._check_variables()

    def _where(self, key: str) -> str:
        return f"{self._header.path}:{self._header.line_of(key)}: [tool.transload] {key}"

    def _check_variables(self) -> None:
        for name, source in (self._values.secrets or {}).items():
            check_source(source, f"{self._where(name)} in secrets")
        for name in self._values.env or {}:
            if looks_secret(name):
                raise SpecError(
                    f"{self._where(name)} in env: looks like a secret, which must not be written "
                    f'in a script; give its source, secrets = {{ {name} = "env:{name}" }}'
                )

    def apply(self, app: AppDef, role_name: str, *, is_script: bool) -> AppDef:
        """Return a job where what it leaves open, it and one of its roles, is filled in.

        Raises:
            SpecError: for a value that is not allowed.
        """
        values = self._values
        if not is_script:
            values = values._replace(name=None, replicas=None)
        if app.timeout is not None:
            values = values._replace(time_limit=None)
        try:
            for role in app.roles:
                if role.name == role_name:
                    app = _open_values(values, role).apply(app)
        except SpecError as exc:
            where = f"{self._header.path}:{self._header.line_of('[tool.transload]')}"
            raise SpecError(f"{where}: [tool.transload]: {exc}") from exc
        return app


def _open_values(values: Overrides, role: Role) -> Overrides:
    """Return those of the values that a role leaves open, for that role."""
    resource = role.resource
    env = {name: text for name, text in (values.env or {}).items() if name not in role.secrets}
    secrets = {
        name: source for name, source in (values.secrets or {}).items() if name not in role.env
    }
    return values._replace(
        role=role.name,
        image=None if role.image else values.image,
        cpu=values.cpu if resource.cpu < 0 else None,
        gpu=values.gpu if resource.gpu < 0 else None,
        mem=values.mem if resource.memMB < 0 else None,
        notice=values.notice if role.notice is None else None,
        env={**env, **role.env},
        secrets={**secrets, **role.secrets},
    )


def scheduler_of(header: Header | None) -> str | None:
    """Return the scheduler that the header of a script names, or None if it names none."""
    if header is None:
        return None
    return HeaderSettings(header).scheduler
