"""End what is left of a job whose keeper is gone."""

from __future__ import annotations

import os

from . import gpus, kernel, layout, processes

_PATIENCE_S = 10.0


def finalise(home: str, app_id: str, wait: bool = False, why: str = "its keeper died") -> bool:
    """End what is left of a job whose keeper is dead, and write that it FAILED.

    Args:
        home: folder of the local scheduler.
        app_id: the job.
        wait: its keeper is dying. The kernel may free its lock after its other files.
        why: the reason, for the status.

    Returns:
        True if the job has an end now, False if it has a keeper, or another process ends it.
    """
    folder = layout.app_folder(home, app_id)
    lock = layout.take_lock(f"{folder}/record.json", wait=wait)
    if lock is None:
        return False
    try:
        state = layout.read_json(layout.state_file(folder)) or {}
        if state.get("state") in layout.TERMINAL or layout.noted_end(folder):
            return True
        if processes.keeper_lives(home, app_id):
            return False  # somebody replaced the record that it has locked
        record = layout.read_json(f"{folder}/record.json")
        rebooted = record is not None and record.get("boot_id") != kernel.boot_id()
        if record is None:
            reason = "its record is damaged: the machine went down while it was written"
        elif rebooted:
            reason = "the machine was rebooted while the job ran"
        else:
            roots = [(int(pid), int(started)) for pid, started, *_ in state.get("processes") or ()]
            cookie = str(record.get("cookie") or "")
            stuck = processes.cannot_end(
                processes.kill(lambda: processes.survivors(cookie, roots), _PATIENCE_S)
            )
            reason = f"{why}; {stuck or 'all processes of the job were ended'}"
        _write_failed(folder, state, reason)
    finally:
        os.close(lock)
    if record is not None and record.get("gpus"):
        gpus.release(str(record["gpus"]), folder)
    return True


def _write_failed(folder: str, state: dict[str, object], reason: str) -> None:
    ended = layout.now()
    layout.end_replicas(state, "FAILED", ended)
    before = state.get("msg")
    state.update(
        schema=layout.SCHEMA,
        state="FAILED",
        msg=f"{reason} (before that: {before})" if before else reason,
        cancel_requested=layout.is_end_asked(folder),
        ended=ended,
        processes=[],
    )
    layout.write_file(layout.state_file(folder), layout.dumps(state) + b"\n")
