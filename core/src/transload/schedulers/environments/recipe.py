"""Read the files that name an environment's packages, whose content is its recipe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from transload.errors import SpecError, SubmitError
from transload.schedulers.environments.header import Header, read_header
from transload.specs import Environment, masked_url, nearest
from transload.specs.serialization import sha256

__all__ = ["Recipe", "as_requirements", "read_environment", "recipe_of"]


_REQUIREMENTS: Final = "requirements.txt"
_PROJECT: Final = "pyproject.toml"
_LARGEST: Final = 32 << 20  # bytes of a file that names packages
_VARIABLE: Final = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
_USER_AND_WORD: Final = r"[a-z+]+://[^/@\s:]*:([^/@\s]+)@"
_OPTION: Final = r"(--[a-z-]+|-[a-z])(?:\s*=\s*|\s+|(?<=^-[a-z]))(.*)"
_INCLUDES: Final = ("-r", "--requirement", "-c", "--constraint")
_EDITABLE: Final = ("-e", "--editable")
_PLACES: Final = ("-f", "--find-links", "-i", "--index-url", "--extra-index-url")
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz")
_LOCAL_SOURCES: Final = ("path", "directory", "editable")
_INSTALLER_PREFIXES: Final = ("UV_", "PIP_")
_PIP_KNOWS: Final = ("exclude-newer",)
"""Keys of a header's ``[tool.uv]`` without which pip installs the same, or nearly."""


@dataclass(frozen=True)
class Recipe:
    """What an environment is made from.

    Args:
        environment: which one. Its ``sha256`` is that of this content.
        files: path below a folder → text of the files that name its packages.
        requirements: which of them pip reads, or ``""`` for none.
        requires_python: the versions of Python that its file allows, or ``""`` for any.
        hashed: each package has a hash, which is checked.
        needs_uv: why only uv can install it, or ``""`` if pip can, too.
        variables: names of the variables that its files mention, for the installer.
    """

    environment: Environment
    files: Mapping[str, str]
    requirements: str = ""
    requires_python: str = ""
    hashed: bool = False
    needs_uv: str = ""
    variables: Collection[str] = field(default_factory=frozenset)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON values that the program which makes environments reads."""
        environment = self.environment
        return {
            "kind": environment.kind,
            "name": environment.name,
            "sha256": environment.sha256,
            "groups": list(environment.groups),
            "extras": list(environment.extras),
            "python": environment.python,
            "files": dict(self.files),
            "requirements": self.requirements,
            "requires_python": self.requires_python,
            "hashed": self.hashed,
            "needs_uv": self.needs_uv,
        }

    def variables_from(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return those of a role's variables and secrets that the installer gets.

        These are what the files mention (``${NAME}``), and what uv and pip read themselves
        (``UV_…``, ``PIP_…``).
        """
        return {
            name: value
            for name, value in values.items()
            if name in self.variables or name.startswith(_INSTALLER_PREFIXES)
        }


def read_environment(environment: Environment, folder: str, path: str) -> Environment:
    """Return an environment with the digest of its file, and the absolute path of that.

    Args:
        environment: as the user named it.
        folder: what its path is relative to.
        path: where it stands in the spec, for the message.

    Raises:
        SpecError: if the file cannot be read, is wrong, or is not the one whose digest was given.
    """
    if environment.is_none:
        return environment
    if environment.source is None:
        raise SpecError(
            f"{path}={environment.name!r}: where the file is is not known: give environment=FILE"
        )
    source = os.path.join(folder, os.path.expanduser(environment.source))
    found = replace(environment, source=os.path.abspath(source), sha256="")
    digest = _content(found).environment.sha256
    if environment.sha256 and environment.sha256 != digest:
        raise SpecError(
            f"{path}={found.source}: has changed: sha256 {environment.sha256[:16]} was given, it is "
            f"{digest[:16]}"
        )
    return replace(found, sha256=digest)


def recipe_of(environment: Environment) -> Recipe:
    """Return what an environment is made from, as `read_environment` has found it.

    Raises:
        SpecError: if its file has changed since, or cannot be read any more.
    """
    found = _content(environment)
    if found.environment.sha256 != environment.sha256:
        raise SpecError(
            f"environment {environment.source}: has changed since the dry-run; submit it again"
        )
    return found


