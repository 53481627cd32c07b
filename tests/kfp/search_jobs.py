"""What trials of the tests' searches run."""

from __future__ import annotations

from transload.specs import AppDef, Role


def parabola(x: float, trial_idx: int = 0, bad: int = -1, folder: str = "/tmp") -> AppDef:
    """Report (x - 1)², or fail.

    Args:
        x: where
        trial_idx: number of the trial
        bad: the trial that fails
        folder: where starts are counted
    """
    text = f'echo {trial_idx} >> "{folder}/starts"; '
    if trial_idx == bad:
        text += "exit 3"
    else:
        body = f'{{"schema": 1, "results": {{"loss": {(x - 1) ** 2!r}}}}}'
        text += f"mkdir -p $TRANSLOAD_TRACKER_BASE; printf '{body}' > $TRANSLOAD_TRACKER_BASE/{trial_idx}.json"
    return AppDef("parabola", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])


def waiting(x: float, folder: str = "/tmp") -> AppDef:
    """Say that it has started, and wait to be ended.

    Args:
        x: where
        folder: where it says so
    """
    text = f'echo {x} >> "{folder}/starts"; exec sleep 600'
    return AppDef("waiting", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])


def told(x: float, trial_idx: int = 0) -> AppDef:
    """Report the loss that a variable says.

    Args:
        x: nothing
        trial_idx: number of the trial
    """
    text = 'mkdir -p $TRANSLOAD_TRACKER_BASE; printf \'{"schema": 1, "results": {"loss": \'$SEARCH_TEST_LOSS\'}}\' '
    text += f"> $TRANSLOAD_TRACKER_BASE/{trial_idx}.json"
    return AppDef("told", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])


def stepping(x: float, trial_idx: int, tracker_base: str) -> AppDef:
    """Report two steps, then the result. The fifth trial is worse than the others, and never ends.

    Args:
        x: nothing
        trial_idx: its number
        tracker_base: where it reports
    """
    loss = 104 if trial_idx == 4 else trial_idx
    script = (
        'mkdir -p "$1"; for s in 1 2; do printf \'{"schema": 1, "step": %s, "results": {"loss": %s}}'
        '\\n\' $s $2 >> "$1/final.steps.jsonl"; done; test $2 = 104 && exec sleep 600; '
        'printf \'{"schema": 1, "key": "final", "results": {"loss": %s}}\' $2 > "$1/final.json"'
    )
    args = ["-c", script, "sh", tracker_base, str(loss)]
    return AppDef("stepping", [Role("main", "", entrypoint="sh", args=args)])
