"""Results and tracking on a local folder, against TorchX 0.7.0 and a bare write: ``tracker.py
[--plot FILE]``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable

from measure import figure, interleaved, report

CALLS = 1000
ROUNDS = 5
SIZES = (10, 100, 1000, 10_000)
RESULTS = {"accuracy": 0.93, "loss": 0.25, "step": 7}
RESULTS_OF_A_STEP = {"accuracy": 0.93, "loss": 0.25, "epoch": 7}


def seconds(call: Callable[[], object], times: int = 1) -> float:
    """Return the wall seconds of one call, the mean of several."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def bare_put(folder: str) -> Callable[[], None]:
    """Return the least that an atomic write is: write a file aside, and rename it."""
    numbers = itertools.count()

    def put() -> None:
        aside = f"{folder}/{next(numbers)}.tmp"
        with open(aside, "wb") as file:
            file.write(json.dumps(RESULTS).encode())
        os.rename(aside, f"{folder}/k.json")

    return put


def results(folder: str) -> list[dict]:
    """Measure put and get of results, in calls a second."""
    from torchx.runtime.tracking import FsspecResultTracker as Peer

    from transload.runtime import report as report_line
    from transload.runtime.tracking import FsspecResultTracker as Ours

    for name in ("ours", "peer", "bare"):
        os.mkdir(f"{folder}/{name}")
    ours, peer, bare = Ours(f"{folder}/ours"), Peer(f"{folder}/peer"), bare_put(f"{folder}/bare")
    puts = interleaved(
        ROUNDS,
        lambda: seconds(lambda: ours.put("k", **RESULTS), CALLS),
        lambda: seconds(bare, CALLS),
        lambda: seconds(lambda: peer.put("k", **RESULTS), CALLS),
    )
    gets = interleaved(
        ROUNDS,
        lambda: seconds(lambda: ours.get("k"), CALLS),
        lambda: seconds(lambda: peer.get("k"), CALLS),
    )
    os.environ.update(
        TRANSLOAD_TRACKER_BASE=f"{folder}/job",
        TRANSLOAD_JOB_ID="local://s/a",
        TRANSLOAD_NUM_REPLICAS="1",
    )
    steps = itertools.count()
    line = interleaved(
        ROUNDS,
        lambda: seconds(lambda: report_line(**RESULTS_OF_A_STEP), CALLS),
        lambda: seconds(bare, CALLS),
        lambda: seconds(lambda: report_line(step=next(steps), **RESULTS_OF_A_STEP), CALLS),
    )
    mine, floor, theirs = (1 / value for value in puts)
    against = "ResultTracker.put, against a bare atomic write and rename"
    return [
        figure(
            against, "calls/s", mine, floor, target=0.7, better="higher", torchx_not_atomic=theirs
        ),
        figure("report(), against the same", "s", line[0], line[1], target=1.3, with_step=line[2]),
        figure(
            "ResultTracker.get", "calls/s", 1 / gets[0], 1 / gets[1], target=1.0, better="higher"
        ),
    ]


def trackers(folder: str, size: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return what listing and reading cost with ``size`` runs, or ``size`` writes to one run: ours,
    the peer's.
    """
    import fsspec
    from torchx.tracker.backend.fsspec import FsspecTracker as Peer

    from transload.tracker import FsspecTracker as Ours

    costs = []
    os.mkdir(f"{folder}/peer-{size}")
    for tracker in (
        Ours(None, f"{folder}/ours-{size}"),
        Peer(fsspec.filesystem("file"), f"{folder}/peer-{size}"),
    ):
        write = seconds(lambda tracker=tracker: fill(tracker, size))
        costs.append({"write": write / size / 3, "tracker": tracker})
    rounds = ROUNDS if size < 10_000 else 3
    os.utime(f"{folder}/ours-{size}/runs", (0, 0))  # as if the last run had come a while ago
    calls = {
        "run_ids": lambda tracker: fresh(tracker).run_ids(),
        "run_ids, again": lambda tracker: tracker.run_ids(),
        "run_ids, by parent": lambda tracker: tracker.run_ids(parent_run_id="local://s/parent"),
        "metadata, a name each": lambda tracker: tracker.metadata("local://s/names"),
        "metadata, one name": lambda tracker: tracker.metadata("local://s/steps"),
    }
    ours, peer = (cost.pop("tracker") for cost in costs)
    for name, call in calls.items():
        costs[0][name], costs[1][name] = interleaved(
            rounds,
            lambda call=call: seconds(lambda: call(ours)),
            lambda call=call: seconds(lambda: call(peer)),
        )
    return costs[0], costs[1]


def fresh(tracker: object) -> object:
    """Return the tracker as another process would open it: having seen nothing yet."""
    return pickle.loads(pickle.dumps(tracker))


def fill(tracker: object, size: int) -> None:
    """Write ``size`` runs, and as many values to each of two runs; ten runs have a parent."""
    for number in range(size):
        tracker.add_metadata(f"local://s/app-{number}", lr=0.1)
        tracker.add_metadata("local://s/names", **{f"value-{number}": number})
        tracker.add_metadata("local://s/steps", step=number)
    for number in range(10):
        tracker.add_source(f"local://s/app-{number}", "local://s/parent")


def plot(growth: dict[int, tuple[dict[str, float], dict[str, float]]], path: str) -> None:
    """Draw cost against size, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure_, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    panels = {
        "runs in the tracker": ("run_ids", "run_ids, again", "run_ids, by parent"),
        "writes to one run": ("metadata, a name each", "metadata, one name"),
    }
    for axis, (title, names) in zip(axes, panels.items(), strict=True):
        for name, colour in zip(names, ("#0967d2", "#12876f", "#b44d12"), strict=False):
            for side, (who, style) in enumerate((("transload", "-o"), ("TorchX 0.7.0", "--s"))):
                values = [growth[size][side][name] * 1000 for size in growth]
                axis.loglog(
                    list(growth),
                    values,
                    style,
                    color=colour,
                    alpha=1 if side == 0 else 0.5,
                    label=f"{who}: {name}",
                )
        axis.set_xlabel(title)
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8)
    axes[0].set_ylabel("milliseconds for one call")
    figure_.suptitle("Reading a tracker as it grows (local folder)")
    figure_.tight_layout()
    figure_.savefig(path, dpi=120)


def main() -> None:
    """Measure, print, and perhaps draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="FILE", help="draw cost against size (needs matplotlib)")
    parser.add_argument(
        "--largest", type=int, default=SIZES[-1], help="largest number of runs and of writes"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = results(folder)
        growth = {size: trackers(folder, size) for size in SIZES if size <= arguments.largest}
    if 1000 in growth:
        ours, peer = growth[1000]
        for name in ("run_ids", "run_ids, again", "metadata, a name each", "metadata, one name"):
            rows.append(
                figure(f"FsspecTracker.{name}, at 1000", "s", ours[name], peer[name], target=0.1)
            )
        rows.append(
            figure("FsspecTracker.add_metadata", "s", ours["write"], peer["write"], target=1.0)
        )
    if arguments.plot:
        plot(growth, arguments.plot)
    grown = {
        str(size): {"transload": ours, "torchx": peer} for size, (ours, peer) in growth.items()
    }
    report(rows, peer="TorchX 0.7.0; of `put`, a bare write and rename", growth=grown)


if __name__ == "__main__":
    main()
