"""Find a learning rate for the digits trainer, then train with more replicas; every job is an app.

The trainer is the one of `examples/digits`: the flow knows its component, not its program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, unmapped

from transload_prefect import app_task

COMPONENT = str(Path(__file__).parents[1] / "digits" / "component.py")

train = app_task(COMPONENT, name="train", task_run_name="train-lr-{lr}", retries=1, tags=["digits"])


@flow(name="digits")
def digits(
    rates: list[float], epochs: int = 8, replicas: int = 3, scheduler: str = "local"
) -> float:
    """Train once for each rate with one replica, then with the best rate and more replicas.

    Args:
        rates: learning rates to try, all at once
        epochs: how often each picture is seen
        replicas: of the last training
        scheduler: where the jobs run
    """
    where: dict[str, Any] = {"scheduler": scheduler}
    futures = train.map(lr=rates, epochs=epochs, replicas=1, launch=unmapped(where))
    results = futures.result()
    accuracies = [float(each.value("accuracy", "final")) for each in results]
    best = max(range(len(rates)), key=accuracies.__getitem__)
    get_run_logger().info("accuracies %s: the best rate is %s", accuracies, rates[best])
    # what one job returned decides how the next is launched; a tracker, if there is one, learns
    # where it came from
    final = train.with_options(name="train-best", task_run_name="train-best")
    where = {**where, "parent_run_id": results[best]}
    result = final(
        lr=rates[best], epochs=2 * epochs, replicas=replicas, launch=where, wait_for=futures
    )
    return float(result.value("accuracy", "final"))


if __name__ == "__main__":
    print(digits([0.05, 0.2, 0.5, 1.0]))
