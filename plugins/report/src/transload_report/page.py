"""Render a template with values as one self-contained page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from transload.specs import (
    AppState,
    AppStatus,
    ReplicaAttempt,
    ReplicaStatus,
    exit_text,
    is_terminal,
    parse_app_handle,
)
from transload.tracker import Lineage
from transload_report import __version__
from transload_report.convert import is_interrupted
from transload_report.lineage_picture import lineage_svg
from transload_report.states import SIGNS
from transload_report.theme import COLORS, colors_css
from transload_report.words import (
    clean,
    duration_text,
    log_text,
    moment_iso,
    moment_text,
    shown,
    value_text,
)

__all__ = ["graph_of", "render"]

MAX_RUNS: Final = 80
"""A lineage of more runs is not drawn, because the picture would be many screens long."""


def render(
    template: str,
    kind: str,
    title: str,
    sections: Mapping[str, str],
    written: float,
    *,
    state: AppState | None = None,
    subtitle: str = "",
    **values: object,
) -> str:
    """Return a page as HTML text.

    Args:
        template: file name of the template.
        kind: the subject of the page, above its headline.
        title: the headline.
        sections: id of a section → its name in the navigation.
        written: when the data were read, in seconds since the epoch.
        state: the state of the page's subject, for the head and the icon.
        subtitle: a line below the headline.
        values: the other values of the template.
    """
    style, script = _assets()
    return (
        _environment()
        .get_template(template)
        .render(
            kind=kind,
            title=shown(title),
            sections=list(sections.items()),
            written=written,
            state=state,
            subtitle=subtitle,
            version=__version__,
            style=style,
            script=script,
            policy=_policy(style, script),
            icon=_icon(state),
            **values,
        )
    )


def graph_of(lineage: Lineage) -> Markup | None:
    """Draw a lineage, or return None if it is too large for a picture."""
    runs = {lineage.run_id}
    for edge in lineage.edges:
        runs |= {edge.run_id, edge.source_run_id}
    if len(runs) > MAX_RUNS:
        return None
    return Markup(lineage_svg(lineage, style=""))  # noqa: S704 - it escapes everything


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("transload_report", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_cleaned,
    )
    environment.filters.update(
        app_id=lambda handle: shown(parse_app_handle(handle).app_id),
        duration=duration_text,
        exit=_exit,
        iso=moment_iso,
        log=log_text,
        moment=moment_text,
        replica_count=_replica_count,
        shown=lambda text: shown(str(text)),
        took=_took,
        value=value_text,
    )
    environment.globals.update(signs=SIGNS)
    return environment


def _cleaned(value: object) -> object:
    """Replace the characters that a page cannot contain in every value of a template."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value


@cache
def _assets() -> tuple[Markup, Markup]:
    folder = files("transload_report") / "pages"
    css = colors_css() + (folder / "report.css").read_text(encoding="utf-8")
    script = (folder / "report.js").read_text(encoding="utf-8")
    return Markup(css), Markup(script)  # noqa: S704 - our own files


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows this style sheet and script, but no network."""
    rules = [
        "default-src 'none'",
        "img-src data:",
        f"style-src {_digest(style)}",
        f"script-src {_digest(script)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _icon(state: AppState | None) -> str:
    name = "accent" if state is None else state.name
    color = COLORS[name][0]
    circle = f'<circle cx="8" cy="8" r="7" fill="{color}"/>'
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">{circle}</svg>'
    return f"data:image/svg+xml,{quote(drawn)}"


def _exit(attempt: ReplicaStatus | ReplicaAttempt) -> str:
    if isinstance(attempt, ReplicaAttempt) and is_interrupted(attempt):
        return str(attempt.cause)
    if attempt.exit_code is None or not is_terminal(attempt.state):
        return ""  # one that waits to be started again shows its last attempt
    return exit_text(attempt.exit_code).removeprefix("exit code ")


def _took(attempt: ReplicaStatus | ReplicaAttempt, written: float) -> str:
    """Return the duration of an attempt, up to now if it runs, or ``""`` if it is unknown."""
    if attempt.start_time is None:
        return ""
    end = attempt.end_time
    if end is None:
        if is_terminal(attempt.state):
            return ""
        end = written
    return duration_text(end - attempt.start_time)


def _replica_count(status: AppStatus) -> int:
    return sum(len(role.replicas) for role in status.roles)
