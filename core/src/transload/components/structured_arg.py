"""Arguments of components that hold several values in one text: ``-j 2x8``, ``--name
experiment/run``.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass

from transload.errors import SpecError
from transload.specs import named_resources

__all__ = ["StructuredJArgument", "StructuredNameArgument"]


@dataclass
class StructuredNameArgument:
    """The name of an experiment and of a run in it, written ``experiment/run``."""

    experiment_name: str
    run_name: str

    def __str__(self) -> str:
        return f"{self.experiment_name or ''}/{self.run_name}"

    @staticmethod
    def parse_from(
        name: str,
        m: str | None = None,
        script: str | None = None,
        default_experiment_name: str = "default-experiment",
    ) -> StructuredNameArgument:
        """Read ``experiment/run``, ``experiment/``, ``/run``, ``run`` or ``/``.

        What is left out is filled in: the experiment by its default, the run by the last part of
        the module or the script's name without its ending.

        Args:
            name: the text.
            m: the program's module, if it is one.
            script: the program's file, if it is one.
            default_experiment_name: the experiment where none is given.

        Raises:
            SpecError: unless exactly one of ``m`` and ``script`` is given.

        Example:
            >>> StructuredNameArgument.parse_from("tuning/", script="jobs/train.py")
            StructuredNameArgument(experiment_name='tuning', run_name='train')
        """
        if bool(m) == bool(script):
            raise SpecError(
                f"name={name!r}: give exactly one of m (a module) and script (a file); m={m!r}, "
                f"{script=}"
            )
        if "/" in name:
            experiment, _, run = name.partition("/")
        else:
            experiment = ""
            run = name
        if not run and m:
            run = m.rpartition(".")[2]
        elif not run:
            run = os.path.splitext(os.path.basename(script or ""))[0]
        return StructuredNameArgument(experiment or default_experiment_name, run)


@dataclass
class StructuredJArgument:
    """The number of nodes, and of processes on each, written ``2x8``."""

    nnodes: int
    nproc_per_node: int

    def __str__(self) -> str:
        return f"{self.nnodes}x{self.nproc_per_node}"

    @staticmethod
    def parse_from(h: str | None, j: str) -> StructuredJArgument:
        """Read ``NODESxPROCESSES``, or ``NODES`` alone where the host has GPUs: then one process
        for each.

        Warns when the processes are given and are not as many as the host has GPUs. Where no host
        is named, ``NODES`` alone means one process on each.

        Args:
            h: name of a registered resource; None: no particular one.
            j: the text.

        Raises:
            SpecError: for another form, a number below 1, an unknown resource, or one without GPUs
                where the processes are left out.
        """
        gpus = 1 if h is None else named_resources[h].gpu
        match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", j)
        if match is None:
            raise SpecError(f"j={j!r}: must be NODESxPROCESSES, both 1 or more, such as 1x8")
        nodes = int(match.group(1))
        if match.group(2) is None:
            if gpus <= 0:
                raise SpecError(
                    f"j={j!r}: {h} has no GPUs to take the number of processes from: write "
                    f"{nodes}xPROCESSES"
                )
            return StructuredJArgument(nodes, gpus)
        processes = int(match.group(2))
        if h is not None and processes != gpus:
            warnings.warn(
                f"j={j}: {processes} processes on each node, but {h} has {gpus} GPUs; write "
                f"{nodes} to have as many",
                stacklevel=2,
            )
        return StructuredJArgument(nodes, processes)
