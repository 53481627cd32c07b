"""Containers through transload against the bare ``docker run``, on a private engine that this script starts.

Root only; wants dockerd, iptables and a static busybox, as the tests do. Usage: python benchmarks/docker_engine.py
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
WATCHED = 10
IDLE_S = 10.0


def private_engine() -> Any:
    """Return the engine that the tests use, started."""
    path = Path(__file__).parents[1] / "tests" / "docker" / "private_engine.py"
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
        role = self.specs.Role("r", self.image, entrypoint=command[0], args=list(command[1:]), num_replicas=replicas)
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
        """Return the seconds of ``docker run`` (several at once on a network made for them; -d: until it runs)."""
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
        left = subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True, check=True).stdout.split()
        docker("rm", "-f", *left)
        if network:
            docker("network", "rm", "bench")
        return seconds

    def cost_of_watching(self) -> dict[str, float]:
        """Return queries and CPU seconds while apps are watched that do not change."""
        handles = [self.submit("sleep", "300") for _ in range(WATCHED)]
        scheduler: Any = self.runner.scheduler("docker")
        engine, count = scheduler._engine, [0]
        call = engine.call

        def counting(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return call(*args, **kwargs)

        watch = scheduler.watch()
        watch.update([handle.rpartition("/")[2] for handle in handles])
        watch.wait(5)
        engine.call = counting
        cpu, end = time.process_time(), time.monotonic() + IDLE_S
        while (left := end - time.monotonic()) > 0:
            watch.wait(left)
        row = {"apps": WATCHED, "seconds": IDLE_S, "queries": count[0], "cpu_s": time.process_time() - cpu}
        engine.call = call
        watch.close()
        for handle in handles:
            self.runner.delete(handle)
        return row


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
            bench.ours("true")  # the keeper runs from now on, as it does for a user's second app
            rows = []
            many = {"replicas": REPLICAS}
            for name, kwargs, target in (
                ("docker: submit to SUCCEEDED seen, one replica", {}, 1.25),
                ("docker: submit to RUNNING seen, one replica", {"started_only": True}, 1.25),
                (f"docker: submit to SUCCEEDED seen, {REPLICAS} replicas and their network", many, 1.25),
            ):
                command = ("sleep", "300") if "started_only" in kwargs else ("true",)
                ours, bare = interleaved(
                    RUNS,
                    lambda c=command, k=kwargs: bench.ours(*c, **k),
                    lambda c=command, k=kwargs: bench.bare(*c, **k),
                )
                rows.append(figure(name, "s", ours, bare, target=target))
            report(rows, watching=bench.cost_of_watching())
            bench.runner.close()
    finally:
        engine.close()


if __name__ == "__main__":
    main()
