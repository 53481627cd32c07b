"""The runner on the real local scheduler."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transload.components import build
from transload.errors import (
    ConfigError,
    PluginError,
    SpecError,
    TransloadTimeout,
)
from transload.plugins import AppEvent, get_plugins, hookimpl
from transload.runner import Launch, Runner, get_runner, load_settings
from transload.runtime.tracking import FsspecResultTracker, TrackingError
from transload.specs import (
    AppDef,
    AppState,
    Resource,
    Role,
    UnknownSchedulerException,
    macros,
    make_app_handle,
    parse_app_handle,
)

pytestmark = pytest.mark.usefixtures("plain_folder")


@pytest.fixture
def runner(transload_home: object) -> Iterator[Runner]:
    """A runner on a state folder of its own."""
    with get_runner("test") as made:
        yield made


def sh(script: str, **role: object) -> AppDef:
    """An app of one role that runs a shell script."""
    fields: dict[str, object] = {"resource": Resource(1, 0, 64), **role}
    return AppDef("job", [Role("main", "", entrypoint="sh", args=["-c", script], **fields)])  # type: ignore[arg-type]


def test_a_job_is_told_who_it_is(runner: Runner) -> None:
    """The runner injects handle, parent and tracker base, and replaces macros alone."""
    script = 'echo "$TRANSLOAD_JOB_ID $TRANSLOAD_PARENT_RUN_ID $TRANSLOAD_TRACKER_BASE $0 $1"'
    app = sh(script)
    app.roles[0].args += [f"{macros.app_id}", "$app_id ${other} $$"]
    handle = runner.run(app, parent_run_id="parent-1", tracker_base="/base/${app_id}")
    runner.wait(handle, timeout=30)
    app_id = parse_app_handle(handle).app_id
    line = next(runner.log_lines(handle, "main"))
    assert (
        line == f"{handle} parent-1 /base/{app_id}/.apps/{app_id} {app_id} $app_id ${{other}} $$\n"
    )


def test_a_dry_run_touches_nothing(runner: Runner, transload_home: Path) -> None:
    """A dry-run shows the request and leaves no file and no app."""
    before = sorted(Path(transload_home).rglob("*"))
    info = runner.dryrun(sh("echo hi", env={"API_TOKEN": "s3cret"}))
    assert "echo hi" in str(info)
    assert "s3cret" not in str(info)
    assert sorted(Path(transload_home).rglob("*")) == before
    assert runner.list() == []


def test_a_dry_run_can_be_scheduled(runner: Runner) -> None:
    """What a dry-run returned is submitted as it is. A second time its id is taken."""
    info = runner.dryrun(sh("echo once"))
    handle = runner.schedule(info)
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED  # type: ignore[union-attr]


def test_threads_that_submit_one_id_start_one_job(runner: Runner) -> None:
    """Eight threads that submit one id start one job."""
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: runner.run(sh("sleep 60"), app_id="once"), range(8)))
    assert len(set(handles)) == 1
    assert len(runner.list()) == 1
    runner.delete(handles[0])


def test_wait_runs_out_of_time_and_the_app_goes_on(runner: Runner) -> None:
    """A timeout is a TimeoutError, and nothing is cancelled."""
    handle = runner.run(sh("sleep 60"))
    with pytest.raises(TransloadTimeout, match="goes on") as caught:
        runner.wait(handle, timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert runner.job(handle).need_description().status.state is AppState.RUNNING
    runner.delete(handle)


def test_waiting_without_blocking_the_event_loop(runner: Runner, eventually: Any) -> None:
    """Twenty apps are awaited at once, and no thread stays."""
    handles = [runner.run(sh("exit 0")) for _ in range(20)]

    async def all_of_them() -> list[object]:
        return await asyncio.gather(
            *(runner.job(handle).wait_if_there_async(timeout=60) for handle in handles)
        )

    before = threading.active_count()
    states = [status.state for status in asyncio.run(all_of_them())]  # type: ignore[attr-defined]
    assert states == [AppState.SUCCEEDED] * 20
    eventually(lambda: threading.active_count() <= before)


def test_many_statuses_in_one_query(runner: Runner) -> None:
    """status_many keeps the order of what was asked."""
    handles = [runner.run(sh("exit 0")), runner.run(sh("exit 3"))]
    for handle in handles:
        runner.wait(handle, timeout=30)
    found = runner.status_many([handles[1], handles[0]])
    assert [(handle, status.state) for handle, status in found.items() if status] == [
        (handles[1], AppState.FAILED),
        (handles[0], AppState.SUCCEEDED),
    ]


def test_components_run_by_name_with_typed_or_named_arguments(runner: Runner) -> None:
    """Arguments come as on the command line or by name, decoded by the signature."""
    one = runner.run_component("utils.echo", ["--msg", "typed", "--num_replicas", "2"])
    two = runner.run_component("utils.echo", {"msg": "named", "num_replicas": "2"})
    for handle, word in ((one, "typed"), (two, "named")):
        assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED  # type: ignore[union-attr]
        assert list(runner.log_lines(handle, "echo", 1)) == [f"{word}\n"]


def test_whatever_is_run_takes_the_same_path(runner: Runner) -> None:
    """An app, its JSON, a component and a launch of each make the same request."""
    app = build("utils.echo", {"msg": "x"})
    launch = Launch(component="utils.echo", args=["--msg", "x"])
    sources = [app, app.to_json(), launch, Launch(app=app)]
    requests = [runner.dryrun(source, "scripted", app_id="a").request for source in sources]
    assert all(each.app.roles == requests[0].app.roles for each in requests)
    assert runner.dryrun("utils.echo").app == build("utils.echo")


def test_a_component_that_declares_tracker_base_gets_it(runner: Runner, tmp_path: Path) -> None:
    """The base is the job's own folder, or the caller's, and an explicit argument wins."""
    path = tmp_path / "component.py"
    path.write_text(
        "from transload.specs import AppDef, Resource, Role\n"
        "def report(tracker_base: str) -> AppDef:\n"
        '    role = Role("r", "", entrypoint="echo", args=[tracker_base], resource=Resource(1, 0, '
        "1))\n"
        '    return AppDef("report", [role])\n'
    )
    own = runner.run_component(f"{path}:report", [])
    given = runner.run_component(f"{path}:report", [], tracker_base="/given")
    typed = runner.run_component(f"{path}:report", ["--tracker_base", "/typed"])
    shown = []
    for handle in (own, given, typed):
        runner.wait(handle, timeout=30)
        shown.append(next(runner.log_lines(handle, "r")).strip())
    description = runner.job(own).description()
    assert description is not None
    assert shown == [description.tracker_base, "/given", "/typed"]
    assert runner.results(own).looked_in == [description.tracker_base]
    assert runner.results(typed).looked_in == [
        f"/typed/.apps/{parse_app_handle(typed).app_id}",
        "/typed",
    ]


def test_secrets_from_an_environment_of_the_submit(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`with_environ` resolves secrets from what it is given alone, and leaves the runner as it
    was.
    """
    monkeypatch.delenv("TEAM_PASSWORD", raising=False)
    app = sh('test "$A" = hunter2', secrets={"A": "env:TEAM_PASSWORD"})
    handle = runner.with_environ({"TEAM_PASSWORD": "hunter2"}).run(app)
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    with pytest.raises(SpecError, match="TEAM_PASSWORD is not set"):
        runner.run(app)


