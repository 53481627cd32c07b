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


def lost_sight_of(x: float, trial_idx: int = 0) -> AppDef:
    """Run, and then be out of sight for ever, on the scripted scheduler.

    Args:
        x: nothing
        trial_idx: number of the trial
    """
    from transload_testing import scripted_app

    return scripted_app(
        "lost",
        {"steps": [{"state": "RUNNING", "seconds": 0.1}, {"state": "UNKNOWN", "seconds": 600}]},
    )


def stepping(
    x: float, trial_idx: int, tracker_base: str, folder: str = "/tmp", bad: int = -1
) -> AppDef:
    """Report two steps and end well.

    The bad trial's steps are worse, and it goes on for ever.

    Args:
        x: where
        trial_idx: number of the trial
        tracker_base: where it reports
        folder: where starts are counted
        bad: the trial that is worse
    """
    loss = 100 if trial_idx == bad else x
    steps = "".join(
        f'{{"step": {step}, "results": {{"loss": {loss + step}}}}}\\n' for step in (1, 2)
    )
    text = f"echo {trial_idx} >> {folder}/starts; mkdir -p $1; printf '{steps}' > $1/final.steps.jsonl; "
    text += (
        "exec sleep 600"
        if trial_idx == bad
        else "printf '{}' > $1/final.json".format(
            f'{{"schema": 1, "key": "final", "results": {{"loss": {loss}}}}}'
        )
    )
    return AppDef(
        "stepping", [Role("main", "/tmp", entrypoint="sh", args=["-c", text, "sh", tracker_base])]
    )


def told(x: float, trial_idx: int = 0) -> AppDef:
    """Report the loss that a variable says.

    Args:
        x: nothing
        trial_idx: number of the trial
    """
    text = 'mkdir -p $TRANSLOAD_TRACKER_BASE; printf \'{"schema": 1, "results": {"loss": \'$SEARCH_TEST_LOSS\'}}\' '
    text += f"> $TRANSLOAD_TRACKER_BASE/{trial_idx}.json"
    return AppDef("told", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])
