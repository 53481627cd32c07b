"""Write the page of a job when it is submitted and when it ends, and link to it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from transload.runner import get_runner, load_settings
from transload.specs import AppState, is_terminal
from transload_report.place import own_settings, page_link, page_path, write_page

if TYPE_CHECKING:
    from transload.plugins import AppEvent
    from transload.runner import Settings

__all__ = ["link", "note"]


@lru_cache(maxsize=8)
def _settings_of(folder: str, home: str) -> Settings:
    """Return the settings for a folder, which are cached, because every event needs them."""
    return load_settings(folder)


def _settings() -> Settings:
    home = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("HOME") or ""
    return _settings_of(os.getcwd(), home)


def link(handle: str) -> str | None:
    """Return the link to a job's page, or None if there is no page."""
    return page_link(handle, _settings())


def note(event: AppEvent) -> None:
    """Write the page of a job that was submitted or has ended.

    It does so only if ``auto`` of ``[plugins.report]`` is set.
    """
    has_ended = is_terminal(event.state)
    if event.state is not AppState.SUBMITTED and not has_ended:
        return
    settings = _settings()
    if not own_settings(settings).get("auto"):
        return
    path = page_path(event.handle, settings)
    if has_ended and (path, event.id) in _written:
        return  # the same event came again
    write_page(_page(event.handle), path, make_folder=True)
    if len(_written) > 10_000:
        _written.clear()
    _written.add((path, event.id))


def _page(handle: str) -> str:
    # templates and their library are loaded only if a page is drawn
    from transload_report.app_page import app_report
    from transload_report.collect import collect_app

    with get_runner() as runner:
        return app_report(collect_app(runner, handle))


_written: set[tuple[object, str]] = set()
