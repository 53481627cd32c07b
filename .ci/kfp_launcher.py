#!/usr/bin/env python3
"""Write the launcher of Kubeflow Pipelines that a release has among its files.

Usage: kfp_launcher.py TAG FILE
Example: kfp_launcher.py v0.1.0 transload-launcher.yaml

FILE is a compiled component. Its task installs the tag's version of transload, submits a command as
a job to the Kubernetes cluster that it runs in, and waits for it. Whoever loads it needs KFP alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transload_kfp import launcher_from_app
from transload_kfp.component import pipeline_text

DISTRIBUTIONS = ("transload-kfp", "transload-kubernetes")


def main(argv: list[str]) -> int:
    """Write the file; return the exit code."""
    if len(argv) != 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    tag, path = argv
    version = tag.removeprefix("v")
    launcher = launcher_from_app(
        "utils.sh",
        name="transload-launcher",
        scheduler="kubernetes",
        packages=[f"{name}=={version}" for name in DISTRIBUTIONS],
    )
    Path(path).write_text(pipeline_text(launcher), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