def test_a_described_app_is_not_run_with_the_mask(runner: Runner) -> None:
    """A description masks secrets. Running it again asks for the value instead of the mask."""
    handle = runner.run(sh("true", env={"API_KEY": "hunter2", "PLAIN": "******"}))
    described = runner.describe(handle)
    assert described is not None
    with pytest.raises(SpecError, match=r"roles\[0\]\.env\['API_KEY'\]=.*in place of a secret"):
        runner.run(described)
    described.roles[0].env["API_KEY"] = "hunter2"
    assert runner.describe(handle) != described, "what one has asked for is its own"
    assert runner.wait(runner.run(described), timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]


def test_a_missing_secret_starts_nothing(runner: Runner) -> None:
    """A secret that cannot be resolved is named, before anything is submitted."""
    app = sh("true", secrets={"A": "env:NOT_SET_ANYWHERE"})
    with pytest.raises(
        SpecError, match=r"roles\[0\]\.secrets\['A'\]='env:NOT_SET_ANYWHERE'.*not set"
    ):
        runner.run(app)
    assert runner.list() == []


def test_unknown_schedulers_and_options_suggest_the_nearest(runner: Runner) -> None:
    """A misspelt scheduler or option is refused by name."""
    with pytest.raises(UnknownSchedulerException, match="did you mean 'local'"):
        runner.run(sh("true"), "locall")
    with pytest.raises(ConfigError, match="'log_dirr'.*did you mean 'log_dir'"):
        runner.run(sh("true"), "local", {"log_dirr": "/x"})
    assert runner.list() == []


