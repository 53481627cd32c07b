"""Tables from the state of a job to the state of an orchestrator's own object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from transload.errors import ConfigError
from transload.specs import AppState, is_terminal

H = TypeVar("H")


class StateMap(Mapping[AppState, H], Generic[H]):
    """An orchestrator's state for each `AppState`. It is total, which is checked when it is built.

    Args:
        host: name of the orchestrator, as people write it.
        table: a state of the orchestrator for every AppState.
        reverse: the orchestrator's state → AppState, where its states are read back. None means
            that they are not.
        host_values: all states that the orchestrator has. With ``reverse``, each of them must be
            in it.
        notes: a remark beside a row in the documentation.

    Raises:
        ConfigError: if a state is missing, or a value is not one of the orchestrator's.

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
        self._check_is_total()
        if host_values is not None:
            self._check_values(list(host_values), with_reverse=reverse is not None)

    def _check_is_total(self) -> None:
        missing = [state.name for state in AppState if state not in self._table]
        if missing:
            raise ConfigError(
                f"state map of {self.host}: no value for {', '.join(missing)}; every AppState "
                "needs one"
            )
        for key in self._table:
            if not isinstance(key, AppState):
                raise ConfigError(f"state map of {self.host}: {key!r} is not an AppState")

    def _check_values(self, values: list[H], with_reverse: bool) -> None:
        for state, value in self._table.items():
            if value not in values:
                raise ConfigError(
                    f"state map of {self.host}: {state.name} → {value!r}: not a state of "
                    f"{self.host}"
                )
        if not with_reverse:
            return
        for value in values:
            if value not in self._reverse:
                raise ConfigError(
                    f"state map of {self.host}: the reverse lacks {value!r}; every state of "
                    f"{self.host} needs one"
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
        """Return the AppState of an orchestrator's state, or UNKNOWN for one that is not known."""
        return self._reverse.get(value, AppState.UNKNOWN)

    def names(self) -> dict[str, str]:
        """Return the table as text, from the AppState's name to the orchestrator's state."""
        return {state.name: _name(self._table[state]) for state in AppState}

    def markdown(self) -> str:
        """Return the table for the documentation, one row per AppState, and the reverse if any."""
        lines = [f"| AppState | {self.host} | terminal |", "|---|---|---|"]
        for state in AppState:
            value = _name(self._table[state])
            if state in self._notes:
                value += f" ({self._notes[state]})"
            mark = ""
            if is_terminal(state):
                mark = "✓"
            lines.append(f"| {state.name} | {value} | {mark} |")
        if self._reverse:
            lines += ["", f"| {self.host} | AppState |", "|---|---|"]
            lines += [
                f"| {_name(value)} | {state.name} |" for value, state in self._reverse.items()
            ]
        return "\n".join(lines) + "\n"


def _name(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
