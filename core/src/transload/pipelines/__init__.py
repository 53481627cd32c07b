"""Decide what all adapters share, from states and identity to waiting, logs and results.

`Step` runs the job of one step, and an adapter's class is based on it. `Adapter` is what it registers.
``docs/extend/writing-an-adapter.md`` walks through one.
"""

from __future__ import annotations

from transload.pipelines.adapter import Adapter, dry_run, get_adapter
from transload.pipelines.chain import Again
from transload.pipelines.end_requests import (
    Asked,
    inside_job,
    interrupted,
    may_be_by_hand,
    somebody_asked,
)
from transload.pipelines.errors import AppCancelled, AppLost, Detached, Ending, ended_state
from transload.pipelines.identity import Identity, app_id_of, chain_of, where
from transload.pipelines.logs import LogSink
from transload.pipelines.options import ExecutionOptions, ExecutionSettings, split_options
from transload.pipelines.safe_values import json_safe, name_safe
from transload.pipelines.states import StateMap
from transload.pipelines.status_lines import Interruption, interruptions_of
from transload.pipelines.step import LAST_LINES, Step
from transload.runner.api import host_runner
from transload.runner.launch import Launch, LaunchSettings, caller_folder
from transload.specs.settings import (
    JOB_SETTINGS,
    SETTINGS,
    JobSettings,
    OverrideOptions,
    read_settings,
    split_overrides,
    with_settings,
)

__all__ = [
    "JOB_SETTINGS",
    "LAST_LINES",
    "SETTINGS",
    "Adapter",
    "Again",
    "AppCancelled",
    "AppLost",
    "Asked",
    "Detached",
    "Ending",
    "ExecutionOptions",
    "ExecutionSettings",
    "Identity",
    "Interruption",
    "JobSettings",
    "Launch",
    "LaunchSettings",
    "LogSink",
    "OverrideOptions",
    "StateMap",
    "Step",
    "app_id_of",
    "caller_folder",
    "chain_of",
    "dry_run",
    "ended_state",
    "get_adapter",
    "host_runner",
    "inside_job",
    "interrupted",
    "interruptions_of",
    "json_safe",
    "may_be_by_hand",
    "name_safe",
    "read_settings",
    "somebody_asked",
    "split_options",
    "split_overrides",
    "where",
    "with_settings",
]
