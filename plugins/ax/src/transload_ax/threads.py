"""How many threads the optimiser's models compute with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Have PyTorch compute with one thread within this, unless ``OMP_NUM_THREADS`` says otherwise.

    The models of a search are small, and its trials often want the same cores: threads that wait for one another made a
    proposal take seconds on two busy cores, where one thread took 0.2 s.
    """
    if os.environ.get("OMP_NUM_THREADS"):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
