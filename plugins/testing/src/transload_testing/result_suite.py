"""The suite that every ``ResultTracker`` passes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, ClassVar

import pytest

from transload.runtime.tracking import ResultTracker, TrackingError
from transload_testing.odd_texts import BAD_TEXTS, ODD_TEXTS, RESULT_VALUES, same
from transload_testing.tracking_workers import is_whole, run_worker, run_workers, state

__all__ = ["ResultTrackerConformance"]

_BAD_VALUES = {
    "None": None,
    "bytes": b"x",
    "list": [1],
    "dict": {"a": 1},
    "complex": 1j,
    "1 kB + 1 byte": "x" * 1025,
    "1 kB + 1 byte of unicode": "雪" * 341 + "xx",
    "surrogate": "bad\ud800",
    "huge int": 10**1024,
}


class ResultTrackerConformance:
    """What must hold for a ``ResultTracker``.

    Subclass it, name your factory, and give an empty place to each test::

        class TestMine(ResultTrackerConformance):
            factory = "my_package:MyResultTracker"

            @pytest.fixture
            def tracker_base(self, tmp_path):
                return str(tmp_path / "results")

    Attributes:
        factory: ``module:attribute``, called with the base, in other processes too.
        processes: whether other processes can see the store. If not, threads take their place, and
            nothing is killed.
        writers: how many write at once.
        writes: how much each of them writes.
        kills: how many writers are killed.
        longest: seconds that a writer lives at most after its first write.
        preload: modules that are imported before writers are forked, to save each of them the time.
    """

    factory: ClassVar[str] = "transload.runtime.tracking:FsspecResultTracker"
    processes: ClassVar[bool] = True
    writers: ClassVar[int] = 4
    writes: ClassVar[int] = 500
    kills: ClassVar[int] = 200
    longest: ClassVar[float] = 0.002
    preload: ClassVar[tuple[str, ...]] = ("transload.runtime.tracking",)

    @pytest.fixture
    def tracker_base(self) -> str:
        """The base of an empty store that only this test uses."""
        raise NotImplementedError("give a fixture tracker_base")

    @pytest.fixture
    def open_tracker(self, tracker_base: str) -> Callable[[], ResultTracker]:
        """Open the store again, like another program."""
        factory = resolve_name(self.factory)
        return lambda: factory(tracker_base)

    @pytest.fixture
    def tracker(self, open_tracker: Callable[[], ResultTracker]) -> ResultTracker:
        """A tracker on the empty store."""
        return open_tracker()

    def _spec(self, worker: str, base: str, **parameters: object) -> dict[str, Any]:
        return {"worker": worker, "factory": self.factory, "config": base, **parameters}

    def test_nothing_there(self, tracker: ResultTracker) -> None:
        """A new store is empty, and reading does not create it."""
        assert tracker.get("k") == {}
        assert tracker["k"] == {}
        assert "k" not in tracker
        assert list(tracker.keys()) == []

    def test_put_and_map_forms_agree(
        self, tracker: ResultTracker, open_tracker: Callable[[], ResultTracker]
    ) -> None:
        """``put`` and ``[]=`` store the same, and another tracker sees it."""
        tracker.put("a", **{"l2norm/mean": 1.5, "n": 3})
        tracker["b"] = {"l2norm/mean": 1.5, "n": 3}
        other = open_tracker()
        assert other.get("a") == other["b"] == {"l2norm/mean": 1.5, "n": 3}
        assert other["a"]["l2norm/mean"] == 1.5
        assert sorted(other.keys()) == ["a", "b"]

    def test_put_replaces_everything(self, tracker: ResultTracker) -> None:
        """A second put leaves nothing of the first."""
        tracker.put("k", a=1, b=2)
        tracker.put("k", b=3)
        assert tracker.get("k") == {"b": 3}

    def test_empty_results_are_there(self, tracker: ResultTracker) -> None:
        """Results without a value are not the same as no results."""
        tracker.put("k")
        assert tracker.get("k") == {}
        assert "k" in tracker
        assert list(tracker.keys()) == ["k"]

    def test_int_key_is_its_text(self, tracker: ResultTracker) -> None:
        """An int names the same results as its decimal text."""
        tracker.put(7, x=1)
        tracker["-12"] = {"x": 2}
        assert tracker.get("7") == {"x": 1}
        assert tracker[-12] == {"x": 2}
        assert 7 in tracker
        assert sorted(tracker.keys()) == ["-12", "7"]

    @pytest.mark.parametrize("key", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
    def test_odd_key(
        self, tracker: ResultTracker, open_tracker: Callable[[], ResultTracker], key: str
    ) -> None:
        """Any text is a key and comes back as it is."""
        tracker.put(key, x=1)
        assert open_tracker().get(key) == {"x": 1}
        assert key in open_tracker()
        assert list(open_tracker().keys()) == [key]

    def test_odd_keys_side_by_side(self, tracker: ResultTracker) -> None:
        """No two keys share results."""
        for index, key in enumerate(ODD_TEXTS.values()):
            tracker.put(key, x=index)
        assert sorted(tracker.keys()) == sorted(ODD_TEXTS.values())
        assert [tracker.get(key) for key in ODD_TEXTS.values()] == [
            {"x": index} for index in range(len(ODD_TEXTS))
        ]
        assert tracker.to_dict() == {
            key: {"x": index} for index, key in enumerate(ODD_TEXTS.values())
        }

    @pytest.mark.parametrize("key", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
    def test_bad_key_is_refused(self, tracker: ResultTracker, key: Any) -> None:
        """An invalid key is refused by name, and nothing is stored."""
        for call in (
            lambda: tracker.put(key, x=1),
            lambda: tracker.get(key),
            lambda: tracker.wait(key, 0),
        ):
            with pytest.raises(TrackingError, match="key"):
                call()
        assert list(tracker.keys()) == []

    def test_too_long_key_is_refused(self, tracker: ResultTracker) -> None:
        """A key has at most 1024 bytes."""
        with pytest.raises(TrackingError, match=r"key.*1025 bytes.*1024"):
            tracker.put("k" * 1025, x=1)

    def test_values_are_kept_exactly(
        self, tracker: ResultTracker, open_tracker: Callable[[], ResultTracker]
    ) -> None:
        """Every value comes back equal, and of the same type."""
        tracker.put("k", **RESULT_VALUES)
        assert same(open_tracker().get("k"), RESULT_VALUES)
        tracker["map"] = RESULT_VALUES
        assert same(open_tracker()["map"], RESULT_VALUES)

    @pytest.mark.parametrize("value", _BAD_VALUES.values(), ids=_BAD_VALUES.keys())
    def test_bad_value_is_refused(self, tracker: ResultTracker, value: Any) -> None:
        """An invalid value is refused by name, and the stored values stay."""
        tracker.put("k", x=1)
        with pytest.raises(TrackingError, match="'odd one'"):
            tracker.put("k", good=1, **{"odd one": value})
        with pytest.raises(TrackingError, match="'odd one'"):
            tracker["k"] = {"odd one": value}
        assert tracker.get("k") == {"x": 1}

    @pytest.mark.parametrize(
        "name",
        [1, None, b"x", "n" * 1025, "bad\ud800"],
        ids=["int", "None", "bytes", "long", "surrogate"],
    )
    def test_bad_name_is_refused(self, tracker: ResultTracker, name: Any) -> None:
        """A name is a text of at most 1024 bytes."""
        with pytest.raises(TrackingError, match="result name"):
            tracker["k"] = {name: 1}
        assert "k" not in tracker

    def test_values_that_are_taken_for_numbers(self, tracker: ResultTracker) -> None:
        """A bool is stored as 0 or 1, and whatever has an ``item()`` as that."""
        scalar = type("Scalar", (), {"item": lambda self: 1.5})()
        tracker.put("k", yes=True, no=False, scalar=scalar)
        assert same(tracker.get("k"), {"yes": 1, "no": 0, "scalar": 1.5})

    def test_keys_sort_naturally(self, tracker: ResultTracker) -> None:
        """Numbers in keys sort as numbers."""
        for key in ("epoch-10", "epoch-9", 10, 9):
            tracker.put(key, x=1)
        assert list(tracker.keys()) == list(tracker.to_dict()) == ["9", "10", "epoch-9", "epoch-10"]

    def test_wait_returns_at_once_what_is_there(self, tracker: ResultTracker) -> None:
        """Waiting for existing results returns immediately."""
        tracker.put("k", x=1)
        assert tracker.wait("k", timeout=0) == {"x": 1}

    def test_wait_sees_a_later_put(
        self, tracker: ResultTracker, open_tracker: Callable[[], ResultTracker]
    ) -> None:
        """Waiting ends with a put of another tracker, even of empty results."""
        began = threading.Event()

        def put_later() -> None:
            began.wait(10)
            open_tracker().put("k")

        thread = threading.Thread(target=put_later)
        thread.start()
        began.set()
        assert tracker.wait("k", timeout=30) == {}
        thread.join()
        assert "k" in tracker

    def test_wait_runs_out(self, tracker: ResultTracker) -> None:
        """After the timeout, a TimeoutError names the key, without delay."""
        start = time.monotonic()
        with pytest.raises(TimeoutError, match="'missing'"):
            tracker.wait("missing", timeout=0.05)
        assert time.monotonic() - start < 5

    def test_no_torn_read(self, tracker: ResultTracker, tracker_base: str) -> None:
        """While four writers replace one key, every read is complete."""
        tracker.put("k", **state(0))
        reads: list[dict[str, Any]] = []
        specs = [
            self._spec("put_same", tracker_base, key="k", writer=writer, count=self.writes)
            for writer in range(self.writers)
        ]
        run_workers(specs, self.processes, lambda: reads.append(tracker.get("k")))
        assert reads
        assert [read for read in reads if not is_whole(read)] == []
        last = tracker.get("k")
        assert is_whole(last)
        assert last["n"] == self.writes - 1
        assert list(tracker.keys()) == ["k"]

    def test_distinct_keys_are_all_there(self, tracker: ResultTracker, tracker_base: str) -> None:
        """The results of four writers under different keys all exist."""
        specs = [
            self._spec("put_distinct", tracker_base, writer=writer, count=self.writes)
            for writer in range(self.writers)
        ]
        run_workers(specs, self.processes)
        wanted = {f"{w}/{i}": {"value": i} for w in range(self.writers) for i in range(self.writes)}
        assert tracker.to_dict() == wanted
        assert sorted(tracker.keys()) == sorted(wanted)

    def test_killed_writers_do_no_harm(self, tracker: ResultTracker, tracker_base: str) -> None:
        """A writer killed at any moment leaves the old results or the new ones."""
        if not self.processes:
            pytest.skip("the store lives in one process: there is nobody to kill")
        if not hasattr(os, "fork"):
            pytest.skip("needs fork")
        spec = self._spec(
            "kill_put",
            tracker_base,
            key="k",
            kills=self.kills,
            longest=self.longest,
            preload=self.preload,
        )
        assert run_worker(spec) == []
        assert list(tracker.keys()) == ["k"]
