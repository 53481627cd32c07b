"""The trainer as an ordinary program: it knows nothing of what launched it, not even its name.

To hand results back it writes one small JSON file per key into the folder that
``TRANSLOAD_TRACKER_BASE`` names, if that is set: written aside, then renamed, so that nobody ever
reads half a file. That format is public; any language can do the same.
"""

from __future__ import annotations

import json
import os
import urllib.parse
from pathlib import Path

from training import main


def report(key: str, results: dict[str, float]) -> None:
    """Publish a result by the file format: ``<percent-encoded key>.json`` in the folder of
    results.
    """
    base = os.environ.get("TRANSLOAD_TRACKER_BASE")
    if not base:
        return
    folder, name = Path(base), urllib.parse.quote(key, safe="")
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{name}.{os.getpid()}.tmp"
    aside.write_text(json.dumps({"schema": 1, "key": key, "results": results}), encoding="utf-8")
    aside.replace(folder / f"{name}.json")


if __name__ == "__main__":
    raise SystemExit(main(report))
