"""What a runner knows in one process only: kept apart from what is stored, and shared by the runner's copies."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from transload.specs import CfgVal
    from transload_ax.convert import Component
    from transload_ax.trials import Trials


@dataclass
class Process:
    """What a runner is in this process only. Ax walks a runner's attributes when it stores it, so it is none of them.

    Args:
        component: as it was given: a function that may not be found again by its name.
        secrets: run options that are not stored.
        trials: the trials that it runs.
        checked: experiments that were checked, by ``id``: an address may be another one's later, so they are here too.
    """

    component: Component | None = None
    secrets: dict[str, CfgVal] = field(default_factory=dict)
    trials: Trials | None = None
    checked: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)


_processes: WeakValueDictionary[tuple[int, str], Process] = WeakValueDictionary()
_lock = threading.Lock()


class PerProcess:
    """Gives a runner its `Process`, in a slot: Ax compares and stores all that is in a runner's ``__dict__``."""

    __slots__ = ("_process",)
    _process: Process

    @property
    def here(self) -> Process:
        """What this runner, and its copies, are in this process only (a loaded experiment has its runner twice)."""
        try:
            found: Process = self._process
        except AttributeError:
            names = ("namespace", "tracker_base", "component", "scheduler", "inherit_env", "options")
            parts: list[Any] = [getattr(self, name) for name in names]
            key = (os.getpid(), repr(parts))
            with _lock:
                known = _processes.get(key)
                found = known if known is not None else _processes.setdefault(key, Process())
            self._process = found
        return found
