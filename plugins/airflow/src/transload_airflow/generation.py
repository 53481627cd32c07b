"""Which generation of a task this is: whether somebody asked to run it again, or Airflow merely
comes back to it.

Nothing in a task instance says so. In Airflow 3.3 a retry, the retry of a killed process and the
return from a deferral leave ``max_tries`` as it is, while every way of clearing moves it, save when
the same clear meets a changed ``retries`` that makes up for it; then ``clear_number`` and
``retries`` both have moved. (Seen in 3.3.2.)
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.pipelines import FIRST_UNIT, unit_of
from transload.specs.serialization import SCHEMA, reading

if TYPE_CHECKING:
    from transload.pipelines import AttachStore


class Marks(NamedTuple):
    """What Airflow shows of a task that tells generations apart: of its instance, of itself, of the
    run.
    """

    max_tries: int
    retries: int
    clear_number: int

    @staticmethod
    def of(context: Mapping[str, Any]) -> Marks:
        """Read the marks from the context of a task."""
        ti, task = context["ti"], context.get("task")
        clear_number = getattr(context.get("dag_run"), "clear_number", 0)
        return Marks(
            int(ti.max_tries or 0), int(getattr(task, "retries", 0) or 0), int(clear_number or 0)
        )

    def begins_anew(self, kept: Marks) -> bool:
        """Tell whether a new generation begins with these marks, where ``kept`` were the last ones
        seen.
        """
        if self.max_tries != kept.max_tries:
            return True
        return self.clear_number != kept.clear_number and self.retries != kept.retries


class Unit(NamedTuple):
    """What one job of a task is: of which generation, and which of the things that the task asks
    for.
    """

    namespace: str
    number: int
    name: str = FIRST_UNIT


def current_generation(store: AttachStore, marks: Marks) -> tuple[str, int]:
    """Return the generation of a task with a store: a word that no other task of any installation
    has, and a number.

    It is kept in the store before anything is submitted.

    Raises:
        SpecError: if the store holds something else.
    """
    kept = store.get()
    record = _of_generation(kept, marks)
    if record != kept:
        store.put(record)
    return record["namespace"], record["number"]


def current_unit(store: AttachStore, marks: Marks, ask: str, *, asked_before: bool) -> Unit:
    """Return what a task's job is, of all that its tries have asked for; it is kept before anything
    is submitted.

    Args:
        store: of the task.
        marks: of the task.
        ask: from ``transload.pipelines.ask_of``; empty: what was asked for last.
        asked_before: this try has asked for something already.

    Raises:
        SpecError: if the store holds something else.
    """
    kept = store.get()
    record = _of_generation(kept, marks)
    asks = record["asks"]
    if ask:
        name = unit_of(ask, asks, asked_before=asked_before)
        if name == FIRST_UNIT:
            asks = [ask, *asks[1:]]
        elif name not in asks:
            asks = [*asks, ask]
        record = {**record, "asks": asks, "unit": name}
    if record != kept:
        store.put(record)
    return Unit(record["namespace"], record["number"], record["unit"])


def _of_generation(kept: Mapping[str, Any] | None, marks: Marks) -> dict[str, Any]:
    """Return the record of the generation that these marks belong to: the one that is kept, or a
    new one's.
    """
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "namespace": "",
        "number": -1,
        "asks": [],
        "unit": FIRST_UNIT,
    }
    known = None
    if kept is not None:
        with reading("task state store", kept) as values:
            record["namespace"] = str(values["namespace"])
            record["number"] = int(values["number"])
            record["asks"] = [str(ask) for ask in values.get("asks", ())]
            record["unit"] = str(values.get("unit", FIRST_UNIT))
            known = Marks(values["max_tries"], values["retries"], values["clear_number"])
    if known is None or marks.begins_anew(known):
        record["namespace"] = uuid.uuid4().hex
        record["number"] += 1
        record["asks"] = []
        record["unit"] = FIRST_UNIT
    return {**record, **marks._asdict()}


_lock: Final = threading.Lock()
_here: Final[list[Any]] = [None, []]
"""The task instance that this process runs, and what it has asked for here."""


@contextmanager
def asked_here(ti: Any) -> Iterator[list[str]]:
    """Give what this process has asked for on behalf of a task instance, to be added to; one thread
    at a time.
    """
    with _lock:
        if _here[0] is not ti:
            _here[:] = [ti, []]
        yield _here[1]
