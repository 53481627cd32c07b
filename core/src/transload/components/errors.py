"""The errors of components and their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

from transload.components.neighbours import PREFIX
from transload.errors import SpecError


class ComponentNotFound(SpecError):
    """There is no component with that name, file or function."""


class NoComponent(ComponentNotFound):
    """A given file has no component."""


class ComponentInvalid(SpecError):
    """A function is not a component, or its file cannot be read. The message has file and line."""


class ComponentArgumentError(SpecError):
    """An argument of a component is unknown, missing, or of the wrong type.

    Attributes:
        unknown: the option that the component does not have, or None if something else is wrong.
    """

    unknown: str | None = None


class ComponentHelpRequested(ComponentArgumentError):
    """``--help`` is among the arguments. The message is the help text.

    Attributes:
        component: name of the component.
    """

    def __init__(self, component: str, text: str) -> None:
        super().__init__(text)
        self.component = component


def reason(exc: BaseException) -> str:
    """Return the type and message of an error in one line, with the names that users know."""
    message = re.sub(rf"\b{PREFIX}\w+\.", "", " ".join(str(exc).split()))
    return f"{type(exc).__name__}: {message}".removesuffix(": ")


def innermost(exc: BaseException, is_own: Callable[[str], bool]) -> str:
    """Return ``file:line`` of the innermost frame in a wanted file, or an empty text."""
    place = ""
    trace = exc.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_own(file):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
