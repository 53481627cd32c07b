"""Results of pods without storage come by a container's message or by a helper's log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runtime.tracking import TrackingError, read_bodies
from transload.schedulers.api import LogQuery, Stream, Submission
from transload.specs import NONE, AppDef, AppState, Role
from transload_kubernetes import handover, names, owner, results, submit
from transload_kubernetes.plan import Facts

HELPED = {"helper_image": "busybox"}


def finished(scheduler: Any, eventually: Any, app: Any, **cfg: Any) -> str:
    """Submit a job, wait until it has ended, and return its id."""
    options = scheduler.run_opts().resolve(cfg)
    base = scheduler.results_folder("test", options)
    submission = Submission(app, app.digest(), "tests", options, tracker_base=base, id_given=True)
    scheduler.submit(scheduler.convert(app, options), "test", submission)
    eventually(lambda: scheduler.describe("test").status.is_terminal(), 20)
    return "test"


def files(scheduler: Any, app_id: str) -> dict[str, bytes]:
    """Return all files of an app's results."""
    store = scheduler.results_store(app_id)
    return {name: store.read(name) for name, folder in store.entries() if not folder}


def test_results_come_with_the_status(scheduler: Any, eventually: Any, shell: Any) -> None:
    """The status has bodies of result files and plain results, where a later line of a key wins.

    The key of plain results is the replica's.
    """
    body = json.dumps({"schema": 1, "key": "a/b", "results": {"x": 1}})
    command = f"""echo '{{"loss": 3}}' >> $TRANSLOAD_RESULT_FILE; echo '{body}' >> $TRANSLOAD_RESULT_FILE
    echo '{{"loss": '$TRANSLOAD_REPLICA_ID'}}' >> $TRANSLOAD_RESULT_FILE"""
    found = files(scheduler, finished(scheduler, eventually, shell(command, replicas=2)))
    assert {name: json.loads(text) for name, text in found.items()} == {
        "0.json": {"schema": 1, "key": "0", "results": {"loss": 0}},
        "1.json": {"schema": 1, "key": "1", "results": {"loss": 1}},
        "a%2Fb.json": {"schema": 1, "key": "a/b", "results": {"x": 1}},
    }


def test_long_keys_come_back() -> None:
    """A key that is too long for a file's name is found again, as anywhere else."""
    store = results.PodStore("here")
    body = json.dumps({"schema": 1, "key": "é" * 100, "results": {"x": 1}})
    store.take_end({"exitCode": 0, "reason": "Completed", "message": body}, "0", "main/0")
    assert {key: body.results for key, body in read_bodies(store).items()} == {"é" * 100: {"x": 1}}


def test_a_key_that_no_text_can_hold_comes_back() -> None:
    """A program may write an escape that is no character without losing its results."""
    store = results.PodStore("here")
    body = '{"schema": 1, "key": "a\\ud800", "results": {"x": 1}}'
    store.take_end({"exitCode": 0, "reason": "Completed", "message": body}, "0", "main/0")
    assert {key: body.results for key, body in read_bodies(store).items()} == {"a?": {"x": 1}}


def test_too_much_for_the_status_is_refused(scheduler: Any, eventually: Any, shell: Any) -> None:
    """A status that was cut off is refused, with the replica's name and the way out."""
    command = """printf '{"x": "%05000d"}' 0 > $TRANSLOAD_RESULT_FILE"""
    app_id = finished(scheduler, eventually, shell({"other": "true", "main": command}))
    with pytest.raises(
        TrackingError, match=r"main/0: 4,096 bytes or more; .* 4,095; set .* helper_image"
    ):
        scheduler.results_store(app_id)


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_a_helper_hands_over_the_folder(
    scheduler: Any, eventually: Any, shell: Any, end: str
) -> None:
    """A helper hands over whole files of any name and content, however the program ended.

    Each attempt has its own, and the last one counts.
    """
    command = f"""cd $TRANSLOAD_TRACKER_BASE; mkdir -p 'a b'; echo $TRANSLOAD_RETRY > 'a b/r'
    head -c 100000 /dev/zero > zeros; {end}"""
    store = scheduler.results_store(
        finished(scheduler, eventually, shell(command, max_retries=1), **HELPED)
    )
    assert sorted(store.entries()) == [("a b", True), ("zeros", False)]
    assert store.read("zeros") == bytes(100_000)
    assert store.read("a b/r") == (b"0\n" if end == "exit 0" else b"1\n")
    with pytest.raises(FileNotFoundError, match="pods of test/none"):
        store.read("none")


