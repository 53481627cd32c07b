"""Import time and start of the command line, CPU of the whole process, against TorchX 0.7.0 in the
same run.
"""

from __future__ import annotations

import os
import sys

from measure import adopt_orphans, figure, interleaved, process_cost, report, script

RUNS = 9
NAMES = {"specs": "AppDef, AppState, Resource, Role, macros", "runner": "Runner, get_runner"}


def cpu(*argv: str) -> float:
    """Return the CPU seconds of one run of a command."""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return process_cost(argv, env)[1]


def main() -> None:
    """Measure and print."""
    adopt_orphans()
    python = sys.executable
    rows = []
    for module, names in NAMES.items():
        # with the names that a program uses: ours are imported when they are asked for
        ours, peer = interleaved(
            RUNS,
            lambda module=module, names=names: cpu(
                python, "-c", f"from transload.{module} import {names}"
            ),
            lambda module=module, names=names: cpu(
                python, "-c", f"from torchx.{module} import {names}"
            ),
        )
        rows.append(
            figure(
                f"import {module}, CPU", "s", ours, peer, target=0.4 if module == "specs" else 0.5
            )
        )
    ours, peer = interleaved(
        RUNS, lambda: cpu(script("transload"), "--help"), lambda: cpu(script("torchx"), "--help")
    )
    rows.append(figure("--help, CPU", "s", ours, peer, target=0.4))
    report(rows)


if __name__ == "__main__":
    main()
