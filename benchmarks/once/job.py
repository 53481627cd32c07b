"""The job of these tests: prints lines, reports a number, and leaves notes of its life in a folder
outside of all else.

python job.py LEDGER UNIT SECONDS LINES
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path


def main(ledger: Path, unit: str, seconds: float, lines: int) -> None:
    """Live for some seconds. Files say what happened, by name, and when it was last so, by their
    time.
    """
    name = f"{unit}.{uuid.uuid4().hex}"
    (ledger / f"born.{name}").touch(exist_ok=False)
    began = time.monotonic()
    for number in range(lines):
        print(f"line {number} of {unit}", flush=True)
        (ledger / f"alive.{name}").touch()
        time.sleep(max(0.0, began + seconds * (number + 1) / lines - time.monotonic()))
    folder = Path(os.environ["TRANSLOAD_TRACKER_BASE"])
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f".{uuid.uuid4().hex}"
    made.write_text(json.dumps({"schema": 1, "key": "0", "results": {"lines": lines}}))
    made.rename(folder / "0.json")
    (ledger / f"done.{name}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
