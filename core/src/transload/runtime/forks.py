"""Make locks that are free in a forked child, whichever thread of its parent held them.

The child has no such thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from threading import RLock

_locks: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def fork_lock() -> RLock:
    """Return a reentrant lock that is free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _open_all() -> None:
    for lock in list(_locks):
        if not lock._is_owned():  # by the thread that forks, which is the one that the child has
            lock._at_fork_reinit()


os.register_at_fork(after_in_child=_open_all)