def test_what_is_no_app_and_no_options_is_refused(runner: Runner) -> None:
    """Things of the wrong kind are named, with what was probably meant."""
    with pytest.raises(SpecError, match=r"7: must be an AppDef, its JSON, or a component"):
        runner.run(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="cfg='log_dir=/x': must be a dict"):
        runner.run(sh("true"), "local", "log_dir=/x")  # type: ignore[arg-type]
    assert runner.list() == []


def test_an_app_that_cannot_run_is_refused(runner: Runner) -> None:
    """A job without roles or entrypoint is refused with the path."""
    with pytest.raises(SpecError, match="roles="):
        runner.run(AppDef("empty"))
    with pytest.raises(SpecError, match=r"roles\[0\]\.entrypoint"):
        runner.run(AppDef("x", [Role("r", "")]))


class _Policy:
    """A house policy that adds a variable, and refuses one name."""

    @hookimpl
    def transload_before_submit(self, app: AppDef) -> AppDef | None:
        """Refuse ``forbidden``, break on ``broken``, mark the rest."""
        if app.name == "forbidden":
            raise SpecError("house policy: no")
        if app.name == "broken":
            raise RuntimeError("oops")
        changed = AppDef.from_json(app.to_json())
        changed.roles[0].env["HOUSE"] = "rules"
        return changed


@pytest.fixture
def events() -> Iterator[list[AppEvent]]:
    """The events that plugins are told of, with a house policy in force."""
    seen: list[AppEvent] = []

    class Listener(_Policy):
        """Collects events."""

        @hookimpl
        def transload_app_event(self, event: AppEvent) -> None:
            """Keep it."""
            seen.append(event)

    get_plugins().register(Listener(), "test-policy")
    yield seen
    get_plugins().unregister("test-policy")


def test_policies_and_events(runner: Runner, events: list[AppEvent]) -> None:
    """A policy changes or refuses a job before it is converted. Each state is reported."""
    handle = runner.run(sh('test "$HOUSE" = rules'))
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    assert events[0].state is AppState.SUBMITTED
    assert events[-1].state is AppState.SUCCEEDED
    assert {event.handle for event in events} == {handle}
    app = sh("true")
    app.name = "forbidden"
    with pytest.raises(SpecError, match="house policy: no"):
        runner.run(app)
    app.name = "broken"
    with pytest.raises(PluginError, match="test-policy.*RuntimeError: oops"):
        runner.run(app)


def test_a_workspace_travels_with_the_job(runner: Runner, tmp_path: Path) -> None:
    """Local code is copied once, and is the replicas' working directory."""
    (tmp_path / "main.py").write_text("print('from the workspace')\n")
    (tmp_path / "skip.pyc").write_text("x")
    app = sh(f"{sys.executable} main.py; ls; pwd", num_replicas=2)
    handle = runner.run(app, workspace=str(tmp_path))
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    logs = [list(runner.log_lines(handle, "main", k)) for k in range(2)]
    assert logs[0] == logs[1]
    assert logs[0][0] == "from the workspace\n"
    assert logs[0][1] == "main.py\n"
    assert os.path.realpath(logs[0][2].strip()) != os.path.realpath(tmp_path)


def test_a_workspace_that_is_written_to_is_no_changed_request(
    runner: Runner, tmp_path: Path
) -> None:
    """A file that grows between dry-run and submit is copied as it is.

    A changed request is refused.
    """
    (tmp_path / "log").write_text("1\n")
    info = runner.dryrun(sh("cat log"), workspace=str(tmp_path))
    (tmp_path / "log").write_text("1\n2\n")
    handle = runner.schedule(info)
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    assert list(runner.log_lines(handle, "main")) == ["1\n", "2\n"]
    info = runner.dryrun(sh("cat log"), workspace=str(tmp_path))
    info.request.roles[0].replicas[0][0][:] = ["-c", "true"]
    with pytest.raises(ConfigError, match="changed after the dry-run"):
        runner.schedule(info)


