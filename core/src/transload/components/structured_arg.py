"""Arguments of components with several values in one text, such as ``-j 2x8``."""

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
    """The names of an experiment and of a run in it, written ``experiment/run``."""

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
        """Parse ``experiment/run``, ``experiment/``, ``/run``, ``run`` or ``/``.

        A missing experiment gets its default. A missing run gets the last part of the module, or the
        script's name without its ending.

        Args:
            name: the text.
            m: the program's module, if it is one.
            script: the program's file, if it is one.
            default_experiment_name: the experiment if none is given.

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
        """Parse ``NODESxPROCESSES`` or ``NODES``.

        ``NODES`` alone means one process for each GPU of the resource ``h``, or one process on each
        node without ``h``. A warning is logged if the number of processes differs from that of GPUs.

        Args:
            h: name of a registered resource. None means no particular one.
            j: the text.

        Raises:
            SpecError: if the form is wrong, a number is below 1, the resource is unknown, or it has
                no GPUs and the number of processes is missing.
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
