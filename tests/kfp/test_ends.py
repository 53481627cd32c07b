"""A task's end on a real backend: a person's end of the run, a pod that is ended, a pod that dies.

Jobs run on the simulated cluster, whose API has the run's Workflow too. Processes, signals and
broken pipes of a task's pod are those of `task_pod`.
"""

# No "from __future__ import annotations": KFP reads the annotations of pipeline functions, and as
# types.

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import launched
import pytest
import search_jobs
from executor import RECORDED, words_of
from task_pod import TaskPod
from test_launcher import starts

from transload.runner import Runner
from transload.specs import AppState
from transload_kfp import EXIT_CANCELLED, launcher_from_app
from transload_kfp.search_steps import encode_search
from transload_search import Objective, Parameter, Search

pytestmark = [pytest.mark.timeout(300)]

LAUNCHER = """
import runpy, sys
from transload_kfp import run_watch
run_watch.ACCOUNT = sys.argv.pop(1)
runpy.run_module("transload_kfp", run_name="__main__", alter_sys=True)
"""
"""The container form, in a pod whose account is mounted elsewhere."""
ARGO_S = 3.0
"""A backend sends SIGTERM so many seconds after a person's end, at least (measured: 3 to 5)."""


class Run:
    """A run of one launcher on a backend."""

    def __init__(self, server: Any, folder: Path, variables: dict[str, str]) -> None:
        self.cluster = server.cluster
        self.folder = folder
        self.account = str(folder.parent / "account")
        self.variables = dict(variables)
        self.pods: list[TaskPod] = []
        folder.mkdir()
        self.run_id = str(uuid.uuid4())
        workflow = json.loads((RECORDED / "ended_workflow.json").read_text())
        self.workflow = f"run-{self.run_id}"
        workflow["metadata"]["name"] = self.workflow
        workflow["metadata"]["labels"]["pipeline/runid"] = self.run_id
        self._ended = workflow["spec"].pop("activeDeadlineSeconds")
        self.cluster.create("workflows", "kubeflow", workflow)

    def start(self, **options: Any) -> TaskPod:
        """Start the launcher's pod, or another one for its next try."""
        name = f"pod-{len(self.pods)}"
        self.pods.append(TaskPod(self.folder / name, self.command(**options), self.variables))
        return self.pods[-1]

    def command(self, **options: Any) -> list[str]:
        """Return the command of the launcher's container."""
        options = {"scheduler": "kubernetes", "cfg": {"namespace": "kubeflow"}, **options}
        where = {"folder": str(self.folder), "image": "registry.example/shell:1"}
        made = launcher_from_app(
            launched.waiting, component_args=where, image="launcher:1", **options
        )
        words = [self.account, *words_of(made, self.folder / "out", job_id=self.run_id)]
        return [sys.executable, "-c", LAUNCHER, *words]

    def end_by_a_person(self) -> None:
        """Do what ``terminate`` of a backend does first."""
        change = {"spec": {"activeDeadlineSeconds": self._ended}}
        self.cluster.patch("workflows", "kubeflow", self.workflow, change)

    def begin_again(self) -> None:
        """Do what ``retry`` of a backend does first."""
        change = {"spec": {"activeDeadlineSeconds": None}}
        self.cluster.patch("workflows", "kubeflow", self.workflow, change)

    @property
    def said(self) -> str:
        """Return what its launchers have written that run in no pod."""
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    @property
    def starts(self) -> int:
        """Return how often its job was started."""
        return starts(self.folder)


