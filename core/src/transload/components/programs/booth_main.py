"""The program of ``utils.booth``, which evaluates Booth's function and reports the value."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from transload.runtime.tracking import (
    ENV_TRANSLOAD_TRACKER_BASE,
    FsspecResultTracker,
    TrackingError,
)

DEFAULT_BASE = "/tmp/transload-util-booth"  # noqa: S108 - only where nobody named a place
"""The default of ``utils.booth``. The job's own place takes precedence."""


def main(argv: Sequence[str]) -> int:
    """Evaluate the function, report the value, and return the exit status.

    The minimum of the function is 0 at (1, 3).
    """
    parser = argparse.ArgumentParser(
        prog="booth_main", description="evaluates Booth's function at (x1, x2)"
    )
    parser.add_argument("--x1", type=float, required=True)
    parser.add_argument("--x2", type=float, required=True)
    parser.add_argument(
        "--tracker_base", default=DEFAULT_BASE, help="where to report the value, a path or a URL"
    )
    parser.add_argument("--trial_idx", type=int, default=0, help="key of the result")
    args = parser.parse_args(argv)
    base = args.tracker_base
    if base == DEFAULT_BASE:
        base = os.environ.get(ENV_TRANSLOAD_TRACKER_BASE) or DEFAULT_BASE
    value = (args.x1 + 2 * args.x2 - 7) ** 2 + (2 * args.x1 + args.x2 - 5) ** 2
    try:
        FsspecResultTracker(base).put(args.trial_idx, booth_eval=value)
    except (TrackingError, OSError) as exc:
        sys.stderr.write(f"booth: cannot report to {base}: {exc}\n")
        return 1
    sys.stdout.write(f"booth_eval={value} reported to {base}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