def as_requirements(recipe: Recipe) -> Recipe:
    """Return a recipe of ``uv.lock`` as one of requirements with hashes, which pip reads, too.

    Any other recipe is returned unchanged. The packages are the same, and so is the digest.

    Raises:
        SubmitError: if uv is not here, or cannot do it, with its last lines.
    """
    if recipe.environment.kind != "uv.lock" or recipe.requirements:
        return recipe
    environment = recipe.environment
    words = ["export", "--frozen", "--quiet", "--no-progress", "--no-annotate", "--no-header"]
    words += ["--format", "requirements-txt", "--emit-index-url", "--no-emit-project"]
    if "dev" not in environment.groups:
        words.append("--no-dev")
    words += [f"--group={name}" for name in environment.groups]
    words += [f"--extra={name}" for name in environment.extras]
    text = _run_uv(words, recipe.files, f"environment {environment}")
    return replace(
        recipe,
        files={_REQUIREMENTS: text},
        requirements=_REQUIREMENTS,
        needs_uv="",
        hashed="--hash=" in text,  # an index may give none
    )


def _run_uv(words: Sequence[str], files: Mapping[str, str], title: str) -> str:
    """Return what uv writes in a folder with these files."""
    import subprocess
    import tempfile

    from transload.schedulers.environments.program import KEPT_LINES, find_uv

    uv = find_uv()
    if not uv:
        raise SubmitError(f"{title}: is read by uv, which is not on PATH here: pip install uv")
    with tempfile.TemporaryDirectory(prefix="transload-") as folder:
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        done = subprocess.run(
            [uv, *words], cwd=folder, capture_output=True, encoding="utf-8", check=False
        )
    if done.returncode:
        lines = done.stderr.splitlines()[-KEPT_LINES:]
        raise SubmitError(f"{title}: cannot be read by uv", lines=lines)
    return done.stdout


def _content(environment: Environment) -> Recipe:
    readers = {"script": _script, "uv.lock": _uv_lock, "requirements.txt": _requirements}
    return readers[environment.kind](environment)


def _finished(recipe: Recipe, content: Any) -> Recipe:
    """Return a recipe whose environment has the digest of what is installed."""
    digest = sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode())
    variables = frozenset(
        name for text in recipe.files.values() for name in re.findall(_VARIABLE, text)
    )
    environment = replace(recipe.environment, sha256=digest)
    return replace(recipe, environment=environment, variables=variables)


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


# -- a script


def _script(environment: Environment) -> Recipe:
    source = str(environment.source)
    if not os.path.isfile(source):
        raise SpecError(f"environment {source}: no such file")
    header = read_header(source)
    if header is None:
        raise SpecError(f"environment {source}: has no header (# /// script … # ///, PEP 723)")
    lines = header.dependencies
    for line in lines:
        _refuse_local(line, f"{source}:{header.line_of(line)}")
    uv = header.tool("uv")
    _refuse_local_sources(uv, header)
    files = {_REQUIREMENTS: "".join(f"{line}\n" for line in lines)}
    if uv:
        files[_PROJECT] = _project_of(header, uv)
    needs_uv = ""
    if set(uv) - {*_PIP_KNOWS}:
        needs_uv = f"[tool.uv] of {environment.name}"
    recipe = Recipe(
        environment,
        files,
        requirements=_REQUIREMENTS,
        requires_python=header.requires_python,
        needs_uv=needs_uv,
    )
    return _finished(recipe, [lines, header.requires_python, uv])


def _project_of(header: Header, uv: Mapping[str, Any]) -> str:
    """Return the ``pyproject.toml`` that says what a header says.

    The keys of the header become those of ``[project]``.
    """
    import tomllib

    text = f'[project]\nname = "script"\nversion = "0"\n{header.text}'
    try:
        found = tomllib.loads(text)
    except ValueError:
        found = {}
    if found.get("tool", {}).get("uv") != uv:
        raise SpecError(
            f"{header.path}:{header.line_of('uv')}: write what uv is to do as a table, [tool.uv]"
        )
    return text


def _refuse_local_sources(uv: Mapping[str, Any], header: Header) -> None:
    sources = uv.get("sources", {})
    if not isinstance(sources, Mapping):
        return  # uv says so
    for name, given in sources.items():
        entries = given if isinstance(given, list) else [given]
        for entry in entries:
            if isinstance(entry, Mapping) and {"path", "workspace"} & set(entry):
                where = f"{header.path}:{header.line_of(name)}"
                raise SpecError(f"{where}: [tool.uv.sources] {name}: {_NO_TRAVEL}")


