"""What a script with packages of its own costs: inodes and seconds, when they are installed for its
first job and when they are there, against `uv run` by hand.

The packages are two small ones of an index on loopback, so what is measured is what comes on top of
uv's own work.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import adopt_orphans, figure, interleaved, process_cost, report, script

from transload_testing.packages import package_index

COLD_RUNS = 5
WARM_RUNS = 9
MORE_S = 0.3
"""So many seconds more than `uv run` a job may take whose packages are there."""
HEADER = '# /// script\n# requires-python = ">=3.9"\n# dependencies = ["tiny"]\n# ///\n'
PROGRAM = "print('ran')\n"


def count_inodes(folder: Path) -> int:
    """Return the number of files and folders below a folder."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


class Timed:
    """A command, and how long its runs took.

    Args:
        command: what is run.
        env: its environment.
        made: an environment of packages that is removed before each run, if any; uv's cache of
            packages stays.
    """

    def __init__(self, command: list[str], env: dict[str, str], made: Path | None = None) -> None:
        self.command = command
        self.env = env
        self.made = made
        self.walls: list[float] = []

    def run(self) -> float:
        """Run it; return the CPU seconds of all that it started."""
        if self.made is not None:
            shutil.rmtree(self.made, ignore_errors=True)
        wall, cpu = process_cost(self.command, self.env)
        self.walls.append(wall)
        return cpu

    @property
    def wall(self) -> float:
        """How long a run took, the median."""
        return statistics.median(self.walls)


def main() -> None:
    """Measure and print."""
    adopt_orphans()
    with tempfile.TemporaryDirectory() as name, package_index(Path(name) / "index") as index:
        home = Path(name)
        index.add("tiny", requires=("other",))
        index.add("other")
        os.chdir(home)
        Path("train.py").write_text(HEADER + PROGRAM)
        Path("plain.py").write_text(PROGRAM)
        env = {
            **os.environ,
            "TRANSLOAD_HOME": f"{home}/state",
            "UV_CACHE_DIR": f"{home}/cache",
            "UV_DEFAULT_INDEX": index.url,
            "UV_PYTHON": sys.executable,
        }
        ours = [script("transload"), "run", "train.py"]
        plain = [script("transload"), "run", "--", sys.executable, "plain.py"]
        by_hand = ["uv", "run", "--script", "train.py"]
        made = home / "state" / "local" / "environments"
        by_uv = home / "cache" / "environments-v2"
        first = Timed(ours, env, made)
        first_by_hand = Timed(by_hand, env, by_uv)
        first_cpu, first_cpu_by_hand = interleaved(COLD_RUNS, first.run, first_by_hand.run)
        inodes = count_inodes(made)
        inodes_by_hand = count_inodes(by_uv)
        timed = [Timed(command, env) for command in (ours, by_hand, plain)]
        again, again_by_hand, without = interleaved(WARM_RUNS, *(each.run for each in timed))
    allowed = (again_by_hand + MORE_S) / again_by_hand
    rows = [
        figure(
            "a script with packages, first job, CPU",
            "s",
            first_cpu,
            first_cpu_by_hand,
            target=3.0,
            wall=first.wall,
            wall_by_hand=first_by_hand.wall,
        ),
        figure("its packages, inodes", "inodes", inodes, inodes_by_hand, target=1.5),
        figure(
            "a script with packages, next job, CPU",
            "s",
            again,
            again_by_hand,
            target=round(allowed, 2),
            seconds_more=again - again_by_hand,
            seconds_more_allowed=MORE_S,
            without_packages=without,
            wall=timed[0].wall,
            wall_by_hand=timed[1].wall,
            wall_without_packages=timed[2].wall,
        ),
    ]
    report(rows, peer="`uv run` by hand")


if __name__ == "__main__":
    main()
