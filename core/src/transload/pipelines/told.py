"""What people are told of an app: which replica failed, how, and its last words; where its page
is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from transload.errors import TransloadError
from transload.runner.failures import error_frames, failure_message
from transload.specs import AppStatus
from transload.specs.text import duration_text, usage_texts

if TYPE_CHECKING:
    from transload.runner import Runner

__all__ = ["end_line", "error_frames", "failure_message", "page_of", "reach"]


def end_line(handle: str, status: AppStatus, created: float | None) -> str:
    """Return the line that says how an app has ended, how long it took from its submit, and what it
    used.

    Args:
        handle: the app.
        status: its final status.
        created: when it was submitted, seconds since the epoch; None: unknown.
    """
    text = f"{handle} {status.state.name}"
    seconds = status.seconds_since(created)
    if seconds is not None:
        text += f" after {duration_text(seconds)}"
    used = [part for part in usage_texts(status.usage()) if part]
    if len(used) > 1:
        text += f" ({used[1]} of CPU, {used[0]})"
    return text


def reach(handle: str, away: bool, why: str = "") -> str:
    """Return the line that says that an app cannot be reached, or can again."""
    if not away:
        return f"{handle} is back"
    if why:
        return f"{handle} cannot be reached, waiting ({why})"
    return f"{handle} cannot be reached, waiting"


def page_of(runner: Runner, handle: str) -> str | None:
    """Return the full address of a page about an app: a plugin's, else its scheduler's; None if
    there is none.
    """
    from transload.plugins import get_plugins

    links = [get_plugins().app_link(handle)]
    with suppress(TransloadError):
        description = runner.description(handle)
        links += [] if description is None else [description.status.ui_url, description.log_url]
    return next(
        (link for link in links if link and link.partition(":")[0] in ("http", "https")), None
    )
