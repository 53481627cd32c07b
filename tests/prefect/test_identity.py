"""Which job a task of a flow means, when the flow is retried and its code takes another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jobs import job

from transload.errors import ConfigError, SpecError
from transload.pipelines import host_runner


def _retried(body: Any) -> list[Any]:
    """Return what the body returns in the first try of a flow, which then fails, and in its
    retry.
    """
    from prefect import flow

    seen: list[Any] = []

    @flow(retries=1)
    def work() -> None:
        seen.append(body(len(seen)))
        if len(seen) == 1:
            raise RuntimeError("the first try")

    work()
    return seen


def test_a_task_that_is_left_out_shifts_no_other(host: Any) -> None:
    """What was done already may be passed over by the retry; the rest finds its own jobs."""
    from transload_prefect import app_task

    train = app_task(job, name="train")

    def body(done: int) -> dict[float, Any]:
        values = [1.0, 2.0, 3.0][done:]
        return {value: train(value=value) for value in values}

    first, second = _retried(body)
    for value in (2.0, 3.0):
        assert second[value].handle == first[value].handle
        assert second[value].value("value") == value
    assert len({each.handle for each in first.values()}) == 3


def test_a_task_in_another_order(host: Any) -> None:
    """Tasks that are mapped the other way round find their own jobs."""
    from transload_prefect import app_task

    train = app_task(job, name="train")

    def body(done: int) -> dict[float, str]:
        values = [1.0, 2.0, 3.0]
        if done:
            values.reverse()
        results = train.map(value=values).result()
        return {each.value("value"): each.handle for each in results}

    first, second = _retried(body)
    assert sorted(first) == [1.0, 2.0, 3.0]
    assert second == first


def test_equal_tasks_have_a_job_each(host: Any) -> None:
    """Equal calls are told apart by a number, and their retries find all of them again."""
    from transload_prefect import app_task

    train = app_task(job, name="train")

    def body(done: int) -> set[str]:
        return {each.handle for each in train.map(value=[1.0, 1.0, 1.0]).result()}

    first, second = _retried(body)
    assert len(first) == 3
    assert second == first


def test_a_cached_task_is_skipped(host: Any) -> None:
    """A call whose value Prefect has in its cache, and does not make, shifts no other."""
    from transload_prefect import app_task

    train = app_task(job, name="train", persist_result=False)
    kept = train.with_options(
        persist_result=True, cache_key_fn=lambda context, given: f"{given['value']} is kept"
    )

    def body(done: int) -> list[str]:
        return [kept(value=8.25).handle, train(value=1.0).handle, train(value=1.0).handle]

    first, second = _retried(body)
    assert len(set(first)) == 3
    assert second == first


def test_more_memory_for_the_retry(host: Any) -> None:
    """Settings of a job are no part of what it is known by: the retry finds what runs."""
    from transload_prefect import app_task

    def body(done: int) -> str:
        train = app_task(job, name="train", mem=f"{1 + done} GiB")
        return str(train(value=1.0).handle)

    first, second = _retried(body)
    assert first == second


def test_calls_of_run_app(host: Any) -> None:
    """Jobs of one name are told apart by what each is to do, whatever the order."""
    from transload_prefect import run_app

    def body(done: int) -> dict[str, list[str]]:
        order = [1, 2][:: -1 if done else 1]
        return {
            "component": [
                run_app(job, component_args={"value": value}).handle for value in sorted(order)
            ],
            "command": [
                handle
                for _, handle in sorted(
                    (value, run_app(command=["echo", str(value)], name="echo").handle)
                    for value in order
                )
            ],
            "app": [
                handle
                for _, handle in sorted(
                    (value, run_app(job(float(value))).handle) for value in order
                )
            ],
        }

    first, second = _retried(body)
    assert first == second
    assert len({handle for handles in first.values() for handle in handles}) == 6


def test_a_key_instead(host: Any) -> None:
    """With a key, a call with other arguments means the same job."""
    from transload_prefect import app_task

    def body(done: int) -> str:
        train = app_task(job, name="train", key="the-one")
        return str(train(value=1.0 + done).handle)

    first, second = _retried(body)
    assert first == second


def test_futures_are_known_by_their_values(host: Any) -> None:
    """An argument that comes from another task counts with its value."""
    from prefect import task

    from transload_prefect import app_task

    train = app_task(job, name="train")

    @task
    def rate(value: float) -> float:
        return value

    def body(done: int) -> dict[float, str]:
        values = [1.0, 2.0][done:]
        futures = [train.submit(value=rate.submit(value)) for value in values]
        results = [future.result() for future in futures]
        return {each.value("value"): each.handle for each in results}

    first, second = _retried(body)
    assert second == {2.0: first[2.0]}


POOL = """
import sys
from jobs import job

