"""``transload migrate``."""

from __future__ import annotations

import configparser
import difflib
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from transload.components import is_batch_script
from transload.errors import SpecError
from transload.runner import Runner
from transload_torchx.commands import is_listed, left_lines
from transload_torchx.sbatch import convert_batch_script
from transload_torchx.settings import convert_settings
from transload_torchx.sources import Left, convert_source

_SETTINGS: Final = (".torchxconfig", ".torchxignore")
_BATCH_SCRIPTS: Final = (".sbatch", ".slurm", ".sh", ".job", ".batch")
_NOT_LOOKED_INTO: Final = ("__pycache__", "node_modules")


class _File(NamedTuple):
    source: Path
    target: Path
    text: str
    left: list[Left]


@click.command(short_help="Move TorchX components, or batch scripts of Slurm, to transload.")
@click.option("--write", is_flag=True, help="Make the changes; default: only show them.")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def command(path: Path, write: bool) -> int:
    """Show what becomes of a folder (or file) of TorchX components and batch scripts of Slurm.

    A batch script becomes a component beside it, and a table in transload.toml. The rest, to be
    done by hand, is listed by line. Commands of TorchX in shell scripts, and its name among
    packages, are part of that. Exits with 0 if there is none, else with 1.
    """
    changed = 0
    left = 0
    for file in _files(path):
        before = _text_of(file.target)
        if file.text != before:
            changed += 1
            if write:
                _replace(file.target, file.text)
                click.echo(f"{file.target}: written")
            else:
                _show(file, before)
        for line, what in file.left:
            left += 1
            click.echo(f"{file.source}:{line}: left: {what}", err=True)
    done = "written" if write else "to change"
    click.echo(f"{changed} file(s) {done}, {left} line(s) left to do by hand", err=True)
    return 1 if left else 0


def _text_of(file: Path) -> str:
    """Return what is in a file, or ``""`` if there is no such file."""
    if not file.exists():
        return ""
    return file.read_text(encoding="utf-8")


def _files(path: Path) -> Iterator[_File]:
    """Read the files that can be moved, and return each as it will be."""
    found = sorted(_walk(path)) if path.is_dir() else [path]
    for file in found:
        try:
            text = file.read_text(encoding="utf-8-sig")
            if file.name == ".torchxconfig":
                with Runner("migrate") as runner:
                    new, left = convert_settings(text, runner)
                yield _own(file, file.with_name("transload.toml"), new, left)
            elif file.name == ".torchxignore":
                yield _own(file, file.with_name(".transloadignore"), text, [])
            elif is_batch_script(text):
                yield from _batch_script(file, text)
            elif file.suffix == ".py" and "torchx" in text.lower():
                yield _File(file, file, *convert_source(text))
            elif is_listed(file.name):
                yield _File(file, file, text, left_lines(file.name, text))
        except SyntaxError as exc:
            raise SpecError(f"{file}:{exc.lineno or 0}: syntax error: {exc.msg}") from exc
        except (configparser.Error, UnicodeDecodeError, OSError) as exc:
            raise SpecError(f"{file}: cannot be read: {' '.join(str(exc).split())}") from exc


def _batch_script(source: Path, text: str) -> Iterator[_File]:
    """Return the component and the settings that stand for a batch script."""
    try:
        component, settings, left = convert_batch_script(text, source.stem)
    except SpecError as exc:
        raise SpecError(f"{source}: {exc}") from exc
    name = re.sub(r"\W", "_", source.stem)
    yield _own(source, source.with_name(f"{name}_job.py"), component, left)
    if settings:
        target = source.with_name("transload.toml")
        yield _own(source, target, _for_cluster(settings, _text_of(target)), [])


def _for_cluster(settings: str, existing: str) -> str:
    """Return the settings that a file lacks, in the table of its first cluster of Slurm.

    Args:
        settings: a table ``[schedulers.slurm]``, with a line for each key.
        existing: the file, which stays as it is if it has all of them.
    """
    try:
        tables = tomllib.loads(existing).get("schedulers", {})
    except tomllib.TOMLDecodeError:
        return settings
    clusters = [
        name
        for name, table in tables.items()
        if isinstance(table, dict) and table.get("kind", name) == "slurm"
    ]
    if not clusters:
        return settings
    known = tables[clusters[0]]
    rows = settings.splitlines()[1:]
    lacking = [row for row in rows if known | tomllib.loads(row) != known]
    if not lacking:
        return existing
    return "\n".join([f"[schedulers.{clusters[0]}]", *lacking, ""])


def _own(source: Path, target: Path, text: str, left: list[Left]) -> _File:
    """Return a new file. An existing one with other content is not changed."""
    before = _text_of(target)
    if target.exists() and before != text:
        there = f"{target} is there already"
        if target.suffix == ".toml":
            wanted = "".join(f"\n    {line}" for line in text.splitlines() if line)
            there = f"{there}, add to it:{wanted}"
        return _File(source, target, before, [Left(1, there), *left])
    return _File(source, target, text, left)


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name not in _NOT_LOOKED_INTO
        ]
        for name in files:
            is_source = name in _SETTINGS or Path(name).suffix in (".py", *_BATCH_SCRIPTS)
            if is_source or is_listed(name):
                yield Path(where, name)


def _show(file: _File, before: str) -> None:
    difference = difflib.unified_diff(
        before.splitlines(keepends=True),
        file.text.splitlines(keepends=True),
        fromfile=str(file.source),
        tofile=str(file.target),
    )
    click.echo("".join(difference), nl=False)


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside.write_text(text, encoding="utf-8")
    if path.exists():
        aside.chmod(path.stat().st_mode & 0o777)
    aside.replace(path)
