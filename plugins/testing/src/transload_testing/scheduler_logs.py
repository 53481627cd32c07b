"""Tests of logs, which give complete lines, each once, from any place on."""

from __future__ import annotations

import time

import pytest

from transload.errors import AppNotFound, SpecError
from transload.runner import LogReader, log_lines, times
from transload.runner.logs import PAGE
from transload.schedulers.api import LogQuery, Stream
from transload_testing.scheduler_stage import (
    Program,
    SchedulerStage,
    SchedulerSuite,
    needs_programs,
)


class LogTests(SchedulerSuite):
    """Tests of streams, filters, cursors and last lines."""

    def test_streams(self, stage: SchedulerStage) -> None:
        """Stdout and stderr are kept apart, and the combined log has both."""
        if Stream.STDOUT not in stage.scheduler.streams:
            pytest.skip("stdout and stderr are not told apart")
        job = stage.submit(stage.app(Program(out=("a", "b"), err=("c",))))
        stage.ended(job)
        assert stage.everything(job, Stream.STDOUT) == ["a\n", "b\n"]
        assert stage.everything(job, Stream.STDERR) == ["c\n"]
        assert sorted(stage.everything(job, Stream.COMBINED)) == ["a\n", "b\n", "c\n"]
        assert stage.lines(job, stream=Stream.STDOUT) == ["a\n", "b\n"]

    def test_replicas_have_logs_of_their_own(self, stage: SchedulerStage) -> None:
        """Each replica of each role has its own log."""
        if not stage.offers("roles"):
            pytest.skip("one role only")
        app = stage.app({"one": Program(out=("first",)), "two": Program(out=("second",))})
        job = stage.submit(app)
        stage.ended(job)
        assert stage.everything(job, role="one") == ["first\n"]
        assert stage.everything(job, role="two") == ["second\n"]

    def test_unusual_lines(self, stage: SchedulerStage) -> None:
        """Lines with Unicode or blanks, empty lines and long lines are unchanged."""
        lines = ("日本語 ✓", "", "  spaces  ", "tab\there", "x" * 100_000)
        job = stage.submit(stage.app(Program(out=lines)))
        stage.ended(job)
        assert stage.everything(job) == [f"{line}\n" for line in lines]

    def test_last_line_without_newline(self, stage: SchedulerStage) -> None:
        """The last line of an ended replica is read, even without a newline."""
        if not self.runs_programs:
            pytest.skip("this scheduler runs no programs")
        job = stage.submit(stage.app(Program(out=("whole", "ragged"), ragged=True)))
        stage.ended(job)
        assert [line.rstrip("\n") for line in stage.everything(job)] == ["whole", "ragged"]

    def test_silent_replica(self, stage: SchedulerStage) -> None:
        """A replica that wrote nothing has an empty log, which is complete."""
        job = stage.submit(stage.app(Program()))
        stage.ended(job)
        assert stage.everything(job) == []
        assert stage.lines(job) == []

    def test_regex(self, stage: SchedulerStage) -> None:
        """A pattern selects lines, and an invalid pattern is refused."""
        job = stage.submit(stage.app(Program(out=("apple", "pear", "pineapple"))))
        stage.ended(job)
        stage.everything(job)
        assert stage.lines(job, regex="apple$") == ["apple\n", "pineapple\n"]
        with pytest.raises(SpecError):
            stage.lines(job, regex="(")

    def test_unknown_replica(self, stage: SchedulerStage) -> None:
        """An unknown role, replica or job is refused by name."""
        job = stage.submit(stage.app(Program()))
        for role, k in (("other", 0), ("main", 1), ("main", -1)):
            with pytest.raises(SpecError):
                stage.page(job, LogQuery(role, k, stage.stream))
        with pytest.raises(AppNotFound):
            stage.page(stage.job("suite-never-was"))

    def test_pages(self, stage: SchedulerStage) -> None:
        """Read page by page, with small pages, the log is the same.

        No line is lost, none comes twice, and none is torn.
        """
        lines = tuple(f"line {number} {'x' * (number % 37)}" for number in range(300))
        job = stage.submit(stage.app(Program(out=lines)))
        stage.ended(job)
        stage.everything(job)
        pages = list(stage.pages(job, None, 256))
        assert len(pages) > 5
        assert [line for page in pages for line in page.lines] == [f"{line}\n" for line in lines]
        assert pages[-1].complete
        assert not any(page.complete for page in pages[:-1])
        assert isinstance(pages[0].cursor, str)

    def test_cursor_in_another_process(self, stage: SchedulerStage) -> None:
        """A cursor is text that another scheduler object goes on from.

        A complete log stays complete.
        """
        lines = tuple(f"line {number}" for number in range(100))
        job = stage.submit(stage.app(Program(out=lines)))
        stage.ended(job)
        stage.everything(job)
        first = next(stage.pages(job, None, 200))
        with stage.another() as other:
            pages = list(other.pages(job, first.cursor, 1 << 20))
            assert [*first.lines, *(line for page in pages for line in page.lines)] == [
                f"{line}\n" for line in lines
            ]
            again = other.page(job, other.query(pages[-1].cursor))
            assert (again.lines, again.complete) == ([], True)

    def test_read_while_it_runs(self, stage: SchedulerStage) -> None:
        """Reading does not wait, and returns complete lines of a log that is not complete."""
        job = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(job, said="up")
        page = stage.page(job, stage.query())
        assert (page.lines, page.complete) == (["up\n"], False)
        again = stage.page(job, stage.query(page.cursor))
        assert (again.lines, again.complete) == ([], False)

    @needs_programs
    def test_output_is_seen_at_once(
        self, stage: SchedulerStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A line that a Python program prints without a flush is there while the program runs."""
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
        python = "exec $(command -v python3 || echo true)"  # an image may have none
        code = "import time; print(chr(117) + chr(112)); time.sleep(300)"
        job = stage.submit(stage.app(Program(command=f"{python} -c '{code}'")))
        status = stage.until(
            lambda: (
                ((seen := stage.status(job)).is_terminal() or "up\n" in stage.lines(job)) and seen
            ),
            "the line is there",
        )
        if status.is_terminal():
            pytest.skip("there is no python3 where its programs run")
        job.cancel()

    def test_tail(self, stage: SchedulerStage) -> None:
        """Following a log gives every line, and ends with the replica."""
        job = stage.submit(stage.app(Program(out=("a", "b"), seconds=0.2)))
        assert stage.lines(job, follow=True) == ["a\n", "b\n"]

    @pytest.mark.parametrize("ends", [True, False])
    def test_last_lines(self, stage: SchedulerStage, ends: bool) -> None:
        """The last lines are those at the end, and reading on from there repeats no line."""
        lines = [f"line {number}\n" for number in range(200)]
        job = stage.submit(
            stage.app(Program(out=tuple(line.rstrip() for line in lines), hold=not ends))
        )
        stage.until(lambda: stage.lines(job)[-1:] == lines[-1:], "the last line is there")
        for count in (1, 7, 500):
            found = stage.last_lines(job, count)
            assert found == lines[-count:]
        page = stage.page(job, stage.query(last=5))
        reader = LogReader(stage.scheduler, job.app_id, stage.query(page.cursor))
        found = list(page.lines)
        while True:
            found += reader.read().lines
            if not reader.moved:
                break
        assert found == lines[-len(found) :]

    def test_a_log_that_grows_as_fast_as_it_is_read(self, stage: SchedulerStage) -> None:
        """Read without following, a log is what it was when its reading began.

        The reading ends, and lacks nothing.
        """
        if not self.runs_programs:
            pytest.skip("this scheduler runs no programs")
        last_line = 200_000
        line = f"echo $i {'x' * 250}; [ $((i % 500)) -ne 0 ] || sleep 0.05"
        program = f"i=0; while [ $i -lt {last_line} ]; do i=$((i + 1)); {line}; done"
        job = stage.submit(stage.app(Program(command=program)))

        def newest() -> int:
            """Return the number of the last line that is there."""
            last = stage.last_lines(job, 1)
            return int(last[0].split()[0]) if last else 0

        per_page = PAGE // 250

        def wait_for_more() -> None:
            enough = min(newest() + per_page, last_line - 1)  # a slow reader sees its end
            stage.until(lambda: newest() > enough, "the program has written more")

        stage.until(lambda: newest() > 3 * per_page, "several pages are there")
        before = newest()
        seen: list[int] = []
        for line in log_lines(stage.scheduler, job.app_id, "main", 0, stream=stage.stream):
            seen.append(int(line.split()[0]))
            assert len(seen) < before + 20 * per_page, "reading does not end"
            if len(seen) % (per_page // 2) == 0:  # nobody reads faster than this is written
                wait_for_more()
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= before
        job.cancel()

    def test_times_of_lines(self, stage: SchedulerStage) -> None:
        """Lines have the ascending times of their writing, and can be chosen by them."""
        if not stage.scheduler.since_until:
            pytest.skip("this scheduler keeps no times of lines")
        before = time.time()
        job = stage.submit(stage.app(Program(command="echo one; sleep 1; echo two")))
        stage.ended(job)
        assert stage.everything(job) == ["one\n", "two\n"]
        page = stage.page(job, stage.query())
        one, two = times(page)
        assert before - 5 < one < two < time.time() + 5
        assert 0.5 < two - one < 30
        assert stage.lines(job, since=(one + two) / 2) == ["two\n"]
        assert stage.lines(job, until=(one + two) / 2) == ["one\n"]
        assert stage.lines(job, since=two + 1) == []
