"""Run the command line, with one line for a user's mistake and an exit code for each end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, cast

from transload import __version__
from transload.cli.command_table import COMPLETE, SETTINGS, complete, help_text, load, names
from transload.cli.exit_codes import ExitCode, exit_code_for
from transload.cli.output import CleanStream, OutputFailed, emit, note, note_error
from transload.errors import SubmitError, TransloadError

if TYPE_CHECKING:
    import click

_NOT_OURS = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
"""Errors of a disk that is read-only, full or broken, which are not the command's fault."""


def run_main(args: Sequence[str] | None) -> int:
    """Run the command line, as `transload.cli.main` describes it."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        _tolerate_any_text(stream)
    stdout = sys.stdout
    stderr = sys.stderr
    # from here on, control characters that a job could hide in a text are escaped, also in text of
    # plugins, in warnings and in tracebacks
    sys.stdout = cast("TextIO", CleanStream(stdout))
    sys.stderr = cast("TextIO", CleanStream(stderr))
    try:
        return _run(sys.argv[1:] if args is None else list(args))
    finally:
        sys.stdout = stdout
        sys.stderr = stderr
        try:
            stderr.flush()
        except OSError:
            _silence(stderr)  # notes that cannot be written do not change the exit code


def _run(args: list[str]) -> int:
    try:
        try:
            code = _invoke(args)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        return ExitCode.PIPE
    except OSError as exc:
        _silence(sys.stdout)
        note_error(f"the output cannot be written: {exc.strerror}")
        return ExitCode.PIPE
    return code


def _invoke(args: list[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        return complete(instruction)
    if not args:
        sys.stderr.write(f"{help_text()}\n")
        return ExitCode.MISTAKE
    if args[0] in ("-h", "--help"):
        sys.stdout.write(f"{help_text()}\n")
        return ExitCode.OK
    if args[0] == "--version":
        sys.stdout.write(f"transload {__version__}\n")
        return ExitCode.OK
    try:
        return _run_command(args[0], args[1:])
    except OutputFailed:
        raise
    except KeyboardInterrupt:
        return ExitCode.LEFT
    except TransloadError as exc:
        if os.environ.get("TRANSLOAD_DEBUG", "") not in ("", "0"):
            _print_traceback()
        _show(exc)
        return exit_code_for(exc)
    except BrokenPipeError:
        raise
    except Exception as exc:
        if isinstance(exc, FileNotFoundError) and _is_nowhere():
            note_error("the working directory has been removed: change to another one")
            return ExitCode.MISTAKE
        if isinstance(exc, OSError) and exc.errno in _NOT_OURS:
            note_error(f"{exc.filename or 'a file'}: {exc.strerror}")
            return ExitCode.UNAVAILABLE
        _print_traceback()
        note_error(
            f"internal error: {type(exc).__name__}: {exc} (a defect of transload; please report "
            "the traceback)"
        )
        return ExitCode.INTERNAL


def _show(error: TransloadError) -> None:
    """Write what went wrong.

    The last line says it, below what a program wrote that failed.
    """
    text = str(error)
    if isinstance(error, SubmitError) and error.lines:
        for line in error.lines:
            note(line)
        text = text.partition("\n")[0]
    note_error(text)


def _hint(name: str) -> str:
    """Return a hint about an unknown command."""
    from transload.plugins import get_plugins
    from transload.plugins.distributions import find_distribution

    hint = get_plugins().hint("cli_commands", name, names())
    if find_distribution("cli_commands", name) is None:
        hint = f"{hint} (see `transload --help`)"
    return hint


def _run_command(name: str, args: list[str]) -> int:
    """Run one command, which finds its words in ``ctx.obj``."""
    import click

    from transload.cli.log_lines import shown_log

    try:
        if name.startswith("-"):
            raise click.UsageError(f"no such option: {name!r} (see `transload --help`)")
        command = load(name)
        if command is None:
            raise click.UsageError(f"no such command: {name!r}: {_hint(name)}")
        # for the text of that option click looks for translations, which costs more than all others
        # together
        command.add_help_option = any(word.startswith("-") and "h" in word for word in args)
        _refuse_empty_texts(command)
        made = command.make_context(f"transload {name}", args, obj=list(args), **SETTINGS)
        with shown_log(), made as context:
            result = command.invoke(context)
    except click.exceptions.NoArgsIsHelpError as exc:
        emit(exc.format_message())
        return ExitCode.MISTAKE
    except click.ClickException as exc:
        note_error(_message(exc))
        return ExitCode.MISTAKE
    except click.Abort:
        return ExitCode.LEFT
    except click.exceptions.Exit as exc:
        return exc.exit_code
    if isinstance(result, int):
        return result
    return ExitCode.OK


def _refuse_empty_texts(command: click.Command) -> None:
    """Have the options of a command and its subcommands refuse a text that is empty."""
    import click

    from transload.cli.options import GIVEN_TEXT

    if isinstance(command, click.Group):
        for each in command.commands.values():
            _refuse_empty_texts(each)
    for param in command.params:
        if isinstance(param, click.Option) and param.type is click.STRING and param.default != "":
            param.type = GIVEN_TEXT


def _message(error: click.ClickException) -> str:
    """Return what is wrong with a command line, and what to type instead."""
    import click

    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    advice = f"(see `{error.ctx.command_path} --help`)"
    if error.ctx.command.name != "run" or not isinstance(error, click.NoSuchOption):
        return f"{message} {advice}"
    remedy = _as_run_option(error.option_name.lstrip("-"))
    if remedy is not None:
        return f"{error.message} {remedy} {advice}"
    if error.ctx.command_path != "transload run":
        return f"{message} {advice}"
    return f"{message} (arguments of a component come after its name) {advice}"


def _as_run_option(name: str) -> str | None:
    """Return what to write in place of an option of a scheduler, or None if no scheduler has it."""
    from transload.runner import get_runner

    name = name.replace("-", "_")
    with get_runner() as runner:
        for scheduler in runner.scheduler_backends():
            try:
                options = runner.scheduler_run_opts(scheduler)
            except TransloadError:
                continue
            if options.get(name) is not None:
                return f"It is a run option of a scheduler: -c {name}=VALUE"
    return None


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
    """Open the null device for each standard stream that was closed before the start (``>&-``).

    Python has None in place of such a stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life


def _tolerate_any_text(stream: TextIO) -> None:
    """Let a stream write any log line.

    Bytes that are not UTF-8 pass unchanged, and characters that it cannot encode are escaped.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        errors = "surrogateescape" if is_utf8 else "backslashreplace"
        reconfigure(errors=errors)


def _silence(stream: TextIO) -> None:
    """Send the interpreter's last flush of a stream to the null device, since nobody reads it any
    more (`| head`), or there is no room for it.
    """
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    except (OSError, ValueError):
        note("the reader of the output has gone")
