"""The program of a keeper. It leaves its client before it loads all that it needs."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from transload.keeper import kernel, layout, processes
from transload.keeper.keeper import answer, leave, read_request

if TYPE_CHECKING:
    from transload_docker.keeper import DockerKeeper


def main(home: str, waits: float) -> None:
    """Become the keeper of the job that a client asks for on standard input.

    Args:
        home: folder of the scheduler.
        waits: the seconds after which it ends without a request.
    """
    leave(home)
    wake = kernel.wake_on(signal.SIGTERM, processes.LOOK, processes.CANCEL)
    request = read_request(waits)
    if request is not None:
        from transload_docker.keeper import DockerKeeper

        record = request.get("record") or _record_of(home, request)
        keeper = DockerKeeper(home, record, request["url"], wake)
        try:
            _keep(keeper, request)
        except Exception:  # the next keeper goes on
            keeper.log(kernel.exception_text())
    os._exit(0)


def _record_of(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the record of the job that is to be adopted."""
    record = layout.read_json(f"{layout.app_folder(home, request['adopt'])}/record.json")
    if record is None or "keep" not in record:
        os._exit(0)  # it is gone, or damaged
    return record


def _keep(keeper: DockerKeeper, request: dict[str, Any]) -> None:
    if "adopt" in request:
        if keeper.adopt():
            keeper.run()
        return
    answer(keeper.submit(request))
    if keeper.is_left:
        keeper.clear()
    elif keeper.lock >= 0 and not keeper.is_taken_back:
        keeper.run()
