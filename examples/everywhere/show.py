"""Run the job inside a host that this file starts, and show what a person sees there: python
show.py HOST [--keep]

The host is `airflow`, `ax`, `kfp` or `prefect`. All that it keeps goes to the folder
everywhere-HOST, which is made anew. Where Chromium is installed, the host's own page is saved there
as a picture; else what the page shows is printed. `--keep` leaves the server up, opens the page in
your browser, and waits for Ctrl-C.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
READY_S = 240.0


def main(argv: list[str]) -> None:
    """Run the job in the host that is named."""
    hosts: dict[str, Callable[[Path, bool], None]] = {
        "airflow": airflow,
        "ax": ax,
        "kfp": kfp,
        "prefect": prefect,
    }
    name, keep = (argv[0] if argv else ""), argv[1:] == ["--keep"]
    if name not in hosts or (argv[1:] and not keep):
        raise SystemExit(__doc__)
    folder = Path(f"everywhere-{name}").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.environ["TRANSLOAD_HOME"] = str(folder / "transload")
    hosts[name](folder, keep)
    print(f"all of it is in {folder}")


def prefect(folder: Path, keep: bool) -> None:
    """A flow of one task on a server of its own."""
    with prefect_server(folder) as url:
        page = run_flow(url, HERE / "prefect_flow.py")
        show(page, folder / "flow-run.png", keep, lambda: seen_in_prefect(url, page))


@contextmanager
def prefect_server(folder: Path) -> Iterator[str]:
    """Have a Prefect server, which flows of this process's children report to; give its address."""
    url = f"http://127.0.0.1:{free_port()}"
    environment = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    os.environ |= environment
    starting = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--port",
        url.rpartition(":")[2],
    ]
    with server([starting], environment, folder):
        wait_for(lambda: call(f"{url}/api/health"), "the Prefect server answers")
        yield url


def run_flow(url: str, program: Path) -> str:
    """Run a flow; return the address of its page."""
    subprocess.run([sys.executable, str(program)], check=True)
    (run,) = call(f"{url}/api/flow_runs/filter", {"limit": 1, "sort": "START_TIME_DESC"})
    return f"{url}/runs/flow-run/{run['id']}"


def seen_in_prefect(url: str, page: str) -> list[str]:
    """Return the lines that the page of a flow run shows: its state, its log, its table of
    results.
    """
    run = page.rpartition("/")[2]
    flow_run = call(f"{url}/api/flow_runs/{run}")
    lines = [f"flow run {flow_run['name']}: {flow_run['state_name']}"]
    wanted = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"}
    lines += [f"log: {entry['message']}" for entry in call(f"{url}/api/logs/filter", wanted)]
    tables = {"artifacts": {"flow_run_id": {"any_": [run]}, "type": {"any_": ["table"]}}}
    for table in call(f"{url}/api/artifacts/filter", tables):
        if table["key"].endswith("-results"):
            rows = json.loads(table["data"])
            lines += [f"result: {row['key']} {row['name']} = {row['value']}" for row in rows]
    return lines


def airflow(folder: Path, keep: bool) -> None:
    """A DAG of one task on an Airflow of its own."""
    with airflow_server(folder, HERE) as (url, token):
        page = f"{run_dag(url, token, 'everywhere')}/tasks/digits"
        show(page, folder / "task.png", keep, lambda: seen_in_airflow(url, token, page))


def seen_in_airflow(url: str, token: str, page: str) -> list[str]:
    """Return the lines that the pages of a task show: its state, its log, its XComs."""
    _, dag, _, run, _, task = page.removeprefix(f"{url}/").split("/")
    instance = f"{url}/api/v2/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}"
    found = call(instance, token=token)
    lines = [f"task {task} of {dag}: {found['state']}"]
    log = call(f"{instance}/logs/{found['try_number']}?full_content=true", token=token)
    events = [entry["event"] for entry in log["content"]]
    lines += [f"log: {event}" for event in events if not event.startswith("::")]
    for entry in call(f"{instance}/xcomEntries", token=token)["xcom_entries"]:
        value = call(f"{instance}/xcomEntries/{entry['key']}", token=token)["value"]
        if not isinstance(value, dict) or "results" not in value:
            lines.append(f"XCom: {entry['key']} = {value}")
            continue
        for key, results in value["results"].items():
            lines += [f"result: {key} {name} = {result}" for name, result in results.items()]
    return lines


def run_dag(url: str, token: str, name: str) -> str:
    """Run a DAG until it has ended; return the address of the run's page."""
    dag = f"{url}/api/v2/dags/{name}"
    wait_for(lambda: call(dag, token=token), "the DAG is known")
    call(dag, {"is_paused": False}, token=token, method="PATCH")
    run = call(f"{dag}/dagRuns", {"logical_date": None}, token=token)["dag_run_id"]
    ended = wait_for(
        lambda: (
            (found := call(f"{dag}/dagRuns/{run}", token=token))
            and found["end_date"]
            and found["state"]
        ),
        "the run has ended",
    )
    print(f"the run of the DAG: {ended}")
    return f"{url}/dags/{name}/runs/{run}"


