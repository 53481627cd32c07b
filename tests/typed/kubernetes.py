"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload_kubernetes.scheduler import KubernetesScheduler, create_scheduler

made = create_scheduler("session")
assert_type(made, KubernetesScheduler)
assert_type(made.shares_disk, bool)
