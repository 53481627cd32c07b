"""The local scheduler from a program: latency, throughput, many apps, many replicas, against TorchX
0.7.0.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable

from measure import figure, own_threads_and_descriptors, report

warnings.simplefilter("ignore")


class Ours:
    """transload's runner and specs."""

    def __init__(self, folder: str) -> None:
        os.environ["TRANSLOAD_HOME"] = f"{folder}/state"
        from transload import specs
        from transload.runner import get_runner

        self.specs, self.runner, self.cfg = specs, get_runner("bench"), {}

    def wait(self, handle: str) -> str:
        """Block until the app ended; return its state's name."""
        return str(self.runner.wait(handle).state)


class Peer:
    """TorchX's runner and specs; its wait is asked to poll every 10 ms instead of every 10 s."""

    def __init__(self, folder: str) -> None:
        from torchx import specs
        from torchx.runner import get_runner

        self.specs, self.runner, self.cfg = (
            specs,
            get_runner("bench"),
            {"log_dir": f"{folder}/logs"},
        )

    def wait(self, handle: str) -> str:
        """Block until the app ended; return its state's name."""
        return str(self.runner.wait(handle, wait_interval=0.01).state)


def run(side: Ours | Peer, entrypoint: str, *args: str, replicas: int = 1) -> str:
    """Submit an app on the local scheduler; return its handle."""
    specs = side.specs
    resource = specs.Resource(cpu=1, gpu=0, memMB=64)
    role = specs.Role(
        "r",
        "/tmp",
        entrypoint=entrypoint,
        args=list(args),
        num_replicas=replicas,
        resource=resource,
    )
    return side.runner.run(specs.AppDef("bench", [role]), "local_cwd", side.cfg)


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def one_by_one(side: Ours | Peer, count: int) -> float:
    """Run ``count`` small apps, one after the other; return apps per second."""

    def all_of_them() -> None:
        for _ in range(count):
            assert side.wait(run(side, "/bin/true")) == "SUCCEEDED"

    return count / timed(all_of_them)


def at_once(side: Ours | Peer, count: int) -> tuple[float, int, int]:
    """Run ``count`` apps of ``sleep 1`` at once; return seconds, and the most threads and
    descriptors seen.
    """
    start = time.perf_counter()
    handles = [run(side, "sleep", "1") for _ in range(count)]
    threads, descriptors = own_threads_and_descriptors()
    for handle in handles:
        assert side.wait(handle) == "SUCCEEDED"
    return time.perf_counter() - start, threads, descriptors


def many_replicas(side: Ours | Peer, count: int) -> tuple[float, int, int]:
    """Run one app of ``count`` replicas of ``sleep 1``; return seconds, threads and descriptors."""
    start = time.perf_counter()
    handle = run(side, "sleep", "1", replicas=count)
    threads, descriptors = own_threads_and_descriptors()
    assert side.wait(handle) == "SUCCEEDED"
    return time.perf_counter() - start, threads, descriptors


def lateness(side: Ours | Peer, folder: str, *, default: bool = False) -> float:
    """Return the seconds between the end of a job and the return of ``wait`` (with its default
    arguments if asked).
    """
    path = f"{folder}/end-{time.perf_counter_ns()}"
    handle = run(side, "sh", "-c", f"sleep 0.3; date +%s.%N > {path}")
    if default:
        side.runner.wait(handle)
    else:
        side.wait(handle)
    seen = time.time()
    with open(path) as file:
        return seen - float(file.read())


def keeper_memory(side: Ours) -> float:
    """Return the proportional memory (PSS), in MiB, of the largest process that keeps one running
    app.
    """
    handle = run(side, "sleep", "30")
    home = os.environ["TRANSLOAD_HOME"].encode()
    largest = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"transload.keeper" not in file.read():
                    continue
            with open(f"/proc/{pid}/smaps_rollup") as file:
                pss = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            largest = max(largest, pss / 1024)
        except (OSError, StopIteration):
            continue
    side.runner.cancel(handle)
    side.wait(handle)
    assert home
    return largest


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        ours, peer = Ours(folder), Peer(folder)
        one_by_one(ours, 3)
        one_by_one(peer, 3)
        latency = [[], []]
        for _ in range(15):
            latency[0].append(timed(lambda: ours.wait(run(ours, "/bin/true"))))
            latency[1].append(timed(lambda: peer.wait(run(peer, "/bin/true"))))
        bare = statistics.median(timed(lambda: subprocess.run(["/bin/true"])) for _ in range(15))
        rate, peer_rate = one_by_one(ours, 200), one_by_one(peer, 40)
        crowd, peer_crowd = at_once(ours, 100), at_once(peer, 100)
        gang, peer_gang = many_replicas(ours, 200), many_replicas(peer, 200)
        late = statistics.median(lateness(ours, folder, default=True) for _ in range(7))
        peer_late = lateness(peer, folder, default=True)
        memory = keeper_memory(ours)
        ours.runner.close()
        peer.runner.close()
    rows = [
        figure(
            "submit to SUCCEEDED seen, /bin/true",
            "s",
            statistics.median(latency[0]),
            statistics.median(latency[1]),
            target=0.33,
            bare_subprocess=bare,
        ),
        figure(
            "default wait() after the job ended, late",
            "s",
            late,
            peer_late,
            target=0.5,
            absolute_target_s=0.02,
        ),
        figure(
            "200 small apps one after the other", "1/s", rate, peer_rate, target=4, better="higher"
        ),
        figure(
            "100 concurrent apps of sleep 1, all seen ended",
            "s",
            crowd[0],
            peer_crowd[0],
            target=1.0,
            client_threads=crowd[1],
            client_descriptors=crowd[2],
            peer_threads=peer_crowd[1],
            peer_descriptors=peer_crowd[2],
        ),
        figure(
            "one app of 200 replicas of sleep 1",
            "s",
            gang[0],
            peer_gang[0],
            target=0.47,
            absolute_target_s=1.6,
            client_threads=gang[1],
            client_descriptors=gang[2],
            peer_threads=peer_gang[1],
            peer_descriptors=peer_gang[2],
        ),
    ]
    report(rows, keeper_pss_mib=round(memory, 2), keeper_pss_target_mib=15)


if __name__ == "__main__":
    main()
