"""Say for whom a job is cancelled, where that is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from transload.keeper.rules import cancelled_for

__all__ = ["asker", "cancelling_for", "request_text"]

_LONGEST: Final = 200
_asker: ContextVar[str] = ContextVar("transload-asker", default="")


@contextmanager
def cancelling_for(who: str) -> Iterator[None]:
    """Have jobs that are cancelled within this block say who asked for it.

    Args:
        who: an orchestrator and its step, such as ``airflow: digits/manual__2026-11-28/train``.
    """
    shown = "".join(char for char in who if char.isprintable())
    token = _asker.set(shown[:_LONGEST])
    try:
        yield
    finally:
        _asker.reset(token)


def asker() -> str:
    """Return who asks for the end of jobs in this context, or ``""`` if that is not known."""
    return _asker.get()


def request_text() -> str:
    """Return the message of a job that is cancelled in this context."""
    return cancelled_for(asker())