# -- uv.lock


def _uv_lock(environment: Environment) -> Recipe:
    import tomllib

    source = str(environment.source)
    project = os.path.join(os.path.dirname(source), _PROJECT)
    lock_text = _read(source)
    project_text = _read(project)
    lock = _toml(lock_text, source)
    if not isinstance(lock.get("version"), int) or not isinstance(lock.get("package"), list):
        raise SpecError(f"environment {source}: is no lock of uv (`uv lock` makes one)")
    for package in lock["package"]:
        _refuse_local_package(package, source)
    try:
        table = tomllib.loads(project_text)
    except ValueError as exc:
        raise SpecError(f"environment {project}: is not TOML: {exc}") from exc
    _check_names(environment, table, project)
    groups = table.get("dependency-groups", {})
    recipe = Recipe(
        environment,
        {"uv.lock": lock_text, _PROJECT: project_text},
        requires_python=str(lock.get("requires-python", "")),
        hashed=True,
        needs_uv="uv.lock",
    )
    return _finished(recipe, [lock_text, groups, table.get("tool", {}).get("uv", {})])


def _toml(text: str, path: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except ValueError as exc:
        raise SpecError(f"environment {path}: is no lock of uv: {exc}") from exc


def _refuse_local_package(package: Any, path: str) -> None:
    """Refuse a package that is not the project itself and lies in a local folder."""
    source = package.get("source", {}) if isinstance(package, dict) else {}
    for kind in _LOCAL_SOURCES:
        place = source.get(kind)
        if place is not None and place != ".":
            name = package.get("name")
            raise SpecError(f"environment {path}: package {name!r} at {place!r}: {_NO_TRAVEL}")


def _check_names(environment: Environment, table: Mapping[str, Any], path: str) -> None:
    """Refuse groups and extras that the project does not have."""
    known = {
        "group": table.get("dependency-groups", {}),
        "extra": table.get("project", {}).get("optional-dependencies", {}),
    }
    asked = {"group": environment.groups, "extra": environment.extras}
    for kind, names in asked.items():
        for name in names:
            if name not in known[kind]:
                hint = nearest(name, list(known[kind]))
                raise SpecError(f"environment {path}: --{kind} {name}: no such {kind}: {hint}")


# -- requirements.txt


def _requirements(environment: Environment) -> Recipe:
    source = str(environment.source)
    files: dict[str, str] = {}
    _include(os.path.basename(source), os.path.dirname(source), files)
    hashed = any("--hash=" in text or "--hash " in text for text in files.values())
    name = os.path.basename(source)
    recipe = Recipe(environment, files, requirements=name, hashed=hashed)
    # the name of the file itself is no content, since two of the same content are the same
    content = {inner: text for inner, text in files.items() if inner != name}
    return _finished(recipe, [files[name], content])


def _include(name: str, folder: str, files: dict[str, str]) -> None:
    """Add a file of requirements, and those that it includes."""
    if name in files:
        return
    path = os.path.join(folder, name)
    text = _read(path)
    files[name] = text
    for number, line in _logical_lines(text):
        where = f"{path}:{number}"
        option = re.match(_OPTION, line)
        if option is None:
            _refuse_local(line, where)
            continue
        word = option[1]
        value = option[2].strip()
        _refuse_password(value, where)
        if word in _INCLUDES and "://" not in value:
            inner = os.path.normpath(os.path.join(os.path.dirname(name), value))
            if os.path.isabs(inner) or inner.startswith(".."):
                raise SpecError(f"{where}: {line}: {_NO_TRAVEL}")
            _include(inner, folder, files)
        elif (word in _EDITABLE and not value.startswith(("git+", "hg+", "svn+", "bzr+"))) or (
            word in _PLACES and not value.startswith(("http://", "https://", "$"))
        ):
            raise SpecError(f"{where}: {line}: {_NO_TRAVEL}")


_NO_TRAVEL: Final = (
    "is a local path, which does not travel: name a package of an index, or let the folder travel "
    "as a workspace"
)


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
    """Refuse a requirement that is a local path, or holds a password."""
    _refuse_password(line, where)
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