def test_too_much_for_a_helper_is_refused(scheduler: Any, eventually: Any, shell: Any) -> None:
    """The replica is named, its size, and the way out."""
    command = "head -c 300000 /dev/zero > $TRANSLOAD_TRACKER_BASE/zeros"
    with pytest.raises(TrackingError, match=r"main/0: 300,000 bytes; .* 262,144; set tracker_base"):
        scheduler.results_store(finished(scheduler, eventually, shell(command), **HELPED))


def test_large_outputs_do_not_keep_results_back(
    scheduler: Any, eventually: Any, shell: Any
) -> None:
    """What is too large is refused by its name, and the rest comes."""
    command = (
        """cd $TRANSLOAD_TRACKER_BASE; head -c 300000 /dev/zero > outputs/zeros; echo 1 > 0.json"""
    )
    store = scheduler.results_store(finished(scheduler, eventually, shell(command), **HELPED))
    assert store.entries() == [("0.json", False)]
    with pytest.raises(
        TrackingError, match=r"outputs of main/0: 300,000 bytes; .* 262,144; set tracker_base"
    ):
        store.entries("outputs")


@pytest.mark.parametrize("shown", ["nothing", "a part"])
def test_a_log_that_is_not_whole_is_waited_for(
    fake: Any,
    scheduler: Any,
    eventually: Any,
    shell: Any,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
) -> None:
    """A log that a new kubelet shows in part is waited for, and loses no results."""
    app_id = finished(
        scheduler, eventually, shell("echo 1 > $TRANSLOAD_TRACKER_BASE/0.json"), **HELPED
    )
    ((helper, process),) = [(name, each) for name, each in fake.cluster.logs.items() if "/" in name]
    pod, whole = helper.partition("/")[0], process.lines

    def forget() -> None:
        if shown == "nothing":
            fake.cluster.forgotten = {pod}
        else:
            process.lines = whole[:-1]

    def remember() -> None:
        fake.cluster.forgotten, process.lines = set(), whole

    forget()
    timer = threading.Timer(1.5, remember)
    timer.start()
    assert files(scheduler, app_id) == {"0.json": b"1\n"}
    timer.join()
    forget()
    monkeypatch.setattr(handover, "_END_S", 0.0)
    with pytest.raises(
        SchedulerUnavailable, match="helper of pod .* cannot be read: .*(no log of|breaks off)"
    ):
        scheduler.results_store(app_id)
    if shown == "nothing":
        with pytest.raises(SchedulerUnavailable, match="no log of"):
            scheduler.log_read(app_id, LogQuery("main", 0, Stream.COMBINED))


def test_what_has_not_begun_says_nothing(runner: Any, fake: Any, eventually: Any) -> None:
    """The log of a pod that its kubelet does not know yet is empty, without an outage."""
    app = AppDef("a", [Role("main", "missing:1", entrypoint="true")])
    handle = runner.run(app, "kubernetes", HELPED)
    eventually(lambda: fake.cluster.items("pods"), 10)
    fake.cluster.forgotten = {each["metadata"]["name"] for each in fake.cluster.items("pods")}
    assert list(runner.log_lines(handle, "main")) == []
    assert not runner.results(handle).results
    runner.cancel(handle)


