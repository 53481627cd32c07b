"""Entry of the copy of this package in an app's folder: ``python -I -S FOLDER/job supervise|agent FOLDER ARGUMENT``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from transload_slurm_job import agent, supervise  # type: ignore[import-not-found]

    {"supervise": supervise.main, "agent": agent.main}[sys.argv[1]](*sys.argv[2:4])
