"""Logs have whole lines, in order, from a cursor, by time, while they grow."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.runner import LogReader, log_lines
from transload.schedulers import LogPage, Stream
from transload.schedulers.api import LogQuery
from transload.schedulers.local.logs import read_log
from transload.schedulers.local.notify import SAFETY_S
from transload.schedulers.local.supervisor import logindex
from transload.schedulers.local.supervisor.logindex import ENTRY
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


def test_streams(local) -> None:
    """stdout, stderr, and both in the order in which they grew."""
    script = "for i in 1 2 3; do echo out $i; sleep 0.06; echo err $i >&2; sleep 0.06; done"
    app_id = local.run(local.sh(script))
    local.wait(app_id)
    assert local.log(app_id, stream=Stream.STDOUT) == [f"out {i}\n" for i in (1, 2, 3)]
    assert local.log(app_id, stream=Stream.STDERR) == [f"err {i}\n" for i in (1, 2, 3)]
    assert local.log(app_id) == [f"{name} {i}\n" for i in (1, 2, 3) for name in ("out", "err")]
    joined = [line for page in pages(local, app_id, Stream.COMBINED, 6)[0] for line in page.lines]
    assert joined == local.log(app_id)


@pytest.mark.parametrize("letter", ["e", "é", "日", "😀"])
def test_order_of_streams_over_pages(local, letter: str) -> None:
    """What came later on stderr stays behind several pages of stdout, whatever the letters are."""
    text = letter * 100
    out = f"for i in range(6000): print(i, {text!r})"
    script = f"{out}\nimport sys, time\ntime.sleep(0.1)\nprint('end', file=sys.stderr)"
    app_id = local.run(python(script))
    local.wait(app_id)
    assert local.log(app_id) == [*(f"{i} {text}\n" for i in range(6000)), "end\n"]


def test_only_newline_ends_a_line(local) -> None:
    """Other separators than newlines stay inside. An unfinished last line comes at the end."""
    text = "a\rb\n\x0cform\x1c\n\u2028sep\x85\nlast"
    app_id = local.run(python(f"import sys; sys.stdout.buffer.write({text.encode()!r})"))
    local.wait(app_id)
    assert local.log(app_id) == ["a\rb\n", "\x0cform\x1c\n", "\u2028sep\x85\n", "last"]


def test_bad_bytes_are_replaced(local) -> None:
    """What is not UTF-8 is replaced, and a character is not torn between pages."""
    app_id = local.run(
        python("import sys; sys.stdout.buffer.write(b'\\xff\\n' + 'é€😀\\n'.encode() * 50)")
    )
    local.wait(app_id)
    for size in (1, 7, 1 << 20):
        found, _ = pages(local, app_id, Stream.STDOUT, size)
        assert [line for page in found for line in page.lines] == ["\ufffd\n"] + ["é€😀\n"] * 50


def test_whole_lines_while_running(local) -> None:
    """Half a line is not shown before it is whole."""
    fifo = local.home / "go"
    os.mkfifo(fifo)
    app_id = local.run(local.sh(f"echo first; printf half; read x < {fifo}; echo ' whole'"))
    local.line(app_id, "first")
    deadline = time.monotonic() + 5
    while (local.folder(app_id) / "logs/main/0/stdout.log").stat().st_size < 10:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    page = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT))
    assert page.lines == ["first\n"] and not page.complete
    fifo.write_text("x\n")
    local.wait(app_id)
    page = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, page.cursor))
    assert page.lines == ["half whole\n"] and page.complete


def test_tail_sees_every_line_once(local) -> None:
    """A reader that follows sees each line once, in order, and ends with the app."""
    app_id = local.run(
        python("import time\nfor i in range(3000):\n print(i)\n if i % 100 == 0: time.sleep(0.01)")
    )
    assert local.log(app_id, follow=True) == [f"{i}\n" for i in range(3000)]
    assert local.status(app_id).state is AppState.SUCCEEDED


def test_tail_latency(local) -> None:
    """A reader is woken by each line, and does not find it when it looks again anyway."""
    app_id = local.run(
        python("import time\nfor i in range(60):\n print(time.time())\n time.sleep(0.02)")
    )
    delays = [
        time.time() - float(line)
        for line in log_lines(local.scheduler, app_id, "main", 0, follow=True)
    ]
    assert len(delays) == 60
    # how fast that is, a benchmark measures
    # without a wake-up, a quarter would wait for SAFETY_S / 4
    assert statistics.quantiles(delays, n=4)[0] < SAFETY_S / 10


def test_cursor_over_restarts_of_the_reader(local) -> None:
    """Pages taken at any moment join to the log, nothing lost, nothing twice."""
    app_id = local.run(
        python(
            "import sys, time\nfor i in range(2000):\n print(i, file=sys.stderr if i % 3 == 0 else "
            "sys.stdout)\n"
            " if i % 50 == 0: time.sleep(0.005)"
        )
    )
    lines, cursor = [], None
    while True:
        page = LogReader(
            local.scheduler, app_id, LogQuery("main", 0, Stream.COMBINED, cursor)
        ).read(700)
        lines += page.lines
        cursor = page.cursor
        if page.complete:
            break
    assert sorted(map(int, lines)) == list(range(2000))
    numbers = list(map(int, lines))
    assert [n for n in numbers if n % 3 == 0] == list(range(0, 2000, 3))
    assert [n for n in numbers if n % 3] == [n for n in range(2000) if n % 3]


def test_since_and_until(local) -> None:
    """Lines by the time at which they were seen."""
    app_id = local.run(
        python("import time\nfor i in range(6):\n print(time.time())\n time.sleep(0.4)")
    )
    local.wait(app_id)
    times = [float(line) for line in local.log(app_id)]
    low, high = times[2] - 0.2, times[4] - 0.2
    found = local.log(app_id, since=low, until=high)
    assert [float(line) for line in found] == times[2:4]
    assert local.log(app_id, until=times[0] - 1) == []
    assert local.log(app_id, since=times[-1] + 5) == []
    assert len(local.log(app_id, since=0, until=times[-1] + 60)) == 6


def test_tail_until(local) -> None:
    """Following ends when the time has come, though the app goes on."""
    app_id = local.run(local.sh("while :; do echo x; sleep 0.05; done"))
    begin = time.time()
    assert local.log(app_id, follow=True, until=begin + 0.5)
    assert 0.3 < time.time() - begin < 20
    assert local.status(app_id).state is AppState.RUNNING


def test_regex(local) -> None:
    """Lines in which the expression is found are shown. A bad one is refused at the call."""
    app_id = local.run(local.sh("echo loss=1; echo step; echo loss=2"))
    local.wait(app_id)
    assert local.log(app_id, regex=r"=\d") == ["loss=1\n", "loss=2\n"]
    with pytest.raises(SpecError, match="regex="):
        log_lines(local.scheduler, app_id, "main", 0, regex="(")


@pytest.mark.parametrize("which", [("other", 0), ("main", 1), ("main", -1), ("../main", 0)])
def test_unknown_role_or_replica(local, which: tuple[str, int]) -> None:
    """An unknown role or replica is refused, naming what there is."""
    app_id = local.run(local.sh("exit 0"))
    with pytest.raises(SpecError, match=r"main|0 to 0"):
        log_lines(local.scheduler, app_id, *which)
    with pytest.raises(SpecError):
        local.scheduler.log_read(app_id, LogQuery(*which, Stream.STDOUT))


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


@pytest.mark.slow
def test_memory_stays_flat(local) -> None:
    """Following a large log takes constant memory, by stream and combined, and is quick."""
    script = "import sys\nblock = ('x' * 99 + '\\n') * 10000\nfor i in range(40): sys.stdout.write(block)"
    app_id = local.run(python(script))
    local.wait(app_id)
    import tracemalloc

    for stream in (Stream.STDOUT, Stream.COMBINED):
        tracemalloc.start()
        assert (
            sum(1 for _ in log_lines(local.scheduler, app_id, "main", 0, stream=stream)) == 400_000
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20 << 20


def test_line_longer_than_a_page(local) -> None:
    """A line longer than a page is still one line."""
    app_id = local.run(python("print('x' * 3_000_000); print('end')"))
    local.wait(app_id)
    assert list(map(len, local.log(app_id))) == [3_000_001, 4]
    page = local.scheduler.log_read(app_id, LogQuery("main", 0, Stream.STDOUT, None, 1000))
    assert len(page.lines[0]) == 3_000_001


def test_supervisor_death_does_not_stop_logging_readers(local) -> None:
    """A reader that follows ends, with everything, when the supervisor is killed."""
    app_id = local.run(local.sh("echo before; sleep 300"))
    local.line(app_id, "before")
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(local.log(app_id, follow=True)))
    thread.start()
    os.kill(local.supervisor(app_id), 9)
    thread.join(10)
    assert not thread.is_alive() and found == ["before\n"]


def test_tail_without_notices(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no FIFO can be made, following works by looking."""
    from transload.schedulers.local import scheduler

    def not_here(*_: object) -> None:
        raise OSError("no FIFO")

    with monkeypatch.context() as patched:
        patched.setattr(scheduler, "AppWatch", not_here)
        app_id = local.run(local.sh("for i in 1 2 3; do echo $i; sleep 0.1; done"))
        assert local.log(app_id, follow=True) == ["1\n", "2\n", "3\n"]


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
        logs = logindex.index_of([str(disk)], 0)

        def write(moment: float) -> None:
            with open(disk / "stdout.log", "ab") as file:
                file.write(b"x")
            logindex.look(logs, moment, moment)

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
        entries = list(ENTRY.iter_unpack((disk / "index").read_bytes()))
        assert entries == [(float(at), at + 1, 0) for at in range(whole)] + [
            (whole + 1.0, whole + 2, 0)
        ]
    finally:
        for log in logs.logs:
            if log.fd >= 0:
                os.close(log.fd)
        subprocess.run(["umount", "-l", str(disk)], check=True)
