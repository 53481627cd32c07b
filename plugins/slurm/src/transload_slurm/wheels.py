"""Wheels for the Python of a login node that reaches no index: they are fetched here, and sent."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SubmitError

if TYPE_CHECKING:
    from transload.schedulers.environments import Recipe

_KEPT_LINES: Final = 12
_OLD_GLIBC: Final = 5
"""The oldest minor version of glibc 2 that wheels are made for."""
_OTHER_NAMES: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Minor version of glibc → what it was called before."""


def fetch(
    recipe: Recipe, wanted: Mapping[str, Any], variables: Mapping[str, str], folder: str
) -> None:
    """Fetch the wheels of an environment into a folder, by the pip of this Python.

    Args:
        recipe: what is to be installed: requirements.
        wanted: ``version`` of the Python there, ``machine``, and ``glibc`` (``""``: another libc).
        variables: for the installer alone.
        folder: an empty one.

    Raises:
        SubmitError: if this Python has no pip, or they cannot be fetched; with the last lines of
            pip.
    """
    title = f"environment {recipe.environment}"
    if recipe.needs_uv:
        raise SubmitError(f"{title}: not possible with offline=true: {recipe.needs_uv} needs uv")
    if importlib.util.find_spec("pip") is None:
        raise SubmitError(
            f"{title}: with offline=true, the pip of {sys.executable} fetches the wheels, and it has "
            f"none; install it: {sys.executable} -m ensurepip, or uv pip install pip"
        )
    files = os.path.join(folder, "files")
    for name, text in recipe.files.items():
        path = os.path.join(files, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    wheels = os.path.join(folder, "wheels")
    os.mkdir(wheels)
    words = [sys.executable, "-m", "pip", "download", "--no-input", "--only-binary=:all:"]
    words += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={wheels}"]
    words += ["--implementation=cp", f"--python-version={wanted['version']}"]
    words += [f"--platform={name}" for name in platforms(wanted["glibc"], wanted["machine"])]
    if recipe.hashed:
        words.append("--require-hashes")
    done = subprocess.run(
        [*words, "-r", recipe.requirements],
        cwd=files,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        there = f"Python {wanted['version']} on {wanted['machine']}"
        raise SubmitError(
            f"{title}: its wheels for {there} cannot be fetched here",
            lines=lines[-_KEPT_LINES:],
        )


def platforms(glibc: str, machine: str) -> Sequence[str]:
    """Return the names of the platforms whose wheels a machine can use, the best first.

    Args:
        glibc: its version, such as ``2.31``; ``""``: another libc, taken for musl 1.2.
        machine: such as ``x86_64``.
    """
    if not glibc:
        return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1)]
    newest = int(glibc.split(".")[1])
    names = []
    for minor in range(newest, _OLD_GLIBC - 1, -1):
        names.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OTHER_NAMES:
            names.append(f"{_OTHER_NAMES[minor]}_{machine}")
    return [*names, f"linux_{machine}"]
