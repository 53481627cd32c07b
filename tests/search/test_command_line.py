"""``transload search`` runs searches from the command line, kept by name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import command_line

from transload.pipelines import host_runner
from transload.specs import AppState
from transload_search.places import keep_base, search_folder
from transload_testing.packages import package_index

SEARCHED = f"{Path(__file__).with_name('searched.py')}:square"
SEARCH = ["--component", SEARCHED, "--param", "x:float:-1:3", "--minimize", "loss", "-s", "local"]


def transload(*args: str, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """Run a command of searches."""
    return command_line.transload("search", *args, cwd=cwd)


def states() -> list[str]:
    """Return the states of all trials' apps."""
    return sorted(row.state.name for row in host_runner("search").list("local"))


def test_run_go_on_show_and_plot(transload_home: Path, tmp_path: Path) -> None:
    """A search runs, goes on by name from another folder with more trials, is listed, shown and
    drawn.
    """
    pytest.importorskip("matplotlib")
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir(), other.mkdir()
    done = transload(
        "run",
        "--name",
        "first",
        *SEARCH,
        "--tracker-base",
        "kept",
        "--trials",
        "2",
        "--json",
        cwd=one,
    )
    assert done.returncode == 0, done.stderr
    assert "2/2" not in done.stderr
    found = json.loads(done.stdout)
    assert [row["state"] for row in found["trials"]] == ["SUCCEEDED"] * 2
    assert found["best"]["value"] == pytest.approx(found["best"]["parameters"]["x"] ** 2)
    for row in found["trials"]:
        asked = host_runner("search").job(row["handle"]).description().asked["search"]
        assert (asked["name"], asked["trial"]) == ("kept", row["index"])
    done = transload("run", "--name", "first", "--trials", "3", cwd=other)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best of 3 trials: loss ")
    assert "transload: first [########################] 3/3, best loss " in done.stderr
    assert "/3" not in transload("run", "--name", "first", "--no-progress", cwd=other).stderr
    assert (
        transload("run", "--name", "first", cwd=other).stdout == done.stdout
    )  # it has had its trials
    assert (list(other.iterdir()), (one / "kept" / "best.json").exists()) == ([], True)
    name, trials, best = transload("list").stdout.rstrip().split("\t")
    assert (name, trials, best.split()[:2]) == ("first", "3/3", ["best", "loss"])
    shown = transload("show", "first").stdout.splitlines()
    assert [line.split("\t")[:2] for line in shown[:3]] == [
        ["0", "done"],
        ["1", "done"],
        ["2", "done"],
    ]
    assert transload("show", str(one / "kept")).stdout.splitlines() == shown
    done = transload("plot", "first", "-o", str(tmp_path / "picture.svg"))
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "picture.svg")), done.stderr
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    assert "must end in" in transload("plot", "first", "-o", "x.html").stderr
    assert states() == ["SUCCEEDED"] * 3