def test_no_helper_image_no_helper(scheduler: Any, shell: Any) -> None:
    """A pod has no helper unless asked, nor where results go elsewhere, and then has no folder."""
    for given, cfg, base, there in (
        ({}, {}, None, False),
        ({}, HELPED, results.FOLDER, True),
        ({"TRANSLOAD_TRACKER_BASE": "s3://b/c"}, HELPED, "s3://b/c", False),
    ):
        options = scheduler.run_opts().resolve(cfg)
        pod = scheduler.convert(shell("true", env=given), options).jobs[0]["spec"]["template"][
            "spec"
        ]
        environment = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert (environment.get("TRANSLOAD_TRACKER_BASE"), "initContainers" in pod) == (base, there)
        error = f"{results.FOLDER}/.error" if there else results.MESSAGE_FILE
        assert environment["TRANSLOAD_ERROR_FILE"] == error
        # torchrun removes its own before it writes it, and nobody can remove the file of a message
        assert (environment["TORCHELASTIC_ERROR_FILE"] == error) is there
        assert scheduler.results_folder("a", options) == (results.FOLDER if cfg else None)
        if there:  # an app that asks for all cores of a node still fits on it
            assert pod["initContainers"][0]["resources"]["requests"]["cpu"] == "0"


def test_a_helper_that_cannot_start_holds_nothing_up(
    runner: Any, fake: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A helper's image is tried once before. If it fails, the job runs without it, and says so."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    program = "from transload.runtime import report; report(loss=0.5)"
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program])])
    handle = runner.run(app, "kubernetes", {"helper_image": "missing:1"})
    assert re.search(
        "runs without its helper.* helper_image: (ErrImagePull|ImagePullBackOff)", caplog.text
    )
    status = runner.wait(handle, timeout=30)
    assert status.state is AppState.SUCCEEDED and runner.results(handle).value("loss") == 0.5
    fake.cluster.fail["POST", "jobs"] = ApiError(403, "Forbidden", "no Jobs for you")
    with pytest.raises(SubmitError, match="no Jobs for you"):
        runner.run(app, "kubernetes", HELPED)
    fake.cluster.fail.clear()
    fake.cluster.requests.clear()
    for _ in range(2):
        runner.wait(runner.run(app, "kubernetes", HELPED), timeout=30)
    tried = [each for each in fake.cluster.requests if "transload-results-" in each]
    assert sum(each.startswith("POST") for each in tried) <= 1, "one trial is enough for an image"


def test_a_full_cluster_says_nothing_of_a_helper(
    runner: Any, fake: Any, monkeypatch: Any, caplog: Any
) -> None:
    """A trial without a place yet waits. Only a fault of the image itself is its failure."""
    trial = results.trial

    def nowhere(spec: Any) -> Any:
        job = trial(spec)
        job["spec"]["template"]["spec"]["nodeSelector"] = {"unschedulable": "x"}
        return job

    monkeypatch.setattr(results, "trial", nowhere)
    monkeypatch.setattr(submit, "_TRIAL_S", 1.0)
    role = Role("main", "i", entrypoint="true")
    assert (
        runner.wait(runner.run(AppDef("a", [role]), "kubernetes", HELPED), timeout=30).state
        is AppState.SUCCEEDED
    )
    assert "its trial took longer than 1 s" in caplog.text and "Unschedulable" not in caplog.text


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_what_ends_from_outside_hands_over(runner: Any, jobset: str) -> None:
    """The owner of an app reads what its helper hands over before the pod is gone."""
    program = (
        "from transload.runtime import report; import time; report(loss=0.5); "
        "print('said', flush=True); time.sleep(60)"
    )
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program])])
    handle = runner.run(app, "kubernetes", {**HELPED, "jobset": jobset})
    assert next(iter(runner.log_lines(handle, "main", should_tail=True))) == "said\n"
    runner.cancel(handle)
    status = runner.wait(handle, timeout=30)
    assert status.state is AppState.CANCELLED
    assert runner.results(handle).value("loss") == 0.5


