"""Caching of app tasks: Prefect's policies, with what makes one app task differ from another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.utilities.hashing import hash_objects


@dataclass
class AppCachePolicy(CachePolicy):
    """A policy of the user's, made to tell apps apart.

    Prefect looks at a task's source, which is the same for all app tasks, and at its arguments, one of which only says
    how many times the task was called before.

    Args:
        inner: the policy.
        app: what makes this app task differ from others.
        leave_out: arguments that do not count.
    """

    inner: CachePolicy = field(default_factory=lambda: NO_CACHE)
    app: str = ""
    leave_out: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self.key_storage = self.inner.key_storage
        self.isolation_level = self.inner.isolation_level
        self.lock_manager = self.inner.lock_manager

    def compute_key(
        self, task_ctx: Any, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """Return the inner policy's key with the app in it; None if that has none."""
        counted = {name: value for name, value in inputs.items() if name not in self.leave_out}
        key = self.inner.compute_key(task_ctx, counted, flow_parameters, **kwargs)
        return None if key is None else hash_objects(key, self.app)

    def __sub__(self, other: str) -> CachePolicy:
        return AppCachePolicy(inner=self.inner - other, app=self.app, leave_out=self.leave_out)
