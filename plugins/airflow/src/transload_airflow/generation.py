"""Which generation of a task this is: whether somebody asked to run it again, or Airflow merely comes back to it.

Nothing in a task instance says so. In Airflow 3.3 a retry, the retry of a killed process and the return from a deferral
leave ``max_tries`` as it is, while every way of clearing moves it, save when the same clear meets a changed ``retries``
that makes up for it; then ``clear_number`` and ``retries`` both have moved. (Seen in 3.3.2.)
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from transload.specs._json import SCHEMA, reading

if TYPE_CHECKING:
    from transload.pipelines import AttachStore


class Marks(NamedTuple):
    """What Airflow shows of a task that tells generations apart: of its instance, of itself, of the run."""

    max_tries: int
    retries: int
    clear_number: int

    @staticmethod
    def of(context: Mapping[str, Any]) -> Marks:
        """Read the marks from the context of a task."""
        ti, task = context["ti"], context.get("task")
        clear_number = getattr(context.get("dag_run"), "clear_number", 0)
        return Marks(int(ti.max_tries or 0), int(getattr(task, "retries", 0) or 0), int(clear_number or 0))

    def begins_anew(self, kept: Marks) -> bool:
        """Tell whether a new generation begins with these marks, where ``kept`` were the last ones seen."""
        if self.max_tries != kept.max_tries:
            return True
        return self.clear_number != kept.clear_number and self.retries != kept.retries


def current_generation(store: AttachStore, marks: Marks) -> tuple[str, int]:
    """Return the generation of a task with a store: a word that no other task of any installation has, and a number.

    It is kept in the store before anything is submitted.

    Raises:
        SpecError: if the store holds something else.
    """
    kept, known, namespace, number = store.get(), None, "", -1
    if kept is not None:
        with reading("task state store", kept) as values:
            namespace, number = str(values["namespace"]), int(values["number"])
            known = Marks(values["max_tries"], values["retries"], values["clear_number"])
    if known is None or marks.begins_anew(known):
        namespace, number = uuid.uuid4().hex, number + 1
    if known != marks:
        store.put({"schema": SCHEMA, "namespace": namespace, "number": number, **marks._asdict()})
    return namespace, number
