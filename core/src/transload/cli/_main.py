"""The entry of the command line: one line for a user's mistake, an exit code for each kind of end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from transload.cli._exit import ExitCode, exit_code_for
from transload.cli._group import ReaderGone, cli
from transload.cli._output import OutputFailed, note, note_error
from transload.errors import TransloadError


def run_main(args: Sequence[str] | None) -> int:
    """Run the command line; see `transload.cli.main`."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        _tolerate_any_text(stream)
    try:
        try:
            code = _invoke(args)
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        _silence_stdout()
        return ExitCode.PIPE
    except OSError as exc:
        _silence_stdout()
        note_error(f"the output cannot be written: {exc.strerror}")
        return ExitCode.PIPE
    return code


def _invoke(args: Sequence[str] | None) -> int:
    try:
        result = cli.main(args=args, prog_name="transload", standalone_mode=False)
    except click.ClickException as exc:
        context = exc.ctx if isinstance(exc, click.UsageError) else None
        advice = "" if context is None else f" (see `{context.command_path} --help`)"
        note_error(f"{exc.format_message()}{advice}")
        return ExitCode.MISTAKE
    except (ReaderGone, OutputFailed):
        raise
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.LEFT
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except TransloadError as exc:
        if os.environ.get("TRANSLOAD_DEBUG", "") not in ("", "0"):
            _print_traceback()
        note_error(str(exc))
        return exit_code_for(exc)
    except Exception as exc:
        if isinstance(exc, FileNotFoundError) and _is_nowhere():
            note_error("the working directory has been removed: change to another one")
            return ExitCode.MISTAKE
        _print_traceback()
        note_error(f"internal error: {type(exc).__name__}: {exc} (a defect of transload; please report the traceback)")
        return ExitCode.INTERNAL
    return result if isinstance(result, int) else ExitCode.OK


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _replace_closed_streams() -> None:
    """Let a stream that was closed before we began (``>&-``) lead nowhere: Python has None in its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life


def _tolerate_any_text(stream: TextIO) -> None:
    """Make a stream take any log line: bytes that were no UTF-8 leave as they came; what has no code is escaped."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere: the reader (`| head`) has left."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    except (OSError, ValueError):
        note("the reader of the output has gone")
