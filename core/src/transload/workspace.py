"""Choose the files of a workspace, copy them to a job, and compute digests of them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from transload.errors import ConfigError, SpecError
from transload.runtime.progress_lines import progress
from transload.specs import Workspace

if TYPE_CHECKING:
    import tarfile

__all__ = [
    "IGNORE_FILES",
    "Entry",
    "archive_digest",
    "copy_workspace",
    "each_once",
    "ignore_rules",
    "left_out",
    "workspace_digest",
    "workspace_files",
    "write_workspace_archive",
]

IGNORE_FILES: Final = (".transloadignore", ".dockerignore")
"""Names of the ignore file in a project's folder. The first that exists is used.

The first has the form of a ``.gitignore``, and may lie in each folder below, too. The second has
that of a ``.dockerignore``.
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

_FOLDER_MODE: Final = 0o755
_MOST_NAMED: Final = 5

READABLE: Final = 0o444
"""Permissions added to each file in an archive, because any user of the image may read it."""


def ignore_rules(folder: str) -> Callable[[str], bool]:
    """Return the function that tells whether a path below a project's folder is left out.

    It applies `ALWAYS` and then the rules of the ignore files. The path of a folder ends with
    ``/``, and the files of a folder that is left out are not read.

    Raises:
        ConfigError: if an ignore file cannot be read, or has an invalid pattern.
    """
    rules = _GitRules(folder)
    docker = os.path.join(folder, ".dockerignore")
    lines = None if rules.has_own() else _lines_of(docker)
    if lines is None:
        return rules.stays
    try:
        return _DockerRules(lines).stays
    except re.error as exc:
        raise _unreadable(docker, exc) from exc


def _lines_of(path: str) -> list[str] | None:
    """Return the lines of an ignore file, or None if it is not there.

    Raises:
        ConfigError: if it cannot be read, or has a pattern that might never finish.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.rstrip("\n") for line in file]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:
        raise _unreadable(path, exc) from exc
    _refuse_endless(path, lines)
    return lines


def _unreadable(path: str, exc: Exception) -> ConfigError:
    return ConfigError(f"{path}: cannot be read: {exc}")


class _Rules(NamedTuple):
    """The rules that hold for what lies in a folder, as lines of one ignore file at the top."""

    lines: list[str]
    stays: Callable[[str], bool]


class _GitRules:
    """The rules of ``.transloadignore`` files, which have the form of a ``.gitignore``.

    One in a folder holds for what lies below it, and goes before those above it.

    Args:
        root: the project's folder.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        # pathspec gives the same answer as this, but takes 15 ms to be imported
        self._above = _Rules(list(ALWAYS), _always)
        self._known: dict[str, _Rules] = {}

    def has_own(self) -> bool:
        """Tell whether the project's folder itself has a file of rules."""
        return self._of("") is not self._above

    def stays(self, path: str) -> bool:
        """Tell whether a file, or a folder with all its files, is left out."""
        return self._of(path.rstrip("/").rpartition("/")[0]).stays(path)

    def _of(self, folder: str) -> _Rules:
        """Return the rules for what lies in a folder."""
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._read(folder)
        return known

    def _read(self, folder: str) -> _Rules:
        above = self._of(folder.rpartition("/")[0]) if folder else self._above
        path = os.path.join(self._root, folder, IGNORE_FILES[0])
        own = _lines_of(path)
        if own is None:
            return above
        from pathspec import GitIgnoreSpec

        lines = [*above.lines, *(_from_the_top(folder, line) for line in own)]
        try:
            GitIgnoreSpec.from_lines(own)  # what is no pattern may be one with a folder before it
            return _Rules(lines, GitIgnoreSpec.from_lines(lines).match_file)
        except (ValueError, re.error) as exc:
            raise _unreadable(path, exc) from exc


def _from_the_top(folder: str, line: str) -> str:
    """Return a line of a folder's ignore file as it would be written at the top, for pathspec."""
    if not line.strip() or line.startswith("#"):
        return line
    pattern = line.removeprefix("!")
    sign = line[: len(line) - len(pattern)]
    kept = pattern.rstrip(" ")
    if kept.endswith("\\") and kept != pattern:
        kept += " "
    if kept.endswith("/**"):
        kept += "/*"  # what is in the folder, where pathspec would take the folder, too
    if not folder:
        return sign + kept
    place = re.sub(r"([\\*?\[\]!# ])", r"\\\1", folder)
    if "/" in kept.rstrip("/"):
        return f"{sign}/{place}/{kept.lstrip('/')}"
    return f"{sign}/{place}/**/{kept}"


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


