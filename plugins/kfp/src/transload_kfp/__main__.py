"""Run a task of a launcher, or of a search.

The command is ``python3 -m transload_kfp TASK TEXT EXECUTOR EXECUTOR_INPUT [PATH …]``.
"""

from __future__ import annotations

import json
import sys

from transload_kfp import sigterm


def main(words: list[str]) -> None:
    """Run a task.

    Args:
        words: which one, what its component carries, the name of KFP's program for which this one
            stands in, KFP's executor input, and paths of artifacts.

    Raises:
        SystemExit: with the exit code of a task that failed.
    """
    task, text, _, request, *paths = words
    if task == "launch":
        from transload_kfp.task import main as launch

        launch(text, json.loads(request), paths)
    else:
        from transload_kfp.search_steps import main as search

        search(task, text, json.loads(request))


if __name__ == "__main__":
    sigterm.note_from_now_on()  # before the rest is imported
    main(sys.argv[1:])
