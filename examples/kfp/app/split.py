"""First stage: decide how the digits are split, and say so."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))


def main(seed: int) -> None:
    """Report the split's seed and sizes."""
    from model import load_shard
    from trainer import report

    shard = load_shard(0, 1, seed)
    sizes = {"train": len(shard.train_y), "held_out": len(shard.test_y)}
    report("split", {"seed": seed, **sizes})
    print(f"seed {seed}: {sizes}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
