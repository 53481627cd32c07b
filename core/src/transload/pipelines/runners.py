"""The runner that all steps of an orchestrator share in a process, and a dry-run with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from transload.pipelines.identity import Identity
from transload.pipelines.options import ExecutionOptions
from transload.pipelines.step import Step
from transload.runner.api import shared_runner

if TYPE_CHECKING:
    from transload.runner import Cluster, Launch, Runner


def host_runner(
    host: str,
    *,
    inherit_env: bool = False,
    clusters: Iterable[Cluster] = (),
    secret_sources: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> Runner:
    """Return the runner that all units of work of an orchestrator share in this process.

    Do not close it.

    Args:
        host: name of the orchestrator, which is the session name in the handles.
        inherit_env: give jobs the whole environment of the orchestrator's worker. By default they
            get only an allow-list of it.
        clusters: clusters that the orchestrator defines (a connection, a block), beside those of
            the settings.
        secret_sources: kind → what finds a value, for secrets that the orchestrator keeps. It is
            the same in every call of an orchestrator.
    """
    return shared_runner(
        host,
        inherit_env=inherit_env,
        clusters=clusters,
        secret_sources=secret_sources,
    )


def dry_run(
    host: str,
    launch: Launch,
    options: ExecutionOptions | None = None,
    *,
    context_args: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
    runner: Runner | None = None,
) -> str:
    """Return the request that an orchestrator would submit, as text for a person.

    It touches nothing outside of this process. The arguments are those of `host_runner` and `Step`.
    ``runner`` is another one than the orchestrator's own.

    Raises:
        SpecError: if the job is wrong, or the scheduler cannot express it.
        ConfigError: for an unknown scheduler or option.
    """
    step = _StepToShow(
        launch,
        options,
        runner=runner or host_runner(host, inherit_env=inherit_env),
        arguments=context_args,
    )
    return repr(step.plan())


class _StepToShow(Step):
    """A step that is only shown, of which there is no run."""

    def identity(self) -> Identity:
        """Return a name of its own."""
        return Identity(self.runner.name(), ("dry-run",), (self.need_launch().name,))
