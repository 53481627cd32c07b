"""Turn what was asked (`Launch`) into what would be submitted (`Plan`) and what runs (`Job`)."""

from __future__ import annotations

from transload.runner.api import Runner
from transload.runner.clusters import Cluster
from transload.runner.config import Setting, Settings, load_settings
from transload.runner.factory import get_runner
from transload.runner.job import Job
from transload.runner.launch import Launch
from transload.runner.logs import (
    LineFilter,
    LogReader,
    drain,
    follow_logs,
    last_lines,
    log_lines,
    read_now,
    tail,
    times,
)
from transload.runner.plan import Plan
from transload.runner.redraws import Redraws, drawn
from transload.runner.results import AppResults, NoSuchResult

__all__ = [
    "AppResults",
    "Cluster",
    "Job",
    "Launch",
    "LineFilter",
    "LogReader",
    "NoSuchResult",
    "Plan",
    "Redraws",
    "Runner",
    "Setting",
    "Settings",
    "drain",
    "drawn",
    "follow_logs",
    "get_runner",
    "last_lines",
    "load_settings",
    "log_lines",
    "read_now",
    "tail",
    "times",
]
