"""Bring the packages that a job needs to where it runs, on every scheduler."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Final

from transload.cli.progress import changing_line
from transload.errors import SubmitError
from transload.schedulers.environments import program
from transload.schedulers.environments.recipe import recipe_of
from transload.specs import AppDef, CfgVal, Environment

if TYPE_CHECKING:
    from transload.schedulers.api import SchedulerBase

__all__ = [
    "MadeEnvironment",
    "follow_making",
    "make_here",
    "order_to_make",
    "program_text",
    "provide_environments",
]

_TRIES: Final = 3
"""How often an environment is made that somebody removes before it can be used."""


@dataclass(frozen=True)
class MadeEnvironment:
    """An environment that lies on a scheduler.

    Args:
        key: its name there, 32 hex digits.
        kind: see `transload.specs.Environment`.
        name: name of the file that it was first made from.
        sha256: digest of its content.
        size: bytes that it takes, or None if that is not known.
        files: number of its files and folders, or None if that is not known.
        last_used: when it was last used, seconds since the epoch, or None if that is not known.
        in_use: a job uses it that has not ended.
        path: where it lies, for people.
    """

    key: str
    kind: str
    name: str
    sha256: str
    size: int | None = None
    files: int | None = None
    last_used: float | None = None
    in_use: bool = False
    path: str = ""

    @staticmethod
    def of_record(record: Mapping[str, Any], in_use: bool) -> MadeEnvironment:
        """Return what `program.listed` says of one."""
        return MadeEnvironment(
            key=str(record["key"]),
            kind=str(record.get("kind", "")),
            name=str(record.get("name", "")),
            sha256=str(record.get("sha256", "")),
            size=record.get("bytes"),
            files=record.get("files"),
            last_used=record.get("last_used"),
            in_use=in_use,
            path=str(record.get("path", "")),
        )


def provide_environments(
    scheduler: SchedulerBase,
    app: AppDef,
    cfg: Mapping[str, CfgVal],
    secrets: Mapping[str, Mapping[str, str]],
) -> AppDef:
    """Let a scheduler make what the roles of a job need installed, and return the changed job.

    Args:
        scheduler: makes them, each once for its content.
        app: the job, which is not changed.
        cfg: its run options.
        secrets: role → variable → value, for an index that wants a password.

    Raises:
        SpecError: if a file has changed since the dry-run.
        SubmitError: if one cannot be made. The message has the installer's last lines.
    """
    roles = []
    for role in app.roles:
        environment = role.environment
        if environment is None:
            roles.append(role)
            continue
        recipe = recipe_of(environment)
        values = {**role.env, **secrets.get(role.name, {})}
        variables = recipe.variables_from(values)
        roles.append(scheduler.provide_environment(role, recipe, cfg, variables))
    return replace(app, roles=roles)


def order_to_make(
    root: str,
    recipe: dict[str, Any],
    *,
    python: str = "",
    place: str = "",
    uv: str | None = None,
    wheels: str = "",
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the order to make an environment, one line of JSON for the program's stdin.

    The caller keeps stdin open, since the program stops when it closes.

    Args:
        root: folder of all environments, where the program runs. ``~`` is its user's.
        recipe: `Recipe.to_dict`.
        python: the interpreter to use, and no other. ``""`` means the first ``python3`` on PATH
            that fits.
        place: which Python that is, as far as it is known. Another one makes another environment.
        uv: path of uv there. ``""`` means pip, and None means uv if it is on PATH.
        wheels: a folder there with wheels, in place of any index.
        variables: for the installer alone. They are never written to disk, nor shown.
    """
    return {
        "do": "make",
        "watch": True,
        "root": root,
        "recipe": recipe,
        "python": python,
        "place": place,
        "uv": uv,
        "wheels": wheels,
        "variables": dict(variables or {}),
    }


def program_text() -> str:
    """Return the program that makes environments, in Python 3.8 and the standard library alone."""
    with open(program.__file__, encoding="utf-8") as file:
        return file.read()


_TRANSLOAD_WANTED: Final = re.compile(r"(found for|[Bb]ecause) transload\b")
"""What pip and uv say where an index has no transload."""
_WITHOUT_TRANSLOAD: Final = (
    "the index has no transload; a program can take one file along instead: transload runtime > "
    "transload_runtime.py"
)


def follow_making(
    lines: Iterable[bytes], environment: Environment, *, without_index: str = ""
) -> dict[str, Any]:
    """Show what the program writes while it makes an environment, and return its last message.

    Args:
        lines: lines of its stdout, as they come.
        environment: which one, for people.
        without_index: what to do if its installer reaches no index, for the message.

    Returns:
        The keys ``made`` (False if it was there), ``path``, ``key`` and ``seconds``.

    Raises:
        SubmitError: if it failed, with the installer's last lines, or ended without a result.
    """
    title = f"environment {environment}"
    last = ""
    with changing_line(rare=True, error_says_it=True) as show:
        for data in lines:
            try:
                said = json.loads(data)
            except ValueError:
                continue  # what a shell writes when it starts
            if not isinstance(said, dict):
                continue
            if "error" in said:
                raise _failure(title, said, without_index)
            if "made" in said:
                if said["made"]:
                    show(f"{title}: made in {said['seconds']:.1f} s")
                return said
            last = str(said.get("line", last))
            show(f"environment {environment.name}: {said.get('seconds', 0):.0f} s: {last}")
    raise SubmitError(f"{title}: cannot be made: what makes it ended without a word", True)


def _failure(title: str, said: Mapping[str, Any], without_index: str) -> SubmitError:
    text = f"{title}: cannot be made: {said['error']}"
    lines = said.get("lines", ())
    if without_index and program.is_away(lines):
        text += f"; {without_index}"
    if any(_TRANSLOAD_WANTED.search(line) for line in lines):
        text += f"; {_WITHOUT_TRANSLOAD}"
    return SubmitError(text, bool(said.get("transient")), lines=lines)


def make_here(
    root: str,
    recipe: dict[str, Any],
    environment: Environment,
    *,
    python: str,
    place: str,
    variables: Mapping[str, str],
) -> tuple[str, int]:
    """Return the folder of an environment on this machine, and a descriptor.

    It is made if it is not there. As long as the descriptor is open, nobody removes it.

    Args:
        root: folder of all environments.
        recipe: `Recipe.to_dict`.
        environment: which one, for people.
        python: see `order_to_make`.
        place: see `order_to_make`.
        variables: see `order_to_make`.

    Raises:
        SubmitError: if it cannot be made.
    """
    key = program.key_of(recipe, python or place)
    order = order_to_make(root, recipe, python=python, place=place, variables=variables)
    for _ in range(_TRIES):
        held = _begin_to_use(root, key)
        if held is not None:
            return held
        with _running(order) as output:
            follow_making(output, environment)
    raise SubmitError(
        f"environment {environment}: another process removes it as soon as it is made", True
    )


def _begin_to_use(root: str, key: str) -> tuple[str, int] | None:
    """Return the folder of a finished environment, and a descriptor that keeps it, else None."""
    if program.find(root, key) is None:
        return None
    lock = program.hold(root, key, shared=True)
    folder = program.find(root, key)
    if folder is None or lock is None:
        if lock is not None:
            os.close(lock)
        return None
    return folder, lock


@contextmanager
def _running(order: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """Run the program here with an order, and give its stdout. It ends with this block."""
    import subprocess

    process = subprocess.Popen(
        [sys.executable, "-I", str(program.__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        yield process.stdout
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # which ends it, if it still works
        process.wait()
        process.stdout.close()
