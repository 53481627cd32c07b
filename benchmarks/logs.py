"""Reading logs: tail latency, a log of a million lines, memory while tailing a large log; against
TorchX 0.7.0.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
import warnings

from local_jobs import Ours, Peer, run
from measure import figure, report

warnings.simplefilter("ignore")

TICKER = "import time\nfor _ in range(60):\n    print(time.time_ns(), flush=True)\n    time.sleep(0.03)\n"
WRITER = "import sys\nline = 'x' * 60\nfor k in range(int(sys.argv[1])):\n    print(k, line)\n"


def latencies(side: Ours | Peer) -> list[float]:
    """Return, for each line of a slow writer, the seconds between its print and its arrival in a
    follower.
    """
    handle = run(side, sys.executable, "-c", TICKER)
    found = []
    for line in side.runner.log_lines(handle, "r", 0, should_tail=True, streams=stdout(side)):
        found.append((time.time_ns() - int(line)) / 1e9)
    side.wait(handle)
    return found


def stdout(side: Ours | Peer) -> object:
    """Return the side's own name of the standard output."""
    if isinstance(side, Ours):
        from transload.schedulers import Stream
    else:
        from torchx.schedulers.api import Stream
    return Stream.STDOUT


def lines_per_second(side: Ours | Peer, count: int) -> tuple[float, int]:
    """Return how fast a finished log is read, and how many lines of it were not whole."""
    handle = run(side, sys.executable, "-c", WRITER, str(count))
    side.wait(handle)
    start = time.perf_counter()
    torn = seen = 0
    for line in side.runner.log_lines(handle, "r", 0, streams=stdout(side)):
        seen += 1
        torn += len(line) < 60
    assert seen >= count, f"{seen} lines of {count}"
    return seen / (time.perf_counter() - start), torn


def plain_iteration(folder: str, count: int) -> float:
    """Return how many lines per second a bare ``for line in file`` reads."""
    path = f"{folder}/plain.log"
    with open(path, "w") as file:
        for k in range(count):
            file.write(f"{k} {'x' * 60}\n")
    start = time.perf_counter()
    with open(path) as file:
        seen = sum(1 for _ in file)
    return seen / (time.perf_counter() - start)


def memory_growth(side: Ours, megabytes: int) -> float:
    """Return by how many MiB this process grew at most while it tailed a log of that size."""
    block = "import sys\nblock = ('y' * 99 + '\\n') * 10000\n"
    program = f"{block}for _ in range({megabytes}):\n    sys.stdout.write(block)\n"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handle = run(side, sys.executable, "-c", program)
    seen = 0
    for line in side.runner.log_lines(handle, "r", 0, should_tail=True, streams=stdout(side)):
        seen += len(line)
    assert seen == megabytes * 1_000_000
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lines", type=int, default=1_000_000, help="lines of the log that is read"
    )
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the log that is tailed"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        ours, peer = Ours(folder), Peer(folder)
        growth = memory_growth(ours, options.megabytes)
        mine, theirs = latencies(ours), latencies(peer)
        plain = plain_iteration(folder, options.lines)
        speed, torn = lines_per_second(ours, options.lines)
        peer_speed, peer_torn = lines_per_second(peer, options.lines)
        ours.runner.close()
        peer.runner.close()
    p95 = [statistics.quantiles(each, n=20)[-1] for each in (mine, theirs)]
    report(
        [
            figure(
                "log tail latency, median",
                "s",
                statistics.median(mine),
                statistics.median(theirs),
                target=5 / 53,
                absolute_target_s=0.005,
            ),
            figure(
                "log tail latency, p95",
                "s",
                p95[0],
                p95[1],
                target=20 / 101,
                absolute_target_s=0.02,
            ),
            figure(
                f"log of {options.lines} lines, read",
                "lines/s",
                speed,
                peer_speed,
                target=1.0,
                better="higher",
                plain_iteration=plain,
                fraction_of_plain=round(speed / plain, 3),
                fraction_target=0.25,
                torn_lines=torn,
                peer_torn_lines=peer_torn,
            ),
        ],
        tailing={"megabytes": options.megabytes, "client_growth_mib": round(growth, 1)},
    )


if __name__ == "__main__":
    main()