@pytest.fixture
def backend(
    tmp_path: Path, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Run]]:
    """Return ``backend()``, which begins a run on a simulated cluster."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "kubernetes"))
    from fake_server import FakeServer

    (tmp_path / "cluster").mkdir()
    server = FakeServer(tmp_path / "cluster")
    server.cluster.namespaces = ("default", "kubeflow")
    variables = server.account(tmp_path / "account", "kubeflow")
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    found = [str(Path(__file__).parent), *filter(None, sys.path)]
    variables = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(found)}
    runs: list[Run] = []

    def begin() -> Run:
        runs.append(Run(server, tmp_path / f"run-{len(runs)}", variables))
        return runs[-1]

    begin.server = server  # type: ignore[attr-defined]
    try:
        yield begin
    finally:
        for run in runs:
            for pod in run.pods:
                pod.kill()
        server.close()


@pytest.fixture
def states(backend: Any) -> Iterator[Callable[[], list[AppState]]]:
    """Return ``states()``, the states of all jobs on the cluster."""
    with Runner("test") as runner:

        def ask() -> list[AppState]:
            rows = runner.list("kubernetes")
            return [status.state for row in rows if (status := runner.status(row.app_handle))]

        yield ask


def test_a_person_ends_the_run(backend: Any, states: Any, eventually: Any) -> None:
    """The job is cancelled before the pod is ended, and its launcher says by whom."""
    run = backend()
    pod = run.start()
    eventually(lambda: run.starts == 1, 60)
    run.end_by_a_person()
    eventually(lambda: states() == [AppState.CANCELLED], ARGO_S * 10)
    assert pod.process.wait(60) == 1  # of `launch`, whose command ended with 79
    assert "the run was ended by a person" in pod.said


# -- where a task is in its run

NODE = "loop-z28kb(0).root(0).for-loop-2(0).iteration-item({item})(0).sh(0).executor({number})"
"""What a real backend called the node of a task, but for its item and the number of its try."""


def _is_there(run: Run, starts: int, attached: int) -> bool:
    return run.starts == starts and run.said.count("attached to") == attached


def test_equal_items_of_a_loop(backend: Any, states: Any, eventually: Any, container: Any) -> None:
    """Each item has a job of its own, which all tries of its task share."""
    run = backend()
    for count, item in enumerate(("0:0.5", "1:0.5"), start=1):
        for number in range(2):
            run.variables["TRANSLOAD_KFP_NODE"] = NODE.format(item=item, number=number)
            process = container(run)
            eventually(partial(_is_there, run, count, count - 1 + number), 60)
            process.kill()
    assert states() == [AppState.RUNNING] * 2


def test_a_person_retries_the_run(
    backend: Any, states: Any, eventually: Any, container: Any
) -> None:
    """A retry of the whole run by a person, which counts no try, runs a cancelled job again.

    A backend's next try leaves it cancelled. A pod that comes again without being counted takes the
    job that runs.
    """
    run = backend()

    def begin(number: int) -> Any:
        run.variables["TRANSLOAD_KFP_NODE"] = NODE.format(item="0:0.5", number=number)
        return container(run)

    process = begin(0)
    eventually(lambda: run.starts == 1, 60)
    process.kill()
    again = begin(0)
    eventually(lambda: "attached to" in run.said, 60)
    assert run.starts == 1
    run.end_by_a_person()
    assert again.wait(60) == EXIT_CANCELLED
    run.begin_again()
    assert begin(1).wait(60) == EXIT_CANCELLED
    assert run.starts == 1
    begin(0)
    eventually(lambda: run.starts == 2, 60)
    assert sorted(map(str, states())) == ["CANCELLED", "RUNNING"]


# -- what is known of the run when SIGTERM comes, to a process that has the time to act


@pytest.fixture
def container() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return ``container(run)``, which starts a launcher whose pod has a long grace period."""
    processes: list[subprocess.Popen[str]] = []

    def start(run: Run, **options: Any) -> subprocess.Popen[str]:
        with open(run.folder / "log", "ab") as log:
            made = subprocess.Popen(
                run.command(**options), stdout=log, stderr=log, env=run.variables, text=True
            )
        processes.append(made)
        return made

    yield start
    for each in processes:
        each.kill()
        each.wait(60)


def refused(run: Run) -> None:
    """Take the right to see Workflows."""
    from fake_api import ApiError

    run.cluster.fail["GET", "workflows"] = ApiError(403, "Forbidden", "workflows is forbidden")


def another_backend(run: Run) -> None:
    """Take the Workflow away."""
    run.cluster.delete("workflows", "kubeflow", run.workflow)


