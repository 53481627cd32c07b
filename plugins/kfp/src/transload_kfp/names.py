"""Names that Kubeflow Pipelines takes, made of any names, without two becoming one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from keyword import iskeyword
from typing import Final

_DIGEST: Final = 6
MAX_NAME: Final = 60
"""Longest name of a component or pipeline, in characters, as names of pods contain it."""


def component_name(name: str) -> str:
    """Return a name of lower-case letters, digits and ``-``.

    A name that had to lose characters ends in a digest. KFP drops what it does not know, so that
    ``größe`` and ``grüße`` would be the same component.
    """
    slug = re.sub("-+", "-", re.sub("[^0-9a-z]", "-", name.lower())).strip("-")
    lost = re.sub("[^0-9a-z]", "", slug) != re.sub(r"[\s._/:-]", "", name.lower())
    if slug and slug[0].isalpha() and len(slug) <= MAX_NAME and not lost:
        return slug
    readable = slug
    if not slug or not slug[0].isalpha():
        readable = f"app-{slug}".strip("-")
    return f"{readable[: MAX_NAME - _DIGEST - 1].rstrip('-')}-{_digest(name)}"


def port_names(names: Iterable[str]) -> dict[str, str]:
    """Return name → name of an input or output, of lower-case letters, digits and ``_``.

    Different names stay different. A valid name does not change, and others avoid it.
    """
    given = list(dict.fromkeys(names))
    made = {
        name: name
        for name in given
        if re.fullmatch("[a-z][0-9a-z_]*(?<!_)", name) and not iskeyword(name)
    }
    taken = set(made)
    for name in given:
        if name in made:
            continue
        slug = re.sub("_+", "_", re.sub("[^0-9a-z]", "_", name.lower())).strip("_")
        candidate = slug
        if not slug or not slug[0].isalpha() or not name.isascii():
            candidate = f"{slug or 'x'}_{_digest(name)}"
        if not candidate[0].isalpha():
            candidate = f"x_{candidate}"
        if candidate in taken or iskeyword(candidate):
            candidate = f"{candidate}_{_digest(name)}"
        made[name] = candidate
        taken.add(candidate)
    return {name: made[name] for name in given}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
