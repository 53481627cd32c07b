"""The built-in suggester of random points, which are the same for the same seed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import SpecError
from transload_search.search import Parameter, Search, SearchTrial, Value, Values

SCHEMA: Final = 1


class RandomSuggester:
    """Draws each trial from its own random stream.

    So trial 7 does not depend on the suggestions and observations before it.

    Args:
        search: the search.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        self._next = 0

    def check(self) -> None:
        """Accept every search, because random points can be drawn from any space."""

    def suggest(self, count: int = 1) -> list[SearchTrial]:
        """Return the next trials, at most as many as the search has left."""
        if count < 0:
            raise SpecError(f"count={count!r}: must be 0 or more")
        last = min(self._next + count, self._search.trials)
        trials = [self._trial(index) for index in range(self._next, last)]
        self._next = last
        return trials

    def observe(self, index: int, values: Values | None) -> None:
        """Ignore an observation, because random points do not depend on it."""
        if not 0 <= index < self._next:
            raise SpecError(
                f"trial {index!r} was not suggested; suggested are 0 to {self._next - 1}"
            )

    def state(self) -> dict[str, Any]:
        """Return the number of suggested trials, as JSON values."""
        return {"schema": SCHEMA, "suggester": "random", "next": self._next}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        try:
            if state["suggester"] != "random" or state["schema"] > SCHEMA:
                raise SpecError(
                    "state of a search: must be of the random suggester with "
                    f"schema {SCHEMA}: {dict(state)!r}"
                )
            self._next = int(state["next"])
        except SpecError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise SpecError(
                f"state of a search: must be one of the random suggester: {exc!r}"
            ) from exc

    def _trial(self, index: int) -> SearchTrial:
        drawn = {each.name: self._draw(each, index) for each in self._search.parameters}
        return SearchTrial(index, drawn)

    def _draw(self, parameter: Parameter, index: int) -> Value:
        stream = self._stream(parameter.name, index)
        if parameter.kind == "choice":
            return parameter.values[stream.randrange(len(parameter.values))]
        low = parameter.low
        high = parameter.high
        assert low is not None and high is not None
        if parameter.kind == "int" and parameter.log:
            # half a step is added at each end, so that the ends are as likely as other values
            drawn = round(_log_uniform(stream, low - 0.5, high + 0.5))
            return max(int(low), min(int(high), drawn))
        if parameter.kind == "int":
            return stream.randint(int(low), int(high))
        if parameter.log:
            return min(high, max(low, _log_uniform(stream, low, high)))
        return stream.uniform(low, high)

    def _stream(self, name: str, index: int) -> random.Random:
        """Return the random numbers of one parameter of one trial."""
        text = f"{self._search.seed}/{index}/{name}"
        digest = hashlib.sha256(text.encode()).digest()
        return random.Random(int.from_bytes(digest[:8], "big"))  # noqa: S311


def _log_uniform(stream: random.Random, low: float, high: float) -> float:
    return math.exp(stream.uniform(math.log(low), math.log(high)))
