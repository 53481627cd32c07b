"""A chain: one job says how many replicas there may be, a search finds how many are best, and the
lineage is drawn.

``python examples/ax/replicas.py FOLDER``. The search's parameter ``replicas`` is the number of
processes that a trial really starts: a searched parameter may set anything in the app, since each
trial's component is called with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from transload.specs import AppDef, Role, macros

HERE = Path(__file__).resolve()
NUMBERS = 12_000
PRICE = 1_500


def survey(tracker_base: str) -> AppDef:
    """Report how many replicas a job may have here.

    Args:
        tracker_base: where to report
    """
    role = Role(
        "survey",
        image=str(HERE.parent),
        entrypoint=sys.executable,
        args=[str(HERE), "survey", tracker_base],
    )
    return AppDef("survey", [role])


def share(replicas: int, trial_idx: int, tracker_base: str) -> AppDef:
    """Count primes, each replica in its share of the numbers; report what that costs.

    Args:
        replicas: how many processes share the work
        trial_idx: number of the trial
        tracker_base: where to report
    """
    args = [str(HERE), "share", tracker_base, str(trial_idx), str(replicas), macros.replica_id]
    role = Role(
        "counter",
        image=str(HERE.parent),
        entrypoint=sys.executable,
        args=args,
        num_replicas=replicas,
    )
    return AppDef("share", [role])


def run_survey(tracker_base: str) -> None:
    """Do the work of the first job."""
    from transload.runtime.tracking import FsspecResultTracker
    from transload.tracker import AppRun

    most = 4
    AppRun.run_from_env().add_metadata(stage="survey", most=most, cores=os.cpu_count() or 1)
    FsspecResultTracker(tracker_base)["survey"] = {"most": most}


def run_share(tracker_base: str, trial: str, replicas: int, replica: int) -> None:
    """Do the work of one replica of a trial; the first one reports.

    The cost is what the largest share has to look at, and a price for each replica.
    """
    from transload.runtime.tracking import FsspecResultTracker
    from transload.tracker import AppRun

    mine = range(2 + replica, NUMBERS, replicas)
    primes = sum(all(number % each for each in range(2, int(number**0.5) + 1)) for number in mine)
    print(f"replica {replica} of {replicas}: {primes} primes among {len(mine)} numbers", flush=True)
    if replica == 0:
        cost = len(mine) + PRICE * replicas
        AppRun.run_from_env().add_metadata(
            stage="search", trial=int(trial), replicas=replicas, cost=cost
        )
        FsspecResultTracker(tracker_base)[int(trial)] = {"cost": cost}


def main(folder: Path) -> None:
    """Run the chain."""
    os.environ["TRANSLOAD_TRACKERS"] = "fsspec"
    os.environ["TRANSLOAD_TRACKER_FSSPEC_CONFIG"] = str(folder / "runs")
    from transload.runner import get_runner
    from transload.tracker import FsspecTracker
    from transload_report import lineage_svg
    from transload_search import Objective, Parameter, Search, SearchLedger, run_search

    with get_runner("chain") as runner:
        first = runner.run_component(f"{HERE}:survey")
        runner.wait(first)
        most = int(runner.results(first).value("most"))

        # an output of the first job is the bound of the search, and its handle the parent of every
        # trial
        search = Search(
            component=f"{HERE}:share",
            parameters=[Parameter("replicas", "int", 1, most)],
            objective=Objective("cost"),
            trials=4,
            parallelism=2,
            suggester="ax",
            parent_run_id=first,
        )
        best = run_search(SearchLedger(search, str(folder / "results")), runner)["best"]
    print(f"best: {best['parameters']['replicas']} replicas, cost {best['value']:g}")

    lineage = FsspecTracker(None, str(folder / "runs")).lineage(first)
    (folder / "lineage.svg").write_text(lineage_svg(lineage), encoding="utf-8")
    print(f"lineage of {first}: {folder / 'lineage.svg'}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]).resolve())
    elif sys.argv[1:2] == ["survey"]:
        run_survey(sys.argv[2])
    else:
        run_share(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