def test_a_missing_secret_leaves_no_copy_of_the_workspace(
    runner: Runner, transload_home: Path, tmp_path: Path
) -> None:
    """Secrets are resolved before anything is copied."""
    (tmp_path / "main.py").write_text("")
    with pytest.raises(SpecError, match="NOT_SET_ANYWHERE"):
        runner.run(sh("true", secrets={"A": "env:NOT_SET_ANYWHERE"}), workspace=str(tmp_path))
    assert not list(transload_home.rglob("main.py"))


def test_a_missing_workspace_starts_nothing(runner: Runner, tmp_path: Path) -> None:
    """A workspace folder that is not there is named."""
    with pytest.raises(SpecError, match="no such folder"):
        runner.run(sh("true"), workspace=str(tmp_path / "nope"))
    assert runner.list() == []


def test_trackers_of_the_settings_reach_the_job_and_the_results(
    runner: Runner, tmp_path: Path
) -> None:
    """A configured tracker is injected, and what the job tracks comes back with its results."""
    Path("transload.toml").write_text(f'[tracker.fsspec]\nconfig = "{tmp_path}/runs"\n')
    program = (
        "from transload.tracker import AppRun; run = AppRun.run_from_env(); "
        "run.add_metadata(lr=0.1); run.add_artifact('model', '/m')"
    )
    app = AppDef(
        "t",
        [
            Role(
                "r", "", entrypoint=sys.executable, args=["-c", program], resource=Resource(1, 0, 1)
            )
        ],
    )
    handle = runner.run(app)
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    results = runner.results(handle)
    assert results.metadata == {"lr": 0.1}
    assert results.artifacts["model"]["path"] == "/m"
    assert "tracker fsspec" in results.looked_in
    with get_runner("another") as other:  # as a command line that was given the id alone
        alike = make_app_handle("local", "another", parse_app_handle(handle).app_id)
        assert other.results(alike).metadata == {"lr": 0.1}
        assert other.results(alike).artifacts == results.artifacts
        assert [row.app_handle for row in other.list()] == [handle]


def test_a_relative_tracker_base_is_one_place_for_all(runner: Runner, tmp_path: Path) -> None:
    """The job, in its image's folder, and a reader elsewhere find the place that the submitter
    meant.
    """
    (tmp_path / "image").mkdir()
    report = 'mkdir -p "$TRANSLOAD_TRACKER_BASE" && cp "$0" "$TRANSLOAD_TRACKER_BASE/k.json"'
    (tmp_path / "k").write_text('{"schema": 1, "key": "k", "results": {"x": 1}}')
    app = sh(report)
    app.roles[0].image = str(tmp_path / "image")
    app.roles[0].args.append(str(tmp_path / "k"))
    here = os.getcwd()
    handle = runner.run(app, tracker_base="results/${app_id}")
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        results = runner.results(handle)
    assert results.value("x") == 1
    app_id = parse_app_handle(handle).app_id
    assert results.looked_in == [
        f"{here}/results/{app_id}/.apps/{app_id}",
        f"{here}/results/{app_id}",
    ]


def test_apps_that_share_a_base_have_results_of_their_own(runner: Runner, tmp_path: Path) -> None:
    """Each job's results are its own, in its folder or the base. What is of no run is shared."""
    python = (
        "import os, sys; from transload.runtime.tracking import FsspecResultTracker as T; "
        "T.from_env().put('epoch-1', loss=int(sys.argv[1])); T(sys.argv[2]).put('trial-' + "
        "sys.argv[1], x=True)"
    )
    base = str(tmp_path / "base")
    role = Role("main", "", entrypoint=sys.executable, resource=Resource(1, 0, 1))
    handles = []
    for loss in ("1", "2"):
        handles.append(
            runner.run(
                AppDef("a", [replace(role, args=["-c", python, loss, base])]), tracker_base=base
            )
        )
    for handle in handles:
        assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    FsspecResultTracker(base)["best"] = {"loss": 0.5}
    for loss, handle in enumerate(handles, 1):
        assert runner.results(handle).results == {
            "epoch-1": {"loss": loss},
            f"trial-{loss}": {"x": 1},
        }
        assert runner.results(handle, shared=True).results["best"] == {"loss": 0.5}


