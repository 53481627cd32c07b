"""What a launcher's container form runs: ``python3 -m transload_kfp SPEC EXECUTOR_INPUT FOLDER [PATH …]``."""

from __future__ import annotations

import sys

from transload_kfp import sigterm


def start() -> int:
    """Run the launcher; a SIGTERM counts before the rest is imported."""
    sigterm.note_from_now_on()
    from transload_kfp.task import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(start())
