"""Tables from the state of an app to the state of a host's own unit of work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from transload.errors import ConfigError
from transload.specs import AppState, is_terminal

H = TypeVar("H")


class StateMap(Mapping[AppState, H], Generic[H]):
    """A host's state for each `AppState`: total, checked when it is built.

    Args:
        host: name of the host, as people write it.
        table: a host value for every AppState.
        reverse: host value → AppState, where a host's states are read back; None if they are not.
        host_values: all values that the host has; with ``reverse``, each of them must be in it.
        notes: what to say beside a row in the documentation.

    Raises:
        ConfigError: if a state is missing, or a host value is not one of the host's.

    Example:
        >>> table = StateMap("cron", {state: "done" if state.name == "SUCCEEDED" else "busy" for
        state in AppState})
        >>> table[AppState.SUCCEEDED]
        'done'
    """

    def __init__(
        self,
        host: str,
        table: Mapping[AppState, H],
        *,
        reverse: Mapping[H, AppState] | None = None,
        host_values: Iterable[H] | None = None,
        notes: Mapping[AppState, str] | None = None,
    ) -> None:
        self.host = host
        self._table = dict(table)
        self._reverse = dict(reverse or {})
        self._notes = dict(notes or {})
        values = None if host_values is None else list(host_values)
        self._check(values, reverse is not None)

    def _check(self, values: list[H] | None, with_reverse: bool) -> None:
        missing = [state.name for state in AppState if state not in self._table]
        if missing:
            raise ConfigError(
                f"state map of {self.host}: no value for {', '.join(missing)}; every AppState "
                "needs one"
            )
        foreign = [key for key in self._table if not isinstance(key, AppState)]
        if foreign:
            raise ConfigError(f"state map of {self.host}: {foreign[0]!r} is not an AppState")
        if values is None:
            return
        for state, value in self._table.items():
            if value not in values:
                raise ConfigError(
                    f"state map of {self.host}: {state.name} → {value!r}: not a state of the host"
                )
        unread = [value for value in values if with_reverse and value not in self._reverse]
        if unread:
            raise ConfigError(
                f"state map of {self.host}: the reverse lacks {unread[0]!r}; every host state "
                "needs one"
            )

    def __getitem__(self, state: AppState) -> H:
        return self._table[state]

    def __iter__(self) -> Iterator[AppState]:
        return iter(AppState)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"StateMap({self.host!r}, {self.names()})"

    def to_app(self, value: H) -> AppState:
        """Return the AppState of a host's state; UNKNOWN for a word that this version does not
        know.
        """
        return self._reverse.get(value, AppState.UNKNOWN)

    def names(self) -> dict[str, str]:
        """Return the table as text: name of the AppState → name of the host's state."""
        return {state.name: _name(self._table[state]) for state in AppState}

    def markdown(self) -> str:
        """Return the table for the documentation, one row per AppState, and the reverse if there is
        one.
        """
        lines = [f"| AppState | {self.host} | terminal |", "|---|---|---|"]
        for state in AppState:
            note = f" ({self._notes[state]})" if state in self._notes else ""
            lines.append(
                f"| {state.name} | {_name(self._table[state])}{note} | "
                f"{'✓' if is_terminal(state) else ''} |"
            )
        if self._reverse:
            lines += ["", f"| {self.host} | AppState |", "|---|---|"]
            lines += [
                f"| {_name(value)} | {state.name} |" for value, state in self._reverse.items()
            ]
        return "\n".join(lines) + "\n"


def _name(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
