"""Read what a job needs installed, as one file of requirements that uv takes where the job runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from transload.errors import ConfigError, SpecError
from transload.schedulers.environments.header import Header, read_header
from transload.specs import Environment, Role, masked_url
from transload.specs.job_variables import REQUIREMENTS
from transload.specs.own_programs import OWN_PROGRAMS
from transload.specs.serialization import sha256

__all__ = [
    "Packages",
    "packages_of",
    "read_environment",
    "run_by_uv",
    "travelling_uv",
    "uv_here",
    "uv_version",
    "write_requirements",
]

_LARGEST: Final = 32 << 20  # bytes of a file that names packages
_ELF: Final = b"\x7fELF"
_OPTION: Final = r"(--[a-z-]+|-[a-z])(?:\s*=\s*|\s+|(?<=^-[a-z]))(.*)"
_HASH: Final = r"\s+--hash[= ]\S+"
_USER_AND_WORD: Final = r"[a-z+]+://[^/@\s:]*:([^/@\s]+)@"
_INCLUDE: Final = ("-r", "--requirement")
_CONSTRAINT: Final = ("-c", "--constraint")
_EDITABLE: Final = ("-e", "--editable")
_PLACES: Final = {
    "-i": "--default-index",
    "--index-url": "--default-index",
    "--extra-index-url": "--index",
    "-f": "--find-links",
    "--find-links": "--find-links",
}
"""Options of a file of requirements, which uv only takes on its command line, and what they are there."""
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz")
_PUBLIC_INDEX: Final = "https://pypi.org/simple"
_NO_TRAVEL: Final = (
    "is a local path, which does not travel: name a package of an index, or let the folder travel "
    "as a workspace"
)

_SHIM: Final = """\
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: this process dies with uv
command = sys.argv[1:]
if command[0] in ("python", "python3"):
    command[0] = sys.executable
try:
    os.execvp(command[0], command)
except OSError as exc:
    sys.stderr.write("transload: cannot run %r: %s\\n" % (command[0], exc.strerror))
    sys.exit(127 if isinstance(exc, FileNotFoundError) else 126)
"""
"""What uv runs, which becomes the program of the role."""

OWN_PROGRAMS[_SHIM] = "# transload.schedulers.environments.packages"


@dataclass(frozen=True)
class Packages:
    """What a role needs installed.

    Args:
        environment: where it was read.
        requirements: the text of the file of requirements.
        options: of uv, which say where packages are found.
        python: the Python that it must have, as uv takes it (``>=3.11``), or ``""`` for any.
    """

    environment: Environment
    requirements: str
    options: Sequence[str] = field(default_factory=list)
    python: str = ""

    @property
    def file_name(self) -> str:
        """Return a name for the file of requirements that follows from its content."""
        return f"{sha256(self.requirements.encode())[:32]}.txt"

    def variables_from(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return those of a role's variables and secrets that uv itself reads."""
        return {
            name: value
            for name, value in values.items()
            if name.startswith("UV_") or f"${{{name}}}" in self.requirements
        }


def read_environment(environment: Environment, folder: str, path: str) -> Environment:
    """Return an environment with the digest of its file, and the absolute path of that.

    Args:
        environment: as the user named it.
        folder: what its path is relative to.
        path: where it stands in the spec, for the message.

    Raises:
        SpecError: if the file cannot be read, or is not the one whose digest was given.
    """
    if environment.is_none:
        return environment
    if environment.source is None:
        raise SpecError(
            f"{path}={environment.name!r}: where the file is is not known: give environment=FILE"
        )
    source = os.path.abspath(os.path.join(folder, os.path.expanduser(environment.source)))
    named = json.dumps(_named_in(source, environment.kind), default=str)
    digest = sha256(named.encode())
    if environment.sha256 and environment.sha256 != digest:
        raise SpecError(
            f"{path}={source}: has changed: sha256 {environment.sha256[:16]} was given, it is "
            f"{digest[:16]}"
        )
    return replace(environment, source=source, sha256=digest)


def _named_in(source: str, kind: str) -> list[Any]:
    """Return what a file names. That of a job stays the same until somebody changes the file."""
    if kind == "uv.lock":
        return [_read(source)]
    if kind == "script":
        header = _header(source)
        lock = _lock_of_script(source)
        named = [header.dependencies, header.requires_python, header.tool("uv")]
        return [*named, _read(lock) if os.path.exists(lock) else ""]
    return [line for _, line in _lines_of_file(source, os.path.dirname(source), [])]


