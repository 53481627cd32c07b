"""What runs inside a Slurm job: standard library only, Python 3.8 or newer, copied into the job's
folder at submit.

``supervise`` is the batch script's one command: it starts the replicas (one ``srun`` per role),
decides what follows from an end, and writes ``state.json``; ``starts`` sees to it that of all
starts of a job the newest alone has a say; ``steps`` are its ends of the tasks, ``rank0`` tells
where they find each other. ``agent`` is what each task runs: it starts and ends one replica and
notes when its log grew. Two files of the core are copied too: what follows when a replica ends is
``transload.retries``', and what a job may have written is opened by
``transload.runtime.untrusted``.
"""
