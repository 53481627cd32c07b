"""The shared poller watching 1,000 apps that do not change; against a thread for each app, in the
same run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time

from measure import figure, report

# settings of an adapter's user who changed nothing
POLL_INTERVAL = 5.0


def submit(count: int) -> list[str]:
    """Submit apps that run for ever on the scripted scheduler; return their handles."""
    from transload.runner import Runner
    from transload_testing.scripted import scripted_app

    app = scripted_app("held", {"steps": ["RUNNING"]})
    with Runner("bench") as runner:
        return [runner.run(app, "scripted") for _ in range(count)]


def cost(side: str, seconds: float) -> dict[str, float]:
    """Watch all apps in a process of its own; return its cost while nothing changes."""
    found = subprocess.run(
        [sys.executable, __file__, "--child", side, "--seconds", str(seconds)],
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(found.stdout)


def child(side: str, seconds: float) -> None:
    """Watch, let the back-off settle, and measure."""
    from transload.runner import Runner

    runner = Runner("bench")
    handles = [row.app_handle for row in runner.list("scripted")]
    seen = threading.Semaphore(0)
    start = time.perf_counter()
    if side == "poller":
        from transload.schedulers import watch

        scheduler = runner.scheduler("scripted")
        for handle in handles:
            watch(scheduler, handle, lambda _: seen.release(), poll_interval=POLL_INTERVAL)
    else:
        for handle in handles:
            threading.Thread(target=ask_for_ever, args=(runner, handle, seen), daemon=True).start()
    for _ in handles:
        seen.acquire()
    first = time.perf_counter() - start
    time.sleep(4 * POLL_INTERVAL)
    before, began = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    share = (time.process_time() - before) / (time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump(
        {"cpu": share, "mib": memory, "threads": threading.active_count(), "first": first},
        sys.stdout,
    )


def ask_for_ever(runner: object, handle: str, seen: threading.Semaphore) -> None:
    """Do what an operator that waits in place does: ask, sleep, ask again."""
    runner.status(handle)  # type: ignore[attr-defined]
    seen.release()
    while True:
        time.sleep(POLL_INTERVAL)
        runner.status(handle)  # type: ignore[attr-defined]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--child", choices=["poller", "threads"])
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="tl-bench-") as folder:
        os.environ["TRANSLOAD_SCRIPTED_DIR"] = folder
        submit(options.apps)
        ours, peer = cost("poller", options.seconds), cost("threads", options.seconds)
    percent, peer_percent = 100 * ours["cpu"], 100 * peer["cpu"]
    row = figure(
        f"CPU while {options.apps} watched apps do not change",
        "% of a core",
        percent,
        peer_percent,
        target=0.5,
    )
    memory = figure(
        f"memory watching {options.apps} apps", "MiB", ours["mib"], peer["mib"], target=1.0
    )
    limits = {"cpu_below_5_percent": percent < 5, "memory_below_100_mib": ours["mib"] < 100}
    report([row, memory], peer="a thread for each app, same interval", threads=[ours["threads"], peer["threads"]],
           seconds_to_first_sight=[ours["first"], peer["first"]], limits=limits)  # fmt: skip


if __name__ == "__main__":
    main()
