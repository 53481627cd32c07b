"""What every host adapter shares: one policy for states, identity, attaching, waiting, logs and results.

An adapter translates; it decides nothing that is decided here. ``docs/writing-an-adapter.md`` walks through one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.pipelines._adapter import *
    from transload.pipelines._asks import *
    from transload.pipelines._attach import *
    from transload.pipelines._end_requests import *
    from transload.pipelines._errors import *
    from transload.pipelines._execution import *
    from transload.pipelines._handover import *
    from transload.pipelines._host_runner import *
    from transload.pipelines._identity import *
    from transload.pipelines._logs import *
    from transload.pipelines._options import *
    from transload.pipelines._states import *
    from transload.runner._launch import *

# lazy: a host reads its adapter's state table without paying for runner, threads and asyncio
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "_adapter": "Adapter AdapterCapabilities get_adapter",
        "_asks": "FIRST_UNIT ask_of unit_of",
        "_end_requests": "Asked inside_job interrupted may_be_by_hand somebody_asked",
        "_attach": "AttachStore",
        "_errors": "AppCancelled AppLost Detached Ending ended_state",
        "_execution": "Execution",
        "_handover": "outcome settle",
        "_host_runner": "dry_run host_runner",
        "_identity": "Identity app_id_of where",
        "_logs": "LogSink",
        "_options": "ExecutionOptions",
        "_states": "StateMap",
        ".runner._launch": "Launch caller_folder",
    },
)
