"""Entry of this package's copy: ``python -I -S FOLDER/job/__main__.py supervise|agent FOLDER
ARGUMENT…``.

The file is named, not its folder: for a folder Python would load what it runs modules with.
"""

import sys

if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0])
    if sys.argv[1] == "agent":
        from transload_slurm_job.agent import main  # type: ignore[import-not-found]
    else:
        from transload_slurm_job.supervise import main  # type: ignore[import-not-found]

    main(*sys.argv[2:])