@pytest.mark.parametrize(("end", "jobset"), [("by itself", "always"), ("in its notice", "never")])
def test_a_cancel_that_comes_after_the_end(runner: Any, fake: Any, jobset: str, end: str) -> None:
    """What ended well before its kubelet ended it has SUCCEEDED.

    What ends so on request was cancelled.
    """
    fake.cluster.seen_late_s = 1.0
    program = "from transload.runtime import report; report(loss=0.5)"
    told = "; import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('said', flush=True)"
    words = program + told + ("; time.sleep(60)" if end != "by itself" else "")
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", words])])
    handle = runner.run(app, "kubernetes", {**HELPED, "jobset": jobset})
    assert next(iter(runner.log_lines(handle, "main", should_tail=True))) == "said\n"
    time.sleep(0.4)
    runner.cancel(handle)
    status = runner.wait(handle, timeout=30)
    assert status.state is (AppState.SUCCEEDED if end == "by itself" else AppState.CANCELLED)
    fake.cluster.forgotten = {
        each["metadata"]["name"] for each in fake.cluster.items("pods")
    }  # logs go before pods
    assert runner.results(handle).value("loss") == 0.5


def test_who_cancels_sees_the_end(runner: Any, scheduler: Any) -> None:
    """What a cancelled program left is noted before the cancel returns."""
    words = "print(1, flush=True); import time; time.sleep(60)"
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", words])])
    handle = runner.run(app, "kubernetes", HELPED)
    next(iter(runner.log_lines(handle, "main", should_tail=True)))
    runner.cancel(handle)
    assert scheduler._lookup.facts(handle.rpartition("/")[2]).files("main", 0)


