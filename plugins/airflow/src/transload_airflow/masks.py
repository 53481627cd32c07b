"""Hiding the same secrets in the logs of triggers that Airflow hides in those of tasks.

Airflow masks a secret in the processes that have read it. The lines of a deferred task's job go
through the triggerer. It has read none of the secrets of the task's templates. So it is given the
names of these variables and connections, and of the sources of the job's own secrets, and reads
them again. No secret is stored anywhere for that.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypedDict, Unpack

from airflow.providers.common.compat.sdk import Connection, Variable
from asgiref.sync import sync_to_async

from transload.errors import TransloadError
from transload.specs import AppDef, resolve_secret, split_source
from transload_airflow.runner import secret_named

LONGEST_S: Final = 20.0
"""Seconds for which a trigger may wait for secrets before it hands on lines."""


@dataclass
class Reads:
    """Names of what a task has read that Airflow hides.

    Args:
        variables: variables whose values were read.
        json_variables: variables that were read as JSON.
        connections: connections.
        sources: sources of the job's secrets, such as ``env:TOKEN``.
    """

    variables: list[str] = field(default_factory=list)
    json_variables: list[str] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, list[str]]:
        """Return the names as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Reads:
        """Read what `to_dict` returned. What a later version added is ignored."""
        known = Reads.__dataclass_fields__
        return Reads(**{name: list(names) for name, names in values.items() if name in known})

    def noting(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task's context in which ``var`` and ``conn`` note what they are asked for."""
        noting = dict(context)
        variables = noting.get("var")
        if isinstance(variables, Mapping):
            places = {"value": self.variables, "json": self.json_variables}
            noted = {
                name: _Noting(variables[name], names)
                for name, names in places.items()
                if name in variables
            }
            noting["var"] = {**variables, **noted}
        if "conn" in noting:
            noting["conn"] = _Noting(noting["conn"], self.connections)
        return noting

    def add_sources(self, app: AppDef, folder: str | None) -> None:
        """Note where the secrets of a job come from.

        Args:
            app: its definition.
            folder: what relative paths of files are relative to.
        """
        for role in app.roles:
            for source in role.secrets.values():
                kind, what = split_source(source)
                path = os.path.expanduser(what)
                if kind == "file" and folder is not None and not os.path.isabs(path):
                    source = f"file:{os.path.join(folder, path)}"
                _note(self.sources, source)

    def hide_sources(self) -> None:
        """Have Airflow hide the values of the job's secrets that this process can read."""
        for source in self.sources:
            try:
                value = resolve_secret(source, "secrets", kinds={"airflow": secret_named})
            except TransloadError:
                continue  # of another machine, or of the scheduler's own kind
            for text in {value, *value.splitlines()}:
                _hide(text)

    def hide_all(self) -> None:
        """Read all of it again, so that this process and its supervisor hide it."""
        for name in self.variables:
            Variable.get(name, default=None)
        for name in self.json_variables:
            Variable.get(name, default=None, deserialize_json=True)
        for name in self.connections:
            Connection.get(name)
        self.hide_sources()

    async def hide_all_async(self, log: logging.Logger) -> None:
        """Do what `hide_all` does, for a trigger.

        What cannot be read in time is hidden no better than before.
        """
        if not any(self.to_dict().values()):
            return
        # not in a thread of our own: Airflow's line to its supervisor belongs to the event loop,
        # and breaks elsewhere
        try:
            await asyncio.wait_for(sync_to_async(self.hide_all)(), LONGEST_S)
        except Exception as exc:
            log.warning(
                "secrets of this task may show in these lines: they cannot be read here: %s", exc
            )


class _Default(TypedDict, total=False):
    """What Airflow calls the value for a variable or connection that is not there."""

    default: Any
    default_conn: Any


class _Noting:
    """Airflow's access to variables or connections, which notes the names that it is asked for."""

    def __init__(self, access: Any, names: list[str]) -> None:
        self._access = access
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _note(self._names, name)
        return getattr(self._access, name)

    def get(self, name: str, *values: Any, **default: Unpack[_Default]) -> Any:
        """Return what stands under a name, as Airflow's own does."""
        _note(self._names, name)
        return self._access.get(name, *values, **default)


def _note(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def _hide(text: str) -> None:
    from airflow.sdk.log import mask_secret

    if text.strip():
        mask_secret(text)