class Entry(NamedTuple):
    """A file, a link, or an empty folder of a workspace.

    Args:
        source: where it is on this machine.
        path: its path inside the workspace.
        target: what a link leads to there, or None if it is no link.
        is_folder: it is a folder of which nothing else travels.
        breaks: what the link leads to does not travel with it.
    """

    source: str
    path: str
    target: str | None = None
    is_folder: bool = False
    breaks: bool = False


def workspace_files(workspace: Workspace, leave_out: str = "") -> Iterator[Entry]:
    """Yield each file, link and empty folder of a workspace.

    They are sorted within a folder. Links are not followed: one that leads into the workspace
    leads to the same place in each copy, and another one is kept as it is. The state folder is left
    out, because it has the copies that were made before.

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
            yield Entry(root, os.path.join(target, os.path.basename(root)))
        elif os.path.isdir(root):
            yield from _walk(_Project(root, target, ignore_rules(root), stay), "")
        else:
            raise SpecError(f"workspace {source!r}: no such folder (looked for {root})")


def file_sizes(workspace: Workspace) -> Iterator[int]:
    """Yield the size in bytes of each file and link that `workspace_files` names.

    What has been removed meanwhile is left out.
    """
    for entry in workspace_files(workspace):
        if not entry.is_folder:
            with contextlib.suppress(FileNotFoundError):
                yield os.lstat(entry.source).st_size


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
    from transload.schedulers.folder.home import local_home, state_home

    found = set()
    for folder in (state_home(), local_home(), leave_out):
        with contextlib.suppress(OSError):
            stat = os.stat(folder)
            found.add((stat.st_dev, stat.st_ino))
    return found


class _Project(NamedTuple):
    """A folder that travels, where it goes, and what of it is left out."""

    root: str
    target: str
    rules: Callable[[str], bool]
    stay: set[tuple[int, int]]

    def leaves_out(self, path: str) -> bool:
        """Tell whether a path, or a folder above it, is left out."""
        parts = path.split("/")
        above = ["/".join(parts[:end]) + "/" for end in range(1, len(parts))]
        mark = "/" if os.path.isdir(os.path.join(self.root, path)) else ""
        return any(map(self.rules, [*above, path + mark]))


def _walk(project: _Project, inner: str) -> Generator[Entry, None, bool]:
    """Yield what travels of a folder below a project's, and return whether it holds anything."""
    with os.scandir(os.path.join(project.root, inner)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    holds = False
    for entry in entries:
        path = f"{inner}/{entry.name}" if inner else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if project.rules(f"{path}/" if is_folder else path):
            continue
        if is_folder:
            there = yield from _folder(project, path, entry)
            holds = holds or there
        elif entry.is_symlink():
            holds = True
            yield _link(project, path, entry.path)
        elif entry.is_file(follow_symlinks=False):
            holds = True
            yield Entry(entry.path, os.path.join(project.target, path))
    return holds


def _folder(project: _Project, path: str, entry: os.DirEntry[str]) -> Generator[Entry, None, bool]:
    """Yield what travels of a folder, or the folder itself if it holds nothing.

    Returns:
        Whether it is there.
    """
    stat = entry.stat(follow_symlinks=False)
    if (stat.st_dev, stat.st_ino) in project.stay or (yield from _walk(project, path)):
        return True
    if project.rules(path):  # the rules of a .dockerignore have led into it for nothing
        return False
    yield Entry(entry.path, os.path.join(project.target, path), is_folder=True)
    return True


def _link(project: _Project, path: str, source: str) -> Entry:
    """Return a link, with what it leads to in a copy of the project."""
    text = os.readlink(source)
    place = os.path.join(project.target, path)
    folder = os.path.dirname(source)
    inner = _below(project.root, os.path.normpath(os.path.join(folder, text)))
    if inner is None:
        # an absolute one is good as long as the job sees the same disk
        breaks = not os.path.isabs(text) and os.path.exists(source)
        return Entry(source, place, text, breaks=breaks)
    goes_out = os.path.normpath(os.path.join(os.path.dirname(path), text)).startswith("..")
    if os.path.isabs(text) or goes_out:
        text = os.path.relpath(os.path.join(project.root, inner), folder)
    breaks = os.path.exists(source) and inner != "." and project.leaves_out(inner)
    return Entry(source, place, text, breaks=breaks)


def _below(root: str, path: str) -> str | None:
    """Return an absolute path relative to a folder, or None if it leads out of it.

    The folder may be spelled without links, too.
    """
    for spelled in {root: None, os.path.realpath(root): None}:
        if path == spelled:
            return "."
        if path.startswith(f"{spelled.rstrip('/')}/"):
            return os.path.relpath(path, spelled)
    return None


def copy_workspace(workspace: Workspace, folder: str, leave_out: str = "") -> int:
    """Copy the files of a workspace into ``folder``, with their modes and times.

    Args:
        workspace: the workspace.
        folder: the destination, which is created if it does not exist.
        leave_out: a folder that is left out. The default is ``folder``.

    Returns:
        The number of files and links.

    Raises:
        SpecError: if a project is not a folder, or two projects have the same file.
        OSError: if a file cannot be read or written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    count = 0
    for entry in each_once(workspace_files(workspace, leave_out=leave_out or folder), "copying"):
        destination = os.path.join(folder, entry.path)
        if entry.is_folder:
            os.makedirs(destination, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        if entry.target is not None:
            os.symlink(entry.target, destination)
        else:
            shutil.copy2(entry.source, destination)
        count += 1
    _warn_if_empty(workspace, count)
    return count


def each_once(entries: Iterable[Entry], doing: str, *, shared: bool = True) -> Iterator[Entry]:
    """Yield entries, and show the progress. Refuse two files that would have the same path.

    Args:
        entries: what travels.
        doing: what is done with it.
        shared: the job sees this machine's disk.
    """
    seen: dict[str, str] = {}
    broken = []
    with progress(f"{doing} the workspace") as step:
        for entry in entries:
            before = seen.get(entry.path)
            if before is not None and entry.is_folder:
                continue
            if before is not None:
                raise SpecError(
                    f"workspace: {entry.path!r} comes from both {before!r} and {entry.source!r}"
                )
            seen[entry.path] = entry.source
            if entry.breaks or (not shared and os.path.isabs(entry.target or "")):
                broken.append(f"{entry.path} -> {entry.target}")
            yield entry
            step(os.lstat(entry.source).st_size)
    if broken:
        _warn_of_links(broken)


def _warn_of_links(links: Sequence[str]) -> None:
    """Log one line for links that lead to nothing in the copy."""
    shown = ", ".join(links[:_MOST_NAMED])
    if len(links) > _MOST_NAMED:
        shown += f" and {len(links) - _MOST_NAMED} more"
    logging.getLogger("transload.workspace").warning(
        "what these links of the workspace lead to does not travel: %s: put it into the folder, or "
        "name it as another folder of the workspace",
        shown,
    )


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

    All entries except for the first are hashed. Each entry gives the path (a folder's ends with a
    slash), a NUL byte, the mode in octal digits, a NUL byte, the content or the target of a link,
    and a NUL byte. The errors are
    those of `workspace_digest`.
    """
    return _content_digest(workspace, READABLE)


def _content_digest(workspace: Workspace, more_mode: int) -> str:
    import hashlib

    digest = hashlib.sha256()
    for entry in workspace_files(workspace):
        path = entry.path
        mode = os.lstat(entry.source).st_mode & 0o777 | more_mode
        if entry.is_folder:
            path = f"{path}/"
            mode = _FOLDER_MODE
        digest.update(f"{path}\0{mode:o}\0".encode(errors="surrogateescape"))
        if entry.target is not None:
            digest.update(entry.target.encode(errors="surrogateescape"))
        elif not entry.is_folder:
            with open(entry.source, "rb") as file:
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

    def described(entry: Entry) -> tarfile.TarInfo:
        name = os.path.join(folder, entry.path).lstrip("/")
        if entry.is_folder:
            return _tar_folder(name)
        found = tar.gettarinfo(entry.source, name)
        found.uid = 0
        found.gid = 0
        found.uname = ""
        found.gname = ""
        found.mode |= READABLE
        found.linkname = entry.target or found.linkname
        return found

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_tar_folder(folder.strip("/")))
        count = 0
        for entry in each_once(workspace_files(workspace), "packing", shared=False):
            found = described(entry)
            if found.isreg():
                with open(entry.source, "rb") as file:
                    tar.addfile(found, file)
            else:
                tar.addfile(found)
            count += not entry.is_folder
    _warn_if_empty(workspace, count)


def _tar_folder(name: str) -> tarfile.TarInfo:
    """Return a folder of an archive, which belongs to root, and which everybody may read."""
    import tarfile

    made = tarfile.TarInfo(name)
    made.type = tarfile.DIRTYPE
    made.mode = _FOLDER_MODE
    return made
