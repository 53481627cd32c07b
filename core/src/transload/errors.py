"""The exceptions of transload, each named by what its reader does next."""

from __future__ import annotations

TYPE_CHECKING = (
    False  # importing typing would be a third of what an application pays for this module
)
if TYPE_CHECKING:
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
    """Base of all errors that transload raises on purpose; its message is one clear line for a
    user.
    """


class SpecError(TransloadError, ValueError):
    """The spec (an ``AppDef``, component arguments, a handle) is wrong: fix it and try again."""


class UnsupportedFeature(SpecError):
    """This host or scheduler cannot express one field of the spec.

    Attributes:
        field: the path of the field, for example ``roles[0].mounts[1]``.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ConfigError(TransloadError, ValueError):
    """A setting or a run option is wrong: fix the configuration."""


class SubmitError(TransloadError):
    """The scheduler did not take the app; nothing was started.

    Attributes:
        transient: True if the same submit may succeed later.
        secrets: True if the scheduler cannot keep the job's secrets; a job without secrets may be
            taken.
    """

    def __init__(self, message: str, transient: bool = False, *, secrets: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        self.secrets = secrets


class AppNotFound(TransloadError):
    """No app of that handle exists (any more).

    Attributes:
        app_handle: the handle or app id that was asked for.
    """

    def __init__(self, app_handle: str, message: str | None = None) -> None:
        super().__init__(
            message or f"no such app: {app_handle} (never submitted, or already deleted)"
        )
        self.app_handle = app_handle


class AppExists(TransloadError):
    """An app of that id exists, and it is not the same app.

    Attributes:
        app_id: the id that is taken.
    """

    def __init__(self, app_id: str, message: str | None = None) -> None:
        super().__init__(
            message
            or f"app id {app_id!r} is taken by an app with another definition; choose another id"
        )
        self.app_id = app_id


class AppFailed(TransloadError):
    """The app ended in a state other than SUCCEEDED.

    Attributes:
        status: the status that it ended with.
    """

    def __init__(self, status: AppStatus, *args: object) -> None:
        super().__init__(*(args or (f"the app did not succeed: {status.summary()}",)))
        self.status = status


class SchedulerUnavailable(TransloadError):
    """The scheduler cannot be reached now; the state of its apps is not known."""


class StateUnknown(SchedulerUnavailable):
    """The scheduler could not say what an app does for longer than the patience allowed. The app is
    not touched.

    Attributes:
        handle: the app.
        seconds: how long its state was unknown without a break.
        why: what its scheduler said last.
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
    """A plugin cannot be loaded, or does not keep its contract.

    Attributes:
        plugin: name of the plugin (its entry point).
        dist: the distribution that brought it, if known.
    """

    def __init__(self, message: str, plugin: str = "", dist: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin
        self.dist = dist


class TransloadTimeout(TransloadError, TimeoutError):
    """The time allowed for waiting ran out; what was waited for goes on."""
