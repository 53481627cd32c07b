"""Set how the optimiser's models compute.

They get a number of threads and a seed of random numbers, and use no compiler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def one_thread() -> Iterator[None]:
    """Have PyTorch compute with one thread within this, unless ``OMP_NUM_THREADS`` is set.

    The models of a search are small, and its trials often want the same cores. Threads that wait
    for one another made a proposal take seconds on two busy cores. One thread took 0.2 s. BoTorch
    (0.18) does not compile C++ for several objectives then. That would take the trials' cores for a
    minute, and a kill in that time leaves a lock that stops every later search.
    """
    with suppress(ImportError):
        from botorch.acquisition.multi_objective import logei

        logei._load_attempted = True
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


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have PyTorch draw its random numbers from a seed within this, and then restore its state.

    Models choose where to look by chance. A strategy has a seed for its
    first trials only. So with that alone, equal searches differ.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
