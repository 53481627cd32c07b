"""Files of a job are read with suspicion. A bad one is named, and the rest is shown."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner

GOOD = """
import json, os
base, out = os.environ["TRANSLOAD_TRACKER_BASE"], os.environ["TRANSLOAD_OUTPUT_DIR"]
os.makedirs(out, exist_ok=True)
def put(key, results, **more):
    with open(f"{base}/{key}.json", "w") as file:
        json.dump({"schema": 1, "key": key, "results": results, **more}, file)
put("good", {"loss": 0.5})
with open(f"{out}/model.pt", "w") as file:
    file.write("weights")
"""

LONGEST_S = 20.0
"""A command that is given one of these files ends within so many seconds, on any machine."""


@pytest.fixture
def left(started: Any, invoke: Any) -> Any:
    """Run a job that left a good result, a good file, and what the code makes.

    Return its handle.
    """

    def start(code: str) -> str:
        handle = started(GOOD + code)
        assert invoke("wait", handle).code == 0
        return str(handle)

    return start


def _in_time(invoke: Any, *args: str) -> Any:
    began = time.monotonic()
    result = invoke(*args)
    assert time.monotonic() - began < LONGEST_S, args
    assert "Traceback" not in result.err
    return result


BAD_RESULTS = {
    "fifo": ('os.mkfifo(f"{base}/0.json")', "a FIFO"),
    "socket": ('import socket; socket.socket(socket.AF_UNIX).bind(f"{base}/0.json")', "a socket"),
    "zero": ('os.symlink("/dev/zero", f"{base}/0.json")', "leads out of its folder"),
    "passwd": ('os.symlink("/etc/passwd", f"{base}/0.json")', "leads out of its folder"),
    "itself": ('os.symlink("0.json", f"{base}/0.json")', "links behind each other"),
    "sparse": (
        'os.truncate(os.open(f"{base}/0.json", os.O_RDWR | os.O_CREAT), 6 << 30)',
        "6,442,450,944 bytes",
    ),
    "value of 5 MB": ('put("0", {"text": "x" * 5_000_000})', "at most 1024"),
    "value of 50 MB": ('put("0", {"text": "x" * 50_000_000})', "bytes; at most"),
    "name": ('put("0", {"n" * 5000: 1})', "at most 1024"),
    "list": ('put("0", {"x": [1, 2]})', "a value is an int, a float or a str"),
    "newer": ('put("0", {"x": 1}, schema=2)', "use a newer transload"),
    "digits": ('put("0", {"x": 10 ** 2000})', "at most 1024 decimal digits"),
}


@pytest.mark.parametrize("name", list(BAD_RESULTS))
def test_bad_result_files_are_named_and_the_rest_is_shown(
    left: Any, invoke: Any, name: str
) -> None:
    """``results``, its JSON form and ``wait`` show the good result and say which file was not read,
    and why.
    """
    code, reason = BAD_RESULTS[name]
    handle = left(code)
    shown = _in_time(invoke, "results", handle)
    assert (shown.code, shown.lines[0]) == (0, "good\tloss\t0.5")
    assert "transload: not read: 0.json: " in shown.err and reason in shown.err
    assert max(map(len, shown.err.splitlines())) < 500
    found = _in_time(invoke, "results", handle, "--json").json
    assert found["results"] == {"good": {"loss": 0.5}}
    assert reason in found["refused"]["0.json"]
    waited = _in_time(invoke, "wait", handle, "--timeout", "5")
    assert waited.code == 0 and "result good: loss=0.5" in waited.err and reason in waited.err


def test_a_job_with_nothing_bad_has_no_refused_files(left: Any, invoke: Any) -> None:
    """The JSON form has ``refused`` only if there is something in it, and a link inside the folder
    is a file.
    """
    handle = left(
        'os.symlink("model.pt", f"{out}/latest.pt"); os.symlink("good.json", f"{base}/best.json")'
    )
    result = invoke("results", handle, "--json")
    assert "refused" not in result.json and result.err == ""
    assert sorted(result.json["artifacts"]) == ["latest.pt", "model.pt"]


OUTPUTS = """
os.symlink("/etc/shadow", f"{out}/shadow.pt")
os.symlink("/etc", f"{out}/etc")
os.symlink(".", f"{out}/a")
os.mkfifo(f"{out}/fifo.pt")
os.symlink("nothing", f"{out}/gone.pt")
for step in range(1, 37):
    os.mkdir(f"{out}/l{step}")
    os.symlink(f"../l{step - 1}", f"{out}/l{step}/a")
    os.symlink(f"../l{step - 1}", f"{out}/l{step}/b")
