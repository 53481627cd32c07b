"""What a DAG author can hook into while an app runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.pipelines.attach import Attached
    from transload.runner import AppResults
    from transload.specs import AppStatus


class AppCallbacks:
    """Called by `TransloadOperator` in the task's process; override what you need.

    A task with `on_status` waits in place: the triggerer has neither the DAG's code nor its
    callbacks, so ``deferrable=True`` is refused with it. What a callback raises fails the task, as
    any code of the task's own would; if no retry will attach to the app, it is ended as ``on_kill``
    says.
    """

    def __repr__(self) -> str:
        """Return the name of the class: it stands in a stored DAG, which must look the same each
        time it is read.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}()"

    @property
    def needs_the_task(self) -> bool:
        """Whether it is to be called while the app runs."""
        return type(self).on_status is not AppCallbacks.on_status

    def on_started(self, attached: Attached, context: Mapping[str, Any]) -> None:
        """Take note of an app that was submitted or attached to (``attached.action`` says
        which).
        """

    def on_status(self, status: AppStatus, context: Mapping[str, Any]) -> None:
        """Take note of a changed status."""

    def on_results(self, results: AppResults, context: Mapping[str, Any]) -> None:
        """Take note of the results of an app that ended well."""
