"""The job of these tests: notes its birth and its end in a folder outside of everything, counts, reports a number.

python job.py LEDGER UNIT SECONDS LINES
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path


def note(ledger: Path, kind: str, unit: str) -> None:
    """Leave a file whose name says what happened; no two are alike."""
    (ledger / f"{kind}.{unit}.{uuid.uuid4().hex}").touch(exist_ok=False)


def main(ledger: Path, unit: str, seconds: float, lines: int) -> None:
    """Live for some seconds."""
    note(ledger, "born", unit)
    began = time.monotonic()
    for number in range(lines):
        print(f"line {number} of {unit}", flush=True)
        time.sleep(max(0.0, began + seconds * (number + 1) / lines - time.monotonic()))
    folder = Path(os.environ["TRANSLOAD_TRACKER_BASE"])
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f".{uuid.uuid4().hex}"
    made.write_text(json.dumps({"schema": 1, "key": "0", "results": {"lines": lines}}))
    made.rename(folder / "0.json")
    note(ledger, "done", unit)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
