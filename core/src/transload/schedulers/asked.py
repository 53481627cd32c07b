"""Read who asked for a job (`Submission.asked`). Login nodes do so too, with Python 3.8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["asked_in_words", "asked_words", "host_of", "host_words"]

_OWN: Final = ("user", "machine", "folder", "git")
"""What every job keeps. Any other name is that of an orchestrator."""


def host_words(asked: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """Return the words of an orchestrator's try, or ``{}`` if it did not ask for the job."""
    words = asked.get(host)
    return words if isinstance(words, Mapping) else {}


def host_of(asked: Mapping[str, Any]) -> str | None:
    """Return the name of the orchestrator that asked, or None if none did."""
    return next((name for name in asked if name not in _OWN and host_words(asked, name)), None)


def asked_words(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return who asked by dotted names, such as ``user``, ``git.commit`` and ``airflow.dag``."""
    found: dict[str, Any] = {}
    for name, value in asked.items():
        if isinstance(value, Mapping):
            found.update({f"{name}.{word}": each for word, each in value.items()})
        else:
            found[name] = value
    return {name: value for name, value in found.items() if value not in (None, "")}


def asked_in_words(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return lines for a person: ``asked by``, ``code``, and one with the name of an orchestrator."""
    words = asked_words(asked)
    user, machine, folder = (words.get(name) for name in ("user", "machine", "folder"))
    commit = words.get("git.commit")
    lines = {}
    if user:
        lines["asked by"] = f"{user} on {machine}, in {folder}"
    if commit:
        lines["code"] = f"{commit}, {_changes_text(words.get('git.dirty'))}"
        if "git.remote" in words:
            lines["code"] += f", {words['git.remote']}"
    host = host_of(asked)
    if host is not None:
        said = asked_words(host_words(asked, host))
        lines[host] = ", ".join(f"{name}={value}" for name, value in said.items())
    return lines


def _changes_text(dirty: object) -> str:
    if dirty is None:  # git had no time to say
        return "perhaps with uncommitted changes"
    return "with uncommitted changes" if dirty else "clean"