from transload.errors import ConfigError, SpecError
from transload.pipelines import host_runner
from prefect import flow
from prefect.task_runners import ProcessPoolTaskRunner
from transload_prefect import app_task

train = app_task(job, name="train")

@flow(name="pool", task_runner=ProcessPoolTaskRunner(max_workers=2))
def work(values):
    futures = train.map(value=values)
    for future in futures:
        future.wait()
        result = future.state.result(raise_on_failure=False)
        print(f"GOT {type(result).__name__} {getattr(result, 'handle', result)}", flush=True)

if __name__ == "__main__":
    work([float(word) for word in sys.argv[1:]])
"""


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([1.0, 2.0], ["AppResults", "AppResults"]),
        ([1.0, 1.0], ["AppResults", "SpecError"]),
    ],
)
def test_tasks_in_processes_of_their_own(
    host: Any, script: Callable[[str], Any], values: list[float], kinds: list[str]
) -> None:
    """Different tasks have a job each; equal ones, which nothing tells apart, need a key."""
    pool = script(POOL)
    pool.start(*map(str, values)).wait(timeout=100)
    written = pool.log.read_text()
    lines = [line for line in written.splitlines() if line.startswith("GOT ")]
    assert sorted(line.split()[1] for line in lines) == kinds, written
    if "SpecError" in kinds:
        assert "key=" in "".join(lines)
    else:
        assert len({line.split()[2] for line in lines}) == 2


def test_jobs_of_tasks_of_the_users(host: Any) -> None:
    """Equal tasks, equal jobs in each, and tries of one: each job is found again as its own."""
    from prefect import flow, task

    from transload_prefect import run_app

    tries: list[tuple[float, tuple[str, ...]]] = []

    @task(retries=1)
    def outer(value: float) -> None:
        given: dict[str, Any] = {"component_args": {"value": value}}
        handles = [run_app(job, **given).handle for _ in range(2)]
        tries.append((value, tuple(handles)))
        if len([each for each in tries if each[1] == tries[-1][1]]) == 1:
            raise RuntimeError("the first try")

    @flow
    def work() -> None:
        outer.map([1.0, 1.0, 2.0]).result()

    work()
    assert len(tries) == 6
    assert len(set(tries)) == 3
    assert len({handle for _, handles in tries for handle in handles}) == 6


def test_a_key_that_two_ask_for(host: Any) -> None:
    """A key names one job of its flow run, so that whoever asks next is refused, by its name."""
    from prefect import flow, task

    from transload_prefect import app_task, run_app

    @task
    def outer(value: float) -> None:
        run_app(job, component_args={"value": value}, key="mine")

    keyed = app_task(job, key="one")

    @flow
    def work() -> list[str]:
        states = [outer(value, return_state=True) for value in (1.0, 2.0)]
        states += [keyed(value=value, return_state=True) for value in (1.0, 2.0)]
        run_app(job, key="own")
        with pytest.raises(SpecError, match="key='own'"):
            run_app(job, key="own")
        errors = [state.result(raise_on_failure=False) for state in states]
        return [str(each) if isinstance(each, SpecError) else "" for each in errors]

    first, second, third, fourth = work()
    assert (first, third) == ("", "")
    assert "key=" in second and "key=" in fourth


@pytest.mark.filterwarnings("ignore:Logger 'prefect.task_runs':UserWarning")  # of any such task
def test_outside_of_a_flow(host: Any) -> None:
    """A task without a flow has a job for each ask, and its tries share them. A script has none."""
    from prefect import task

    from transload_prefect import run_app

    tries: list[list[str]] = []

    @task(retries=1)
    def alone() -> None:
        tries.append([run_app(job).handle for _ in range(2)])
        if len(tries) == 1:
            raise RuntimeError("the first try")

    alone()
    assert tries[0] == tries[1]
    assert len(set(tries[0])) == 2
    with pytest.raises(ConfigError, match="inside a flow or a task"):
        run_app(job)


def test_a_job_whose_twin_is_cached(host: Any) -> None:
    """A call that Prefect skips, for it has the result of its twin, shifts no other job."""
    from prefect import flow
    from prefect.cache_policies import INPUTS

    from transload_prefect import app_task

    cached = app_task(job, name="twin", cache_policy=INPUTS, persist_result=True)
    plain = app_task(job, name="twin")
    seen: list[list[str]] = []

    @flow(retries=1)
    def work() -> None:
        seen.append([cached(value=3).handle, cached(value=3).handle, plain(value=3).handle])
        if len(seen) == 1:
            raise RuntimeError("the first try")

    work()
    assert seen[0][0] == seen[0][1] == seen[1][0] == seen[1][1]
    assert len(host_runner("prefect").list("local")) == len({*seen[0], *seen[1]})
