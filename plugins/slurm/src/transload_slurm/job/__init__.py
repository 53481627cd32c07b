"""The part that runs inside a Slurm job. A submit copies it into the job's folder.

It keeps to the standard library and Python 3.8. ``keeper`` is the batch script's one command. It
is the loop of every keeper (``transload.keeper.loop``) with what Slurm adds, and writes
``states.jsonl``. ``starts`` lets only the newest start of a job write that. ``tasks`` starts the
replicas (one ``srun`` per role, of which ``steps`` has the ends), and ``rank0`` finds the address
where they meet. ``agent`` is the program of each task, which starts and ends one replica as a
keeper on its own machine does (``transload.keeper.replica``). Files of the core are copied too.
"""

OF_THE_CORE = (
    "keeper.failures",
    "keeper.kernel",
    "keeper.launcher",
    "keeper.layout",
    "keeper.logindex",
    "keeper.loop",
    "keeper.processes",
    "keeper.replica",
    "keeper.rules",
    "keeper.signs",
    "keeper.tracebacks",
    "runtime.untrusted",
)
"""The modules of the core that are copied."""
