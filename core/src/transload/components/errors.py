"""What can be wrong with a component or the arguments given to it."""

from __future__ import annotations

from collections.abc import Callable

from transload.errors import SpecError


class ComponentNotFound(SpecError):
    """No component of that name, file or function exists."""


class NoComponent(ComponentNotFound):
    """A file was given, and it holds no component."""


class ComponentInvalid(SpecError):
    """What was found is no component, or its file cannot be read; the message names file and
    line.
    """


class ComponentArgumentError(SpecError):
    """An argument of a component is unknown, missing, or of the wrong type.

    Attributes:
        unknown: the option that the component does not have, as it was typed; None if something
            else is wrong.
    """

    unknown: str | None = None


class ComponentHelpRequested(ComponentArgumentError):
    """``--help`` stood among the arguments; the message is the help text.

    Attributes:
        component: name of the component.
    """

    def __init__(self, component: str, text: str) -> None:
        super().__init__(text)
        self.component = component


def innermost(exc: BaseException, is_own: Callable[[str], bool]) -> str:
    """Return ``file:line`` of the innermost frame in a file that is meant, ``""`` if there is
    none.
    """
    place = ""
    trace = exc.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_own(file):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