def test_files_of_an_app(runner: Runner, tmp_path: Path) -> None:
    """Files in a job's output folder are artifacts, and are copied by pattern, on demand."""
    app = sh(
        'cd "$1"; mkdir "a b"; echo 1 > "a b/x.pt"; echo 2 > y.pt; echo 3 > .z; test "$1" = '
        '"$TRANSLOAD_OUTPUT_DIR"'
    )
    app.roles[0].args += ["sh", macros.output_dir]
    handle = runner.run(app)
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    artifacts = runner.results(handle).artifacts
    assert sorted(artifacts) == ["a b/x.pt", "y.pt"]
    assert Path(artifacts["y.pt"]["path"]).read_text() == "2\n"
    here = tmp_path / "copies"
    assert runner.job(handle).fetch("*.pt", str(here)) == [f"{here}/a b/x.pt", f"{here}/y.pt"]
    assert (here / "a b" / "x.pt").read_text() == "1\n"
    assert runner.job(handle).fetch("*.none", str(here)) == []
    assert sorted(path.name for path in here.rglob("*")) == ["a b", "x.pt", "y.pt"]


@pytest.mark.parametrize("base", ["~/runs", "file://~/runs", "~"])
def test_a_base_in_the_home_folder(
    runner: Runner, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job, which is no shell, gets a path without ``~``, and what it writes there is read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    app = sh(
        'echo "$1"; echo "$X"; echo "$TRANSLOAD_TRACKER_BASE"; mkdir -p "$1"; echo 1 > "$1/y.pt"'
    )
    app.roles[0].args += ["sh", macros.output_dir]
    app.roles[0].env["X"] = macros.output_dir
    handle = runner.run(app, tracker_base=base)
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    said = [line.rstrip("\n") for line in runner.log_lines(handle, "main")]
    assert said[0] == said[1] and all(path.startswith(f"{tmp_path}/") for path in said)
    assert list(runner.results(handle).artifacts) == ["y.pt"]


def test_the_output_folder_needs_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an app has no folder of its own the macro is refused, with the way out."""
    app = sh("true", env={"X": macros.output_dir})
    with Runner("test") as runner:
        monkeypatch.setattr(runner.scheduler("local"), "results_folder", lambda *_: None)
        with pytest.raises(SpecError, match=r"role 'main': \$\{output_dir\}: .* give tracker_base"):
            runner.dryrun(app, "local")
        plan = runner.dryrun(app, "local", tracker_base="s3://b/o", app_id="mine")
    assert plan.resolved.roles[0].env["X"] == f"{plan.tracker_base}/outputs"


def test_collisions_are_reported(runner: Runner) -> None:
    """The reader reports replicas that write one key. By default each has its own."""
    python = (
        "import os; from transload.runtime.tracking import FsspecResultTracker as T; t = "
        "T.from_env(); "
        "k = os.environ['TRANSLOAD_REPLICA_ID']; k == '0' or t.wait('final', 60); t.put('final', "
        "k=int(k))"
    )
    role = Role("main", "", entrypoint=sys.executable, args=["-c", python], num_replicas=2)
    handle = runner.run(AppDef("a", [replace(role, resource=Resource(1, 0, 1))]))
    assert runner.wait(handle, timeout=60).state is AppState.SUCCEEDED  # type: ignore[union-attr]
    results = runner.results(handle)
    assert results.results == {"final": {"k": 1}}
    assert results.collisions == {"final": ["main/0", "main/1"]}


@pytest.mark.parametrize("base", ["s4://me:hunter2@bucket/x", "simplecash::s3://bucket/x"])
def test_a_tracker_base_that_no_storage_knows_is_refused_at_submit(
    runner: Runner, base: str
) -> None:
    """A misspelt protocol is an error where the app is submitted, with the nearest one that there
    is.
    """
    with pytest.raises(
        ConfigError,
        match=r"tracker_base=.*protocol '(s4|simplecash)': (did you mean|must be one of)",
    ) as bad:
        runner.run(sh("true"), tracker_base=base)
    assert "hunter2" not in str(bad.value)
    assert runner.list() == []


def test_the_memory_of_this_process_is_refused_as_a_tracker_base(runner: Runner) -> None:
    """What a job would write there nobody could ever read."""
    with pytest.raises(
        ConfigError, match="tracker_base='memory://x': is the memory of one process"
    ):
        runner.run(sh("true"), tracker_base="memory://x")
    assert runner.list() == []


def test_results_that_cannot_be_read_are_one_clear_error(runner: Runner, tmp_path: Path) -> None:
    """Whatever a storage or a tracker raises names the place, once, without a password."""
    (tmp_path / "file").write_text("x")
    handle = runner.run(sh("true"), tracker_base=str(tmp_path / "file"))
    runner.wait(handle, timeout=60)
    with pytest.raises(
        TrackingError, match=f"tracker base {tmp_path}/file: cannot be read: NotADirectoryError"
    ):
        runner.results(handle)
    (tmp_path / "flaky.py").write_text(
        "from transload.tracker import FsspecTracker\n"
        "class Flaky(FsspecTracker):\n"
        "    def metadata(self, run_id): raise RuntimeError('https://me:hunter2@host is down')\n"
        "def create(config): return Flaky(None, config)\n"
    )
    Path("transload.toml").write_text(f'[tracker."flaky:create"]\nconfig = "{tmp_path}/runs"\n')
    with pytest.MonkeyPatch.context() as patch, get_runner("test") as other:
        patch.syspath_prepend(tmp_path)
        patch.delitem(sys.modules, "flaky", raising=False)
        handle = other.run(sh("true"))
        other.wait(handle, timeout=60)
        with pytest.raises(
            TrackingError, match="tracker 'flaky:create': cannot be read: RuntimeError.*down"
        ) as bad:
            other.results(handle)
    assert "hunter2" not in str(bad.value)


def test_a_wrong_tracker_is_refused_at_submit(runner: Runner) -> None:
    """A tracker that cannot be built is an error where the app is submitted, not silence in the
    job.
    """
    Path("transload.toml").write_text('[tracker."no_such_module:create"]\n')
    with pytest.raises(ConfigError, match="no_such_module"):
        runner.run(sh("true"))
    assert runner.list() == []


def test_a_submit_inside_a_job_descends_from_the_job(runner: Runner) -> None:
    """The job is the parent of what it submits, not the job's own parent. Another may be given."""
    code = (
        "import sys; from transload.runner import get_runner; from transload.specs import AppDef, "
        "Role\n"
        "with get_runner('test') as runner:\n"
        "    role = Role('main', '', entrypoint='sh', args=['-c', 'echo "
        "$TRANSLOAD_PARENT_RUN_ID'])\n"
        "    for parent in (None, 'other'):\n"
        "        handle = runner.run(AppDef('child', [role]), parent_run_id=parent)\n"
        "        runner.wait(handle, timeout=60)\n"
        "        print(*runner.log_lines(handle, 'main'), end='')\n"
    )
    job = AppDef("outer", [Role("main", "", entrypoint=sys.executable, args=["-c", code])])
    handle = runner.run(job, parent_run_id="grandparent")
    status = runner.wait(handle, timeout=120)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    assert list(runner.log_lines(handle, "main")) == [f"{handle}\n", "other\n"]


def test_a_settings_file_is_named_by_a_variable(
    plain_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``TRANSLOAD_CONFIG`` replaces the project's file everywhere. A missing file is refused."""
    Path("transload.toml").write_text('scheduler = "nearby"\n')
    (tmp_path / "elsewhere.toml").write_text('scheduler = "named"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.transload]\nscheduler = "shared"\n')
    for file, found in (("elsewhere.toml", "named"), ("pyproject.toml", "shared")):
        monkeypatch.setenv("TRANSLOAD_CONFIG", str(tmp_path / file))
        assert load_settings().scheduler == found
    monkeypatch.setenv("TRANSLOAD_CONFIG", "/no/such/file.toml")
    with pytest.raises(ConfigError, match="TRANSLOAD_CONFIG='/no/such/file.toml'"):
        load_settings()