"""


def test_outputs_are_copied_without_what_leads_elsewhere(
    left: Any, invoke: Any, tmp_path: Path
) -> None:
    """``get`` copies regular files, and names links to secrets, loops and FIFOs without copying."""
    handle = left(OUTPUTS)
    found = _in_time(invoke, "results", handle, "--json").json
    assert list(found["artifacts"]) == ["model.pt"]
    assert found["refused"]["outputs/shadow.pt"] == "a link that leads out of its folder"
    got = _in_time(invoke, "get", handle, "-o", str(tmp_path))
    assert got.code == 0 and got.lines == [str(tmp_path / "model.pt")]
    assert os.listdir(tmp_path) == ["model.pt"] and (tmp_path / "model.pt").read_text() == "weights"
    for name, reason in [
        ("shadow.pt", "a link that leads out of its folder"),
        ("etc", "a link that leads out of its folder"),
        ("a", "a link to a folder, which is not followed"),
        ("fifo.pt", "a FIFO; only regular files are used here"),
        ("gone.pt", "a link to nothing"),
        ("l36/a", "a link to a folder, which is not followed"),
    ]:
        assert f"transload: not copied: outputs/{name}: {reason}\n" in got.err


def test_output_folder_that_is_a_link(left: Any, invoke: Any, tmp_path: Path) -> None:
    """A folder of outputs that is a link is followed only below the job's folder."""
    handle = left('os.unlink(f"{out}/model.pt"); os.rmdir(out); os.symlink("/etc", out)')
    result = invoke("results", handle)
    assert result.lines == ["good\tloss\t0.5"]
    assert "not read: outputs: a link that leads out of its folder" in result.err
    got = invoke("get", handle, "-o", str(tmp_path))
    assert got.code == 2 and "has no file" in got.err and not os.listdir(tmp_path)


def test_huge_files_are_copied_in_constant_memory(left: Any, invoke: Any, tmp_path: Path) -> None:
    """A file of any size is fetched straight to the disk."""
    handle = left('os.truncate(os.open(f"{out}/huge.bin", os.O_RDWR | os.O_CREAT), 300 << 20)')
    got = _in_time(invoke, "get", handle, "huge.bin", "-o", str(tmp_path))
    assert got.code == 0 and (tmp_path / "huge.bin").stat().st_size == 300 << 20


STEPS = {
    "fifo": ('os.mkfifo(f"{base}/0.steps.jsonl")', "a FIFO"),
    "zero": ('os.symlink("/dev/zero", f"{base}/0.steps.jsonl")', "leads out of its folder"),
    "sparse": (
        'os.truncate(os.open(f"{base}/0.steps.jsonl", os.O_RDWR | os.O_CREAT), 6 << 30)',
        "6,442,450,944",
    ),
}