@contextmanager
def airflow_server(folder: Path, dags: Path) -> Iterator[tuple[str, str]]:
    """Have an Airflow: scheduler, triggerer, DAG processor and API server; give its address and a
    token. Programs that this process starts meanwhile use it.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "CORE__DAGS_FOLDER": str(dags),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "API__BASE_URL": url,
        "API_AUTH__JWT_SECRET": os.urandom(32).hex(),
        "API__SECRET_KEY": os.urandom(32).hex(),
        "LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    environment = {"AIRFLOW_HOME": str(folder / "airflow"), "NO_PROXY": "*"}
    environment |= {f"AIRFLOW__{name}": value for name, value in settings.items()}
    os.environ |= environment
    program = [sys.executable, "-m", "airflow"]
    subprocess.run([*program, "db", "migrate"], check=True, stdout=subprocess.DEVNULL)
    api_server = [
        *program,
        "api-server",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--workers",
        "1",
    ]
    parts = [
        api_server,
        *([*program, part] for part in ("scheduler", "dag-processor", "triggerer")),
    ]
    with server(parts, environment, folder):
        wait_for(lambda: call(f"{url}/api/v2/monitor/health"), "Airflow answers")
        yield url, call(f"{url}/auth/token")["access_token"]


def kfp(folder: Path, _keep: bool) -> None:
    """A pipeline of one component by KFP's local runner, and what a cluster would be given."""
    os.chdir(folder)
    code = (
        "import kfp, kfp_pipeline; "
        "kfp.compiler.Compiler().compile(kfp_pipeline.make_pipeline(image='python:3.11'),"
        " 'pipeline.yaml'); print(kfp_pipeline.run_here('pipelines').outputs)"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(HERE)}, check=True
    )
    print(f"what a cluster would be given: {folder / 'pipeline.yaml'}")


def ax(folder: Path, _keep: bool) -> None:
    """A search of eight trials, Ax's model proposing the learning rates, and its picture."""
    transload = [sys.executable, "-m", "transload", "search"]
    wanted = [
        "--component",
        str(HERE.parent / "digits" / "component.py:digits"),
        "--param",
        "lr:float:0.01:1:log",
    ]
    budget = ["--suggester", "ax", "--trials", "8", "--parallel", "2", "--const", "epochs=4"]
    subprocess.run(
        [*transload, "run", "--name", "everywhere", *wanted, "--maximize", "accuracy", *budget],
        check=True,
    )
    subprocess.run([*transload, "plot", "everywhere", "-o", str(folder / "search.svg")], check=True)


# -- the servers, and what they answer


@contextmanager
def server(parts: list[list[str]], environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Start programs, each in a session of its own; end them, and all that they started, at the
    end.
    """
    started = []
    with (folder / "server.log").open("wb") as log:
        try:
            for part in parts:
                started.append(
                    subprocess.Popen(
                        part,
                        env=os.environ | environment,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                for process in started:
                    try:
                        os.killpg(process.pid, number)
                        process.wait(10)
                    except (ProcessLookupError, subprocess.TimeoutExpired):
                        continue


def call(url: str, body: Any = None, token: str = "", method: str = "") -> Any:
    """Return the JSON answer of a server; None while it cannot be reached, or does not know that
    yet.
    """
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method or None)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
    except OSError:  # urllib's errors are ones, time-outs too
        return None


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first answer that is not empty; SystemExit when there is none in time."""
    print(f"waiting until {what} ...", file=sys.stderr, flush=True)
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.3)
    raise SystemExit(f"{what}: not within {READY_S:.0f} s; see server.log")


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def show(url: str, picture: Path, keep: bool, seen: Callable[[], list[str]]) -> None:
    """Save a page as a picture, or print what it shows; with `keep`, open it and wait for Ctrl-C.

    Args:
        url: Of the page.
        picture: Where it is saved, if Chromium is installed.
        keep: Whether to open it and wait.
        seen: Returns the lines to be printed where there is no Chromium.
    """
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if chromium:
        options = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--window-size=1400,900",
            "--timeout=15000",
        ]
        saving = [chromium, *options, "--virtual-time-budget=15000", f"--screenshot={picture}", url]
        subprocess.run(
            saving, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False
        )
        print(f"what a person sees: {picture}")
    else:
        print("\nwhat a person sees (a picture of it needs Chromium):", *seen(), sep="\n  ")
        if not keep:
            print("the page itself: again, with --keep")
    if keep:
        try:
            print(f"the page: {url} (Ctrl-C ends the server)", flush=True)
            webbrowser.open(url)
            signal.pause()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
