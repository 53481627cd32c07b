"""What a work pool of type ``transload`` and its deployments may set, and the job that comes of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from prefect.utilities.templating import find_placeholders
from prefect.workers.base import BaseJobConfiguration, BaseVariables
from pydantic import BaseModel, Field, PrivateAttr, create_model

from transload.errors import SpecError
from transload.pipelines import (
    JOB_SETTINGS,
    SETTINGS,
    OverrideOptions,
    read_settings,
    with_settings,
)
from transload.specs import AppDef, Notice, Role, nearest, resource
from transload.specs.checks import shorten
from transload_prefect.cluster import TransloadCluster

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

SECRET: Final = (
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_CLIENT_CUSTOM_HEADERS",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    "PREFECT_SERVER_DATABASE_PASSWORD",
)
"""What Prefect hands to flow runs and must not be written down with the job."""

_FLOW_RUN: Final = """\
import os, runpy, sys, time, uuid
sys.argv = ["prefect", "flow-run", "execute"]
try:
    runpy.run_module("prefect", run_name="__main__")
except SystemExit as end:
    if end.code:
        raise
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    states = client.read_flow_run_states(uuid.UUID(os.environ["PREFECT__FLOW_RUN_ID"]))
names = [state.type.value for state in sorted(states, key=lambda state: state.timestamp)]
if names and names[-1].startswith("CANCELL"):
    time.sleep(60)  # a worker cancels the job meanwhile, so that its scheduler does not say that it ended well
    sys.exit("the flow run was cancelled")
# the flow run may be scheduled again by now: what counts is how it ended since it last began
while "RUNNING" in names:
    del names[0]
bad = {"CRASHED", "FAILED"}.intersection(names)
if bad:
    sys.exit(f"the flow run ended as {bad.pop()}")
"""
"""What runs a flow run in its job.

Prefect's own command ends with 0 also when the flow run was cancelled, and whenever it has reported
that the flow run failed or crashed.
"""

_PREFECTS: Final = ("env",)
"""Settings of a job that each work pool of Prefect has by itself."""

OFFERED: Final = tuple(
    name
    for name in SETTINGS
    if name in (*JOB_SETTINGS, "retries", "retry_delay", "checkpoints") and name not in _PREFECTS
)
"""The settings of a job that are variables of a work pool. Its name is Prefect's, and it has one
role."""

_LEFT_OUT: Final = (
    ", whose template leaves it out. To get the whole template, type: prefect work-pool "
    "get-default-base-job-template --type transload"
)


def _json_type(annotation: Any) -> Any:
    """Return the type that the values of a setting have in JSON, of which a form is made."""
    if annotation is Notice:
        return dict[str, Any]
    origin = get_origin(annotation)
    if origin is Sequence:
        return list[str | dict[str, Any]]
    if origin is Mapping:
        return dict[str, str]
    alternatives = get_args(annotation)
    if not alternatives:
        return annotation
    made = _json_type(alternatives[0])
    for each in alternatives[1:]:
        made = made | _json_type(each)
    return made


def _described(name: str) -> Any:
    return Field(default=None, description=SETTINGS[name].help)


if TYPE_CHECKING:

    class _OfferedSettings(BaseModel):
        """`OFFERED` by the types that a form and Prefect's own checks know."""

    class _TakenSettings(BaseModel):
        """`OFFERED` of any type, so that a wrong value is refused in the words of the core."""

else:
    _HINTS = get_type_hints(OverrideOptions)
    _OfferedSettings = create_model(
        "_OfferedSettings",
        **{name: (_json_type(_HINTS[name]), _described(name)) for name in OFFERED},
    )
    _TakenSettings = create_model(
        "_TakenSettings", **{name: (Any, _described(name)) for name in OFFERED}
    )


class _Variables(BaseModel):
    """What a work pool of type ``transload`` and its deployments may set beside `OFFERED`."""

    scheduler: str | None = Field(
        default=None, description="Where flow runs go; empty: the configured one, else local."
    )
    cluster: TransloadCluster | None = Field(
        default=None, description="Where flow runs go, in place of a scheduler."
    )
    cfg: dict[str, Any] = Field(default_factory=dict, description="Run options of the scheduler.")
    workspace: str | None = Field(
        default=None, description="Folder on the worker's machine that comes along."
    )
    pass_env: list[str] = Field(
        default_factory=list, description="Patterns of the worker's variables that it gets."
    )
    environment: str | None = Field(
        default=None,
        description="What is installed for it: requirements.txt, uv.lock, a script, or none.",
    )
    resource: str | None = Field(
        default=None, description="Name of a resource, over which cpu, gpu and mem go."
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="What a scheduler may look at, by its name."
    )
    stream_output: bool = Field(
        default=True, description="Show the job's output in the flow run's log."
    )


