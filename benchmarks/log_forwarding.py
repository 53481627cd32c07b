"""Forwarding the log of a local app to a sink; against plain iteration over the same file, in the
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
import time

from measure import figure, interleaved, report

WRITER = "import sys\nline = 'x' * 99 + '\\n'\nfor _ in range(int(sys.argv[1]) * 10000):\n    sys.stdout.write(line)\n"


def forward(handle: str) -> tuple[float, float]:
    """Forward all of an app's log in a process of its own; return its seconds and its MiB."""
    found = subprocess.run(
        [sys.executable, __file__, "--child", handle], check=True, stdout=subprocess.PIPE
    )
    values = json.loads(found.stdout)
    return values["seconds"], values["mib"]


def child(handle: str) -> None:
    """Forward, count, and measure."""
    from transload.pipelines import ExecutionOptions
    from transload.pipelines.logs import LogForwarder
    from transload.runner import Runner
    from transload.specs import parse_app_handle

    count = 0

    def sink(role: str, replica: int, stream: object, line: str) -> None:
        nonlocal count
        count += 1

    runner = Runner("bench")
    parsed = parse_app_handle(handle)
    scheduler = runner.scheduler(parsed.scheduler_backend)
    forwarder = LogForwarder(handle, lambda: (scheduler, parsed.app_id), sink, ExecutionOptions())
    start = time.perf_counter()
    forwarder.finish()
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"seconds": seconds, "mib": memory, "lines": count}, sys.stdout)


def plain(path: str) -> float:
    """Return the seconds that plain iteration with a call for each line takes."""
    count = 0

    def sink(line: str) -> None:
        nonlocal count
        count += 1

    start = time.perf_counter()
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            sink(line)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    with tempfile.TemporaryDirectory(prefix="tl-bench-") as folder:
        os.environ["TRANSLOAD_HOME"] = folder
        from transload.runner import Runner
        from transload.specs import AppDef, Role

        with Runner("bench") as runner:
            handles = {}
            for size in (max(1, options.megabytes // 10), options.megabytes):
                role = Role("r", "/tmp", entrypoint=sys.executable, args=["-c", WRITER, str(size)])
                handles[size] = runner.run(AppDef("writer", [role]), "local")
                runner.wait(handles[size])
            small, large = handles.items()
            path = os.path.join(folder, "plain.log")
            with open(path, "w") as file:
                file.writelines("x" * 99 + "\n" for _ in range(options.megabytes * 10000))
            memories: list[float] = []

            def ours() -> float:
                seconds, memory = forward(large[1])
                memories.append(memory)
                return seconds

            mine, theirs = interleaved(options.runs, ours, lambda: plain(path))
            growth = max(memories) - forward(small[1])[1]
            for handle in handles.values():
                runner.delete(handle)
    rate, peer = options.megabytes / mine, options.megabytes / theirs
    row = figure(
        "log forwarding, lines of 100 bytes", "MB/s", rate, peer, target=0.25, better="higher"
    )
    limits = {"at_least_50_mb_per_s": rate >= 50, "memory_growth_below_10_mib": growth < 10}
    report([row], peer="plain iteration over the file, a call for each line", mib=max(memories),
           mib_growth_at_ten_times_the_log=growth, limits=limits)  # fmt: skip


if __name__ == "__main__":
    main()
