"""Who looks after a job: the state folder from which it was submitted, by a name of its own.

The machine may be renamed, so its name would not do.
"""

from __future__ import annotations

import os
import uuid

from transload.keeper import layout


def owner_of(home: str) -> str:
    """Return the name of a scheduler's folder, or ``""`` before its first job."""
    return layout.part_of_own(f"{home}/owner", 64).decode("ascii", "replace")


def make_owner(home: str) -> str:
    """Return the name of a scheduler's folder, which is made if there is none.

    Raises:
        OSError: if it cannot be written.
    """
    if not owner_of(home):
        aside = f"{home}/owner.{uuid.uuid4().hex}"
        layout.write_new(aside, uuid.uuid4().hex.encode())
        try:
            os.link(aside, f"{home}/owner")
        except FileExistsError:  # another process was faster
            pass
        finally:
            os.unlink(aside)
    return owner_of(home)
