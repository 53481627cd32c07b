"""Run what a launcher's container form calls.

The command is ``python3 -m transload_kfp SPEC EXECUTOR_INPUT FOLDER [PATH …]``.
"""

from __future__ import annotations

import sys

from transload_kfp import sigterm

if __name__ == "__main__":
    sigterm.note_from_now_on()  # before the rest is imported
    from transload_kfp.task import main

    raise SystemExit(main(sys.argv[1:]))
