"""Start what this package's copy has to run, the keeper or an agent.

The command is ``python -I -S FOLDER/job/__main__.py keeper|agent FOLDER ARGUMENT…``. It names
the file and not its folder, since for a folder Python would load the modules that run modules.
"""

import sys

OLDEST = (3, 8)

if __name__ == "__main__":
    if sys.version_info < OLDEST:
        version = ".".join(map(str, sys.version_info[:3]))
        remedy = "3.8 is needed on the nodes; name another: -c python=PATH"
        sys.exit("transload: Python " + version + " is too old: " + remedy)
    sys.path.insert(0, __file__.rpartition("/")[0])
    if sys.argv[1] == "agent":
        from transload_slurm_job.agent import main  # type: ignore[import-not-found]
    else:
        from transload_slurm_job.keeper import main  # type: ignore[import-not-found]

    main(*sys.argv[2:])
