"""Fetch wheels here for a Python elsewhere that reaches no index. Then they travel."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from transload.errors import SubmitError
from transload.schedulers.environments.program import (
    ANOTHER_PYTHON,
    KEPT_LINES,
    may_pass,
    satisfies,
)

if TYPE_CHECKING:
    from transload.schedulers.environments.recipe import Recipe

__all__ = ["PLATFORM_FORM", "WheelTarget", "fetch_wheels"]

PLATFORM_FORM: Final = "manylinux_2_N_MACHINE or musllinux_1_2_MACHINE"
"""What `WheelTarget.of_platform` reads, for messages."""
_PLATFORM: Final = re.compile(r"(?:manylinux_2_(\d{1,2})|musllinux_1_2)_([a-z][a-z0-9_]*)\Z")
_OLD_GLIBC: Final = 5
"""The oldest minor version of glibc 2 that wheels are made for."""
_OTHER_NAMES: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Minor version of glibc → what it was called before."""


@dataclass(frozen=True)
class WheelTarget:
    """The Python that wheels must fit.

    Args:
        version: of Python, such as ``3.11`` or ``3.11.4``.
        machine: such as ``x86_64``.
        glibc: version of its C library, such as ``2.31``. ``""`` means another library, taken for
            musl 1.2.
    """

    version: str
    machine: str
    glibc: str

    @staticmethod
    def of_platform(version: str, platform: str) -> WheelTarget | None:
        """Return the target that a platform of wheels names, or None if it has another form.

        Args:
            version: of Python.
            platform: such as ``manylinux_2_28_x86_64`` or ``musllinux_1_2_aarch64``.
        """
        found = _PLATFORM.match(platform)
        if found is None:
            return None
        glibc = ""
        if found[1]:
            glibc = f"2.{int(found[1])}"
        return WheelTarget(version, found[2], glibc)

    @property
    def platforms(self) -> Sequence[str]:
        """Return the names of the platforms whose wheels it can use, the best first."""
        machine = self.machine
        if not self.glibc:
            return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1)]
        newest = int(self.glibc.split(".")[1])
        names = []
        for minor in range(newest, _OLD_GLIBC - 1, -1):
            names.append(f"manylinux_2_{minor}_{machine}")
            if minor in _OTHER_NAMES:
                names.append(f"{_OTHER_NAMES[minor]}_{machine}")
        return [*names, f"linux_{machine}"]


def fetch_wheels(
    recipe: Recipe, target: WheelTarget, variables: Mapping[str, str], folder: str
) -> str:
    """Fetch the wheels of an environment, by the pip of this Python.

    Args:
        recipe: what is to be installed, as requirements (`as_requirements`).
        target: the Python that they must fit.
        variables: for the installer alone.
        folder: an empty one, in which the folder of the wheels is made.

    Returns:
        The folder with the wheels.

    Raises:
        SubmitError: if the packages do not fit that Python or cannot travel, this Python has no
            pip, or they cannot be fetched. The message has the last lines of pip.
    """
    title = f"environment {recipe.environment}"
    if recipe.needs_uv:
        raise SubmitError(f"{title}: not possible with offline=true: {recipe.needs_uv} needs uv")
    _refuse_addresses(recipe, title)
    _refuse_python(recipe, target, title)
    if importlib.util.find_spec("pip") is None:
        raise SubmitError(
            f"{title}: with offline=true, the pip of {sys.executable} fetches the wheels, and it "
            f"has none; install it: {sys.executable} -m ensurepip, or uv pip install pip"
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
    words += ["--implementation=cp", f"--python-version={target.version}"]
    words += [f"--platform={name}" for name in target.platforms]
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
        lines = done.stdout.decode("utf-8", "replace").splitlines()[-KEPT_LINES:]
        there = f"Python {target.version} on {target.platforms[0]}"
        raise SubmitError(
            f"{title}: its wheels for {there} cannot be fetched here",
            transient=may_pass(lines),
            lines=lines,
        )
    return wheels


def _refuse_addresses(recipe: Recipe, title: str) -> None:
    """Refuse a package that is named by its address, since an installer would ask there again."""
    for text in recipe.files.values():
        for line in text.splitlines():
            words = line.strip()
            is_package = not words.startswith(("-", "#")) or words.startswith(("-e", "--editable"))
            if is_package and re.search(r"(^|[@\s+])[a-z+]+://", words.partition(" #")[0]):
                raise SubmitError(
                    f"{title}: not possible with offline=true: {words}: a package that is named by "
                    "its address does not travel as a wheel; name one of an index"
                )


def _refuse_python(recipe: Recipe, target: WheelTarget, title: str) -> None:
    """Refuse a Python that the file does not allow, before anything is fetched."""
    wanted = recipe.requires_python
    versions = [target.version]
    if target.version.count(".") == 1:
        versions.append(f"{target.version}.99")  # any of that minor version
    if not any(satisfies(version, wanted) for version in versions):
        raise SubmitError(
            f"{title}: wants Python {wanted}; there is {target.version}; {ANOTHER_PYTHON}"
        )
