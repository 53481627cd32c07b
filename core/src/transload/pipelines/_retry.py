"""Who retries a failed app: the scheduler, the host, or one inside the other."""

from __future__ import annotations

import copy
from enum import Enum

from transload.errors import AppExists, AppFailed, ConfigError, PluginError, SpecError, SubmitError, TransloadTimeout
from transload.pipelines._errors import AppCancelled, AppLost, Detached
from transload.specs import AppDef


class RetryRule(str, Enum):
    """Who spends the retries of an app that a host runs.

    - ``nested``: the scheduler spends ``max_retries`` inside one attempt; each retry of the host is a new attempt.
    - ``host``: the app is submitted with ``max_retries=0``; only the host retries.
    - ``scheduler``: only the scheduler retries; the host's failure is final.
    """

    NESTED = "nested"
    HOST = "host"
    SCHEDULER = "scheduler"

    @classmethod
    def of(cls, value: str | RetryRule) -> RetryRule:
        """Return the rule of that name.

        Raises:
            ConfigError: for any other name.
        """
        try:
            return cls(value)
        except ValueError as exc:
            raise ConfigError(f"retries_by={value!r}: must be one of {[rule.value for rule in cls]}") from exc

    def to_submit(self, app: AppDef) -> AppDef:
        """Return the app to submit: with ``host`` a copy without retries of its own, else ``app`` itself."""
        if self is not RetryRule.HOST or not any(role.max_retries for role in app.roles):
            return app
        app = copy.deepcopy(app)
        for role in app.roles:
            role.max_retries = 0
        return app

    def note(self, app: AppDef, host_retries: int | None) -> str | None:
        """Return what to log once: how often the app may be started when retries multiply; None if they do not."""
        own = max((role.max_retries for role in app.roles), default=0)
        if self is not RetryRule.NESTED or not own or not host_retries:
            return None
        total = (1 + own) * (1 + host_retries)
        return (
            f"retries multiply: {1 + host_retries} attempts of the host × {1 + own} starts by the scheduler = "
            f"{total} starts at most (retries_by='host' or 'scheduler' leaves them to one)"
        )

    def host_may_retry(self, error: BaseException) -> bool:
        """Tell whether the host may answer this failure with a retry.

        A wrong spec, setting or plugin and a cancelled app never are; an unknown state always is (the retry attaches).
        """
        if isinstance(error, (SpecError, ConfigError, PluginError, AppExists, AppCancelled, Detached)):
            return False
        if isinstance(error, SubmitError):
            return error.transient
        if isinstance(error, (AppFailed, AppLost, TransloadTimeout)):
            return self is not RetryRule.SCHEDULER
        return True
