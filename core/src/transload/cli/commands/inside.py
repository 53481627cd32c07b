"""The commands ``transload signal`` and ``transload exec``, which reach into a job that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from transload.cli.options import handle_argument
from transload.cli.output import emit
from transload.cli.session import description_of, find_job, open_runner, split_handle
from transload.errors import SpecError
from transload.specs.text import parse_number

if TYPE_CHECKING:
    from transload.runner import Job, Runner

_FORM: Final = "HANDLE[/ROLE[/K]]"
_BY_SIGNAL: Final = 128
"""Exit codes above this say which signal has ended a command, as in a shell."""


class _Replicas(NamedTuple):
    """The replicas of a job that a command is about."""

    job: Job
    role: str | None
    replica: int | None


def _find(runner: Runner, text: str) -> _Replicas:
    named = split_handle(text, _FORM)
    replica = None
    if named.numbers is not None:
        try:
            replica = parse_number(named.numbers, int)
        except ValueError:
            raise SpecError(
                f"{text!r}: {named.numbers!r} must be the number of a replica"
            ) from None
    job = find_job(runner, named.handle)
    description_of(job)  # raises for a job that is not there, with the nearest id
    return _Replicas(job, named.role, replica)


@click.command()
@click.argument("handle", metavar=_FORM)
@click.argument("signal", metavar="SIGNAL", default="USR1")
def signal(handle: str, signal: str) -> None:
    """Send a signal to the main process of each replica that runs.

    A SIGNAL is a name such as USR1, the default, or INT. A role or a replica of the job can be
    named. What got the signal is written to stdout.
    """
    with open_runner() as runner:
        job, role, replica = _find(runner, handle)
        for name, k in job.signal(signal, role, replica):
            emit(f"{name}/{k}")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@handle_argument(nargs=1, metavar=_FORM)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def exec_(handle: str, command: tuple[str, ...]) -> int:
    """Run a command where a replica runs, with its folder and variables.

    The replica must be named if several run. The command has the streams of this one, and a
    terminal if this one has one. Its exit code is the command's.
    """
    words = command[1:] if command[0] == "--" else command
    terminal = os.isatty(0) and os.isatty(1)
    with open_runner() as runner:
        job, role, replica = _find(runner, handle)
        code = job.exec(words, role, replica, terminal=terminal).returncode
    return code if code >= 0 else _BY_SIGNAL - code


exec_.name = "exec"
