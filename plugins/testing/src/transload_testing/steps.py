"""The job of a step, made for a test without an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from transload.pipelines import Again, ExecutionOptions, Identity, Step

if TYPE_CHECKING:
    from transload.pipelines import Launch
    from transload.runner import Runner
    from transload.specs import AppStatus


class StepOptions(TypedDict, total=False):
    """Arguments of `Step` beside the launch, the options and the runner, described there."""

    arguments: Mapping[str, Any] | None
    tried: int
    host_retries: int | None
    hint: str | None
    hint_words: Mapping[str, Any] | None


class PlainStep(Step):
    """A step whose host is a test.

    Args:
        runner: submits and asks.
        launch: what to submit, or None if the job is known by its handle.
        identity: whose job it is.
        options: how it is run.
        said: gets the lines.
        asked: tells whether somebody wanted its end.
        changed: gets each new status.
        round: how often a person has run the step again, which is kept with its jobs.
        more: of `Step`.
    """

    host = "host"

    def __init__(
        self,
        runner: Runner,
        launch: Launch | None,
        identity: Identity,
        options: ExecutionOptions | None = None,
        *,
        said: Callable[[str], object] = lambda text: None,
        asked: Callable[[], bool | None] = lambda: True,
        changed: Callable[[AppStatus], object] = lambda status: None,
        round: int = 0,
        **more: Unpack[StepOptions],
    ) -> None:
        super().__init__(launch, options, runner=runner, **more)
        self._identity = identity
        self._said = said
        self._is_asked = asked
        self._is_changed = changed
        self._round = round

    def identity(self) -> Identity:
        """Return whose job it is."""
        return self._identity

    def say(self, text: str) -> None:
        """Hand on a line."""
        self._said(text)

    def asked(self) -> bool | None:
        """Return what the test says."""
        return self._is_asked()

    def changed(self, status: AppStatus) -> None:
        """Hand on a status."""
        self._is_changed(status)

    def words(self) -> dict[str, Any]:
        """Return how often a person has run the step again."""
        return {"round": self._round}

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Compare the rounds."""
        if now["round"] == kept["round"]:
            return Again.NO
        return Again.YES if now["round"] > kept["round"] else Again.LATER
