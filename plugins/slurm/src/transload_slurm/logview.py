"""The log of a replica, in the app's folder."""

from __future__ import annotations

from collections.abc import Callable

from transload.errors import AppNotFound, SpecError
from transload.schedulers.api import LogPage, Stream
from transload.schedulers.local.logs import read_log
from transload_slurm.store import Store


class LogView:
    """The log of one replica.

    Args:
        store: the folder of the apps.
        app_id: the app.
        role: name of the role.
        k: number of the replica.
        over: tells whether the app has ended.

    Raises:
        AppNotFound: if there is no such app.
        SpecError: for an unknown role or replica.
    """

    def __init__(self, store: Store, app_id: str, role: str, k: int, over: Callable[[], bool]) -> None:
        record = store.record(app_id)
        if record is None:
            raise AppNotFound(app_id)
        roles = {each["name"]: each["num_replicas"] for each in record["roles"]}
        if role not in roles:
            raise SpecError(f"role {role!r}: app {app_id} has no such role; it has: {', '.join(sorted(roles))}")
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < roles[role]:
            raise SpecError(f"replica {k!r}: role {role!r} has the replicas 0 to {roles[role] - 1}")
        self._folder = f"{store.folder(app_id)}/logs/{role}/{k}"
        self._over = over

    def page(
        self,
        stream: Stream,
        cursor: str | None,
        max_bytes: int,
        since: float | None,
        until: float | None,
        last: int | None,
    ) -> LogPage:
        """Return the next page; never blocks on the log. Lines of other times are skipped by the index.

        Raises:
            SpecError: for a malformed cursor.
        """
        over = self._over()  # asked before the log is read: nothing is written after an end
        return read_log(self._folder, stream, cursor, max_bytes, over, since=since, until=until, last=last)
