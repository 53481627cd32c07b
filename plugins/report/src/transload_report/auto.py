"""Writing the page of an app by itself, when it is submitted and when it ends; and the link to
it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transload.plugins import AppEvent
    from transload.runner import Settings

__all__ = ["link", "note"]


@lru_cache(maxsize=8)
def _settings_of(folder: str, home: str) -> Settings:
    """Return the settings in force in a folder: they are asked for at every event."""
    from transload.runner import load_settings

    return load_settings(folder)


def _settings() -> Settings:
    return _settings_of(
        os.getcwd(), os.environ.get("XDG_CONFIG_HOME") or os.environ.get("HOME") or ""
    )


def link(handle: str) -> str | None:
    """Return the link to an app's page, if there is one."""
    from transload_report.place import page_link

    return page_link(handle, _settings())


def note(event: AppEvent) -> None:
    """Write the page of an app that was submitted or has ended, if ``auto`` of ``[plugins.report]``
    is set.
    """
    from transload.specs import AppState, is_terminal

    if event.state is not AppState.SUBMITTED and not is_terminal(event.state):
        return
    settings = _settings()
    from transload_report.place import own_settings

    if not own_settings(settings).get("auto"):
        return
    from transload.runner import get_runner
    from transload_report.app_page import app_report
    from transload_report.collect import collect_app
    from transload_report.place import page_path, write_page

    path = page_path(event.handle, settings)
    if is_terminal(event.state) and (path, event.id) in _written:
        return  # the same event came again
    with get_runner() as runner:
        page = app_report(collect_app(runner, event.handle))
    write_page(page, path, make_folder=True)
    if len(_written) > 10_000:
        _written.clear()
    _written.add((path, event.id))


_written: set[tuple[object, str]] = set()
