"""Scale, on paper: 100,000 apps watched by 1,000 clients of one cluster; simulated, with the
poller's own constants.

What is simulated is the controller of the cluster, which answers one question at a time, and who
asks it: one poller for each app, batched watchers that ask for all apps of a client at once (first
pause, growth, share and interval are those of ``transload.pipelines``), and watchers that are told
of changes and ask only now and then. What a question costs the controller is given by ``--query``
and ``--job``: the defaults are CPU times of slurmctld 22.05, with 200 and with 1,000 jobs. What
listing a tracker costs is measured here on a local folder.

Usage: python benchmarks/scale.py [--clients 1000] [--apps 100000] [--seconds 600] [--plot
benchmarks/scale.svg]
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from transload.pipelines.options import ExecutionOptions
from transload.schedulers.follower import FIRST_PAUSE, RECHECK, SHARE
from transload.schedulers.patience import GROWTH

DOCS = Path(__file__).resolve().parents[1] / "docs"
INTERVAL = ExecutionOptions().poll_interval
SIZES = (100, 1000, 10_000)


@dataclass(frozen=True)
class World:
    """What is simulated.

    Args:
        apps: how many apps are watched, evenly spread over the clients.
        clients: how many processes watch.
        seconds: how long, after as long again to settle.
        query_ms: CPU milliseconds that a question costs the controller.
        job_us: CPU microseconds more for each app that it looks at to answer.
        changes_per_hour: how often the state of an app changes.
        users: to how many users the apps belong.
    """

    apps: int = 100_000
    clients: int = 1000
    seconds: float = 600.0
    query_ms: float = 0.8
    job_us: float = 1.5
    changes_per_hour: float = 2.0
    users: int = 100

    def cost(self, count: int) -> float:
        """Return the seconds that a question takes the controller, if it looks at ``count`` apps to
        answer.
        """
        return self.query_ms / 1e3 + count * self.job_us / 1e6


@dataclass
class Load:
    """What came of it.

    Args:
        way: who asked.
        per_second: questions that were answered, each second.
        busy: share of the controller's one core.
        answer_s: median seconds from question to answer.
        seen_after_s: median seconds from a change to when its client knew.
        seen_after_95_s: 95th percentile of the same.
    """

    way: str
    per_second: float
    busy: float
    answer_s: float
    seen_after_s: float
    seen_after_95_s: float


class Asker:
    """One process or thread that asks for some apps.

    Args:
        world: the world.
        count: how many apps it asks for at once.
        batched: it keeps the rules of transload's poller, else it asks every `INTERVAL` seconds.
        pushed: the scheduler tells it of changes; it asks for what changed, and for all now and
            then.
    """

    def __init__(
        self, world: World, count: int, batched: bool, pushed: bool, rng: random.Random
    ) -> None:
        self.count, self.batched, self.pushed = count, batched, pushed
        self.rate = count * world.changes_per_hour / 3600.0
        self.rng = rng
        self.pause = INTERVAL
        self.next_change = rng.expovariate(self.rate)
        self.unseen: list[float] = []

    def changes_until(self, now: float) -> None:
        """Let the apps change up to now."""
        while self.next_change <= now:
            self.unseen.append(self.next_change)
            self.next_change += self.rng.expovariate(self.rate)

    def answered(self, asked: float, now: float, reads: float) -> tuple[float, list[float]]:
        """Take an answer; return when to ask again, and how late each change was seen.

        Args:
            asked: when the question was put.
            now: when the answer came.
            reads: when the controller looked.
        """
        self.changes_until(reads)
        late = [now - change for change in self.unseen if change <= reads]
        self.unseen = [change for change in self.unseen if change > reads]
        if not self.batched:
            return now + INTERVAL, late
        self.pause = FIRST_PAUSE if late else min(self.pause * GROWTH, INTERVAL)
        if self.pushed:
            return min(now + RECHECK, max(self.next_change, now)), late
        return now + max(self.pause, SHARE * (now - asked)), late


def simulate(
    world: World,
    way: str,
    looks_at: int,
    *,
    batched: bool = True,
    pushed: bool = False,
    seed: int = 1,
) -> Load:
    """Return what one way of watching does to the controller: questions wait in one line, first
    come, first served.

    Args:
        world: the world.
        way: its name.
        looks_at: how many apps the controller looks at to answer a question about all apps of a
            client.
        batched: see `Asker`.
        pushed: see `Asker`.
        seed: of all that is random.
    """
    rng = random.Random(seed)
    count = world.apps // world.clients if batched else 1
    askers = [Asker(world, count, batched, pushed, rng) for _ in range(world.apps // count)]
    first = INTERVAL if not pushed else RECHECK
    line = [(rng.uniform(0, first), number) for number in range(len(askers))]
    heapq.heapify(line)
    free, end, begin = 0.0, 2 * world.seconds, world.seconds
    answers, late, busy, asked_for = [], [], 0.0, 0
    while line:
        asked, number = heapq.heappop(line)
        if asked > end:
            break
        asker = askers[number]
        cost = world.cost(1 if pushed and asker.next_change <= asked else looks_at)
        starts = max(free, asked)
        free = starts + cost
        again, seen = asker.answered(asked, free, starts)
        heapq.heappush(line, (again, number))
        if free > begin and starts < end:
            asked_for += 1
            busy += cost
            answers.append(free - asked)
            late += seen
    return Load(
        way,
        asked_for / world.seconds,
        min(1.0, busy / world.seconds),
        _share(answers, 0.5),
        _share(late, 0.5),
        _share(late, 0.95),
    )


def _share(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] if values else float("nan")


def ways(world: World) -> Iterator[Load]:
    """Simulate each way of watching."""
    own, users = world.apps // world.clients, world.apps // min(world.users, world.clients)
    yield simulate(world, "a poller for each app", 1, batched=False)
    yield simulate(world, "batched, the controller looks at all jobs", world.apps)
    yield simulate(world, "batched, at the jobs of the user", users)
    yield simulate(world, "batched, at the jobs of the client", own)
    yield simulate(world, "told of changes", own, pushed=True)


def listing(sizes: tuple[int, ...] = SIZES) -> dict[int, dict[str, float]]:
    """Return what listing costs a tracker with so many runs on a local folder, in seconds: first,
    and again.
    """
    from transload.tracker import FsspecTracker

    found = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="tl-scale-") as folder:
            tracker = FsspecTracker(None, folder)
            for number in range(size):
                tracker.add_metadata(f"local://s/app-{number}", lr=0.1)
            for number in range(10):
                tracker.add_source(f"local://s/app-{number}", "local://s/parent")
            found[size] = {
                "all runs": _seconds(lambda folder=folder: FsspecTracker(None, folder).run_ids()),
                "runs of one parent": _seconds(
                    lambda folder=folder: FsspecTracker(None, folder).run_ids(
                        parent_run_id="local://s/parent"
                    )
                ),
            }
    return found


def _seconds(call: object) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        list(call())  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times)


def plot(
    worlds: list[tuple[World, list[Load]]], listed: dict[int, dict[str, float]], path: str
) -> None:
    """Draw how late changes are seen and how busy the controller is as apps grow, and what listing
    costs.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "transload", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2))
    names = [load.way for load in worlds[0][1]]
    apps = [world.apps for world, _ in worlds]
    for k, (name, colour) in enumerate(
        zip(names, ("#b44d12", "#8a5a9e", "#0967d2", "#5b8def", "#12876f"), strict=True)
    ):
        axes[0].loglog(
            apps, [loads[k].seen_after_s for _, loads in worlds], "-o", color=colour, label=name
        )
        axes[1].semilogx(
            apps, [100 * loads[k].busy for _, loads in worlds], "-o", color=colour, label=name
        )
    for name, colour in (("all runs", "#0967d2"), ("runs of one parent", "#12876f")):
        axes[2].loglog(
            list(listed), [cost[name] for cost in listed.values()], "-o", color=colour, label=name
        )
    titles = (
        "seconds until a change is seen, median",
        "% of the controller's core",
        "seconds to list a tracker",
    )
    for axis, title, across in zip(
        axes, titles, ("apps", "apps", "runs in the tracker"), strict=True
    ):
        axis.set_title(title, fontsize=11)
        axis.set_xlabel(across)
        axis.grid(True, alpha=0.3)
    axes[0].legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.1))
    axes[2].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.endswith(".svg") else None)


