"""Derive the ids of a job from the orchestrator's name for its step, and say where it runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from transload.errors import SpecError

MAX_LENGTH: Final = 40
"""Longest id, in characters.

It leaves room for what schedulers add, below the 63 of a DNS label.
"""

MOST: Final = 99_999
"""Highest number of a job in its chain."""

_DIGEST_LENGTH: Final = 13
_READABLE_LENGTH: Final = MAX_LENGTH - _DIGEST_LENGTH - len(f"--{MOST}")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
"""Of a digest, 5 bits each."""
_OTHER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose job it is, in words of the orchestrator that never change while the step exists.

    Crashes, restarts, retries and a person's wish to run the step again leave them as they are. All
    jobs of one step make one chain (see `chain_of`).

    Args:
        host: name of the orchestrator, for example ``airflow``.
        run: what tells this run from all others: the installation, the workflow, the run's id.
        path: what tells the step from the others of its run. The last part that is readable is
            shown in the id.
    """

    host: str
    run: tuple[str, ...]
    path: tuple[str, ...]


def chain_of(identity: Identity) -> str:
    """Return what the ids of all jobs of a step begin with, before ``-<number>``.

    It has lower-case letters, digits and ``-``, starts with a letter, and ends in a digest of the
    identity. So equal identities have equal chains on every machine, and any difference makes
    another chain.

    Raises:
        SpecError: for a name of the orchestrator, a run or a path that is empty, or has something
            else than texts.
    """
    import hashlib
    import json

    _check(identity)
    whole = json.dumps([identity.host, list(identity.run), list(identity.path)], ensure_ascii=True)
    number = int.from_bytes(hashlib.sha256(whole.encode()).digest(), "big")
    digest = "".join(_LETTERS[(number >> (5 * index)) & 31] for index in range(_DIGEST_LENGTH))
    readable = _plain(f"{identity.host}-{_readable_part(identity.path)}") or "app"
    if not readable[0].isalpha():
        readable = f"a-{readable}"
    return f"{readable[:_READABLE_LENGTH].rstrip('-')}-{digest}"


def app_id_of(identity: Identity, number: int) -> str:
    """Return the id of a job of a step, which is not qualified yet (see `Runner.qualified_id`).

    It has at most 40 characters.

    Args:
        identity: of the step.
        number: 0 for the first job of the chain, then counted up.

    Raises:
        SpecError: for a wrong identity (see `chain_of`), or a number that no job can have.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST:
        raise SpecError(f"number={number!r}: must be an int from 0 to {MOST}")
    return f"{chain_of(identity)}-{number}"


def _check(identity: Identity) -> None:
    for name, parts in (
        ("host", (identity.host,)),
        ("run", identity.run),
        ("path", identity.path),
    ):
        if not isinstance(parts, tuple) or not all(isinstance(part, str) for part in parts):
            raise SpecError(f"identity: {name}={parts!r}: must be a tuple of texts")
        if not any(parts):
            raise SpecError(f"identity: {name}={parts!r}: must not be empty")


def _readable_part(path: Iterable[str]) -> str:
    """Return the last part that has letters, else the last one that has digits, else ``""``."""
    plain = [_plain(part) for part in path]
    with_letters = [part for part in plain if any(each.isalpha() for each in part)]
    return next(reversed(with_letters or [part for part in plain if part]), "")


def _plain(text: str) -> str:
    """Return a text in lower case, with ``-`` for whatever is no ASCII letter or digit."""
    return _OTHER.sub("-", text.lower()).strip("-")


@cache
def where() -> str:
    """Return a text that two processes share only if they see the same machine.

    On Linux it is made of the boot id and the process namespace, so two containers of one machine
    differ. Elsewhere it is made of host name and hardware address.
    """
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    import platform
    import uuid

    return f"{platform.node()}/{uuid.getnode():x}"
