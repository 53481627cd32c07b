"""Logs have whole lines, in order, from a cursor, by time, while they grow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.keeper import logindex
from transload.keeper.logindex import ENTRY
from transload.runner import LogReader
from transload.schedulers import LogPage, Stream, wait
from transload.schedulers.api import LogQuery
from transload.schedulers.folder.logs import read_log
from transload.specs import AppState, Role


def python(script: str, **fields: object) -> Role:
    """Return a role that runs a Python script, unbuffered."""
    return Role("main", "", entrypoint=sys.executable, args=["-u", "-c", script], **fields)  # type: ignore[arg-type]


def pages(
    local, app_id: str, stream: Stream, max_bytes: int, cursor: str | None = None
) -> tuple[list[LogPage], str]:
    """Read an ended app's log page by page."""
    found, reader = [], LogReader(local.scheduler, app_id, LogQuery("main", 0, stream, cursor))
    while not reader.complete:
        found.append(reader.read(max_bytes))
    return found, found[-1].cursor


@pytest.mark.parametrize("letter", ["e", "é", "日", "😀"])
def test_order_of_streams_over_pages(local, letter: str) -> None:
    """What came later on stderr stays behind several pages of stdout, whatever the letters are."""
    text = letter * 100
    out = f"for i in range(6000): print(i, {text!r})"
    script = f"{out}\nimport sys, time\ntime.sleep(0.1)\nprint('end', file=sys.stderr)"
    app_id = local.run(python(script))
    local.wait(app_id)
    assert local.log(app_id) == [*(f"{i} {text}\n" for i in range(6000)), "end\n"]


def test_bad_bytes_are_replaced(local) -> None:
    """What is not UTF-8 is replaced, and a character is not torn between pages."""
    app_id = local.run(
        python("import sys; sys.stdout.buffer.write(b'\\xff\\n' + 'é€😀\\n'.encode() * 50)")
    )
    local.wait(app_id)
    for size in (1, 7, 1 << 20):
        found, _ = pages(local, app_id, Stream.STDOUT, size)
        assert [line for page in found for line in page.lines] == ["\ufffd\n"] + ["é€😀\n"] * 50


def test_tail_until(local) -> None:
    """Following ends when the time has come, though the app goes on."""
    app_id = local.run(local.sh("while :; do echo x; sleep 0.05; done"))
    begin = time.time()
    assert local.log(app_id, follow=True, until=begin + 0.5)
    assert 0.3 < time.time() - begin < 20
    assert local.status(app_id).state is AppState.RUNNING


@pytest.mark.parametrize("cursor", ["", "x", "{}", "[]", "1", "@", "@-1", "@x"])
def test_bad_cursor(local, cursor: str) -> None:
    """What is no cursor of ours is refused."""
    app_id = local.run(local.sh("exit 0"))
    with pytest.raises(SpecError, match="cursor="):
        local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, cursor))
    if cursor:
        with pytest.raises(SpecError, match="cursor="):
            LogReader(local.scheduler, app_id, LogQuery("main", 0, Stream.COMBINED, cursor)).read()


def test_size_limit(local) -> None:
    """Beyond max_log_size the oldest part goes, its blocks are freed, whole lines remain, and it is
    told.
    """
    block = "''.join(f'{i:04} {j:04} ' + 'x' * 90 + '\\n' for j in range(100))"
    script = f"import time\nfor i in range(400):\n print({block}, end='')\n time.sleep(0.001)"
    app_id = local.run(python(script), cfg={"max_log_size": 0.5})
    cursor, live, complete = None, [], False
    while not complete:
        page = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, cursor, 1 << 18))
        live += page.lines
        cursor, complete = page.cursor, page.complete
    assert all(re.fullmatch(r"\d{4} \d{4} x{90}\n", line) for line in live)
    assert live == sorted(live) and live[-1].startswith("0399 0099")
    assert local.wait(app_id).state is AppState.SUCCEEDED
    stat = (local.folder(app_id) / "logs/main/0/stdout.log").stat()
    assert stat.st_size == 400 * 100 * 101
    if stat.st_blocks * 512 > 2_000_000:
        pytest.skip("not run: this file system has no holes")
    notice, *rest = local.log(app_id, stream=Stream.STDOUT)
    assert "bytes were dropped" in notice and rest and rest[-1].startswith("0399 0099")
    first = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, None, 1 << 20))
    assert first.dropped + sum(map(len, rest)) == stat.st_size


