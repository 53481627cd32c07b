"""A task that runs several jobs gives each a key, and runs none twice."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow_server import AirflowServer
from contexts import execute, make_context

from transload.errors import ConfigError
from transload_airflow import TransloadOperator
from transload_testing import ScriptedControl, scripted_app

WORDS = ("one", "two", "three")


class Twice(TransloadOperator):
    """Runs one job after the other."""

    words: tuple[str, ...] = WORDS
    keyed = True

    def execute(self, context: Any) -> Any:
        """Return the words that the jobs have reported."""
        found = []
        for word in self.words:
            self.app = scripted(word)
            self.key = word if self.keyed else None
            results = TransloadOperator.execute.__wrapped__(self, context)  # type: ignore[attr-defined]
            found.append(results["results"]["0"]["word"])
        return found


def scripted(word: str) -> str:
    """Return an app that reports a word."""
    return scripted_app(f"app-{word}", {"results": {"0": {"word": word}}}).to_json()


def made(words: tuple[str, ...] = WORDS) -> Twice:
    """Return a task of several jobs."""
    task = Twice(task_id="job", app=scripted("none"), scheduler="scripted", deferrable=False)
    task.words = words
    return task


def run(task: Twice, context: dict[str, Any]) -> Any:
    """Run a task of several jobs. Its guard wants the real task runner."""
    return Twice.execute.__wrapped__(task, context)  # type: ignore[attr-defined]


def again(task: Any, context: dict[str, Any], **marks: Any) -> dict[str, Any]:
    """Return the context of a later try in another process, with the same store."""
    return {
        **make_context(task, try_number=2, **marks),
        "task_state_store": context["task_state_store"],
    }


@pytest.mark.parametrize("with_store", [True, False])
def test_each_key_is_a_job(control: ScriptedControl, with_store: bool) -> None:
    """A class that calls ``execute`` for several jobs gets each one's results."""
    task = made()
    assert run(task, make_context(task, with_store=with_store)) == list(WORDS)
    assert len(control.started()) == 3


@pytest.mark.parametrize("words", [("one", "one"), ("one", "two")])
def test_second_job_without_a_key(control: ScriptedControl, words: tuple[str, ...]) -> None:
    """A second job of the same key, or of none, is refused before it is submitted."""
    task = made(words)
    task.keyed = False
    with pytest.raises(AirflowFailException, match="key"):
        run(task, make_context(task))
    assert len(control.started()) == 1


@pytest.mark.parametrize("key", ["", 3])
def test_wrong_key(key: Any) -> None:
    """A key is a text."""
    with pytest.raises(ConfigError, match="key"):
        TransloadOperator(task_id="job", app=scripted("one"), key=key)


def test_a_retry_collects_each(control: ScriptedControl) -> None:
    """A later try finds all jobs of the first, also when it leaves some out."""
    task = made()
    context = make_context(task)
    run(task, context)
    assert run(made(), again(task, context)) == list(WORDS)
    assert run(made(("three", "one")), again(task, context)) == ["three", "one"]
    assert len(control.started()) == 3
    assert run(made(("four",)), again(task, context)) == ["four"], "none of the three"
    assert len(control.started()) == 4


def test_cleared_task_runs_all_anew(control: ScriptedControl) -> None:
    """Once somebody has cleared the task, each of its jobs runs again."""
    task = made()
    context = make_context(task)
    run(task, context)
    assert run(made(), again(task, context, max_tries=1)) == list(WORDS)
    assert len(control.started()) == 6


def test_edited_task_keeps_its_one_job(
    control: ScriptedControl, capfd: pytest.CaptureFixture[str]
) -> None:
    """A task whose definition was edited between two tries keeps its job, and the log says so."""
    task = made(("one",))
    task.keyed = False
    context = make_context(task)
    run(task, context)
    edited = made(("edited",))
    edited.keyed = False
    assert run(edited, again(task, context)) == ["one"]
    assert "was submitted with another definition than the present one" in capfd.readouterr().out
    assert len(control.started()) == 1


def test_operators_inside_another_task(control: ScriptedControl) -> None:
    """Operators that one ``@task`` executes are jobs of their own, and wait in place."""
    outer = made()
    context = make_context(outer)
    for word in WORDS:
        inner = TransloadOperator(
            task_id=word, app=scripted(word), key=word, scheduler="scripted", deferrable=True
        )
        assert execute(inner, context)["results"]["0"]["word"] == word
    assert len(control.started()) == 3


@pytest.mark.slow
def test_on_a_real_airflow(airflow: AirflowServer) -> None:
    """A retry of a task with two jobs, deferred or not, or two operators, runs no job again."""
    run = airflow.trigger("several")
    for task_id in ("twice", "twice_deferred", "inside"):
        run.wait("success", task_id=task_id)
        assert run.task(task_id)["try_number"] == 2
        first, second = run.log(task_id, attempt=1), run.log(task_id, attempt=2)
        for word in ("ONE", "TWO"):
            assert first.count(f"main/0 {word} 0") == 1
            assert f"main/0 {word} 0" not in second
        assert run.xcom(task_id=task_id) == "two"
