"""The generation of a task, and which of its jobs is meant.

A generation begins when somebody asks to run the task again. Airflow may also merely come back to
it. Nothing in a task instance tells that directly. In Airflow 3.3 a retry, the retry of a killed
process and the return from a deferral do not change ``max_tries``. Every way of clearing changes
it, unless a changed ``retries`` makes up for it. Then both ``clear_number`` and ``retries`` have
changed. (Seen in 3.3.2.)
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.pipelines import FIRST_UNIT, unit_of
from transload.specs.serialization import SCHEMA, reading
from transload_airflow.stores import TaskStore
from transload_airflow.task_instance import state_store

if TYPE_CHECKING:
    from transload.pipelines import AttachStore, Identity

_KEY_PARTS: Final = 4
"""Parts of the key of a task's first job. Those of the others have one more."""


class Marks(NamedTuple):
    """The facts in Airflow that tell generations of a task apart, by instance, task, and run."""

    max_tries: int
    retries: int
    clear_number: int

    @staticmethod
    def of(context: Mapping[str, Any]) -> Marks:
        """Read the marks from the context of a task."""
        return Marks(
            max_tries=int(context["ti"].max_tries or 0),
            retries=int(getattr(context.get("task"), "retries", 0) or 0),
            clear_number=int(getattr(context.get("dag_run"), "clear_number", 0) or 0),
        )

    def begins_anew(self, kept: Marks) -> bool:
        """Tell whether a new generation begins with these marks, after ``kept`` was seen last."""
        if self.max_tries != kept.max_tries:
            return True
        return self.clear_number != kept.clear_number and self.retries != kept.retries


class Unit(NamedTuple):
    """The identity of one job of a task, by its generation and which of the task's jobs it is.

    ``namespace`` tells this installation, or this task, from others.
    """

    namespace: str = ""
    number: int = 0
    name: str = FIRST_UNIT


# -- of a task that runs


def noted_unit(context: Mapping[str, Any], ask: str) -> Unit:
    """Return which job of a task this is, and note it before anything is submitted.

    One task may ask for several jobs: a class that calls ``execute`` twice, or operators that one
    ``@task`` executes.

    Args:
        context: of the task.
        ask: from ``transload.pipelines.ask_of``. If empty, what the task asked for last.

    Raises:
        SpecError: if the task state store holds something foreign.
    """
    marks = Marks.of(context)
    store = generation_store(context)
    with asked_here(context["ti"]) as asked:
        asked_before = bool(asked)
        unit = Unit(number=marks.max_tries)
        if store is not None:
            unit = current_unit(store, marks, ask, asked_before=asked_before)
        elif ask:
            unit = unit._replace(name=unit_of(ask, asked, asked_before=asked_before))
        if ask not in asked:
            asked.append(ask)
    return unit


def first_unit(context: Mapping[str, Any]) -> Unit:
    """Return the job of a task whose jobs are not found again (``durable=False``).

    Raises:
        SpecError: if the task state store holds something foreign.
    """
    marks = Marks.of(context)
    store = generation_store(context)
    if store is None:
        return Unit(number=marks.max_tries)
    namespace, number = current_generation(store, marks)
    return Unit(namespace, number)


def resumed_unit(context: Mapping[str, Any], identity: Identity) -> Unit:
    """Return which job of a task a trigger has waited for, and note that this process has it.

    Args:
        context: of the task.
        identity: of the job.
    """
    name = FIRST_UNIT
    if len(identity.path) > _KEY_PARTS:
        name = identity.path[-2]
    namespace, number = identity.run
    with asked_here(context["ti"]) as asked:
        asked.append(name)
    return Unit(namespace, int(number), name)


def generation_store(context: Mapping[str, Any]) -> TaskStore | None:
    """Return where a task keeps its generation, or None before Airflow 3.3."""
    accessor = state_store(context)
    if accessor is None:
        return None
    return TaskStore(accessor, "generation")


# -- the records


def current_generation(store: AttachStore, marks: Marks) -> tuple[str, int]:
    """Return the generation of a task with a store, which is kept before anything is submitted.

    Returns:
        A word that no other task of any installation has, and a number.

    Raises:
        SpecError: if the store holds something else.
    """
    kept = store.get()
    record = _of_generation(kept, marks)
    if record != kept:
        store.put(record)
    return record["namespace"], record["number"]


def current_unit(store: AttachStore, marks: Marks, ask: str, *, asked_before: bool) -> Unit:
    """Return which of a task's jobs this is, which is kept before anything is submitted.

    Args:
        store: of the task.
        marks: of the task.
        ask: from ``transload.pipelines.ask_of``. If empty, what was asked for last.
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
    """Return the record of the generation with these marks, which is the kept one or a new one."""
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


# -- what this process has asked for


@dataclass
class _Here:
    """The task instance that this process runs, and what it has asked for."""

    ti: Any = None
    asked: list[str] = field(default_factory=list)


_lock: Final = threading.Lock()
_here: Final = _Here()


@contextmanager
def asked_here(ti: Any) -> Iterator[list[str]]:
    """Give the list of what this process has asked for on behalf of a task instance.

    It may be added to. One thread at a time has it.
    """
    with _lock:
        if _here.ti is not ti:
            _here.ti = ti
            _here.asked = []
        yield _here.asked