def test_line_longer_than_a_page(local) -> None:
    """A line longer than a page is still one line."""
    app_id = local.run(python("print('x' * 3_000_000); print('end')"))
    local.wait(app_id)
    assert list(map(len, local.log(app_id))) == [3_000_001, 4]
    page = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, None, 1000))
    assert len(page.lines[0]) == 3_000_001


def test_keeper_death_does_not_stop_logging_readers(local) -> None:
    """A reader that follows ends, with everything, when the keeper is killed."""
    app_id = local.run(local.sh("echo before; sleep 300"))
    local.line(app_id, "before")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(local.log(app_id, follow=True)))
    thread.start()
    os.kill(local.keeper(app_id), 9)
    thread.join(10)
    assert not thread.is_alive() and found == ["before\n"]


def test_waiting_without_notices(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no watch can be made, waiting works by looking."""
    from transload.schedulers.folder import kept

    def not_here(*_: object) -> None:
        raise OSError("no descriptor")

    with monkeypatch.context() as patched:
        patched.setattr(kept, "AppWatch", not_here)
        app_id = local.run(local.sh("for i in 1 2 3; do echo $i; sleep 0.1; done"))
        status = wait(local.scheduler, f"local://t/{app_id}")
        assert status is not None and status.state is AppState.SUCCEEDED


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    chunks=st.lists(st.tuples(st.booleans(), st.text("ab\né", max_size=12)), max_size=12),
    page=st.integers(1, 40),
    ended=st.booleans(),
)
def test_any_pages_join_to_the_streams(tmp_path_factory, chunks, page: int, ended: bool) -> None:
    """However a log grew and is paged, each stream's whole lines come once, in order."""
    folder = tmp_path_factory.mktemp("log")
    sizes, index = [0, 0], b""
    texts = [b"", b""]
    for number, (err, text) in enumerate(chunks):
        texts[err] += text.encode()
        sizes[err] = len(texts[err])
        index += ENTRY.pack(float(number), *sizes)
    (folder / "stdout.log").write_bytes(texts[0])
    (folder / "stderr.log").write_bytes(texts[1])
    (folder / "index").write_bytes(index)
    for number, stream in enumerate((Stream.STDOUT, Stream.STDERR)):
        cursor, joined = None, ""
        for _ in range(500):
            piece = read_log(str(folder), LogQuery("main", 0, stream, cursor, page), ended)
            cursor = piece.cursor
            joined += "".join(piece.lines)
            if piece.complete or (not ended and not piece.lines):
                break
        else:
            raise AssertionError("the pages do not end")
        whole = texts[number]
        assert joined == (whole if ended else whole[: whole.rfind(b"\n") + 1]).decode()


def test_times_are_right_after_a_full_disk(tmp_path: Path) -> None:
    """A disk that was full for a while costs times of lines, and leaves no piece of an entry that
    shifts all others.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        logs = logindex.index_of([str(disk)], 0, tick=0.02)

        def write(moment: float) -> None:
            with open(disk / "stdout.log", "ab") as file:
                file.write(b"x")
            os.utime(disk / "stdout.log", (moment, moment))
            logindex.look(logs, moment)

        page = os.sysconf("SC_PAGE_SIZE")
        whole = page // ENTRY.size
        for moment in range(whole):
            write(float(moment))
        with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * page)
        write(float(whole))
        assert (disk / "index").stat().st_size % ENTRY.size, "a piece has found room"
        (disk / "filler").unlink()
        write(whole + 1.0)
        found = ENTRY.iter_unpack((disk / "index").read_bytes())
        entries = [(round(moment), out, err) for moment, out, err in found]
        assert entries == [(at, at + 1, 0) for at in range(whole)] + [(whole + 1, whole + 2, 0)]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