def packages_of(environment: Environment) -> Packages:
    """Return what an environment is made of, as `read_environment` has found it.

    Raises:
        SpecError: if it cannot be read, or is wrong.
        ConfigError: if uv is needed to read it, and is not here.
    """
    source = str(environment.source)
    names: dict[str, str] = {}
    python = ""
    if environment.kind == "script":
        header = _header(source)
        python = header.requires_python
        names = _index_names(header.table)
        if header.tool("uv") or os.path.exists(_lock_of_script(source)):
            lines = _exported(source, ["--script", source])
        else:
            lines = [(f"{source}:{header.line_of(each)}", each) for each in header.dependencies]
    elif environment.kind == "uv.lock":
        lines, names, python = _lock(environment)
    else:
        lines = _lines_of_file(source, os.path.dirname(source), [])
    packages = _packages(environment, lines, names)
    return replace(packages, python=_both(environment.python, python))


def _both(version: str | None, allowed: str) -> str:
    """Return what uv is asked for where one version is wanted of those that are allowed."""
    wanted = [allowed] if allowed else []
    if version is not None:
        wanted.insert(0, f"=={version}.*")
    return ",".join(wanted)


def _packages(
    environment: Environment, lines: Sequence[tuple[str, str]], names: Mapping[str, str]
) -> Packages:
    """Return packages by the lines of a file, each with its place.

    Args:
        environment: which file.
        lines: place and text of each.
        names: address of an index → its name, by which uv finds its password.
    """
    kept: list[str] = []
    options: list[str] = []
    for where, line in lines:
        _refuse_password(line, where)
        found = re.match(_OPTION, line)
        word = found[1] if found else ""
        value = found[2].strip() if found else ""
        if word in _PLACES:
            _refuse_place(word, value, where)
            if value != _PUBLIC_INDEX:
                named = f"{names[value]}={value}" if value in names else value
                options += [_PLACES[word], named]
        elif word == "--pre":
            options.append("--prerelease=allow")
        elif word in _CONSTRAINT:
            raise SpecError(
                f"{where}: {line}: constraints do not travel: write what they lead to into one file "
                f"(uv pip compile {environment.name} -o locked.txt), and give that"
            )
        elif word in _EDITABLE and not value.startswith(("git+", "hg+", "svn+", "bzr+")):
            raise SpecError(f"{where}: {line}: {_NO_TRAVEL}")
        else:
            if not word:
                _refuse_local(line, where)
            kept.append(re.sub(_HASH, "", line))
    text = "".join(f"{line}\n" for line in kept)
    return Packages(environment, text, options)


def _refuse_place(word: str, value: str, where: str) -> None:
    if "$" in value:
        raise SpecError(
            f"{where}: {word} {value}: uv puts no variable in here: give the index by variables of "
            "the job (env UV_INDEX=NAME=URL, secrets UV_INDEX_NAME_PASSWORD)"
        )
    if "://" not in value:
        raise SpecError(f"{where}: {word} {value}: {_NO_TRAVEL}")


# -- a script


def _lock_of_script(source: str) -> str:
    """Return the path of the lock that ``uv lock --script`` puts beside a script."""
    return f"{source}.lock"


def _header(source: str) -> Header:
    if not os.path.isfile(source):
        raise SpecError(f"environment {source}: no such file")
    header = read_header(source)
    if header is None:
        raise SpecError(f"environment {source}: has no header (# /// script … # ///, PEP 723)")
    return header


# -- what uv reads


def _lock(environment: Environment) -> tuple[list[tuple[str, str]], dict[str, str], str]:
    """Return the lines of a lock, the names of its indexes, and the Python that it allows."""
    source = str(environment.source)
    lock = _toml(source)
    if not isinstance(lock.get("version"), int) or not isinstance(lock.get("package", []), list):
        raise SpecError(f"environment {source}: is no lock of uv (`uv lock` makes one)")
    folder = os.path.dirname(source)
    project = _toml(os.path.join(folder, "pyproject.toml"))
    words = ["--project", folder, "--frozen", "--no-emit-project"]
    if "dev" not in environment.groups:
        words.append("--no-dev")
    words += [f"--group={name}" for name in environment.groups]
    words += [f"--extra={name}" for name in environment.extras]
    names = _index_names(project)
    return _exported(source, words), names, str(lock.get("requires-python", ""))


def _toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_read(path))
    except ValueError as exc:
        raise SpecError(f"environment {path}: is not TOML: {exc}") from exc


def _index_names(table: Mapping[str, Any]) -> dict[str, str]:
    """Return address → name of the indexes that ``[[tool.uv.index]]`` names."""
    found = table.get("tool", {}).get("uv", {}).get("index", [])
    return {str(each["url"]): str(each["name"]) for each in found if {"url", "name"} <= set(each)}


