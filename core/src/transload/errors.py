"""The exceptions of transload. Their names say what to do next."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take a third of the time that this module needs
if TYPE_CHECKING:
    from collections.abc import Sequence

    from transload.specs import AppStatus

__all__ = [
    "AppExists",
    "AppFailed",
    "AppNotFound",
    "ConfigError",
    "PluginError",
    "SchedulerUnavailable",
    "SpecError",
    "StateUnknown",
    "SubmitError",
    "TransloadError",
    "TransloadTimeout",
    "UnsupportedFeature",
]


class TransloadError(Exception):
    """Base of all errors that transload raises on purpose. The message is one line for the user."""


class SpecError(TransloadError, ValueError):
    """The spec (an ``AppDef``, component arguments or a handle) is wrong. Fix it and try again."""


class UnsupportedFeature(SpecError):
    """This orchestrator or scheduler does not support a field of the spec.

    Attributes:
        field: the path of the field, for example ``roles[0].mounts[1]``.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ConfigError(TransloadError, ValueError):
    """A setting or a run option is wrong. Fix the configuration."""


class SubmitError(TransloadError):
    """The scheduler did not accept the job, and nothing was started.

    Attributes:
        transient: True if the same submit may succeed later.
        secrets: True if the scheduler cannot keep the job's secrets. It may accept a job without
            secrets.
        lines: the last lines of a program that failed, which are part of the message.
    """

    def __init__(
        self,
        message: str,
        transient: bool = False,
        *,
        secrets: bool = False,
        lines: Sequence[str] = (),
    ) -> None:
        super().__init__("\n  ".join([message, *lines]))
        self.transient = transient
        self.secrets = secrets
        self.lines = list(lines)


class AppNotFound(TransloadError):
    """There is no job with this handle, or it was deleted.

    Attributes:
        app_handle: the handle or job id.
    """

    def __init__(self, app_handle: str, message: str | None = None) -> None:
        super().__init__(
            message
            or f"no such job: {app_handle} (never submitted, or already deleted; "
            "`transload list` shows those that exist)"
        )
        self.app_handle = app_handle


class AppExists(TransloadError):
    """Another job already has this id.

    Attributes:
        app_id: the id.
    """

    def __init__(self, app_id: str, message: str | None = None) -> None:
        super().__init__(
            message
            or f"job id {app_id!r} is taken by a job with another definition; choose another id"
        )
        self.app_id = app_id


class AppFailed(TransloadError):
    """The job ended in a state other than SUCCEEDED.

    Attributes:
        status: its final status.
    """

    def __init__(self, status: AppStatus, *args: object) -> None:
        super().__init__(*(args or (f"the job did not succeed: {status.summary()}",)))
        self.status = status


class SchedulerUnavailable(TransloadError):
    """The scheduler cannot be reached now, so the state of its jobs is unknown."""


class StateUnknown(SchedulerUnavailable):
    """The state of a job was unknown for longer than the unreachable timeout. The job goes on.

    Attributes:
        handle: the job.
        seconds: how long its state has been unknown.
        why: the last message of its scheduler.
    """

    def __init__(self, handle: str, seconds: float, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(
            f"the state of {handle} is unknown for {seconds:.1f} s, more than the patience "
            f"allows{reason}"
        )
        self.handle = handle
        self.seconds = seconds
        self.why = why


class PluginError(TransloadError):
    """A plugin cannot be loaded, or violates its contract.

    Attributes:
        plugin: name of the plugin (its entry point).
        dist: the distribution of the plugin, if it is known.
    """

    def __init__(self, message: str, plugin: str = "", dist: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin
        self.dist = dist


class TransloadTimeout(TransloadError, TimeoutError):
    """The time limit for waiting has passed. The job itself goes on."""
