"""Is there a program to run? Asked for every role before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping

from transload.errors import SpecError
from transload.schedulers.local.convert import RoleRequest


def resolve(role: RoleRequest, env: Mapping[str, str]) -> str:
    """Return the absolute path of a role's program, found as ``execvpe`` finds it from the role's working directory.

    Args:
        role: the role.
        env: the environment of its replicas; PATH counts.

    Raises:
        SpecError: if the working directory or the program is not there or cannot be used; it names role and file.
    """
    where = f"role {role.name!r}: roles[{role.index}].entrypoint={role.entrypoint!r}"
    if not os.path.isdir(role.cwd):
        raise SpecError(f"role {role.name!r}: the working directory {role.cwd!r} does not exist")
    if "/" in role.entrypoint:
        path = os.path.join(role.cwd, role.entrypoint)
        _check(path, where)
        return path
    tried = env.get("PATH", os.defpath).split(os.pathsep)
    found: str | None = None
    names = [role.entrypoint, "python3"] if role.entrypoint == "python" else [role.entrypoint]
    for path in (os.path.join(role.cwd, folder, name) for name in names for folder in tried):
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                _check(path, where)
                return path
            found = found or path
    if found is not None:
        raise SpecError(f"{where}: {found} is not executable")
    raise SpecError(f"{where}: no such program on PATH ({os.pathsep.join(tried)})")


def _check(path: str, where: str) -> None:
    if os.path.isdir(path):
        raise SpecError(f"{where}: {path} is a folder, not a program")
    if not os.path.exists(path):
        raise SpecError(f"{where}: no such file: {path}")
    if not os.access(path, os.X_OK):
        raise SpecError(f"{where}: {path} is not executable")
    interpreter = _interpreter(path)
    if interpreter is not None and not os.path.exists(interpreter):
        raise SpecError(f"{where}: {path} wants the interpreter {interpreter}, which does not exist")


def _interpreter(path: str) -> str | None:
    """Return the absolute program that a script's first line names."""
    try:
        with open(path, "rb") as file:
            first = file.read(256).split(b"\n", 1)[0]
    except OSError:
        return None  # executable but not readable is fine
    if not first.startswith(b"#!"):
        return None
    words = first[2:].split()
    name = os.fsdecode(words[0]) if words else ""
    return name if name.startswith("/") else None
