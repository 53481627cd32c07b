"""Import time and start of the command line, CPU of the whole process, against TorchX 0.7.0 in the same run."""

from __future__ import annotations

import os
import sys

from measure import adopt_orphans, figure, interleaved, process_cost, report, script

RUNS = 9


def cpu(*argv: str) -> float:
    """Return the CPU seconds of one run of a command."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return process_cost(argv, env)[1]


def main() -> None:
    """Measure and print."""
    adopt_orphans()
    python = sys.executable
    rows = []
    for module in ("specs", "runner"):
        ours, peer = interleaved(
            RUNS,
            lambda module=module: cpu(python, "-c", f"import transload.{module}"),
            lambda module=module: cpu(python, "-c", f"import torchx.{module}"),
        )
        rows.append(figure(f"import {module}, CPU", "s", ours, peer, target=0.5))
    ours, peer = interleaved(RUNS, lambda: cpu(script("transload"), "--help"), lambda: cpu(script("torchx"), "--help"))
    rows.append(figure("--help, CPU", "s", ours, peer, target=0.5))
    report(rows)


if __name__ == "__main__":
    main()
