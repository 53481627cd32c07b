"""Tests of logs, which give complete lines, each once, from any place on."""

from __future__ import annotations

import time

import pytest

from transload.errors import AppNotFound, SpecError
from transload.runner import LogReader, last_lines, log_lines, times
from transload.runner.logs import PAGE
from transload.schedulers.api import LogQuery, Stream
from transload_testing.scheduler_stage import Program, SchedulerStage, SchedulerSuite


class LogTests(SchedulerSuite):
    """Tests of streams, filters, cursors and last lines."""

    def test_streams(self, stage: SchedulerStage) -> None:
        """Stdout and stderr are kept apart, and the combined log has both."""
        if Stream.STDOUT not in stage.scheduler.capabilities.streams:
            pytest.skip("stdout and stderr are not told apart")
        app_id = stage.submit(stage.app(Program(out=("a", "b"), err=("c",))))
        stage.ended(app_id)
        assert stage.everything(app_id, Stream.STDOUT) == ["a\n", "b\n"]
        assert stage.everything(app_id, Stream.STDERR) == ["c\n"]
        assert sorted(stage.everything(app_id, Stream.COMBINED)) == ["a\n", "b\n", "c\n"]
        assert stage.lines(app_id, stream=Stream.STDOUT) == ["a\n", "b\n"]

    def test_replicas_have_logs_of_their_own(self, stage: SchedulerStage) -> None:
        """Each replica of each role has its own log."""
        if not stage.scheduler.capabilities.roles:
            pytest.skip("one role only")
        app = stage.app({"one": Program(out=("first",)), "two": Program(out=("second",))})
        app_id = stage.submit(app)
        stage.ended(app_id)
        assert stage.everything(app_id, role="one") == ["first\n"]
        assert stage.everything(app_id, role="two") == ["second\n"]

    def test_unusual_lines(self, stage: SchedulerStage) -> None:
        """Lines with Unicode or blanks, empty lines and long lines are unchanged."""
        lines = ("日本語 ✓", "", "  spaces  ", "tab\there", "x" * 100_000)
        app_id = stage.submit(stage.app(Program(out=lines)))
        stage.ended(app_id)
        assert stage.everything(app_id) == [f"{line}\n" for line in lines]

    def test_last_line_without_newline(self, stage: SchedulerStage) -> None:
        """The last line of an ended replica is read, even without a newline."""
        if not self.runs_programs:
            pytest.skip("this scheduler runs no programs")
        app_id = stage.submit(stage.app(Program(out=("whole", "ragged"), ragged=True)))
        stage.ended(app_id)
        assert [line.rstrip("\n") for line in stage.everything(app_id)] == ["whole", "ragged"]

    def test_silent_replica(self, stage: SchedulerStage) -> None:
        """A replica that wrote nothing has an empty log, which is complete."""
        app_id = stage.submit(stage.app(Program()))
        stage.ended(app_id)
        assert stage.everything(app_id) == []
        assert stage.lines(app_id) == []

    def test_regex(self, stage: SchedulerStage) -> None:
        """A pattern selects lines, and an invalid pattern is refused."""
        app_id = stage.submit(stage.app(Program(out=("apple", "pear", "pineapple"))))
        stage.ended(app_id)
        stage.everything(app_id)
        assert stage.lines(app_id, regex="apple$") == ["apple\n", "pineapple\n"]
        with pytest.raises(SpecError):
            stage.lines(app_id, regex="(")

    def test_unknown_replica(self, stage: SchedulerStage) -> None:
        """An unknown role, replica or job is refused by name."""
        app_id = stage.submit(stage.app(Program()))
        for role, k in (("other", 0), ("main", 1), ("main", -1)):
            with pytest.raises(SpecError):
                stage.scheduler.log_read(app_id, LogQuery(role, k, stage.stream))
        with pytest.raises(AppNotFound):
            stage.scheduler.log_read("suite-never-was", LogQuery("main", 0, stage.stream))

    def test_pages(self, stage: SchedulerStage) -> None:
        """Read page by page, with small pages, the log is the same.

        No line is lost, none comes twice, and none is torn.
        """
        lines = tuple(f"line {number} {'x' * (number % 37)}" for number in range(300))
        app_id = stage.submit(stage.app(Program(out=lines)))
        stage.ended(app_id)
        stage.everything(app_id)
        pages = list(stage.pages(app_id, None, 256))
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
        app_id = stage.submit(stage.app(Program(out=lines)))
        stage.ended(app_id)
        stage.everything(app_id)
        first = next(stage.pages(app_id, None, 200))
        mine, stage.scheduler = stage.scheduler, self.make_scheduler(stage.folder)
        try:
            pages = list(stage.pages(app_id, first.cursor, 1 << 20))
            assert [*first.lines, *(line for page in pages for line in page.lines)] == [
                f"{line}\n" for line in lines
            ]
            again = stage.scheduler.log_read(
                app_id, LogQuery("main", 0, stage.stream, pages[-1].cursor)
            )
            assert (again.lines, again.complete) == ([], True)
        finally:
            stage.scheduler.close()
            stage.scheduler = mine

    def test_read_while_it_runs(self, stage: SchedulerStage) -> None:
        """Reading does not wait, and returns complete lines of a log that is not complete."""
        app_id = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(app_id, said="up")
        page = stage.scheduler.log_read(app_id, LogQuery("main", 0, stage.stream))
        assert (page.lines, page.complete) == (["up\n"], False)
        again = stage.scheduler.log_read(app_id, LogQuery("main", 0, stage.stream, page.cursor))
        assert (again.lines, again.complete) == ([], False)

    def test_tail(self, stage: SchedulerStage) -> None:
        """Following a log gives every line, and ends with the replica."""
        app_id = stage.submit(stage.app(Program(out=("a", "b"), seconds=0.2)))
        assert stage.lines(app_id, follow=True) == ["a\n", "b\n"]

    @pytest.mark.parametrize("ends", [True, False])
    def test_last_lines(self, stage: SchedulerStage, ends: bool) -> None:
        """The last lines are those at the end, and reading on from there repeats no line."""
        lines = [f"line {number}\n" for number in range(200)]
        app_id = stage.submit(
            stage.app(Program(out=tuple(line.rstrip() for line in lines), hold=not ends))
        )
        stage.until(lambda: stage.lines(app_id)[-1:] == lines[-1:], "the last line is there")
        for count in (1, 7, 500):
            found = last_lines(stage.scheduler, app_id, "main", 0, stage.stream, count)
            assert found == lines[-count:]
        page = stage.scheduler.log_read(app_id, LogQuery("main", 0, stage.stream, last=5))
        reader = LogReader(stage.scheduler, app_id, LogQuery("main", 0, stage.stream, page.cursor))
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
        app_id = stage.submit(stage.app(Program(command=program)))

        def newest() -> int:
            """Return the number of the last line that is there."""
            last = last_lines(stage.scheduler, app_id, "main", 0, stage.stream, 1)
            return int(last[0].split()[0]) if last else 0

        per_page = PAGE // 250

        def wait_for_more() -> None:
            enough = min(newest() + per_page, last_line - 1)  # a slow reader sees its end
            stage.until(lambda: newest() > enough, "the program has written more")

        stage.until(lambda: newest() > 3 * per_page, "several pages are there")
        before = newest()
        seen: list[int] = []
        for line in log_lines(stage.scheduler, app_id, "main", 0, stream=stage.stream):
            seen.append(int(line.split()[0]))
            assert len(seen) < before + 20 * per_page, "reading does not end"
            if len(seen) % (per_page // 2) == 0:  # nobody reads faster than this is written
                wait_for_more()
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= before
        stage.scheduler.cancel(app_id)

    def test_times_of_lines(self, stage: SchedulerStage) -> None:
        """Lines have the ascending times of their writing, and can be chosen by them."""
        if not stage.scheduler.capabilities.since_until:
            pytest.skip("this scheduler keeps no times of lines")
        before = time.time()
        app_id = stage.submit(stage.app(Program(command="echo one; sleep 1; echo two")))
        stage.ended(app_id)
        assert stage.everything(app_id) == ["one\n", "two\n"]
        page = stage.scheduler.log_read(app_id, LogQuery("main", 0, stage.stream))
        one, two = times(page)
        assert before - 5 < one < two < time.time() + 5
        assert 0.5 < two - one < 30
        assert stage.lines(app_id, since=(one + two) / 2) == ["two\n"]
        assert stage.lines(app_id, until=(one + two) / 2) == ["one\n"]
        assert stage.lines(app_id, since=two + 1) == []