def _exported(source: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return what ``uv export`` writes of a lock or a script, as lines with their place."""
    command = [uv_here(), "export", "--quiet", "--no-progress", "--no-annotate", "--no-header"]
    command += ["--no-hashes", "--emit-index-url", *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = " ".join(line.strip() for line in done.stderr.splitlines())
        raise SpecError(f"environment {source}: uv cannot read it: {said}")
    where = f"environment {source}"
    return [(where, line) for _, line in _logical_lines(done.stdout)]


# -- a file of requirements


def _lines_of_file(path: str, top: str, seen: list[str]) -> list[tuple[str, str]]:
    """Return the lines of a file of requirements with their places, and of those that it includes."""
    if path in seen:
        return []
    seen.append(path)
    lines: list[tuple[str, str]] = []
    for number, line in _logical_lines(_read(path)):
        where = f"{path}:{number}"
        found = re.match(_OPTION, line)
        if found is None or found[1] not in _INCLUDE or "://" in found[2]:
            lines.append((where, line))
            continue
        inner = os.path.normpath(os.path.join(os.path.dirname(path), found[2].strip()))
        if not inner.startswith(f"{top}{os.sep}"):
            raise SpecError(f"{where}: {line}: {_NO_TRAVEL}")
        lines += _lines_of_file(inner, top, seen)
    return lines


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as exc:
        raise SpecError(f"environment {path}: cannot be read: {exc.strerror or exc}") from exc
    if len(data) > _LARGEST:
        raise SpecError(f"environment {path}: has more than {_LARGEST >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise SpecError(f"environment {path}: is no text in UTF-8: {exc}") from exc


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of a file of requirements, continued ones joined, with their numbers."""
    found: list[tuple[int, str]] = []
    begun = ""
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not begun:
            first = number
        begun += line
        if line.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        words = re.sub(r"(^|\s+)#.*$", "", begun).strip()
        if words:
            found.append((first, words))
        begun = ""
    return found


def _refuse_local(line: str, where: str) -> None:
    """Refuse a requirement that is a local path."""
    words = line.split(";")[0].split(" --")[0].strip()
    place = words
    name, at, address = words.partition("@")
    if at and re.match(r"[A-Za-z0-9._-]+\s*(\[[^]]*\])?\s*$", name):
        place = address.strip()
    is_url = "://" in place and not place.startswith("file:")
    is_path = place.startswith((".", "/", "~", "file:")) or place.lower().endswith(_ARCHIVES)
    if is_path and not is_url:
        raise SpecError(f"{where}: {line}: {_NO_TRAVEL}")


def _refuse_password(text: str, where: str) -> None:
    """Refuse a password in an address, where a variable may take its place."""
    found = re.search(_USER_AND_WORD, text)
    if found is not None and "${" not in found[1]:
        raise SpecError(
            f"{where}: {masked_url(text)}: a password must not be written here; write ${{NAME}}, and "
            "give its source in secrets (NAME → env:NAME or file:PATH)"
        )


# -- uv


def uv_here() -> str:
    """Return the path of the program uv on this machine.

    Raises:
        ConfigError: if there is none.
    """
    try:
        from uv import find_uv_bin  # type: ignore[import-not-found,unused-ignore]

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise ConfigError(
            "packages of jobs are installed by uv, which is not here: pip install "
            "'transload[environments]'; or do without them by --environment none"
        )
    return found


def travelling_uv() -> str | None:
    """Return the path of this machine's uv if it is a program that Linux runs, else None.

    Where there is none, uv must be on the PATH of the job.
    """
    found = uv_here()
    with open(found, "rb") as file:
        return found if file.read(len(_ELF)) == _ELF else None


def uv_version(uv: str) -> str:
    """Return version and platform of a uv in one word, such as ``0.9.2-x86_64-unknown-linux-gnu``."""
    done = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
    return "-".join(re.findall(r"[A-Za-z0-9._]+", done.stdout.removeprefix("uv ")))


def run_by_uv(
    role: Role, packages: Packages, *, uv: str, file: str, python: str = "", offline: bool = False
) -> Role:
    """Return a role whose program is started by uv, with its packages.

    Args:
        role: the role, which is not changed.
        packages: what it needs.
        uv: path of uv where it runs.
        file: the file of requirements there.
        python: the interpreter to use there, or ``""`` for what uv finds.
        offline: uv uses what its cache has.
    """
    words = ["run", "--no-project", "--no-progress"]
    if packages.requirements:
        words += ["--with-requirements", file]
    words += packages.options
    if offline:
        words.append("--offline")
    if python or packages.python:
        words += ["--python", python or packages.python]
    words += ["--", "python", "-I", "-S", "-c", _SHIM, role.entrypoint, *role.args]
    env = {**role.env, REQUIREMENTS: file}
    return replace(role, entrypoint=uv, args=words, env=env)


def write_requirements(folder: str, packages: Packages) -> None:
    """Write the file of requirements into a folder, unless it is there.

    Raises:
        OSError: if it cannot be written.
    """
    path = os.path.join(folder, packages.file_name)
    if os.path.exists(path):
        return
    aside = f"{path}.{os.urandom(4).hex()}"
    with open(aside, "w", encoding="utf-8", newline="") as file:
        file.write(packages.requirements)
    os.replace(aside, path)
