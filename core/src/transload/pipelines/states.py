"""Tables from the state of a job to the state of an orchestrator's own object."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from transload.errors import ConfigError
from transload.specs import AppState, is_terminal

H = TypeVar("H")


class StateMap(dict[AppState, H]):
    """An orchestrator's state for each `AppState`. It is total, which is checked when it is built.

    Args:
        host: name of the orchestrator, as people write it.
        table: a state of the orchestrator for every AppState.
        host_values: all states that the orchestrator has, or None if that is not checked.
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
        host_values: Collection[H] | None = None,
        notes: Mapping[AppState, str] | None = None,
    ) -> None:
        missing = [state.name for state in AppState if state not in table]
        if missing:
            raise ConfigError(
                f"state map of {host}: no value for {', '.join(missing)}; every AppState needs one"
            )
        for state, value in table.items():
            if not isinstance(state, AppState):
                raise ConfigError(f"state map of {host}: {state!r} is not an AppState")
            if host_values is not None and value not in host_values:
                raise ConfigError(
                    f"state map of {host}: {state.name} → {value!r}: not a state of {host}"
                )
        super().__init__({state: table[state] for state in AppState})
        self.host = host
        self._notes = dict(notes or {})

    def names(self) -> dict[str, str]:
        """Return the table as text, from the AppState's name to the orchestrator's state."""
        return {state.name: _name(value) for state, value in self.items()}

    def markdown(self) -> str:
        """Return the table for the documentation, one row per AppState."""
        lines = [f"| AppState | {self.host} | terminal |", "|---|---|---|"]
        for state in AppState:
            value = _name(self[state])
            if state in self._notes:
                value += f" ({self._notes[state]})"
            mark = ""
            if is_terminal(state):
                mark = "✓"
            lines.append(f"| {state.name} | {value} | {mark} |")
        return "\n".join(lines) + "\n"


def _name(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
