"""Arguments that a call leaves open have their values wherever Prefect looks.

``*args`` are given by name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import job

from transload.specs import AppDef, Role


def _names(host: Any, flow_run_id: str) -> set[str]:
    return {each["name"] for each in host.task_runs(flow_run_id)}


def _flow_run_id() -> str:
    from prefect.runtime import flow_run

    return str(flow_run.id)


def test_names_and_keys_see_values(
    host: Any, eventually: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Templates, cache keys and the runtime see defaults of task, settings and component."""
    from prefect import flow
    from prefect.runtime import task_run

    from transload_prefect import app_task

    settings = tmp_path / "settings.toml"
    settings.write_text('[component."jobs:job"]\nlines = "2"\n')
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(settings))
    seen: list[dict[str, Any]] = []

    def key(context: Any, parameters: dict[str, Any]) -> None:
        seen.append({**parameters, "runtime": dict(task_run.parameters)})

    made = app_task(
        "jobs:job",
        component_args={"value": "0.5"},
        task_run_name="{value:.2f} {lines:03d} {replicas}",
        cache_key_fn=key,
    )

    @flow
    def work() -> str:
        made()
        made.map(value=[0.25, 0.125]).result()
        made(value=4, replicas=2)
        return _flow_run_id()

    flow_run_id = work()
    wanted = {"0.50 002 1", "0.25 002 1", "0.12 002 1", "4.00 002 2"}
    eventually(lambda: _names(host, flow_run_id) == wanted, 60)
    for each in seen:
        assert {
            "gate": "",
            "code": 0,
            "roles": 1,
            "name": "job",
            "lines": 2,
        }.items() <= each.items()
        assert {
            name: value for name, value in each["runtime"].items() if name in each
        }.items() <= each.items()


def test_a_default_left_out_and_given_share_a_cache_entry(host: Any) -> None:
    """With ``INPUTS`` the value decides, not whether it was written.

    Another value is another entry.
    """
    from prefect import flow
    from prefect.cache_policies import INPUTS

    from transload_prefect import app_task

    train = app_task(
        job, component_args={"name": "shared"}, cache_policy=INPUTS, persist_result=True
    )

    @flow
    def work() -> list[str]:
        calls: list[dict[str, Any]] = [
            {},
            {"value": 1.0},
            {"value": 1.0, "code": 0},
            {"value": 2.0},
        ]
        return [train(**each, return_state=True).name for each in calls]

    assert work() == ["Completed", "Cached", "Cached", "Completed"]


def test_what_is_not_known_before_can_be_formatted(host: Any, eventually: Any) -> None:
    """An argument that is missing or from the adapter breaks no template.

    The component complains.
    """
    from prefect import flow

    from transload.errors import SpecError
    from transload_prefect import app_task

    def reporting(rate: float, tracker_base: str) -> AppDef:
        return AppDef(
            "reporting",
            [Role("main", "", entrypoint="sh", args=["-c", 'test -n "$1"', "sh", tracker_base])],
        )

    task = app_task(reporting, task_run_name="rate {rate:.1f} in {tracker_base:>3}")

    @flow
    def work() -> str:
        task(rate=1)
        with pytest.raises(SpecError, match="missing: rate"):
            task()
        return _flow_run_id()

    flow_run_id = work()
    eventually(lambda: _names(host, flow_run_id) == {"rate 1.0 in ", "rate  in "}, 60)


_ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"


def words(*args: str, times: int = 1) -> AppDef:
    """Print words."""
    return AppDef(
        "words", [Role("main", "", entrypoint=sys.executable, args=["-c", _ECHO, *args * times])]
    )


def test_variable_arguments(host: Any, eventually: Any) -> None:
    """``*args`` are a list or a text by their name, in calls, submits and maps."""
    from prefect import flow, task, unmapped

    from transload_prefect import app_task

    say = app_task(words)

    @task
    def upstream() -> Sequence[str]:
        return ["x", "y"]

    @flow
    def work() -> str:
        say(args=["d e"], times=2)
        say.submit(args="f 'g h'").wait()
        say.map(args=[["i"], ["j k", "l"]]).wait()
        say.map(args=upstream.submit(), times=unmapped(2)).wait()
        return _flow_run_id()

    flow_run_id = work()
    wanted = ['["d e", "d e"]', '["f", "g h"]', '["i"]', '["j k", "l"]', '["x", "x"]', '["y", "y"]']
    eventually(
        lambda: (
            sorted(
                line["message"].removeprefix("main/0 ")
                for line in host.logs(flow_run_id)
                if line["message"].startswith("main/0 [")
            )
            == sorted(wanted)
        ),
        60,
    )


def test_wrong_arguments() -> None:
    """What the component does not take is refused at the call by Prefect, which names it."""
    from prefect.exceptions import ParameterBindError

    from transload_prefect import app_task

    say = app_task(words)
    with pytest.raises(ParameterBindError, match="too many positional arguments"):
        say("a", "b")
    with pytest.raises(ParameterBindError, match="'arguments'"):
        say(arguments=["b"])


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("WARNING:root:late", 30),
        ("INFO:train:epoch 1", 20),
        ("2026-11-25 10:00:00,123 - root - WARNING - late", 30),
        ("2026-11-25 10:00:00,123 ERROR root: late", 40),
        ("[2026-11-25 10:00:00,123][train][INFO] - late", 20),
        ("2026-11-25T10:00:00Z WARN late", 30),
        ("2026-11-25 10:00:00.123 | CRITICAL | module:main:1 - late", 50),
        ("W1125 10:00:00.123 1 socket.cpp:1] late", 30),
        ("[rank0]:[E1125 10:00:00 socket.cpp] late", 40),
        ("train.py:12: UserWarning: late", 30),
        ("error: no such file", 40),
        ("DEBUG:train:seen all the same", 20),
        (" 10%|#    | 1/10", 20),
        ("epoch 1: loss 0.3, no ERROR so far", 20),
        ("E = m c2", 20),
        ("Information about ERRORS", 20),
        ("Traceback (most recent call last):", 20),
        ("", 20),
    ],
)
def test_levels_that_lines_say(line: str, level: int) -> None:
    """A line on stderr has the level that it says, else INFO, so that every line is shown."""
    from transload_prefect.traces import said_level

    assert said_level(line) == level


def test_levels_in_the_log_and_the_handle(host: Any, eventually: Any) -> None:
    """A run's log has the handle, then healthy lines as INFO.

    ``stderr_level`` sets another level.
    """
    from prefect import flow

    from transload_prefect import run_app

    text = (
        "import logging; logging.basicConfig(level=10); logging.info('fine'); logging.error('bad')"
    )

    @flow
    def work() -> Any:
        handles = [
            run_app(command=[sys.executable, "-c", text], stderr_level=level).handle
            for level in (None, "WARNING")
        ]
        return _flow_run_id(), handles

    flow_run_id, handles = work()
    wanted = [
        ("INFO:root:fine", 20),
        ("ERROR:root:bad", 40),
        ("INFO:root:fine", 30),
        ("ERROR:root:bad", 30),
    ]

    def lines() -> list[tuple[str, int]]:
        found = [(each["message"], each["level"]) for each in host.logs(flow_run_id)]
        return [(text.rpartition("/0 ")[2], level) for text, level in found if ":root:" in text]

    eventually(lambda: lines() == wanted, 60)
    messages = [each["message"] for each in host.logs(flow_run_id)]
    for handle in handles:
        first = next(number for number, message in enumerate(messages) if handle in message)
        assert f"transload log {handle}" in messages[first]
