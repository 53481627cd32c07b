"""Define how a role is warned of its end, and what counts as an interruption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from transload.specs.checks import check_seconds, refuse

if TYPE_CHECKING:
    from transload.specs.app import AppDef, Role

__all__ = [
    "CAUSES",
    "MOST_INTERRUPTIONS",
    "ON_STALL",
    "SIGNALS",
    "Notice",
    "check_against_limits",
    "signal_name",
]

SIGNALS: Final = (
    "ALRM",
    "CONT",
    "HUP",
    "INT",
    "QUIT",
    "TERM",
    "URG",
    "USR1",
    "USR2",
    "WINCH",
    "XCPU",
)
"""The signals that a program can handle, and so can be sent as a notice."""

CAUSES: Final = ("failed", "preempted", "segment", "node", "evicted", "drained", "requested")
"""The reasons why an attempt ended. It failed, or one of the others interrupted it.

- ``failed``: by itself, or nobody can tell.
- ``preempted``: the queue needed its place for another job.
- ``segment``: its segment was over.
- ``node``: its machine was lost.
- ``evicted``: its machine ran short of something.
- ``drained``: somebody takes its machine out of service.
- ``requested``: it was given a notice and ended with exit code 75, or somebody had it begin again.
"""

MOST_INTERRUPTIONS: Final = 20
"""The default limit of interruptions for a role that has a notice or asks for checkpoints."""

ON_STALL: Final = ("note", "dump")
"""What can be done about a role that has stalled."""


def signal_name(value: object, path: str) -> str:
    """Return the name of a signal without ``SIG``, in capital letters.

    Args:
        value: the name, with or without ``SIG``.
        path: starts the message of an error.

    Raises:
        SpecError: if it is none that a program can handle.
    """
    name = ""
    if isinstance(value, str):
        name = value.strip().upper().removeprefix("SIG")
    if name not in SIGNALS:
        refuse(path, value, f"must be one of {', '.join(SIGNALS)}, with or without SIG")
    return name


@dataclass(frozen=True)
class Notice:
    """A signal that warns a replica's main process before it is killed.

    Args:
        seconds: time between the signal and KILL, above 0.
        signal: name of the signal, with or without ``SIG``.

    Raises:
        SpecError: for a value that is not allowed.
    """

    seconds: float = 120
    signal: str = "TERM"

    def __post_init__(self) -> None:
        self.check("Notice")

    def check(self, path: str) -> None:
        """Refuse wrong values, and write the signal's name without ``SIG``.

        Args:
            path: where the notice stands, which begins the message.

        Raises:
            SpecError: for a wrong value.
        """
        check_seconds(self.seconds, f"{path}.seconds", above=0)
        name = signal_name(self.signal, f"{path}.signal")
        object.__setattr__(self, "signal", name)


def check_against_limits(app: AppDef) -> None:
    """Refuse notices and a segment that do not fit into each other or into the time limit.

    Raises:
        SpecError: with the path, the value and what is allowed.
    """
    if app.segment is not None:
        check_seconds(app.segment, "segment", above=0)
        if app.timeout is not None and app.segment >= app.timeout:
            refuse(
                "segment",
                app.segment,
                f"must be shorter than the time limit of {app.timeout:g} s, which it is a part of",
            )
    for index, role in enumerate(app.roles):
        _check_notice(app, role, f"roles[{index}]")


def _check_notice(app: AppDef, role: Role, path: str) -> None:
    notice = role.notice
    if app.segment is not None and not role.interruptions_allowed:
        refuse(
            f"{path}.max_interruptions",
            role.interruptions_allowed,
            "must be above 0 for a job in segments: give checkpoints (--checkpoints), a notice "
            "(--notice), or the number (--max-interruptions)",
        )
    if notice is None:
        return
    if app.timeout is not None and notice.seconds >= app.timeout:
        refuse(
            f"{path}.notice.seconds",
            notice.seconds,
            f"must be shorter than the time limit of {app.timeout:g} s",
        )
    if app.segment is not None and notice.seconds >= app.segment:
        refuse(
            "segment",
            app.segment,
            f"must be longer than the notice of {path}, {notice.seconds:g} s",
        )