class AppVariables(_OfferedSettings, _Variables, BaseVariables):
    """The variables of a work pool of type ``transload``."""


class AppJobConfiguration(_TakenSettings, _Variables, BaseJobConfiguration):
    """How a flow run becomes a job, which the template of a work pool fills in."""

    _unread: list[str] = PrivateAttr(default_factory=list)
    """Messages about what the work pool or the deployment says, and nothing reads."""

    @classmethod
    async def from_template_and_values(
        cls,
        base_job_template: dict[str, Any],
        values: dict[str, Any],
        client: PrefectClient | None = None,
    ) -> AppJobConfiguration:
        """Return the configuration that a template makes of variables.

        What neither the template nor the job knows is refused by `to_app`. A job that runs already
        is looked after in any case.
        """
        made: AppJobConfiguration = await super().from_template_and_values(
            base_job_template, values, client=client
        )
        made._unread = _unread_names(base_job_template, values, list(cls.model_fields))
        return made

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the variables set over a job.

        Raises:
            SpecError: for a value that no job can have, by the name of the variable.
        """
        values = {name: getattr(self, name) for name in OFFERED}
        return read_settings(
            {name: value for name, value in values.items() if value not in (None, [], {})}
        )

    def to_app(self, here: bool = True) -> AppDef:
        """Return the job of a flow run, whose command waits until the flow run has ended.

        Without an image it is run by the worker's own Python, if jobs are ``here``, on the worker's
        disk.

        Raises:
            SpecError: if a variable of the work pool is wrong.
        """
        if self._unread:
            raise SpecError(self._unread[0])
        settings = self.settings
        words = _words(self.command or self._base_flow_run_command())
        if words == self._base_flow_run_command().split():
            replicas = settings.get("replicas", 1)
            if replicas != 1:
                raise SpecError(
                    f"replicas={replicas}: a flow run is run once; give a command for more"
                )
            words = [
                sys.executable if here and "image" not in settings else "python",
                "-c",
                _FLOW_RUN,
            ]
        role = Role(
            name="flow",
            image="",
            entrypoint=words[0],
            args=words[1:],
            env={
                name: value
                for name, value in self.env.items()
                if value is not None and name not in SECRET
            },
            secrets={name: f"env:{name}" for name in self.secret_values()},
            metadata=self.metadata,
        )
        if self.resource:
            role.resource = resource(h=self.resource)
        app = AppDef(name="prefect-flow-run", roles=[role], metadata=dict(self.labels))
        return with_settings(app, settings)

    def secret_values(self) -> dict[str, str]:
        """Return the secrets, which may come from a profile, by the name that `to_app` refers
        to.
        """
        return {name: value for name in SECRET if (value := self.env.get(name))}


def _unread_names(
    template: Mapping[str, Any], values: Mapping[str, Any], fields: list[str]
) -> list[str]:
    """Return messages about names in a template, or of values for it, that have no effect.

    Args:
        template: the template of a work pool.
        values: name of a variable, or ``env.NAME`` → value.
        fields: what a job configuration has.
    """
    configuration = template["job_configuration"]
    known = set(template["variables"].get("properties", {}))
    known.update(each.name.partition(".")[0] for each in find_placeholders(configuration))
    messages = []
    for name in configuration:
        if name not in fields:
            hint = nearest(name, fields)
            messages.append(f"job_configuration.{name}: the work pool's template: {hint}")
    for name, value in values.items():
        root = name.partition(".")[0]
        if root in known:
            continue
        hint = f": {nearest(root, sorted(known))}"
        if root in fields:
            hint = _LEFT_OUT
        messages.append(f"{name}={shorten(value)}: no variable of the work pool{hint}")
    return messages


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise SpecError(f"command={command!r}: not as a shell would read it: {exc}") from exc
    if not words:
        raise SpecError(f"command={command!r}: must name a program")
    return words