@pytest.mark.parametrize("name", list(STEPS))
def test_bad_steps_files_are_named(left: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Curves of other keys are there, and the file that was not read is logged."""
    code, reason = STEPS[name]
    handle = left(
        code + '\nprint(json.dumps({"schema": 1, "step": 1, "results": {"x": 2}}), '
        'file=open(f"{base}/1.steps.jsonl", "w"))'
    )
    with Runner() as runner:
        assert runner.job(handle).steps() == {"1": {"x": {1.0: 2.0}}}
    assert "0.steps.jsonl" in caplog.text and reason in caplog.text


def test_absurd_lines_of_steps_are_passed_over(left: Any) -> None:
    """Deep JSON, numbers beyond all floats, long names and texts cost the other lines nothing."""
    lines = [
        '{"schema": 1, "step": 1, "results": {"x": 2}}',
        "[" * 100_000,
        '{"schema": 1, "step": 1' + "0" * 400 + ', "results": {"x": 2}}',
        '{"schema": 1, "step": 2, "results": {"x": 1' + "0" * 400 + "}}",
        '{"schema": 1, "step": NaN, "results": {"x": 2}}',
        '{"schema": 1, "step": 3, "results": {"' + "n" * 5000 + '": 2}}',
        '{"schema": 1, "step": [3], "results": 4}',
        '{"schema": 1, "step": 4, "results": {"x": 3}}',
    ]
    handle = left(f'open(f"{{base}}/0.steps.jsonl", "w").write({chr(10).join([*lines, ""])!r})')
    with Runner() as runner:
        assert runner.job(handle).steps() == {"0": {"x": {1.0: 2.0, 4.0: 3.0}}}


def test_too_many_files_are_counted(
    left: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More names than are looked at end the walk, with a word."""
    handle = left('[open(f"{out}/f{n}", "w").close() for n in range(30)]')
    monkeypatch.setattr("transload.runtime.untrusted.walk.__defaults__", ("", 20))
    found = invoke("results", handle, "--json").json
    assert len(found["artifacts"]) == 20
    assert found["refused"] == {"outputs": "more than 20 files; the rest is not looked at"}


def test_fields_about_the_writer_are_believed_only_in_their_form(left: Any, invoke: Any) -> None:
    """Who wrote a key, and whose results it replaced, is shown in bounds whatever stands there."""
    writer = {"role": "r" * 5000, "replica": {"deep": []}, "attempt": 1}
    handle = left(f'put("odd", {{"x": 1}}, writer={writer!r}, replaced=["w" * 5000] * 500)')
    result = invoke("results", handle, "--json")
    assert result.json["results"]["odd"] == {"x": 1}
    assert len(result.json["collisions"]["odd"]) <= 101 and len(result.out) < 200_000


def test_shared_tracker_base_with_a_fifo(component_file: str, invoke: Any, tmp_path: Path) -> None:
    """What lies in a base that several jobs share is read likewise."""
    os.mkfifo(tmp_path / "other.json")
    (tmp_path / "mine.json").write_text(
        json.dumps({"schema": 1, "key": "mine", "results": {"x": 1}})
    )
    ran = invoke("run", "--tracker-base", str(tmp_path), component_file, "--code", GOOD)
    assert ran.code == 0, ran.err
    (handle,) = invoke("list").lines[0].split("\t")[:1]
    shown = _in_time(invoke, "results", handle, "--shared")
    assert "mine\tx\t1" in shown.lines and "other.json: a FIFO" in shown.err


def test_tracker_records_that_are_no_files(
    left: Any,
    invoke: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A FIFO, a socket or a link among the records of a run costs nothing that others recorded."""
    root = tmp_path / "runs-root"
    Path("transload.toml").write_text(f'[tracker.fsspec]\nconfig = "{root}"\n')
    handle = left(
        "from transload.tracker.api import AppRun; AppRun.run_from_env().add_metadata(epochs=3)"
    )
    (run,) = (root / "runs").iterdir()
    os.mkfifo(run / "metadata.bad.json")
    (run / "metadata.link.json").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
    os.rename(tmp_path / "s", run / "metadata.sock.json")
    found = _in_time(invoke, "results", handle, "--json").json
    assert found["metadata"] == {"epochs": 3}
    assert "metadata.bad.json: a FIFO" in caplog.text
