"""The script as a task of a flow. Where it goes is what its header, the flow or the settings say."""

from __future__ import annotations

from prefect import flow

from transload_prefect import app_task

fit = app_task(command=["python", "fit.py", "--degree", "5"], name="fit")


@flow(name="fit")
def fit_curve() -> str:
    """Run the script with its packages; return where its job is."""
    return str(fit().handle)


if __name__ == "__main__":
    print(fit_curve())
