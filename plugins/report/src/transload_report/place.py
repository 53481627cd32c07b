"""Find the files of pages, and write them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from transload.errors import SpecError
from transload.schedulers.folder.home import make_private, state_home
from transload.specs import parse_app_handle

if TYPE_CHECKING:
    from transload.runner import Settings

__all__ = [
    "ENV_REPORTS",
    "ENV_REPORTS_URL",
    "own_settings",
    "page_link",
    "page_path",
    "reports_folder",
    "write_page",
]

ENV_REPORTS: Final = "TRANSLOAD_REPORTS"
"""Environment variable with the folder of the pages."""

ENV_REPORTS_URL: Final = "TRANSLOAD_REPORTS_URL"
"""Environment variable with the URL under which a web server shows that folder."""

_KEYS: Final = {"auto": bool, "dir": str, "url": str}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME: Final = 120


def own_settings(settings: Settings) -> dict[str, Any]:
    """Return the table ``[plugins.report]`` of the current settings.

    Raises:
        ConfigError: for an unknown key or a wrong type.
    """
    return settings.plugin("report", _KEYS)


def reports_folder(settings: Settings) -> Path:
    """Return the folder of pages.

    It is ``TRANSLOAD_REPORTS``, else ``dir`` of the settings, else ``reports`` in the state folder.
    """
    own_settings(settings)  # a wrong one is named
    given = os.environ.get(ENV_REPORTS) or settings.plugin_path("report", "dir")
    if given:
        return Path(given).expanduser().absolute()
    return Path(state_home()) / "reports"


def page_path(handle: str, settings: Settings) -> Path:
    """Return the path of a job's page, which may not exist.

    Raises:
        MalformedAppHandleException: if it is not a handle.
    """
    parsed = parse_app_handle(handle)
    plain = f"{parsed.scheduler_backend}-{parsed.app_id}"
    name = _UNSAFE.sub("-", plain)
    if name != plain or len(name) > _MAX_NAME:
        name = f"{name[:_MAX_NAME]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
    return reports_folder(settings) / f"{name}.html"


def page_link(handle: str, settings: Settings) -> str | None:
    """Return the link to a job's page, a URL or a path, or None if there is no page."""
    path = page_path(handle, settings)
    if not path.is_file():
        return None
    url = os.environ.get(ENV_REPORTS_URL) or own_settings(settings).get("url")
    if not url:
        return str(path)
    return f"{str(url).rstrip('/')}/{quote(path.name)}"


def write_page(html: str, path: Path, *, make_folder: bool = False) -> Path:
    """Write a page in one step, so that a reader sees either the old or the new one.

    Args:
        html: the page.
        path: the file.
        make_folder: create its folder if it is missing.

    Raises:
        SpecError: if it cannot be written.
    """
    try:
        if make_folder:
            make_private(path.parent)
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder")
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_text(html, encoding="utf-8")
        else:
            _replace(path, html)
    except OSError as exc:
        raise SpecError(f"{str(path)!r}: cannot be written: {exc.strerror or exc}") from exc
    return path


def _replace(path: Path, html: str) -> None:
    aside = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        aside.write_text(html, encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