@pytest.mark.usefixtures("transload_home")
@pytest.mark.parametrize("says_who", ["true", "false"])
def test_the_value_of_a_failed_attempt_is_not_the_best(tmp_path: Path, says_who: str) -> None:
    """The value of a trial's failed first attempt does not count, but the second one's does."""
    component = SEARCHED.replace(":square", ":flaky")
    more = [
        "--param",
        "x:float:1:3",
        "--const",
        f"says_who={says_who}",
        "--minimize",
        "loss",
        "-s",
        "local",
    ]
    base = str(tmp_path / "base")
    done = transload(
        "run", "--component", component, *more, "--trials", "2", "--tracker-base", base, "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["state"] for row in found["trials"]] == ["SUCCEEDED"] * 2, found
    assert all(row["value"] == pytest.approx(row["parameters"]["x"]) for row in found["trials"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--name", "none"], ["'none'", "--component"]),
        (["--name", "../x"], ["--name"]),
        (SEARCH[:4], ["--minimize or --maximize"]),
        ([*SEARCH[:2], "--param", "z:float:0:1", "--minimize", "loss"], ["'z'", "x"]),
        (
            [*SEARCH[:2], "--param", "x:float:1", "--minimize", "loss"],
            ["x:float:1", "such as x:float:0.001:1"],
        ),
        (
            [*SEARCH[:2], "--param", "x:int:1_0:2_0", "--minimize", "loss"],
            ["x:int:1_0:2_0", "such as x:float:0.001:1"],
        ),
        ([*SEARCH, "--trials", "1_0"], ["--trials", "1_0"]),
        ([*SEARCH, "--constraint", "size<=1_0"], ["size<=1_0", "RESULT<=NUMBER"]),
        ([*SEARCH, "--const", "yy=1"], ["'yy'"]),
        ([*SEARCH, "--const", "gate"], ["--const 'gate'", "NAME=VALUE"]),
        ([*SEARCH, "--param", "x:float:0:1"], ["'x'", "twice"]),
        ([*SEARCH, "--failures", "2"], ["--failures", "0<=x<=1"]),
        ([*SEARCH, "--constraint", "size<3"], ["'size<3'", "RESULT<=NUMBER"]),
        ([*SEARCH, "--suggester", "randon"], ["'randon'", "random"]),
        ([*SEARCH, "-c", "nothing=1"], ["nothing"]),
        ([*SEARCH, "--environment", "x/requirements.txt"], ["no such file", "--environment"]),
        ([*SEARCH, "--environment", "setup.py --group a"], ["only uv.lock has them"]),
        ([*SEARCH[:-2], "-s", "nowhere"], ["scheduler 'nowhere' is not installed"]),
        ([*SEARCH[:4], "--objective", "loss"], ["--minimize loss, or --maximize loss"]),
        ([*SEARCH, "--", "--y", "1"], ["--y 1: an argument of the component", "--const"]),
        ([*SEARCH, "-cfg", "nothing=1"], ["unknown run option 'nothing'"]),
        (
            [*SEARCH[:2], "--param", "gate:choice:a,b", "--minimize", "loss"],
            ["nothing gives 'x'", "--param x:float:LOW:HIGH", "--const x=VALUE"],
        ),
    ],
)
def test_mistakes_are_one_line(args: list[str], words: list[str], transload_home: Path) -> None:
    """A mistake is one clear line with exit code 2. Nothing is started, and no search is kept."""
    done = transload("run", *args)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert [word for word in words if word not in last] == []
    assert "Traceback" not in done.stderr
    assert (host_runner("search").list("local"), transload("list").stdout) == ([], "")


def test_packages_of_trials(
    transload_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials find the packages that a file names, from any folder that the search goes on in."""
    (tmp_path / "requirements.txt").write_text("tiny\n", encoding="utf-8")
    packaged = SEARCHED.replace(":square", ":packaged")
    options = ["--component", packaged, "--param", "x:float:0:1", "--minimize", "loss"]
    environment = ["--environment", "requirements.txt"]
    with package_index(tmp_path / "index") as index:
        index.add("tiny", "1.5")
        index.be_the_only_one(monkeypatch)
        done = transload("run", *options, *environment, "--trials", "1", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        done = transload("run", "--trials", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["value"] for row in found["trials"]] == [1.5, 1.5]
    assert found["search"]["environment"] == str(tmp_path / "requirements.txt")


def test_what_differs_is_named(transload_home: Path) -> None:
    """Other parameters for a kept search are refused by name. How much and where may change."""
    assert transload("run", *SEARCH, "--trials", "1").returncode == 0
    done = transload("run", "--param", "x:float:-1:2")
    assert done.returncode == 2
    assert "parameters is x:float:-1:3 there, x:float:-1:2 here" in done.stderr
    assert "another --name, or delete that one: transload search delete search" in done.stderr
    assert "seed is 0 there, 7 here" in transload("run", "--seed", "7").stderr
    assert transload("run", "--trials", "2", "--parallel", "2", "--failures", "0.9").returncode == 0
    assert len(states()) == 2


def test_several_objectives(transload_home: Path) -> None:
    """Two objectives have no best trial, but a front. A constraint that none keeps is a failure."""
    done = transload(
        "run", *SEARCH, "--maximize", "size", "--constraint", "size<=3", "--trials", "2", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["best"], len(found["front"])) == (None, 1)
    done = transload("run", "--name", "none", *SEARCH, "--constraint", "size>=4", "--trials", "1")
    assert done.returncode == 1
    assert "no trial satisfies the constraints: size>=4" in done.stderr


def test_results_of_another_name(transload_home: Path) -> None:
    """A search whose trials report something else fails, and names the keys and results that there
    were.
    """
    done = transload("run", *SEARCH[:4], "--minimize", "lost", "--trials", "2", "--json")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["trials"]) == 2
    assert "none of 2 trials has a value of 'lost'" in done.stderr
    assert "reported final: loss, size" in done.stderr
    assert "did you mean 'loss'?" in done.stderr


def test_a_mistake_before_the_first_job_keeps_no_search(
    transload_home: Path, tmp_path: Path
) -> None:
    """The name is free for the corrected command. A base of the user's own stays, and is said."""
    component = tmp_path / "wrong.py"
    component.write_text(
        "from transload.specs import AppDef, Role\n\n\n"
        "def train(x: float) -> AppDef:\n"
        "    return AppDef('a', [Role('main', '', entrypoint='no-such-program')])\n"
    )
    words = ["--component", str(component), *SEARCH[2:]]
    done = transload("run", *words)
    assert done.returncode == 2
    assert "no such program" in done.stderr and "continues it" not in done.stderr
    assert transload("list").stdout == ""
    done = transload("run", *words, "--tracker-base", str(tmp_path / "base"))
    assert "`transload search run --name search` continues it\n" in done.stderr
    assert transload("list").stdout.startswith("search\t0/20")


@pytest.fixture
def begun(
    transload_home: Path, tmp_path: Path, eventually: Any
) -> Callable[..., subprocess.Popen[str]]:
    """Start a search of three trials, two at once, that wait for a gate. Return once both run."""
    marks = tmp_path / "marks"
    marks.mkdir()
    args = [
        *SEARCH,
        "--const",
        f"gate={tmp_path}/gate",
        "--const",
        f"marks={marks}",
        "--trials",
        "3",
        "--parallel",
        "2",
    ]

    def start(*more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "transload", "search", "run", *args, *more]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        eventually(lambda: len(os.listdir(marks)) == 2, 60)
        eventually(lambda: states() == ["RUNNING"] * 2, 60)
        return process

    return start


def test_what_is_no_result_is_named(transload_home: Path, tmp_path: Path) -> None:
    """Trials that write metadata to a tracker only get a message that says what to write."""
    (tmp_path / "transload.toml").write_text(f'[tracker.fsspec]\nconfig = "{tmp_path}/runs"\n')
    component = SEARCHED.replace(":square", ":noted")
    options = ["--component", component, "--param", "x:float:0:1", "--minimize", "loss"]
    done = transload("run", *options, "--trials", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "'loss' is among the metadata in a tracker, which are no results" in done.stderr
    assert "transload.runtime.report(loss=…), or by transload put loss=…" in done.stderr


def test_a_failed_search_says_what_runs_still(
    transload_home: Path, tmp_path: Path, eventually: Any
) -> None:
    """Running trials of a failed search are named.

    Cancel and delete take the name of the search.
    """
    component = SEARCHED.replace(":square", ":failing")
    gate = f"gate={tmp_path}/gate"
    options = ["--component", component, "--param", "x:float:0:1", "--minimize", "loss"]
    options += ["--const", gate, "--trials", "8", "--parallel", "2"]
    done = transload("run", "--name", "bad", *options)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("transload: 1 trial still runs, local://search/search-trial-0-")
    assert last.endswith(": `transload search cancel bad` ends what runs")
    handle = last.partition(", ")[2].partition(": ")[0]
    refused = transload("delete", "bad")
    assert refused.returncode == 2 and handle in refused.stderr
    cancelled = transload("cancel", "bad")
    assert cancelled.stdout == f"{handle}\tasked to end\n"
    eventually(lambda: "RUNNING" not in states(), 30)
    assert "no trial of search 'bad' runs" in transload("cancel", "bad").stderr
    done = transload("delete", "bad", "--json")
    assert len(json.loads(done.stdout)["deleted"]) == 6
    assert (states(), transload("list").stdout) == ([], "")
    for verb in ("cancel", "delete"):
        assert "there is no search 'bad' here" in transload(verb, "bad").stderr
    assert not search_folder("bad").exists()


def test_a_deleted_search_leaves_a_base_of_the_users_own(
    transload_home: Path, tmp_path: Path
) -> None:
    """Jobs and name go, and the files stay. A base that somebody has removed is no obstacle."""
    base = tmp_path / "kept"
    run = ["run", *SEARCH, "--trials", "1", "--tracker-base", str(base)]
    assert transload(*run).returncode == 0
    done = transload("delete", "search")
    assert f"the results of search 'search' stay in {base}" in done.stderr
    assert (base / "best.json").exists() and states() == []
    assert transload(*run).returncode == 0  # it has had its trials
    shutil.rmtree(base)
    assert transload("delete", "search").returncode == 0
    assert transload("list").stdout == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_interrupted(begun: Any, tmp_path: Path, number: signal.Signals) -> None:
    """Whatever ends the command, running trials go on, and the name alone continues them."""
    process = begun()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert (
            "stopped after 0 of 3 trials: `transload search run --name search` continues it; 2 running "
            "trials" in said
        )
    assert states() == ["RUNNING"] * 2
    jobs = [line.split("\t")[-1] for line in transload("show").stdout.splitlines()]
    assert sorted(jobs) == sorted(row.app_handle for row in host_runner("search").list("local"))
    (tmp_path / "gate").touch()
    done = transload("run", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["state"] for row in json.loads(done.stdout)["trials"]] == ["SUCCEEDED"] * 3
    assert len(os.listdir(tmp_path / "marks")) == 3


def test_interrupted_with_cancel_running(begun: Any, tmp_path: Path) -> None:
    """With --cancel-running, Ctrl-C ends running trials, which run again with the search."""
    process = begun("--cancel-running")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "2 running trials were cancelled, and will run again then" in said
    with host_runner("search") as runner:
        for row in runner.list("local"):
            runner.wait(row.app_handle)
    assert states() == ["CANCELLED"] * 2
    (tmp_path / "gate").touch()
    done = transload("run", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["state"] for row in json.loads(done.stdout)["trials"]] == ["SUCCEEDED"] * 3
    assert states() == ["CANCELLED"] * 2 + ["SUCCEEDED"] * 3


def test_sigterm_with_cancel_running(begun: Any, tmp_path: Path) -> None:
    """After SIGTERM, which nobody need have meant, trials go on, even with --cancel-running."""
    process = begun("--cancel-running")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert "2 running trials go on, and that command reattaches to them" in said
    assert states() == ["RUNNING"] * 2
    (tmp_path / "gate").touch()
    done = transload("run", "--json")
    assert done.returncode == 0, done.stderr
    assert states() == ["SUCCEEDED"] * 3


def test_one_process_at_a_time(begun: Any, tmp_path: Path) -> None:
    """A second process that runs the same search is told so, in a line."""
    process = begun()
    done = transload("run")
    assert (done.returncode, "another process is running this search" in done.stderr) == (2, True)
    (tmp_path / "gate").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_an_outage_ends_the_search(transload_home: Path, tmp_path: Path) -> None:
    """A silent scheduler ends the search, but the trial has not failed."""
    from transload.errors import StateUnknown
    from transload.pipelines import ExecutionOptions
    from transload_search import Objective, Parameter, Search, SearchLedger, run_search
    from transload_testing import scripted_app

    steps = [{"state": "RUNNING", "seconds": 0.1}, {"state": "UNKNOWN", "seconds": 600}]
    app = scripted_app("trial", {"steps": steps})
    (tmp_path / "component.py").write_text(
        "from transload.specs import AppDef\n"
        f"def trial(x: float) -> AppDef:\n    return AppDef.from_json({app.to_json()!r})\n"
    )
    search = Search(
        f"{tmp_path}/component.py:trial",
        [Parameter("x", "float", 0, 1)],
        Objective("loss"),
        scheduler="scripted",
    )
    ledger = SearchLedger(search, str(tmp_path / "base"))
    options = ExecutionOptions(patience=0.2, poll_interval=0.1, on_kill="detach")
    with host_runner("test") as runner, pytest.raises(StateUnknown):
        run_search(ledger, runner, options)
    assert [trial.index for trial in ledger.unfinished()] == [0]
    assert [row["state"] for row in ledger.summary()["trials"]] == [None]
    assert AppState.FAILED.name not in json.dumps(ledger.summary()["trials"])


def test_a_search_that_comes_first_makes_a_private_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a umask that lets a group write, what a search makes is the user's alone, and no submit
    refuses it.
    """
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path / "a" / "home"))
    before = os.umask(0o002)
    try:
        keep_base("first", str(search_folder("first")))
    finally:
        os.umask(before)
    folders = [tmp_path / "a", *(path for path in (tmp_path / "a").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
