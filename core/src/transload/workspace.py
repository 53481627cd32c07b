"""Choose the files of a workspace, copy them to a job, and compute digests of them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Final

from transload.cli.progress import progress
from transload.errors import ConfigError, SpecError
from transload.specs import Workspace

__all__ = [
    "IGNORE_FILES",
    "archive_digest",
    "copy_workspace",
    "ignore_rules",
    "left_out",
    "workspace_digest",
    "workspace_files",
    "write_workspace_archive",
]

IGNORE_FILES: Final = (".transloadignore", ".dockerignore")
"""Names of the ignore file in a project's folder. The first that exists is used.

The first has the form of a ``.gitignore``, the second that of a ``.dockerignore``.
"""

ALWAYS: Final = (
    ".git",
    "__pycache__",
    "*.pyc",
    ".venv",
    ".nox",
    ".tox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
"""Names that are never copied, unless a rule such as ``!.git`` includes them."""

MOST_STARS: Final = 4
"""Largest number of ``*`` in one name of a pattern, and of ``**`` among its folders."""

READABLE: Final = 0o444
"""Permissions added to each file in an archive, because any user of the image may read it."""


def ignore_rules(folder: str) -> Callable[[str], bool]:
    """Return the function that tells whether a path below a project's folder is left out.

    It applies `ALWAYS` and then the rules of the ignore file. The path of a folder ends with ``/``,
    and the files of a folder that is left out are not read.

    Raises:
        ConfigError: if the ignore file cannot be read, or has an invalid pattern.
    """
    for name in IGNORE_FILES:
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8-sig") as file:
                lines = list(file)
            if name == ".dockerignore":
                _refuse_endless(path, lines)
                return _DockerRules(lines).stays
            _refuse_endless(path, lines)
            from pathspec import GitIgnoreSpec

            return GitIgnoreSpec.from_lines([*ALWAYS, *lines]).match_file
        except FileNotFoundError:
            continue
        except (OSError, ValueError, re.error) as exc:
            raise ConfigError(f"{path}: cannot be read: {exc}") from exc
    return _always  # the answer of pathspec, without the 15 ms for importing it


def _refuse_endless(path: str, lines: Iterable[str]) -> None:
    """Refuse a pattern whose regular expression might never finish.

    Raises:
        ConfigError: if a pattern has more than `MOST_STARS` stars between two slashes, or more
            than that many ``**`` folders.
    """
    for number, line in enumerate(lines, 1):
        text = re.sub(r"\\.", "", line.strip())
        if text.startswith("#"):
            continue
        stars = max(
            (len(re.findall(r"\*+", part)) for part in text.split("/") if part != "**"), default=0
        )
        folders = sum("**" in part for part in text.split("/"))
        if max(stars, folders) > MOST_STARS:
            raise ConfigError(
                f"{path}:{number}: {line.strip()[:60]!r}: more than {MOST_STARS} stars in one "
                "name, or ** among the "
                "folders; write several simpler patterns"
            )


class _DockerRules:
    """The rules of a ``.dockerignore`` (Docker's reference, ".dockerignore file").

    A pattern is relative to the folder, with or without a slash at its beginning. The last pattern
    that matches a path, or a folder above it, decides. A pattern with ``!`` includes the path. Names
    in `ALWAYS` are only included by a pattern that matches them, so ``!src`` does not include
    ``src/__pycache__``.

    Args:
        lines: the lines of the file. Comments and empty lines are ignored.

    Raises:
        re.error: if a set of characters is invalid, such as ``[z-a]``.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        self._brought_back: list[list[str]] = []
        for line in lines:
            text = line.strip()
            if not text or line.startswith("#"):
                continue
            brings_back = text.startswith("!")
            pattern = os.path.normpath(text.removeprefix("!").strip()).lstrip("/")
            if pattern in ("", "."):
                continue
            self._rules.append((brings_back, re.compile(_docker_regex(pattern))))
            if brings_back:
                self._brought_back.append(pattern.split("/"))

    def stays(self, path: str) -> bool:
        """Tell whether a file, or a folder with all its files, is left out."""
        parts = path.rstrip("/").split("/")
        paths = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        ignored = False
        for brings_back, regex in self._rules:
            if ignored is brings_back and any(map(regex.fullmatch, paths)):
                ignored = not brings_back
        ignored = ignored or self._never_travels(parts, paths)
        if not path.endswith("/"):
            return ignored
        return ignored and not any(_may_be_below(parts, each) for each in self._brought_back)

    def _never_travels(self, parts: Sequence[str], paths: Sequence[str]) -> bool:
        for index, part in enumerate(parts):
            if _always(part):
                reaching = paths[index:]
                return not any(
                    brings_back and any(map(regex.fullmatch, reaching))
                    for brings_back, regex in self._rules
                )
        return False


def _may_be_below(folder: Sequence[str], pattern: Sequence[str]) -> bool:
    """Tell whether a pattern, split at its slashes, could match a path below a folder."""
    if len(pattern) <= len(folder) and "**" not in pattern:
        return False
    for part, wanted in zip(folder, pattern, strict=False):
        if "**" in wanted:
            return True
        if not re.fullmatch(_docker_regex(wanted), part):
            return False
    return True


def _docker_regex(pattern: str) -> str:
    """Return the regular expression of a pattern.

    ``**`` matches any number of folders, and ``*`` matches within one name.
    """
    found = []
    for sign in re.findall(r"\*\*/|\*\*|\*|\?|\[\^?[^\]]+\]|\\.|.", pattern):
        if sign == "**/":
            found.append("(?:.*/)?")
        elif sign == "**":
            found.append(".*")
        elif sign == "*":
            found.append("[^/]*")
        elif sign == "?":
            found.append("[^/]")
        elif sign.startswith("[") and len(sign) > 1:
            found.append(sign)
        else:
            found.append(re.escape(sign[-1]))
    return "".join(found)


def _always(path: str) -> bool:
    return any(name in ALWAYS or name.endswith(".pyc") for name in path.split("/"))


def workspace_files(workspace: Workspace, leave_out: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``(source path, path inside the workspace)`` for each file and link of a workspace.

    They are sorted within a folder. Links are not followed. The state folder is left out, because
    it has the copies that were made before.

    Args:
        workspace: the workspace.
        leave_out: another folder that is left out.

    Raises:
        SpecError: if a project is not a folder or file.
    """
    stay = _staying(leave_out)
    for source, target in workspace.projects.items():
        root = os.path.abspath(os.path.expanduser(source))
        if os.path.isfile(root):
            yield root, os.path.join(target, os.path.basename(root))
        elif os.path.isdir(root):
            yield from _walk(root, target, "", ignore_rules(root), stay)
        else:
            raise SpecError(f"workspace {source!r}: no such folder (looked for {root})")


def file_sizes(workspace: Workspace) -> Iterator[int]:
    """Yield the size in bytes of each file and link that `workspace_files` names.

    What has been removed meanwhile is left out.
    """
    for source, _ in workspace_files(workspace):
        with contextlib.suppress(FileNotFoundError):
            yield os.lstat(source).st_size


def left_out(project: str) -> list[str]:
    """Return the names directly in a project's folder that are left out, sorted.

    The name of a folder ends with ``/``. A project that is a file leaves nothing out.

    Raises:
        ConfigError: as `ignore_rules`.
    """
    root = os.path.abspath(os.path.expanduser(project))
    if not os.path.isdir(root):
        return []
    rules = ignore_rules(root)
    names = []
    with os.scandir(root) as found:
        for entry in found:
            mark = "/" if entry.is_dir(follow_symlinks=False) else ""
            names.append(f"{entry.name}{mark}")
    return sorted(filter(rules, names))


def _staying(leave_out: str) -> set[tuple[int, int]]:
    """Return (device, inode) of the existing folders that are left out.

    A path can be spelled in many ways, so paths are not compared.
    """
    from transload.schedulers.local.home import local_home, state_home

    found = set()
    for folder in (state_home(), local_home(), leave_out):
        with contextlib.suppress(OSError):
            stat = os.stat(folder)
            found.add((stat.st_dev, stat.st_ino))
    return found


def _walk(
    root: str, target: str, inner: str, rules: Callable[[str], bool], stay: set[tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    with os.scandir(os.path.join(root, inner)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{inner}/{entry.name}" if inner else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if rules(f"{path}/" if is_folder else path):
            continue
        if is_folder:
            stat = entry.stat(follow_symlinks=False)
            if (stat.st_dev, stat.st_ino) not in stay:
                yield from _walk(root, target, path, rules, stay)
        elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
            yield entry.path, os.path.join(target, path)


def copy_workspace(workspace: Workspace, folder: str, leave_out: str = "") -> int:
    """Copy the files of a workspace into ``folder``, with their modes and times.

    Args:
        workspace: the workspace.
        folder: the destination, which is created if it does not exist.
        leave_out: a folder that is left out. The default is ``folder``.

    Returns:
        The number of files.

    Raises:
        SpecError: if a project is not a folder, or two projects have the same file.
        OSError: if a file cannot be read or written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    count = 0
    for source, inner in _each_once(
        workspace_files(workspace, leave_out=leave_out or folder), "copying"
    ):
        destination = os.path.join(folder, inner)
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        shutil.copy2(source, destination, follow_symlinks=False)
        count += 1
    _warn_if_empty(workspace, count)
    return count


def _each_once(files: Iterable[tuple[str, str]], doing: str) -> Iterator[tuple[str, str]]:
    """Yield files, and show the progress. Refuse two files that would have the same path."""
    seen: dict[str, str] = {}
    with progress(f"{doing} the workspace") as step:
        for source, inner in files:
            if inner in seen:
                raise SpecError(
                    f"workspace: {inner!r} comes from both {seen[inner]!r} and {source!r}"
                )
            seen[inner] = source
            yield source, inner
            step(os.lstat(source).st_size)


def _warn_if_empty(workspace: Workspace, count: int) -> None:
    if count == 0 and workspace:
        logging.getLogger("transload.workspace").warning(
            "no file of %s travels with the job: the folder is empty, or its %s leaves out all of "
            "it; "
            "a line such as !src there brings a folder back",
            ", ".join(workspace.projects),
            " or ".join(IGNORE_FILES),
        )


def workspace_digest(workspace: Workspace) -> str:
    """Return 16 hex digits that change with every path, mode or content of a workspace's files.

    Raises:
        SpecError: if a project is not a folder.
        OSError: if a file cannot be read.
    """
    return _content_digest(workspace, 0)[:16]


def archive_digest(workspace: Workspace) -> str:
    """Return a digest, 64 hex digits, that can be computed again from the archive alone.

    All entries except for the first are hashed. Each entry gives the path, a NUL byte, the mode in
    octal digits, a NUL byte, the content or the target of a link, and a NUL byte. The errors are
    those of `workspace_digest`.
    """
    return _content_digest(workspace, READABLE)


def _content_digest(workspace: Workspace, more_mode: int) -> str:
    import hashlib

    digest = hashlib.sha256()
    for source, inner in workspace_files(workspace):
        stat = os.lstat(source)
        mode = stat.st_mode & 0o777 | more_mode
        digest.update(f"{inner}\0{mode:o}\0".encode(errors="surrogateescape"))
        if os.path.islink(source):
            digest.update(os.readlink(source).encode(errors="surrogateescape"))
        else:
            with open(source, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()


def write_workspace_archive(archive: IO[bytes], workspace: Workspace, folder: str) -> None:
    """Write a workspace as a tar archive.

    Its files are below ``folder``, belong to root, and every user of the image can read them.

    Raises:
        SpecError: if two files would have the same path.
        OSError: if a file cannot be read.
    """
    import tarfile

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = 0
        entry.gid = 0
        entry.uname = ""
        entry.gname = ""
        entry.mode |= READABLE
        return entry

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        root = tarfile.TarInfo(folder.strip("/"))
        root.type = tarfile.DIRTYPE
        root.mode = 0o755
        tar.addfile(root)
        count = 0
        for source, inner in _each_once(workspace_files(workspace), "packing"):
            name = os.path.join(folder, inner).lstrip("/")
            tar.add(source, name, recursive=False, filter=anonymous)
            count += 1
    _warn_if_empty(workspace, count)