def test_many_cancels_wait_once(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that take their time at SIGTERM do not hold up the cancels of others."""
    monkeypatch.setattr(owner, "_CANCEL_S", 0.5)
    words = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", words])])
    handles = [runner.run(app, "kubernetes", HELPED) for _ in range(3)]
    wait = handover.HandOver.wait
    waited: list[float] = []

    def record_wait(each: Any, seconds: float) -> None:
        waited.append(seconds)
        wait(each, seconds)

    monkeypatch.setattr(handover.HandOver, "wait", record_wait)
    for handle in handles:
        next(iter(runner.log_lines(handle, "main", should_tail=True)))
    for handle in handles:
        runner.cancel(handle)
    monkeypatch.undo()
    assert waited[0] == pytest.approx(0.5)
    assert waited[0] - 0.001 > waited[1] > waited[2]  # what is left of it: they share one end


@pytest.mark.parametrize(
    ("before", "end", "said"),
    [
        (":", "sleep 1.1", "by-itself\n"),  # no handler: its exit code would tell of a SIGTERM
        ("trap : TERM", ":", "by-itself\n"),
        (
            "trap : TERM",
            "sleep 1.5",
            "",
        ),  # the hook may have begun late: this may be its answer to SIGTERM
        (":", "exec sleep 60", ""),
    ],
)
def test_a_helper_sees_an_end_before_sigterm(
    tmp_path: Path, eventually: Any, before: str, end: str, said: str
) -> None:
    """The hook of a helper marks that the program lives, and whether it ended before the kubelet's
    SIGTERM.

    There are no containers here: what belongs to the program is told by its number.
    """
    mark = tmp_path / "mark"
    words = f"{before}; : >ready; until [ -e go ]; do sleep .05; done; {end}; exit 0"
    with subprocess.Popen(["sh", "-c", words], cwd=tmp_path) as program:
        threading.Thread(target=program.wait).start()
        known = (
            f"program() {{ kill -0 {program.pid} 2>/dev/null && echo /proc/{program.pid}/mounts; }}"
        )
        script = results._BEGIN.replace("/dev/shm/transload-results", str(mark))
        try:
            eventually((tmp_path / "ready").exists)
            with subprocess.Popen(["sh", "-c", f"{script}\n{known}\nbegin"]) as hook:
                eventually(mark.exists)
                (tmp_path / "go").touch()
                hook.wait(10)
        finally:
            program.kill()
    assert mark.read_text() == said


@pytest.mark.parametrize(
    ("message", "first"),
    [
        (
            '{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "f"}}}',
            "ValueError: no",
        ),
        ("no such thing\nreally", "no such thing"),
        ('{"message": {"message": "ValueError: no \\"' + "x" * 5000, 'ValueError: no "xxx'),
    ],
)
def test_the_first_error_is_the_cause(
    scheduler: Any, eventually: Any, shell: Any, message: str, first: str
) -> None:
    """Whatever a failed program wrote to its error file is its error. The first failure leads."""
    write = f"""cat > $TRANSLOAD_ERROR_FILE <<'END'
{message}
END
exit 3"""
    late = "sleep 1.2; echo late > $TRANSLOAD_ERROR_FILE; exit 4"
    command = f"if [ $TRANSLOAD_REPLICA_ID = 1 ]; then\n{write}\nfi\n{late}".replace("\\n", "\n")
    app_id = finished(scheduler, eventually, shell(command, replicas=2, min_replicas=1))
    status = scheduler.describe(app_id).status
    bad = status.roles[0].replicas[1]
    assert status.state is AppState.FAILED and f"main/1: {first}" in status.msg
    assert status.structured_error_msg == bad.structured_error_msg != NONE
    assert files(scheduler, app_id) == {}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ('{"loss": 1}', ""),
        ('{"file": "a", "base64": "!"}', ""),
        ('{"loss": 1}\n{"message": "no"}', "no"),
        ('{"message": "no \\u00e', "no"),
        ("[" * 4096, "[" * 4096),
    ],
)
def test_whatever_is_in_the_file(message: str, error: str) -> None:
    """No text of a program that failed keeps its status or its results from being read."""
    end = {"exitCode": 1, "reason": "Error", "message": message}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
    said, usage, more, _ = results.report_of({"spec": {}, "status": status})
    assert (usage, more) == ({}, False)
    assert (json.loads(said)["message"].strip() if said else "") == error
    store = results.PodStore("here")
    store.take_end(end, "0", "main/0")
    assert all(name for name, _ in store.entries())


def test_a_helper_hands_over_a_long_error(scheduler: Any, eventually: Any, shell: Any) -> None:
    """A long error comes whole, though a status takes but 4 KiB of it, and is no result file."""
    write = 'printf \'{"message": "ValueError: no", "more": "%020000d"}\' 0 > $TRANSLOAD_ERROR_FILE; exit 3'
    app_id = finished(scheduler, eventually, shell(write), **HELPED)
    for _ in range(2):
        status = scheduler.describe(app_id).status
        assert status.state is AppState.FAILED and "main/0: ValueError: no" in status.msg
        assert json.loads(status.structured_error_msg) == {
            "message": "ValueError: no",
            "more": "0" * 20_000,
        }
        scheduler.reconcile(app_id)
    assert files(scheduler, app_id) == {}


def test_usage_comes_with_a_helper() -> None:
    """A helper reports what the program used. What it did not see is unknown, not zero."""
    for word, usage in (
        ("2048 150\nno", {"peak_memory": 2 << 20, "cpu_seconds": 1.5}),
        ("0 0\nno", {}),
        ("", {}),
    ):
        ended = {
            "name": "transload-results",
            "state": {"terminated": {"reason": "Completed", "message": word}},
        }
        pod = {
            "spec": {"initContainers": [{"name": "transload-results"}]},
            "status": {"initContainerStatuses": [ended]},
        }
        error = json.dumps({"message": "no"}) if word else ""
        assert results.report_of(pod) == (error, usage, False, {})


def test_the_usage_of_a_large_job_is_a_number(scheduler: Any, shell: Any, tmp_path: Path) -> None:
    """A helper writes large numbers in full, whichever awk its image has."""
    options = scheduler.run_opts().resolve(HELPED)
    request = scheduler.convert(shell("true"), options)
    (helper,) = request.jobs[0]["spec"]["template"]["spec"]["initContainers"]
    script = helper["command"][-1].replace("$$", "$").removesuffix("wait_for_end")
    ticks = 2**31
    (tmp_path / "stat").write_text(f"1 (a b) S {'1 ' * 10}{ticks} {'0 ' * 37}\n")
    (tmp_path / "status").write_text(f"Name: a\nVmHWM: {2**31 + 1} kB\n")
    look = f"program() {{ echo {tmp_path}/mounts; }}\nused='0 0'\nlook\necho \"$used\""
    done = subprocess.run(
        ["sh", "-c", f"{script}\n{look}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{2**31 + 1} {ticks}\n"


@pytest.mark.parametrize("said", ["2.14748e+09 5\n", "1\n", "a b\n", f"{'9' * 5000} 1\n"])
def test_no_usage_keeps_jobs_from_being_listed(
    fake: Any, scheduler: Any, eventually: Any, shell: Any, said: str
) -> None:
    """A helper's report that is none hides no job."""
    app_id = finished(scheduler, eventually, shell("true"), **HELPED)
    reports = [pod["status"].get("initContainerStatuses") for pod in fake.cluster.items("pods")]
    (helper,) = next(filter(None, reports))
    helper["state"]["terminated"]["message"] = said
    assert [row.app_id for row in scheduler.list()] == [app_id]
    (replica,) = scheduler.describe(app_id).status.roles[0].replicas
    assert replica.usage is None


def test_python_is_found_as_python3(scheduler: Any, eventually: Any, tmp_path: Path) -> None:
    """A program `python` runs where there is but a python3, with its arguments as they are."""
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "sh").symlink_to("/bin/sh")
    program = "import sys; sys.exit(sys.argv[1:] != ['a b', '$c'])"
    role = Role(
        "main",
        "i",
        entrypoint="python",
        args=["-c", program, "a b", "$c"],
        env={"PATH": str(tmp_path)},
    )
    app_id = finished(scheduler, eventually, AppDef("a", [role]))
    assert scheduler.describe(app_id).status.state is AppState.SUCCEEDED


