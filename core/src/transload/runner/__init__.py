"""Turn what was asked (`Launch`) into what would be submitted (`Plan`) and what runs (`Job`)."""

from __future__ import annotations

from transload.runner.api import Runner, get_runner
from transload.runner.config import Setting, Settings, load_settings
from transload.runner.job import Job
from transload.runner.launch import Launch
from transload.runner.logs import (
    LineFilter,
    LogReader,
    Redraws,
    drain,
    drawn,
    follow_logs,
    last_lines,
    log_lines,
    read_now,
    tail,
    times,
)
from transload.runner.plan import Plan
from transload.runner.results import AppResults, NoSuchResult
from transload.runner.schedulers import Cluster

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
