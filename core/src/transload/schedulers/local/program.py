"""The program of the keepers of local jobs, which starts within milliseconds."""

from __future__ import annotations

import os
from typing import Final

import transload
from transload.keeper import processes
from transload.schedulers.folder.start import Program

_PASSED_ON: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH")


def program() -> Program:
    """Return the program, which inherits almost nothing of the environment."""
    env = {processes.MARK: "1", "LC_ALL": "C.UTF-8"}
    env |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return Program(("-I", "-S", "-X", "utf8"), import_keeper(), env)


def import_keeper() -> str:
    """Return code that imports the keeper without the rest of transload.

    The packages above it are empty there, so that nothing is loaded but the modules that it names.
    """
    package = os.path.dirname(os.path.abspath(transload.__file__))
    folders = {"transload": package, "transload.keeper": f"{package}/keeper"}
    empty = "".join(
        f"module = sys.modules[{name!r}] = type(sys)({name!r}); module.__path__ = [{folder!r}]; "
        for name, folder in folders.items()
    )
    return f"import sys; {empty}from transload.keeper import keeper; keeper"