@pytest.mark.parametrize("cfg", [{}, HELPED], ids=("message", "helper"))
def test_report_and_put_reach_the_reader(runner: Any, cfg: dict[str, Any]) -> None:
    """The same program reports in the same way, whatever brings it here. Steps need a folder."""
    program = (
        "from transload.runtime import report; report(step=1, loss=3); report(step=2, loss=0.5)"
    )
    app = AppDef(
        "a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program], num_replicas=2)]
    )
    handle = runner.run(app, "kubernetes", cfg)
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED
    found = runner.results(handle)
    assert {key: values["loss"] for key, values in found.results.items()} == {"0": 0.5, "1": 0.5}
    assert found.value("loss") == 0.5
    points = {1: 3, 2: 0.5}
    assert runner.steps(handle) == ({key: {"loss": points} for key in "01"} if cfg else {})


def test_a_reading_that_broke_is_begun_again(scheduler: Any) -> None:
    """A broken reading is repeated as long as the helper stays.

    Only one reader here reads at a time.
    """
    pod = {
        "metadata": {
            "uid": "u",
            "deletionTimestamp": "t",
            "name": "p",
            "labels": {},
            "creationTimestamp": "1",
        }
    }
    pod["metadata"]["labels"] = {names.LABEL_ROLE: "main", names.INDEX: "0"}
    runs = {"name": names.HELPER, "state": {"running": {"startedAt": "2026-11-22T12:00:00Z"}}}
    pod |= {"spec": {}, "status": {"phase": "Running", "initContainerStatuses": [runs]}}
    facts, over = Facts(pods=[pod]), threading.Event()
    for thread, left in (
        (threading.Thread(target=over.wait, daemon=True), []),
        (threading.Thread(target=str), [pod]),
    ):
        scheduler._handover._threads["u"] = thread
        thread.start()
        if left:
            thread.join()
        assert scheduler._handover.leaving(facts) == left
    over.set()
