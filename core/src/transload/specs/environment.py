"""Describe as plain data the packages that must be installed where a role runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

from transload.specs.checks import as_list, check_str, nearest, refuse

__all__ = ["NO_ENVIRONMENT", "Environment"]


NO_ENVIRONMENT: Final = "none"
"""The word in place of a file for a job that needs no packages, whatever its script says."""

_KINDS: Final = ("script", "uv.lock", "requirements.txt", NO_ENVIRONMENT)
_KIND_OF_ENDING: Final = {
    "uv.lock": "uv.lock",
    ".txt": "requirements.txt",
    ".in": "requirements.txt",
    ".py": "script",
}
_SHA256: Final = r"[0-9a-f]{64}\Z"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*\Z"
_VERSION: Final = r"[0-9]+\.[0-9]+\Z"
_OTHER_TOOLS: Final = {
    "poetry.lock": "Poetry",
    "pdm.lock": "PDM",
    "Pipfile.lock": "Pipenv",
    "pixi.lock": "pixi",
    "conda-lock.yml": "conda-lock",
    "environment.yml": "conda",
    "environment.yaml": "conda",
    "pylock.toml": "pip lock",
}
"""The files of other tools, none of which is read, and the name of each tool."""

ALLOWED: Final = "a script with an inline header (PEP 723), uv.lock, a requirements.txt, or none"
"""What may be given as an environment, in words."""


@dataclass
class Environment:
    """The packages that must be installed where a role runs, by the file that names them.

    Args:
        kind: ``script`` (its header, PEP 723), ``uv.lock``, ``requirements.txt``, or ``none``,
            which installs nothing, whatever the role's script says.
        name: name of the file, without its folder.
        sha256: 64 hex digits of what must be installed, or ``""`` until a runner has read the file.
        groups: dependency groups of ``uv.lock``.
        extras: extras of ``uv.lock``.
        python: the version of Python that it must have, such as ``3.11``. None means what the file
            says.
        source: local path of the file, from where it travels. It is no part of a definition's
            digest.

    Raises:
        SpecError: for a wrong value, with its path and what is allowed.
    """

    NOT_IN_DIGEST = ("source",)
    WHEN_SET = ("python", "source")

    kind: str
    name: str = ""
    sha256: str = ""
    groups: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    python: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        self.check("Environment")

    def check(self, path: str) -> None:
        """Refuse wrong values.

        Args:
            path: where the environment stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        if self.kind not in _KINDS:
            refuse(f"{path}.kind", self.kind, f"must be one of {', '.join(_KINDS)}")
        check_str(self.name, f"{path}.name", empty=self.kind == NO_ENVIRONMENT)
        if "/" in self.name:
            refuse(f"{path}.name", self.name, "must be the name of a file, without a folder")
        check_str(self.sha256, f"{path}.sha256")
        if self.sha256 and not re.match(_SHA256, self.sha256):
            refuse(f"{path}.sha256", self.sha256, "must be 64 hexadecimal digits, or empty")
        self.groups = as_list(self.groups, f"{path}.groups")
        self.extras = as_list(self.extras, f"{path}.extras")
        for title, names in (("groups", self.groups), ("extras", self.extras)):
            for index, name in enumerate(names):
                if not isinstance(name, str) or not re.match(_NAME, name):
                    refuse(
                        f"{path}.{title}[{index}]", name, "must be letters, digits, '.', '_', '-'"
                    )
            if names and self.kind != "uv.lock":
                refuse(f"{path}.{title}", names, "only uv.lock has them")
        if self.python is not None and not re.match(_VERSION, str(self.python)):
            refuse(f"{path}.python", self.python, "must be a version such as 3.11")
        if self.source is not None:
            check_str(self.source, f"{path}.source", empty=False)

    @property
    def is_none(self) -> bool:
        """Return whether nothing is to be installed."""
        return self.kind == NO_ENVIRONMENT

    def __str__(self) -> str:
        if self.is_none:
            return NO_ENVIRONMENT
        words = [self.name]
        words += [f"--group {name}" for name in self.groups]
        words += [f"--extra {name}" for name in self.extras]
        if self.sha256:
            words.append(f"sha256:{self.sha256[:16]}")
        return " ".join(words)

    @staticmethod
    def from_str(text: str, path: str = "environment") -> Environment:
        """Read ``FILE``, ``uv.lock --group NAME --extra NAME``, or ``none``. No file is read.

        Args:
            text: what the user wrote.
            path: where it stands, for the message.

        Raises:
            SpecError: for a file of another kind, or an unknown option.
        """
        from shlex import split  # seldom needed

        check_str(text, path, empty=False)
        try:
            words = split(text)
        except ValueError as exc:
            refuse(path, text, f"cannot be read: {exc}")
        if not words:
            refuse(path, text, f"must be {ALLOWED}")
        file = words[0]
        if file == NO_ENVIRONMENT and len(words) == 1:
            return Environment(NO_ENVIRONMENT)
        options = _options(words[1:], path, text)
        return Environment(
            kind=_kind_of(file, path),
            name=os.path.basename(file),
            groups=options["group"],
            extras=options["extra"],
            source=file,
        )


def _kind_of(file: str, path: str) -> str:
    """Return the kind of a file by its name."""
    name = os.path.basename(file)
    if name in _OTHER_TOOLS:
        tool = _OTHER_TOOLS[name]
        refuse(path, file, f"is a file of {tool}, which is not read: give {ALLOWED}")
    if name == "pyproject.toml":
        refuse(path, file, "give the uv.lock beside it (`uv lock` makes it)")
    for ending, kind in _KIND_OF_ENDING.items():
        if name.endswith(ending):
            return kind
    return refuse(path, file, f"must be {ALLOWED}")


def _options(words: list[str], path: str, text: str) -> dict[str, list[str]]:
    """Return the groups and extras that words such as ``--group NAME`` name."""
    found: dict[str, list[str]] = {"group": [], "extra": []}
    left = list(words)
    while left:
        option, sign, value = left.pop(0).partition("=")
        name = option[2:]
        if not option.startswith("--") or name not in found:
            hint = nearest(option, ["--group", "--extra"])
            refuse(path, text, f"unknown option {option!r}: {hint}")
        if not sign:
            if not left:
                refuse(path, text, f"a name is missing after {option}")
            value = left.pop(0)
        found[name].append(value)
    return found
