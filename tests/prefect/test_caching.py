"""Prefect's cache policies work, and tell jobs apart."""

from __future__ import annotations

from typing import Any

from jobs import job


def test_caching(host: Any) -> None:
    """A cache policy of Prefect's works, and tells two apps with equal arguments apart."""
    from prefect import flow
    from prefect.cache_policies import INPUTS

    from transload_prefect import app_task

    one = app_task(job, component_args={"name": "one"}, cache_policy=INPUTS, persist_result=True)
    two = app_task(job, component_args={"name": "two"}, cache_policy=INPUTS, persist_result=True)

    @flow
    def work() -> Any:
        states = [task(value=11.5, return_state=True) for task in (one, one, two)]
        return [state.name for state in states], [state.result().handle for state in states]

    names, handles = work()
    assert names == ["Completed", "Cached", "Completed"]
    assert handles[0] == handles[1] != handles[2]


def test_caching_of_functions_in_no_module() -> None:
    """Functions of a script, which cannot be imported, are told apart by arguments, source, and
    what is around them.
    """
    from transload.specs import AppDef, Role
    from transload_prefect import app_task

    def make(program: str) -> Any:
        def local(times: int = 1) -> AppDef:
            return AppDef("local", [Role("r", "", entrypoint=program, args=[str(times)])])

        return local

    typed: dict[str, Any] = {}
    exec("from transload.specs import AppDef\ndef typed(n: int = 1) -> AppDef: return None", typed)
    one = make("one")
    tasks = [
        app_task(one),
        app_task(one, component_args={"times": 2}),
        app_task(make("two")),
        app_task(typed["typed"]),
    ]
    assert len({task.spec.digest for task in tasks}) == 4
    assert app_task(make("one")).spec.digest == tasks[0].spec.digest
