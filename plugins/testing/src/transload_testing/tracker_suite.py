"""The suite that every ``TrackerBase`` passes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from transload.runtime.tracking import TrackingError
from transload.tracker import (
    AppRun,
    Lineage,
    LineageEdge,
    TrackerArtifact,
    TrackerBase,
    TrackerSource,
    build_trackers,
)
from transload_testing.odd_texts import BAD_TEXTS, METADATA_VALUES, ODD_TEXTS, same
from transload_testing.tracking_workers import is_whole, run_worker, run_workers, state

__all__ = ["TrackerConformance"]

_BAD_VALUES = {
    "bytes": b"x",
    "set": {1},
    "object": object(),
    "deep": {"a": [1, {"b": b"x"}]},
    "int name": {1: 2},
    "complex": 1j,
}


class TrackerConformance:
    """What must hold for a ``TrackerBase``.

    Subclass it, name your factory, and give an empty place to each test::

        class TestMine(TrackerConformance):
            factory = "mine"  # as registered by a plugin, or "my_package:factory"

            @pytest.fixture
            def tracker_config(self, tmp_path):
                return str(tmp_path / "runs")

    Attributes:
        factory: name of the tracker or ``module:factory``, called with the configuration, in other
            processes too.
        processes: whether other processes can see the store. If not, threads take their place, and
            nothing is killed.
        writers: how many write at once.
        writes: how much each of them writes.
        kills: how many writers are killed.
        longest: seconds that a writer lives at most after its first write.
        preload: modules that are imported before writers are forked, to save each of them the time.
    """

    factory: ClassVar[str] = "fsspec"
    processes: ClassVar[bool] = True
    writers: ClassVar[int] = 4
    writes: ClassVar[int] = 500
    kills: ClassVar[int] = 200
    longest: ClassVar[float] = 0.002
    preload: ClassVar[tuple[str, ...]] = ("transload.tracker.fsspec",)

    @pytest.fixture
    def tracker_config(self) -> str | None:
        """The configuration of an empty store that only this test uses."""
        raise NotImplementedError("give a fixture tracker_config")

    @pytest.fixture
    def open_tracker(self, tracker_config: str | None) -> Callable[[], TrackerBase]:
        """Open the store again, like another program."""
        return lambda: build_trackers({self.factory: tracker_config})[0]

    @pytest.fixture
    def tracker(self, open_tracker: Callable[[], TrackerBase]) -> TrackerBase:
        """A tracker on the empty store."""
        return open_tracker()

    def _spec(self, worker: str, config: str | None, **parameters: object) -> dict[str, Any]:
        return {
            "worker": worker,
            "factory": self.factory,
            "config": config,
            "run_id": "run",
            **parameters,
        }

    # -------------------------------------------------------------------------------------------
    # metadata and artifacts

    def test_unknown_run_is_empty(self, tracker: TrackerBase) -> None:
        """Nothing is known of a run that nobody has written about.

        Asking does not make it known.
        """
        assert dict(tracker.metadata("nobody")) == {}
        assert dict(tracker.artifacts("nobody")) == {}
        assert list(tracker.sources("nobody")) == []
        assert tracker.lineage("nobody") == Lineage("nobody")
        assert list(tracker.run_ids()) == []
        assert list(tracker.run_ids(parent_run_id="nobody")) == []

    def test_metadata_is_kept_exactly(
        self, tracker: TrackerBase, open_tracker: Callable[[], TrackerBase]
    ) -> None:
        """Every value comes back equal and of the same type, under any name."""
        tracker.add_metadata("run", **METADATA_VALUES)
        assert same(dict(open_tracker().metadata("run")), METADATA_VALUES)
        assert list(open_tracker().run_ids()) == ["run"]

    def test_metadata_adds_up(self, tracker: TrackerBase) -> None:
        """Names that are not given now keep their values."""
        tracker.add_metadata("run", a=1, b=1)
        tracker.add_metadata("run", b=2, c=2)
        assert dict(tracker.metadata("run")) == {"a": 1, "b": 2, "c": 2}

    @pytest.mark.parametrize("value", _BAD_VALUES.values(), ids=_BAD_VALUES.keys())
    def test_bad_metadata_is_refused(self, tracker: TrackerBase, value: Any) -> None:
        """An invalid value is refused by name, and nothing is stored."""
        tracker.add_metadata("run", good=0)
        with pytest.raises(TrackingError, match="odd one"):
            tracker.add_metadata("run", good=1, **{"odd one": value})
        with pytest.raises(TrackingError, match="odd one"):
            tracker.add_artifact("run", "a", "/p", {"odd one": value})
        assert dict(tracker.metadata("run")) == {"good": 0}
        assert dict(tracker.artifacts("run")) == {}

    def test_artifacts(self, tracker: TrackerBase, open_tracker: Callable[[], TrackerBase]) -> None:
        """Artifacts come back by name, the last of a name, with metadata or without."""
        tracker.add_artifact("run", "model", "/old", {"step": 1})
        tracker.add_artifact(
            "run",
            "model",
            "s3://bucket/model ☃.pt",
            {"step": 2, "loss": float("inf"), "tags": ["a"]},
        )
        tracker.add_artifact("run", "log/☃ %", "rel/path", None)
        tracker.add_artifact("run", "empty", "/e", {})
        assert dict(open_tracker().artifacts("run")) == {
            "model": TrackerArtifact(
                "model", "s3://bucket/model ☃.pt", {"step": 2, "loss": float("inf"), "tags": ["a"]}
            ),
            "log/☃ %": TrackerArtifact("log/☃ %", "rel/path", None),
            "empty": TrackerArtifact("empty", "/e", {}),
        }
        assert dict(tracker.metadata("run")) == {}
        assert list(tracker.run_ids()) == ["run"]

    # -------------------------------------------------------------------------------------------------
    # order of writes

    def test_last_write_wins(self, open_tracker: Callable[[], TrackerBase]) -> None:
        """The last of several writes in a row counts, from one writer or from many."""
        trackers = [open_tracker() for _ in range(3)]
        for number in range(30):
            writer = trackers[number * 7 % 3]
            writer.add_metadata("run", n=number)
            writer.add_artifact("run", "a", f"/{number}")
            assert dict(open_tracker().metadata("run")) == {"n": number}
            assert open_tracker().artifacts("run")["a"].path == f"/{number}"

    def test_last_write_wins_with_clocks_apart(
        self, open_tracker: Callable[[], TrackerBase], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A writer whose clock is behind still replaces what was written before it wrote."""
        real, real_ns = time.time, time.time_ns
        for number, offset in enumerate([0, 1, -1, 3600, -3600, 0, -1, 1]):
            monkeypatch.setattr(time, "time", lambda by=offset: real() + by)
            monkeypatch.setattr(time, "time_ns", lambda by=offset: real_ns() + by * 10**9)
            open_tracker().add_metadata("run", n=number)
        monkeypatch.undo()
        assert dict(open_tracker().metadata("run")) == {"n": 7}

    # ----------------------------------------------------------------------------------------------------------
    # run ids

    @pytest.mark.parametrize("run_id", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
    def test_odd_run_id(
        self, tracker: TrackerBase, open_tracker: Callable[[], TrackerBase], run_id: str
    ) -> None:
        """Any text is a run id, as a run and as a source, and comes back as it is."""
        tracker.add_metadata(run_id, x=1)
        tracker.add_source("child", run_id, "what")
        tracker.add_source(run_id, "origin")
        other = open_tracker()
        assert dict(other.metadata(run_id)) == {"x": 1}
        assert sorted(other.run_ids()) == sorted([run_id, "child"])
        assert list(other.sources("child")) == [TrackerSource(run_id, "what")]
        assert list(other.run_ids(parent_run_id=run_id)) == ["child"]
        assert list(other.run_ids(parent_run_id="origin")) == [run_id]

    def test_odd_run_ids_side_by_side(self, tracker: TrackerBase) -> None:
        """No two run ids share anything."""
        for index, run_id in enumerate(ODD_TEXTS.values()):
            tracker.add_metadata(run_id, x=index)
        assert sorted(tracker.run_ids()) == sorted(ODD_TEXTS.values())
        assert [tracker.metadata(run_id)["x"] for run_id in ODD_TEXTS.values()] == list(
            range(len(ODD_TEXTS))
        )

    @pytest.mark.parametrize("run_id", BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
    def test_bad_run_id_is_refused(self, tracker: TrackerBase, run_id: Any) -> None:
        """An invalid run id is refused by name, and nothing is stored."""
        for call in (
            lambda: tracker.add_metadata(run_id, x=1),
            lambda: tracker.add_artifact(run_id, "a", "/p"),
            lambda: tracker.add_source(run_id, "source"),
            lambda: tracker.metadata(run_id),
        ):
            with pytest.raises(TrackingError, match="run_id"):
                call()
        with pytest.raises(TrackingError, match="source_id"):
            tracker.add_source("run", run_id)
        assert list(tracker.run_ids()) == []

    # ----------------------------------------------------------------------------------------------------------
    # lineage

    def test_sources(self, tracker: TrackerBase, open_tracker: Callable[[], TrackerBase]) -> None:
        """All sources are kept, each once, and they can be filtered.

        One source may be used in several ways.
        """
        tracker.add_source("run", "prep", "data")
        tracker.add_source("run", "prep", "vocabulary")
        tracker.add_source("run", "experiment 7")
        tracker.add_source("run", "prep", "data")
        other = open_tracker()
        found = sorted(
            other.sources("run"),
            key=lambda source: (source.source_run_id, source.artifact_name or ""),
        )
        assert found == [
            TrackerSource("experiment 7", None),
            TrackerSource("prep", "data"),
            TrackerSource("prep", "vocabulary"),
        ]
        assert list(other.sources("run", "vocabulary")) == [TrackerSource("prep", "vocabulary")]
        assert list(other.sources("run", artifact_name="none such")) == []

    def test_run_ids_by_parent(self, tracker: TrackerBase) -> None:
        """The filter gives the direct children, and only these.

        The parent need not be a run itself.
        """
        for child, parent in (("b", "a"), ("c", "a"), ("d", "b"), ("e", "elsewhere")):
            tracker.add_source(child, parent)
        assert sorted(tracker.run_ids(parent_run_id="a")) == ["b", "c"]
        assert list(tracker.run_ids(parent_run_id="elsewhere")) == ["e"]
        assert list(tracker.run_ids(parent_run_id="e")) == []
        assert sorted(tracker.run_ids()) == ["b", "c", "d", "e"]

    def test_lineage_both_ways(
        self, tracker: TrackerBase, open_tracker: Callable[[], TrackerBase]
    ) -> None:
        """A lineage has all sources and descendants, with the artifacts of all."""
        tracker.add_source("prep", "raw")
        tracker.add_source("train", "prep", "data")
        tracker.add_source("eval", "train", "model")
        tracker.add_source("report", "eval")
        tracker.add_source("report", "prep", "statistics")
        tracker.add_source("stranger", "other")
        tracker.add_artifact("train", "model", "/m", {"step": 3})
        tracker.add_artifact("report", "page", "/page")
        tracker.add_artifact("stranger", "x", "/x")
        lineage = open_tracker().lineage("train")
        assert lineage.run_id == "train"
        assert lineage.parents == ["prep", "raw"]
        assert lineage.descendants == ["eval", "report"]
        assert set(lineage.edges) == {
            LineageEdge("prep", "raw", None),
            LineageEdge("train", "prep", "data"),
            LineageEdge("eval", "train", "model"),
            LineageEdge("report", "eval", None),
            LineageEdge("report", "prep", "statistics"),
        }
        assert lineage.artifacts == {
            "train": {"model": TrackerArtifact("model", "/m", {"step": 3})},
            "report": {"page": TrackerArtifact("page", "/page", None)},
        }

    def test_lineage_with_a_cycle(self, tracker: TrackerBase) -> None:
        """Runs that came from each other, or from themselves, do not lead to endless loops."""
        for child, parent in (("b", "a"), ("c", "b"), ("a", "c"), ("a", "a")):
            tracker.add_source(child, parent)
        lineage = tracker.lineage("a")
        assert lineage.parents == ["c", "b"] or lineage.parents == ["b", "c"]
        assert sorted(lineage.descendants) == ["b", "c"]
        assert len(lineage.edges) == 4

    def test_app_run(self, tracker: TrackerBase) -> None:
        """An ``AppRun`` writes to the tracker, and finds its sources and children there."""
        parent, child = AppRun("parent", [tracker]), AppRun("child", [tracker])
        parent.add_metadata(self=1, run_id=2)
        child.add_source("parent", "model")
        child.add_artifact("a", "/a", {"m": 1})
        assert dict(tracker.metadata("parent")) == {"self": 1, "run_id": 2}
        assert [(s.parent.job_id(), s.artifact_name) for s in child.sources()] == [
            ("parent", "model")
        ]
        assert [run.id for run in parent.children()] == ["child"]
        assert list(child.children()) == []
        assert [run.id for run in next(iter(child.sources())).parent.children()] == ["child"]

    # ------------------------------------------------------------------------------------------
    # many writers, and kills

    def test_no_torn_read(self, tracker: TrackerBase, tracker_config: str | None) -> None:
        """While four writers replace one value, every read is whole.

        In the end one of the last writes is there.
        """
        tracker.add_metadata("run", state=state(0))
        reads: list[Any] = []
        specs = [
            self._spec("add_same", tracker_config, writer=w, count=self.writes)
            for w in range(self.writers)
        ]
        run_workers(specs, self.processes, lambda: reads.append(tracker.metadata("run")["state"]))
        assert reads
        assert [read for read in reads if not is_whole(read)] == []
        last: Any = tracker.metadata("run")["state"]
        assert is_whole(last)
        assert last["n"] == self.writes - 1
        assert list(tracker.run_ids()) == ["run"]

    def test_distinct_names_are_all_there(
        self, tracker: TrackerBase, tracker_config: str | None
    ) -> None:
        """The values of four writers in one run under different names all exist."""
        specs = [
            self._spec("add_distinct", tracker_config, writer=w, count=self.writes)
            for w in range(self.writers)
        ]
        run_workers(specs, self.processes)
        wanted = {f"{w}/{i}": i for w in range(self.writers) for i in range(self.writes)}
        assert dict(tracker.metadata("run")) == wanted

    def test_threads_share_a_tracker(self, tracker: TrackerBase) -> None:
        """One tracker object serves many threads."""
        count = min(self.writes, 50)

        def write(thread: int) -> None:
            for index in range(count):
                tracker.add_metadata("run", **{f"{thread}-{index}": index})
                tracker.add_source(f"run-{thread}", "run")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(tracker.metadata("run")) == 4 * count
        assert sorted(tracker.run_ids(parent_run_id="run")) == [
            f"run-{number}" for number in range(4)
        ]

    def test_killed_writers_do_no_harm(
        self, tracker: TrackerBase, tracker_config: str | None
    ) -> None:
        """A writer killed at any moment leaves the old value or the new one.

        The run goes on.
        """
        if not self.processes:
            pytest.skip("the store lives in one process: there is nobody to kill")
        if not hasattr(os, "fork"):
            pytest.skip("needs fork")
        assert (
            run_worker(
                self._spec(
                    "kill_add",
                    tracker_config,
                    kills=self.kills,
                    longest=self.longest,
                    preload=self.preload,
                )
            )
            == []
        )
        tracker.add_metadata("run", after=1)
        assert tracker.metadata("run")["after"] == 1
        assert list(tracker.run_ids()) == ["run"]
