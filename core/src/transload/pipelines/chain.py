"""Decide without any I/O what a step does about the jobs of its chain (see `chain_of`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError
from transload.pipelines.errors import Detached
from transload.specs import AppState, AppStatus, is_terminal

if TYPE_CHECKING:
    from transload.schedulers.api import AppDescription

__all__ = [
    "Action",
    "Again",
    "AskedAnew",
    "Member",
    "Newest",
    "decide",
    "first_of_asking",
    "is_own",
    "json_values",
    "newest_of",
    "refuse",
]


class Action(str, Enum):
    """What to do about the newest job of a step's chain."""

    SUBMIT = "submit"  # there is none
    ATTACH = "attach"  # it is on its way
    COLLECT = "collect"  # it has ended, and that is the answer
    NEXT = "next"  # it has ended, and the step is to run again
    WAIT_END = "wait_end"  # it is being cancelled: wait for its end, then decide again
    END = "end"  # a person asks anew: end it, wait for its end, then decide again
    WAIT_KNOWN = "wait_known"  # the scheduler cannot say: wait, as long as patience lasts
    GONE = "gone"  # it existed and does not any more
    OVER = "over"  # a later try has submitted it: this one is over
    FOREIGN = "foreign"  # it may be another installation's, and it runs


class Again(Enum):
    """How this try of a step asks, compared with the try that submitted the newest of its jobs.

    - ``NO``: it is the same asking, as with a retry.
    - ``SAME_TRY``: it is the very try that submitted it, and goes on. How the job ends is its answer.
    - ``IF_ENDED``: the same, but it may be a person who runs the step again. A job that was
      cancelled does not stay so then. One that runs is the step's.
    - ``YES``: a person asks anew, so that the step runs again.
    - ``LATER``: the job was submitted by a later try than this one, which is over.
    - ``FOREIGN``: the job may be one of another installation with the same names.
    """

    NO = "no"
    SAME_TRY = "same_try"
    IF_ENDED = "if_ended"
    YES = "yes"
    LATER = "later"
    FOREIGN = "foreign"

    @property
    def is_same(self) -> bool:
        """Return whether a job that runs is the one that this try asks for."""
        return self in (Again.NO, Again.SAME_TRY, Again.IF_ENDED)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest job of a step's chain, as its scheduler knows it.

    Args:
        handle: its handle. It is the one that the first job will get if there is none, and None if
            the scheduler cannot say which job is the newest.
        number: its number in the chain, or None if the chain has no job.
        status: its status, or None if there is no job, or it is gone.
        again: how this try asks, compared with the one that submitted it.
        digest: the digest of its definition, or None if it is not known.
        here: whether the current settings would submit to the same scheduler and cluster.
    """

    handle: str | None
    number: int | None = None
    status: AppStatus | None = None
    again: Again = Again.NO
    digest: str | None = None
    here: bool = True


_ENDED_BADLY: Final = frozenset({AppState.FAILED, AppState.CANCELLED})


def decide(newest: Newest, resubmit_on: frozenset[AppState]) -> Action:
    """Return what to do about the newest job of a chain."""
    status = newest.status
    if newest.again is Again.LATER:
        return Action.OVER
    if status is None:
        return Action.SUBMIT if newest.number is None else Action.GONE
    if status.state is AppState.UNKNOWN:
        return Action.WAIT_KNOWN
    has_ended = is_terminal(status.state)
    if newest.again is Again.FOREIGN:
        return Action.NEXT if has_ended else Action.FOREIGN
    if newest.again is Again.YES:
        return Action.NEXT if has_ended else Action.END
    if newest.again is Again.IF_ENDED:
        resubmit_on = _ENDED_BADLY
    if newest.again is Again.SAME_TRY:
        resubmit_on = frozenset()
    if has_ended:
        return Action.NEXT if status.state in resubmit_on else Action.COLLECT
    if status.cancel_requested and AppState.CANCELLED in resubmit_on:
        return Action.WAIT_END
    return Action.ATTACH


def is_own(action: Action, newest: Newest) -> bool:
    """Tell whether the newest job is the one that this try would attach to."""
    takes = action in (Action.ATTACH, Action.COLLECT, Action.WAIT_END, Action.WAIT_KNOWN)
    return takes and newest.again.is_same


def refuse(action: Action, newest: Newest) -> None:
    """Raise if this try must neither take the newest job nor submit another one.

    Raises:
        Detached: if a later try of the step has submitted it.
        ConfigError: if it may be another installation's.
    """
    handle = newest.handle
    if action is Action.OVER:
        why = "a later try of this step has submitted it, and this one is over"
        raise Detached(handle, why=why)
    if action is Action.FOREIGN:
        raise ConfigError(
            f"{handle} runs, and may be the job of another installation in which this step has "
            "the same name: it is neither taken over nor ended. Give each installation a name "
            "of its own (in Airflow: [transload] deployment_id), or end the job with: transload "
            f"cancel {handle}"
        )


AskedAnew = Callable[[Mapping[str, Any], Mapping[str, Any]], Again]
"""Compares the words of the try that submitted a job with those of this try."""


@dataclass(frozen=True)
class Member:
    """A job of a chain.

    Args:
        handle: its handle.
        number: its number.
        found: its description, or None if it is gone.
        asked: the words of the try that submitted it, or None if they are not known.
        here: whether the current settings would submit to the same scheduler and cluster.
    """

    handle: str
    number: int
    found: AppDescription | None
    asked: Mapping[str, Any] | None
    here: bool = True


def newest_of(members: Sequence[Member], asked: Mapping[str, Any], asked_anew: AskedAnew) -> Newest:
    """Return the newest of the jobs of a chain, of which there is at least one.

    Args:
        members: those that schedulers know, and then those that the orchestrator knows of.
        asked: the words of this try.
        asked_anew: compares them.
    """
    # what the orchestrator knows adds only what the scheduler has forgotten
    newest = max(members, key=lambda each: (each.number, each.found is not None))
    words = [each.asked for each in members if each.number == newest.number]
    kept = next((each for each in words if each is not None), None)
    again = Again.NO
    if kept is not None:
        again = asked_anew(kept, asked)
    status = digest = None
    if newest.found is not None:
        status = newest.found.status
        digest = newest.found.digest
    return Newest(newest.handle, newest.number, status, again, digest, newest.here)


def first_of_asking(members: Sequence[Member], asked_anew: AskedAnew) -> int:
    """Return the number of the job with which the newest asking began.

    The jobs that only a host's retry has asked for go on with the checkpoints of the one before.
    """
    first = 0
    known = {each.number: each.asked for each in members if each.asked is not None}
    for (number, before), (_, after) in pairwise(sorted(known.items())):
        if not asked_anew(before, after).is_same:
            first = number + 1
    return first


def json_values(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a try as they are read again from the record of a job.

    Raises:
        SpecError: if they hold something else than JSON values.
    """
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(asked), allow_nan=False))
    except (TypeError, ValueError) as exc:
        raise SpecError(f"asked={asked!r}: must be JSON values: {exc}") from exc
    return found
