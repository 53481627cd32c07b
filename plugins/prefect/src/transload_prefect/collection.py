"""The parts of this collection that Prefect loads, as block types and the worker type."""

from __future__ import annotations

from transload_prefect.blocks import AppJob
from transload_prefect.cluster import TransloadCluster
from transload_prefect.worker import TransloadWorker

__all__ = ["AppJob", "TransloadCluster", "TransloadWorker"]
