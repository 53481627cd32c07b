"""App ids: unique ones for those who do not care, checked ones for those who do."""

from __future__ import annotations

import os
import re

from transload.errors import SpecError

_UNSAFE = re.compile(r"[^a-z0-9]+")
_GIVEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}\Z")
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: people read ids aloud


def unique_app_id(name: str) -> str:
    """Return a fresh id such as ``trainer-k3w9x2m4pd``: at most 40 lower-case letters, digits and dashes."""
    readable = _UNSAFE.sub("-", name.lower()).strip("-")[:29].rstrip("-") or "app"
    if not readable[0].isalpha():
        readable = f"a-{readable}"[:29]
    suffix = "".join(_ALPHABET[byte & 31] for byte in os.urandom(10))
    return f"{readable}-{suffix}"


def check_app_id(app_id: str) -> str:
    """Return ``app_id`` if it may be used as one.

    Raises:
        SpecError: if it is not 1 to 200 letters, digits, ``_ . : @ -``, starting with a letter, digit or ``_``.
    """
    if not isinstance(app_id, str) or not _GIVEN.match(app_id):
        raise SpecError(
            f"app_id={app_id!r}: must be 1 to 200 letters, digits, '_', '.', ':', '@' or '-', "
            "starting with a letter, a digit or '_'"
        )
    return app_id
