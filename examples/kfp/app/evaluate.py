"""Last stage: read what the first two reported, by key, and judge."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def read(folder: str, key: str) -> dict[str, float]:
    """Return the results of one key in the public format."""
    body = json.loads((Path(folder) / f"{key}.json").read_text(encoding="utf-8"))
    found: dict[str, float] = body["results"]
    return found


def main(split: str, trained: str, wanted: float) -> None:
    """Compare the accuracy with what is wanted."""
    sizes, final = read(split, "split"), read(trained, "final")
    good = final["accuracy"] >= wanted
    print(
        f"{final['accuracy']:.4f} on {sizes['held_out']} held-out digits: "
        f"{'good' if good else 'not good enough'}"
    )
    base = Path(os.environ["TRANSLOAD_TRACKER_BASE"])
    results = {
        "accuracy": final["accuracy"],
        "held_out": sizes["held_out"],
        "verdict": "good" if good else "poor",
    }
    (base / "evaluation.json").write_text(
        json.dumps({"schema": 1, "results": results}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
