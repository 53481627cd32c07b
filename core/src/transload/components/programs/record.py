"""Start a Python program like ``python``, and write its last exception into its error file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transload.specs.own_programs import OWN_PROGRAMS

START: Final = """\
def start():
    import os, sys

    def tell(error, path):
        import json, time, traceback
        line = "{}: {}".format(type(error).__name__, error).encode("utf-8", "replace")[:1000]
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        stack = lines.encode("utf-8", "replace")[-2000:].decode("utf-8", "ignore")
        more = {"py_callstack": stack, "timestamp": str(int(time.time()))}
        said = {"message": line.decode("utf-8", "ignore"), "extraInfo": more}
        with open(path, "ab+") as file:
            file.seek(0)
            if b'"message"' not in file.read():
                file.write(json.dumps({"message": said}, ensure_ascii=False).encode() + b"\\n")

    # the program may clear its variables
    files = {os.environ.get(name) for name in ("TORCHELASTIC_ERROR_FILE", "TRANSLOAD_ERROR_FILE")} - {None, ""}
    main = sys.modules["__main__"].__dict__
    del main["start"]
    kind, *rest = words = sys.argv[1:]
    first = None if sys.path[:1] != [""] else "" if kind == "-c" else os.getcwd()
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
    elif kind == "-c":
        text, path, sys.argv = rest[0], "<string>", ["-c", *rest[1:]]
    else:
        sys.argv, path = words, os.path.join(os.getcwd(), kind)
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            text = b"\\0"
        if b"\\0" in text:  # a folder, a zip, nothing
            os.execv(sys.executable, [sys.executable, *words])
        from _frozen_importlib_external import SourceFileLoader
        main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        first = first and os.path.dirname(os.path.realpath(path))
    sys.path[:1] = sys.path[:1] if first is None else [first]
    try:
        if kind == "-m":
            import runpy
            runpy._run_module_as_main(rest[0])
        else:
            code = compile(text, path, "exec", dont_inherit=True)
            lines = kind == "-c" and sys.modules.get("linecache")
            if hasattr(lines, "_register_code"):  # 3.13 keeps the source of -c there, by name; 3.13.1 by code
                lines._register_code(code if hasattr(lines, "_code_key") else path, text, path)
            exec(code, main)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of Rust, a cancelled task
        error.with_traceback(error.__traceback__.tb_next)
        for path in files:
            try:
                tell(error, path)
            except Exception:
                pass
        sys.last_type, sys.last_value, sys.last_traceback = what = type(error), error, error.__traceback__
        sys.excepthook(*what)
        raise SystemExit(1)


type(start)(start.__code__, {"__builtins__": __builtins__})()  # no name that the program gives something else is ours
"""
"""The text for ``python -c``, which runs a program as `__main__` with its arguments and path.

It keeps to the standard library and Python 3.8, since it runs where transload may not be installed.
It writes the form of torchelastic's ``@record``, short enough for a termination message. A file
that the program has written itself is not replaced. A program that is no file of source text (a
folder, a zip) is left to ``python``.
"""

OWN_PROGRAMS[START] = "# transload.components.programs.record"


def recorded(words: Sequence[str]) -> list[str]:
    """Return the arguments of an interpreter that runs ``words``.

    These are ``SCRIPT …``, ``-m MODULE …`` or ``-c TEXT …``.
    """
    return ["-c", START, *words]
