"""Turn keys and run ids into file names that are percent-encoded and of bounded length.

A name always stays in its folder. The rule is public (``docs/reference/results-format.md``). A name
is the bytes of the UTF-8 text, with everything but ``A-Z a-z 0-9 - . _ ~`` as ``%XX`` (upper case),
and a leading dot as ``%2E`` too. A longer name than the limit is cut to a prefix, ``=``, and a
digest. No other name has a ``=``, so the two kinds cannot meet.
"""

from __future__ import annotations

import re

from transload.runtime import encode_name, local_path

__all__ = [
    "OUTPUTS",
    "app_folder",
    "encode_name",
    "given_base",
    "local_path",
    "output_folder",
]


OWN = ".apps"
"""Folder below a given tracker base that holds a folder for each job."""

OUTPUTS = "outputs"
"""Folder below a job's own for files that it makes."""

_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def app_folder(base: str, app_id: str) -> str:
    """Return a job's own folder below a tracker base that was given for it, as a path or a URL."""
    # from here on this is a path, so what follows is no part of a URL, and is not decoded
    folder = local_path(base) or base
    return f"{folder.rstrip('/')}/{OWN}/{encode_name(app_id)}"


def given_base(folder: str) -> str | None:
    """Return the tracker base that was given for a job, or None if none was.

    Args:
        folder: the job's folder.
    """
    base, own, name = folder.rpartition(f"/{OWN}/")
    if not own or "/" in name:
        return None
    return base or "/"


def output_folder(folder: str) -> str:
    """Return the folder for files that a job makes, as a path or a URL.

    Args:
        folder: its folder of results.
    """
    place = local_path(folder) or folder
    return f"{place.rstrip('/')}/{OUTPUTS}"


def natural(text: str) -> list[str | int]:
    """Return what to sort texts by so that ``epoch-2`` comes before ``epoch-10``."""
    return [
        int(part) if index % 2 else part
        for index, part in enumerate(re.split(r"([0-9]{1,300})", text))
    ]


def is_digest_name(name: str) -> bool:
    """Tell whether ``name`` holds a digest, so that its text stands only inside the file."""
    return "=" in name


def decode_name(name: str, suffix: str = "") -> str | None:
    """Return the text of a file name.

    Returns:
        The text, or None if ``encode_name`` makes no such name or it holds a digest.
    """
    if not name.endswith(suffix):
        return None
    encoded = name[: len(name) - len(suffix)]
    try:
        text = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), encoded.encode()).decode()
    except UnicodeError:
        return None
    if not text or encode_name(text, suffix) != name:
        return None
    return text