def client_cost(world: World) -> dict[str, float]:
    """Return what watching costs each client, by the measured figures of
    ``benchmarks/poller.py``.
    """
    rows = json.loads((DOCS / "benchmarks.json").read_text())["poller"]["rows"]
    by_name = {row["figure"]: row for row in rows}
    cpu = by_name["CPU while 1000 watched apps do not change"]["transload"] / 1000
    return {"cpu_percent": round(cpu * world.apps / world.clients, 2), "threads": 1}


def main() -> None:
    """Simulate, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = World()
    parser.add_argument("--apps", type=int, default=default.apps)
    parser.add_argument("--clients", type=int, default=default.clients)
    parser.add_argument("--seconds", type=float, default=default.seconds)
    parser.add_argument(
        "--query", type=float, default=default.query_ms, help="CPU ms of a question"
    )
    parser.add_argument(
        "--job", type=float, default=default.job_us, help="CPU us for each app that it looks at"
    )
    parser.add_argument(
        "--changes", type=float, default=default.changes_per_hour, help="of an app, in an hour"
    )
    parser.add_argument("--users", type=int, default=default.users, help="to whom the apps belong")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    sizes = [size for size in (1000, 3000, 10_000, 30_000) if size < options.apps] + [options.apps]
    worlds = []
    for apps in sizes if options.plot else [options.apps]:
        clients = max(1, options.clients * apps // options.apps)
        world = World(
            apps,
            clients,
            options.seconds,
            options.query,
            options.job,
            options.changes,
            options.users,
        )
        worlds.append((world, list(ways(world))))
    listed = listing()
    if options.plot:
        plot(worlds, listed, options.plot)
    world, loads = worlds[-1]
    found = {
        "world": asdict(world),
        "loads": [asdict(load) for load in loads],
        "client": client_cost(world),
    }
    json.dump({**found, "listing_s": listed}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