def no_pod(run: Run) -> None:
    """Have no cluster around the task, as KFP's local runner."""
    del run.variables["KUBERNETES_SERVICE_HOST"]


@pytest.mark.parametrize("why", [refused, another_backend, no_pod])
def test_a_run_that_cannot_be_seen(
    backend: Any, states: Any, eventually: Any, container: Any, why: Any
) -> None:
    """SIGTERM cancels the job, since it may be a person's end of the run."""
    run = backend()
    why(run)
    process = container(run)
    eventually(lambda: run.starts == 1, 60)
    process.terminate()
    assert process.wait(60) == EXIT_CANCELLED
    assert states() == [AppState.CANCELLED]


def outage(run: Run, server: Any, eventually: Any) -> None:
    """Have the cluster away."""
    run.cluster.away = True
    server.break_watches()


def watch_that_ends(run: Run, server: Any, eventually: Any) -> None:
    """End the watch, as a server does after some minutes, and wait for the next one."""
    before = watches(run)
    server.break_watches()
    eventually(lambda: watches(run) > before, 30)


def watches(run: Run) -> int:
    """Return how often the Workflow's watch was opened."""
    return sum("/workflows?" in each for each in run.cluster.requests)


@pytest.mark.parametrize("meanwhile", [None, outage, watch_that_ends])
def test_a_pod_that_is_ended_detaches(
    backend: Any, states: Any, eventually: Any, container: Any, meanwhile: Any
) -> None:
    """SIGTERM leaves the job running where the run was last seen to go on."""
    run = backend()
    process = container(run)
    eventually(lambda: run.starts == 1 and watches(run), 60)
    if meanwhile is not None:
        meanwhile(run, backend.server, eventually)
    process.terminate()
    assert process.wait(60) == 143, run.said
    run.cluster.away = False
    assert states() == [AppState.RUNNING]
    assert "nobody ended the run" in run.said


@pytest.mark.parametrize("meanwhile", [outage, watch_that_ends])
@pytest.mark.parametrize("end", ["end_by_a_person", "deleted"])
def test_a_run_that_ends_while_nobody_watches(
    backend: Any, states: Any, eventually: Any, container: Any, meanwhile: Any, end: str
) -> None:
    """The end of a run, by a person or by its removal, is seen when the cluster answers again."""
    run = backend()
    process = container(run)
    eventually(lambda: run.starts == 1 and watches(run), 60)
    meanwhile(run, backend.server, eventually)
    if end == "deleted":
        run.cluster.away = False
        another_backend(run)
    else:
        run.end_by_a_person()
        run.cluster.away = False
    assert process.wait(60) == EXIT_CANCELLED
    assert states() == [AppState.CANCELLED]


def test_a_job_that_outlives_its_task(
    backend: Any, states: Any, eventually: Any, container: Any
) -> None:
    """With ``on_kill="detach"`` a person's end of the run leaves the job, as asked for."""
    run = backend()
    process = container(run, on_kill="detach")
    eventually(lambda: run.starts == 1, 60)
    run.end_by_a_person()
    assert process.wait(60) == 143
    assert states() == [AppState.RUNNING]


