"""``transload log`` chooses replicas and lines, and follows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from transload.runner.logs import PAGE

THREE = """
import os, sys
k = os.environ["TRANSLOAD_REPLICA_ID"]
for i in range(4): print(f"out {i} of {k}")
print(f"err of {k}", file=sys.stderr)
"""

ENDLESS = """
import os, sys, time
for i in range(2_000_000):
    print(i, "é" * 100, file=(sys.stdout, sys.stderr)[i % 2], flush=True)
    if i % 500 == 0: time.sleep(0.05)
"""


@pytest.fixture
def ended(started: Any, invoke: Any) -> str:
    """The handle of an app of three replicas that has ended."""
    handle: str = started(THREE, "--replicas", "3")
    assert invoke("wait", handle).code == 0
    return handle


def test_all_replicas_one_after_the_other(invoke: Any, ended: str) -> None:
    """Without ``-f``, replicas come in order, each whole."""
    lines = invoke("log", ended, "--stream", "stdout").lines
    assert lines == [f"train/{k} out {i} of {k}" for k in range(3) for i in range(4)]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--replica", "1"], {1}),
        (["--replica", "0,2"], {0, 2}),
        (["--role", "train", "--replica", "2"], {2}),
        (["--role", "train"], {0, 1, 2}),
    ],
)
@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_chosen_replicas(
    invoke: Any, ended: str, options: list[str], shown: set[int], follow: list[str]
) -> None:
    """``--role`` and ``--replica`` choose, followed or not."""
    lines = invoke("log", ended, *options, *follow, "--stream", "stderr").lines
    assert sorted(lines) == [f"train/{k} err of {k}" for k in sorted(shown)]


def test_path_form(invoke: Any, ended: str) -> None:
    """``HANDLE/ROLE/K,K`` and ``ID/ROLE/K`` choose as well."""
    expected = ["train/0 err of 0", "train/2 err of 2"]
    assert invoke("log", f"{ended}/train/0,2", "--stream", "stderr").lines == expected
    app_id = ended.rpartition("/")[2]
    assert invoke("log", f"{app_id}/train/0,2", "--stream", "stderr").lines == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--role", "trian"], ["trian", "did you mean 'train'"]),
        (["--replica", "7"], ["replica 7", "0 to 2"]),
        (["--replica", "one"], ["one", "0,2"]),
        (["--regex", "("], ["regex", "("]),
        (["--since", "yesterday"], ["--since", "yesterday", "10m"]),
        (["--since", "1m", "--until", "2m"], ["--until", "after"]),
        (["--stream", "both"], ["both", "stdout"]),
        (["--tail", "-1"], ["-1"]),
    ],
)
def test_wrong_choices(invoke: Any, ended: str, options: list[str], words: list[str]) -> None:
    """An unknown role or replica, a bad regex or time is one line with exit code 2."""
    result = invoke("log", ended, *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    for word in words:
        assert word in result.err


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_regex_and_tail(invoke: Any, ended: str, follow: list[str]) -> None:
    """``--regex`` filters first, ``--tail`` then keeps the last ones of each replica."""
    one = ["--replica", "1", "--stream", "stdout", "--no-prefix"]
    assert invoke("log", ended, *one, "--regex", "[02]", *follow).lines == [
        "out 0 of 1",
        "out 2 of 1",
    ]
    assert invoke("log", ended, *one, "--tail", "1", *follow).lines == ["out 3 of 1"]
    assert invoke("log", ended, *one, "--tail", "0", *follow).lines == []
    assert invoke("log", ended, *one, "--regex", "out [01]", "-n", "1", *follow).lines == [
        "out 1 of 1"
    ]


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_json_lines(invoke: Any, ended: str, follow: list[str]) -> None:
    """``--json`` writes an object for each line."""
    result = invoke("log", ended, "--json", "--replica", "2", "--stream", "stderr", *follow)
    assert [json.loads(line) for line in result.lines] == [
        {"schema": 1, "role": "train", "replica": 2, "line": "err of 2"}
    ]


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_since_and_until(
    invoke: Any, started: Any, gate: Any, eventually: Any, follow: list[str]
) -> None:
    """Times choose lines, as a duration or an ISO time, followed or not."""
    code, open_gate = gate
    handle = started(f"print('early')\n{code}\nprint('late')")
    eventually(lambda: invoke("log", handle).out)
    time.sleep(0.15)  # a distance between two moments, not a wait for an event
    middle = datetime.now(UTC)
    time.sleep(0.1)
    open_gate()
    assert invoke("wait", handle).code == 0
    assert invoke("log", handle, "--since", middle.isoformat(), *follow).lines == ["train/0 late"]
    assert invoke("log", handle, "--until", middle.isoformat(), *follow).lines == ["train/0 early"]
    assert len(invoke("log", handle, "--since", "10m", *follow).lines) == 2
    assert invoke("log", handle, "--until", "10m", *follow).lines == []
    tomorrow = (middle + timedelta(days=1)).isoformat()
    assert len(invoke("log", handle, "--until", tomorrow, *follow).lines) == 2


def test_following_ends_at_until(invoke: Any, started: Any, gate: Any) -> None:
    """``-f --until`` in the future stops then, though the app goes on."""
    code, open_gate = gate
    handle = started(f"print('early')\n{code}")
    until = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()
    result = invoke("log", "-f", handle, "--until", until)
    assert (result.code, result.lines) == (0, ["train/0 early"])
    assert invoke("status", handle, "--json").json["state"] == "RUNNING"
    open_gate()
    assert invoke("wait", handle).code == 0


def test_following_from_the_middle(spawn: Any, started: Any, gate: Any) -> None:
    """``-f`` shows what is there, then each new line at once, and ends with the app."""
    code, open_gate = gate
    handle = started(f"print('before')\n{code}\nprint('after')")
    process = spawn("log", "-f", handle)
    assert process.stdout.readline() == "train/0 before\n"
    open_gate()
    out, err = process.communicate(timeout=10)
    assert (out, err, process.returncode) == ("train/0 after\n", "", 0)


def test_new_lines_come_at_once(spawn: Any, started: Any, gate: Any) -> None:
    """A followed line is shown within milliseconds, without a poll. (Benchmarks measure it.)"""
    code, open_gate = gate
    handle = started(
        f"import time\nprint('up')\n{code}\nfor _ in range(40):\n    print(time.time()); "
        "time.sleep(0.03)"
    )
    process = spawn("log", "-f", "--no-prefix", handle)
    assert process.stdout.readline() == "up\n"
    open_gate()
    delays = []
    while line := process.stdout.readline():
        delays.append(time.time() - float(line))
    assert process.wait(10) == 0
    assert len(delays) == 40
    assert (
        sorted(delays)[10] < 0.02
    )  # the lower quartile: a busy machine delays some, a poll would delay most


@pytest.mark.parametrize("megabytes", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_big_log_in_constant_memory(
    spawn: Any, started: Any, invoke: Any, megabytes: int
) -> None:
    """However much it is passes through without being kept."""
    handle = started(
        f"import sys\nblock = ('x' * 999 + '\\n') * 1000\nfor _ in range({megabytes}): "
        "sys.stdout.write(block)"
    )
    assert invoke("wait", handle).code == 0
    for options in (["log", handle], ["log", "-f", handle], ["log", "-n", "5", handle]):
        process = spawn(*options)
        count = peak = 0
        while block := process.stdout.read(1 << 20):
            count += block.count("\n")
            with open(f"/proc/{process.pid}/status") as status:
                peak = max(
                    [peak, *(int(line.split()[1]) for line in status if line.startswith("VmHWM"))]
                )
        assert process.wait(10) == 0
        assert count == (5 if "-n" in options else megabytes * 1000)
        assert peak < 80_000


@pytest.fixture
def endless(
    started: Any, invoke: Any, eventually: Any, transload_home: Any
) -> Iterator[tuple[str, Callable[[], int], Callable[[], None]]]:
    """Start two replicas that write on and on.

    Yields the handle, the size of their stdout, and a function that waits until they wrote more.
    """
    handle = started(ENDLESS, "--replicas", "2")
    logs = transload_home / "local" / "apps" / handle.rpartition("/")[2] / "logs" / "train"

    def size() -> int:
        files = [logs / str(k) / "stdout.log" for k in range(2)]
        return min(file.stat().st_size if file.exists() else 0 for file in files)

    def more() -> None:
        enough = size() + PAGE // 2
        eventually(lambda: size() > enough, 30, "the replicas write more")

    eventually(lambda: size() > 2 * PAGE, 30, "the replicas write")
    yield handle, size, more
    assert invoke("cancel", "--wait", handle).code == 0


def test_following_shows_all_replicas_that_write_fast(spawn: Any, endless: Any) -> None:
    """With ``-f`` the first replica does not keep the others from being shown."""
    handle, size, more = endless
    most = 20 * (size() + PAGE)
    process = spawn("log", "-f", handle, text=False)
    shown = b""
    while b"train/1 " not in shown[-PAGE:]:
        block = os.read(process.stdout.fileno(), PAGE // 2)
        assert block and len(shown) < most, "the second replica is not shown"
        shown += block
        if len(shown) // (PAGE // 2) > (len(shown) - len(block)) // (PAGE // 2):
            more()
