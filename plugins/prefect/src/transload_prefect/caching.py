"""A cache policy of tasks that run jobs, by which two different jobs never share a result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.utilities.hashing import hash_objects

from transload_prefect.arguments import CALL


@dataclass
class AppCachePolicy(CachePolicy):
    """A cache policy of the user's, ``inner``, made to tell jobs apart by ``app``.

    Prefect looks at a task's source, which is the same for all job tasks, and at its arguments. One
    of these only counts the calls of the task before.
    """

    inner: CachePolicy = field(default_factory=lambda: NO_CACHE)
    app: str = ""

    def __post_init__(self) -> None:
        self.key_storage = self.inner.key_storage
        self.isolation_level = self.inner.isolation_level
        self.lock_manager = self.inner.lock_manager

    def compute_key(
        self,
        task_ctx: Any,
        inputs: dict[str, Any],
        flow_parameters: dict[str, Any],
        **kwargs: object,
    ) -> str | None:
        """Return the inner policy's key with the job in it, or None if that has none."""
        counted = {name: value for name, value in inputs.items() if name != CALL}
        key = self.inner.compute_key(task_ctx, counted, flow_parameters, **kwargs)
        if key is None:
            return None
        made: str | None = hash_objects(key, self.app)
        return made

    def __sub__(self, other: str) -> CachePolicy:
        return AppCachePolicy(inner=self.inner - other, app=self.app)