@pytest.mark.parametrize(("limit", "code"), [(1, EXIT_CANCELLED), (3600, 143), (None, 143)])
def test_a_time_limit_of_the_pod(
    backend: Any,
    states: Any,
    eventually: Any,
    container: Any,
    limit: int | None,
    code: int,
) -> None:
    """SIGTERM for the time limit of the task's pod was asked for, by whoever set it."""
    run = backend()
    run.variables["KFP_POD_NAME"] = "executor"
    pod = json.loads((RECORDED / "pod.json").read_text())
    pod["metadata"]["name"] = "executor"
    pod["status"]["startTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if limit is not None:
        pod["spec"]["activeDeadlineSeconds"] = limit
    run.cluster.create("pods", "kubeflow", pod)
    process = container(run)
    eventually(lambda: run.starts == 1 and watches(run), 60)
    time.sleep(limit if limit == 1 else 0)  # the limit
    process.terminate()
    assert process.wait(60) == code
    assert states() == [AppState.CANCELLED if limit == 1 else AppState.RUNNING]


SEARCH = """
import sys
from transload_kfp import run_watch
run_watch.ACCOUNT = sys.argv[1]
from transload_kfp.search_steps import Steps
from transload_kfp.step import failing_the_task
steps = Steps(*sys.argv[3:])
with failing_the_task():
    if sys.argv[2] == "all":
        steps.run_all()
    else:
        steps.run_trial(0, steps.suggest(0)[0])
"""


@pytest.mark.parametrize("part", ["all", "trial"])
@pytest.mark.parametrize("by_a_person", [True, False])
def test_a_search(
    backend: Any, eventually: Any, tmp_path: Path, part: str, by_a_person: bool
) -> None:
    """A person's end of the run cancels a search's jobs, a pod's end does not."""
    run = backend()
    wanted = Search(
        search_jobs.waiting,
        [Parameter("x", "float", 0, 1)],
        Objective("loss"),
        trials=1,
        constants={"folder": str(run.folder)},
    )
    words = [run.account, part, encode_search(wanted, {}), str(tmp_path / "base"), run.run_id]
    process = subprocess.Popen([sys.executable, "-c", SEARCH, *words], env=run.variables)
    try:
        eventually(lambda: run.starts == 1 and watches(run), 60)
        if by_a_person:
            run.end_by_a_person()
        else:
            process.terminate()
        process.wait(60)
    finally:
        process.kill()
    with Runner("test") as runner:
        (row,) = runner.list("local")
        if by_a_person:
            ended = runner.wait(row.app_handle, timeout=60)
            assert ended is not None and ended.state is AppState.CANCELLED
        else:
            status = runner.status(row.app_handle)
            assert status is not None and status.state is AppState.RUNNING
            runner.cancel(row.app_handle)
            runner.wait(row.app_handle, timeout=60)


# -- strikes

MOMENTS: dict[str, Callable[[Run], bool]] = {
    "begun": lambda run: True,
    "submitting": lambda run: bool(run.cluster.items("configmaps")),
    "running": lambda run: run.starts == 1,
}
STRIKES = 20
"""Of each kind, over `LONGEST_S` from the start of the container on."""
LONGEST_S = 6.0


@pytest.fixture(
    params=[
        *MOMENTS,
        *(pytest.param(number, marks=pytest.mark.slow) for number in range(STRIKES)),
    ]
)
def moment(request: pytest.FixtureRequest, eventually: Any) -> Callable[[Run], None]:
    """Return ``moment(run)``, which returns when the run's task is to be struck."""

    def wait(run: Run) -> None:
        eventually(run.pods[-1].has_begun, 60)
        if isinstance(request.param, int):
            time.sleep(request.param * LONGEST_S / STRIKES)
        else:
            eventually(lambda: MOMENTS[request.param](run), 60)

    return wait


def test_a_person_ends_the_run_at_any_moment(
    backend: Any, states: Any, eventually: Any, moment: Any
) -> None:
    """Nothing is left running, and there was one job at most."""
    run = backend()
    pod = run.start()
    moment(run)
    run.end_by_a_person()
    time.sleep(ARGO_S)
    pod.terminate()
    eventually(lambda: set(states()) <= {AppState.CANCELLED}, 30)
    assert len(states()) <= 1


@pytest.mark.parametrize("strike", ["terminate", "kill"])
def test_a_pod_that_ends_at_any_moment(
    backend: Any, states: Any, eventually: Any, moment: Any, strike: str
) -> None:
    """Nobody ended the run: the job goes on, and the next try of the task finds it."""
    run = backend()
    pod = run.start()
    moment(run)
    getattr(pod, strike)()
    was_there = run.starts == 1
    again = run.start()
    eventually(lambda: states() == [AppState.RUNNING] and run.starts, 120)
    if was_there:
        eventually(lambda: "attached to kubernetes://" in again.said, 60)
    assert run.starts == 1
