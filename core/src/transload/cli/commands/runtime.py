"""The command ``transload runtime``."""

from __future__ import annotations

from pathlib import Path

import click

import transload.runtime


@click.command()
def runtime() -> None:
    """Print what a program without transload takes along to report results and progress.

    It is one file for Python 3.8 and newer, with report, progress, checkpoints and the notice:

        transload runtime > transload_runtime.py
    """
    click.echo(Path(transload.runtime.__file__).read_text(encoding="utf-8"), nl=False)
