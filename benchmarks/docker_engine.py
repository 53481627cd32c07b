"""Containers through transload against the bare ``docker run``, on a private engine that this
script starts.

Root only; wants dockerd, iptables and a static busybox, as the tests do. Usage: python
benchmarks/docker_engine.py
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import figure, interleaved, report

RUNS = 7
REPLICAS = 4
WATCHED = (10, 200)
IDLE_S = 10.0


def private_engine() -> Any:
    """Return the engine that the tests use, started."""
    path = Path(__file__).parents[1] / "tests" / "private_engine.py"
    spec = importlib.util.spec_from_file_location("private_engine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["private_engine"] = module
    spec.loader.exec_module(module)
    engine = module.PrivateEngine()
    engine.start()
    return engine


class Bench:
    """Both sides, on one engine."""

    def __init__(self, image: str) -> None:
        from transload import specs
        from transload.runner import Runner
        from transload_docker.scheduler import create_docker

        self.image, self.specs = image, specs
        self.runner = Runner("bench", {"docker": create_docker})

    def submit(self, *command: str, replicas: int = 1) -> str:
        """Start an app; return its handle."""
        role = self.specs.Role(
            "r", self.image, entrypoint=command[0], args=list(command[1:]), num_replicas=replicas
        )
        return self.runner.run(self.specs.AppDef("bench", [role]), "docker")

    def ours(self, *command: str, replicas: int = 1, started_only: bool = False) -> float:
        """Return the seconds from submit until the app was seen to have ended (or to run)."""
        start = time.perf_counter()
        handle = self.submit(*command, replicas=replicas)
        status = self.runner.status(handle) if started_only else self.runner.wait(handle)
        seconds = time.perf_counter() - start
        assert status is not None and status.state.name in ("SUCCEEDED", "RUNNING"), status
        self.runner.delete(handle)
        return seconds

    def bare(self, *command: str, replicas: int = 1, started_only: bool = False) -> float:
        """Return the seconds of ``docker run`` (several at once on a network made for them; -d:
        until it runs).
        """
        start = time.perf_counter()
        network = []
        if replicas > 1:
            docker("network", "create", "bench")
            network = ["--network", "bench"]
        mode = ["--detach"] if started_only else []
        name = ["--name", "bench"] if started_only else []
        line = ["docker", "run", "--init", *mode, *name, *network, self.image, *command]
        runs = [subprocess.Popen(line, stdout=subprocess.DEVNULL) for _ in range(replicas)]
        assert all(run.wait() == 0 for run in runs)
        seconds = time.perf_counter() - start
        left = subprocess.run(
            ["docker", "ps", "-aq"], capture_output=True, text=True, check=True
        ).stdout.split()
        docker("rm", "-f", *left)
        if network:
            docker("network", "rm", "bench")
        return seconds

    def cost_of_watching(self, apps: int) -> tuple[dict[str, float], dict[str, float], float]:
        """Return queries and CPU seconds a minute while apps are watched that do not change: ours,
        the peer's.

        The third is the CPU seconds of looking at all of them once, as a poller does once a minute
        besides.

        The peer asks for each container once a second with the official client, as one does who has
        no watch.
        """
        handles = [self.submit("sleep", "3000") for _ in range(apps)]
        scheduler: Any = self.runner.scheduler("docker")
        engine, count = scheduler._engine, [0]
        call = engine.call

        def counting(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return call(*args, **kwargs)

        ids = [handle.rpartition("/")[2] for handle in handles]
        watch = scheduler.watch()
        watch.update(ids)
        while watch.wait(2):
            scheduler.describe_many(ids)
        engine.call = counting
        ours = per_minute(lambda end: self._watch(watch, end), count)
        engine.call = call
        watch.close()
        began = time.process_time()
        scheduler.describe_many(ids)
        once = round(time.process_time() - began, 3)
        peer = self._peer(ids)
        for handle in handles:
            self.runner.delete(handle)
        return ours, peer, once

    @staticmethod
    def _watch(watch: Any, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            watch.wait(left)

    @staticmethod
    def _peer(ids: list[str]) -> dict[str, float]:
        import docker

        api, count = docker.APIClient(base_url=os.environ["DOCKER_HOST"]), [0]

        def ask(end: float) -> None:
            while time.monotonic() < end:
                began = time.monotonic()
                for app_id in ids:
                    api.inspect_container(f"{app_id}.r.0.0")
                    count[0] += 1
                time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))

        try:
            return per_minute(ask, count)
        finally:
            api.close()


def per_minute(work: Any, count: list[int]) -> dict[str, float]:
    """Return queries and CPU seconds of this process a minute while ``work`` runs for a while."""
    first, cpu, start = count[0], time.process_time(), time.monotonic()
    work(start + IDLE_S)
    scale = 60.0 / (time.monotonic() - start)
    return {
        "queries_per_minute": round((count[0] - first) * scale, 1),
        "cpu_s_per_minute": round((time.process_time() - cpu) * scale, 3),
    }


def docker(*words: str) -> None:
    """Run the engine's own command line."""
    subprocess.run(["docker", *words], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Measure and print."""
    engine = private_engine()
    try:
        with tempfile.TemporaryDirectory(prefix="tl-bench-") as folder:
            os.chmod(folder, 0o700)
            os.environ |= {"DOCKER_HOST": engine.url, "TRANSLOAD_HOME": folder}
            bench = Bench(engine.busybox_image())
            bench.ours(
                "true"
            )  # the supervisor runs from now on, as it does for a user's second app
            rows = []
            many = {"replicas": REPLICAS}
            for name, kwargs, target in (
                ("submit to SUCCEEDED seen, one replica", {}, 1.25),
                ("submit to RUNNING seen, one replica", {"started_only": True}, 1.25),
                (f"submit to SUCCEEDED seen, {REPLICAS} replicas and their network", many, 1.25),
            ):
                command = ("sleep", "300") if "started_only" in kwargs else ("true",)
                ours, bare = interleaved(
                    RUNS,
                    lambda c=command, k=kwargs: bench.ours(*c, **k),
                    lambda c=command, k=kwargs: bench.bare(*c, **k),
                )
                rows.append(figure(name, "s", ours, bare, target=target))
            watching = {apps: bench.cost_of_watching(apps) for apps in WATCHED}
            ours, peer, once = watching[max(WATCHED)]
            ours["cpu_s_per_minute"] += once
            for what, unit in (("queries", "1/min"), ("cpu_s", "s/min")):
                name = (
                    f"watching {max(WATCHED)} apps, {what.replace('_s', '').replace('cpu', 'CPU')}"
                )
                rows.append(
                    figure(
                        name,
                        unit,
                        ours[f"{what}_per_minute"],
                        peer[f"{what}_per_minute"],
                        target=0.1,
                    )
                )
            report(
                rows,
                peer="`docker run`; for watching, each container inspected once a second",
                look_at_all_once_cpu_s={str(apps): once for apps, (_, _, once) in watching.items()},
            )
            bench.runner.close()
    finally:
        engine.close()


if __name__ == "__main__":
    main()
