"""Pages made from data alone are valid, escaped, complete, and not large."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_samples import (
    HOSTILE,
    NOW,
    Page,
    app_data,
    interrupted_data,
    replica,
    rich_data,
    search_data,
)

from transload.components import command_app
from transload.runner import AppResults
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    Role,
    RoleStatus,
    is_terminal,
)
from transload.tracker import Lineage, LineageEdge
from transload_report import (
    AppData,
    LineageData,
    RunsData,
    SearchData,
    TrialData,
    app_report,
    lineage_report,
    runs_report,
    search_report,
)
from transload_report.axes import duration_ticks, log_ticks, tick_text, ticks
from transload_report.convert import last_values, replica_rows, series_of, single_results, thinned
from transload_report.states import SIGNS
from transload_report.theme import COLORS
from transload_report.timeline import timeline
from transload_report.words import clean, log_text

Parse = Callable[[str], Page]
SVG = "{http://www.w3.org/2000/svg}"


def test_page_of_an_app_has_everything(parse: Parse) -> None:
    """State, exit codes, attempts, results, log lines, lineage and definition are all there."""
    page = parse(app_report(rich_data()))
    assert page.lines(".//nav//a") == [
        "Overview",
        "Timeline",
        "Replicas",
        "Results",
        "Logs",
        "Lineage",
        "Definition",
    ]
    assert page.text(".//h1") == "app-1"
    row = next(
        line
        for line in page.lines(".//section[@id='replicas']//tbody/tr")
        if line.startswith("trainer/4")
    )
    assert "FAILED 3" in row and "3 (5.0 s) , killed by SIGTERM (1.0 s)" in row
    titles = page.lines(f".//{SVG}rect/{SVG}title")
    assert "trainer/4, attempt 1 of 3: FAILED, exit code 3, 5.0 s" in titles
    assert "trainer/4, attempt 3 of 3: FAILED, exit code 3, 32 s" in titles
    assert {"loss by key", "accuracy by key"} <= set(page.lines(f".//{SVG}svg/{SVG}title"))
    assert any("é 中文 \\x00\\x07" in text for text in page.lines(".//pre"))
    assert "model: s3://******@bucket/m" in page.lines(f".//{SVG}title")


def test_hostile_text_stays_text(parse: Parse) -> None:
    """Nothing of a log, a result, an argument or a run id becomes an element."""
    for html in (
        app_report(rich_data()),
        search_report(search_data()),
        runs_report(RunsData(HOSTILE, [rich_data()], NOW, ["local://x/" + HOSTILE])),
        lineage_report(
            LineageData(Lineage(HOSTILE, [], ["x"], [LineageEdge("x", HOSTILE, HOSTILE)]), NOW)
        ),
    ):
        page = parse(html)
        assert not page.all(".//img") and not page.all(".//iframe")
        assert "alert(1)" in page.text()
        assert "<script>alert" not in html and "<img" not in html


def test_secrets_are_masked(parse: Parse) -> None:
    """Values of secret-looking variables, and passwords in URLs, are on no page."""
    html = app_report(rich_data())
    assert "hunter2" not in html
    assert "API_TOKEN=******" in parse(html).text()
    assert "EPOCHS=3" in parse(html).text()


@pytest.mark.parametrize("state", list(AppState))
def test_every_state_has_a_page(state: AppState, parse: Parse) -> None:
    """An app, a run and a trial in any state are drawn, each with its name and its sign."""
    ended = is_terminal(state)
    one = replica(0, state, end_time=NOW - 50 if ended else None, exit_code=None)
    data = app_data(one, state=state)
    for html in (app_report(data), runs_report(RunsData("", [data], NOW))):
        page = parse(html)
        assert f"{SIGNS[state]} {state.name}" in page.text()


def test_what_is_not_known_is_left_out(parse: Parse) -> None:
    """A page without times, results, definition or replicas says so, and is whole."""
    bare = replace(
        app_data(replica(0, AppState.PENDING, start_time=None, end_time=None)), created=None
    )
    page = parse(app_report(bare))
    assert "tells no times" in page.text(".//section[@id='timeline']")
    assert "does not keep it" in page.text(".//section[@id='definition']")
    none = replace(
        bare,
        status=replace(bare.status, roles=[]),
        results=AppResults(bare.handle, AppState.PENDING),
    )
    assert "nothing was reported" in parse(app_report(none)).text()
    parse(runs_report(RunsData("none", [], NOW, ["local://x/gone"])))
    parse(search_report(SearchData("none", "loss", False, [], NOW)))


def test_many_replicas_make_a_small_page(parse: Parse) -> None:
    """With 200 replicas the page is compact, and with 5000 hardly larger, with all failures."""
    small = app_report(rich_data(200))
    assert len(small) < 250_000
    page = parse(small)
    assert len(page.all(f".//{SVG}svg[@class='plot timeline compact']")) == 1
    assert len(page.all(".//section[@id='replicas']//tbody/tr")) == 200
    large = app_report(rich_data(5000))
    assert len(large) < 600_000
    assert "trainer/5000" in parse(large).text(".//section[@id='replicas']")
    assert "500 of 5000 replicas are drawn" in large


def test_timeline_keeps_what_matters() -> None:
    """Thinned out, a timeline has all that failed or was started again, in the old order."""
    replicas = [
        replica(k, AppState.FAILED if k % 100 == 7 else AppState.SUCCEEDED) for k in range(3000)
    ]
    rows = thinned(replica_rows(app_data(*replicas).status, None, NOW))
    assert len(rows) == 500
    assert [row.label for row in rows if row.state is AppState.FAILED] == [
        f"main/{k}" for k in range(7, 3000, 100)
    ]
    numbers = [int(row.label.partition("/")[2]) for row in rows]
    assert numbers == sorted(numbers)
    assert timeline([], "replicas") is None


def test_an_attempt_that_waits_for_the_next_is_drawn_once() -> None:
    """Between two attempts a replica is PENDING with the times of the last one, which is among the
    earlier ones.
    """
    earlier = [ReplicaAttempt(AppState.FAILED, 3, NOW - 60, NOW - 50)]
    waiting = replica(0, AppState.PENDING, earlier=earlier, restarts=1)
    (row,) = replica_rows(app_data(waiting).status, None, NOW)
    assert [(bar.start, bar.end, bar.state) for bar in row.bars] == [
        (NOW - 60, NOW - 50, AppState.FAILED)
    ]


def test_restarts_without_times_are_marked(parse: Parse) -> None:
    """A scheduler that only counts restarts gets a mark with their number."""
    page = parse(app_report(app_data(replica(0, restarts=3))))
    assert "✓ ↻ 3" in page.lines(f".//{SVG}text")


def results(values: dict[str, dict[str, int | float | str]]) -> AppResults:
    """Return results."""
    return AppResults("local://transload/x", AppState.SUCCEEDED, values)


def test_progress_and_interruptions(parse: Parse) -> None:
    """A bar with its interruptions, a curve up to the expected end, and causes in words."""
    page = parse(app_report(interrupted_data()))
    section = ".//section[@id='progress']"
    said = page.text(section)
    assert "83 % · step 830 of 1,000 · 1 h 53 min left" in said
    assert "It has stalled." in said and "It will not end within its limit of time" in said
    assert page.lines(f"{section}//li")[1] == (
        "interrupted (segment) at step 610 after 2 h 00 min; started again, 2nd"
    )
    assert "Interruptions 3 2 preempted, 1 segment" in page.text(".//section[@id='overview']")
    assert len(page.all(f"{section}//{SVG}path[@class='interruption']")) == 3
    assert len(page.all(f"{section}//{SVG}path[@class='diamond']")) == 3
    assert page.lines(f"{section}//{SVG}circle/{SVG}title")[0] == "failed at step 650"
    assert page.all(f"{section}//{SVG}path[@class='line ahead']")
    assert page.all(f"{section}//{SVG}path[@class='limit FAILED']")
    timeline = ".//section[@id='timeline']"
    assert len(page.all(f"{timeline}//{SVG}rect[@class='bar interrupted']")) == 3
    assert "1 earlier attempt FAILED" in page.text(f"{timeline}//ul")


def test_a_curve_of_all_that_was_said(parse: Parse) -> None:
    """The line goes through the history and falls at an interruption.

    Only that and the latest report have a mark.
    """
    data = interrupted_data()
    progress = data.status.progress
    assert progress is not None
    start = NOW - 9.4 * 3600
    progress.history = [(start + 600 * k, 0.01 * (k % 30)) for k in range(1, 50)]
    page = parse(app_report(data))
    svg = f".//section[@id='progress']//{SVG}"
    line = page.all(f"{svg}path[@class='line']")[0].get("d")
    bare = parse(app_report(interrupted_data()))
    before = bare.all(f"{svg}path[@class='line']")[0].get("d")
    assert line.count("L") == before.count("L") + 49
    assert len(page.all(f"{svg}circle")) == len(bare.all(f"{svg}circle"))


def test_progress_without_a_total(parse: Parse) -> None:
    """Steps without a total are words, without a bar. Without progress there is no section."""
    data = app_data(replica(state=AppState.RUNNING, end_time=None), state=AppState.RUNNING)
    assert not parse(app_report(data)).all(".//section[@id='progress']")
    data.status.progress = Progress(step=123456, at=NOW - 1)
    page = parse(app_report(data))
    assert "step 123,456" in page.text(".//section[@id='progress']")
    assert not page.all(f".//section[@id='progress']//{SVG}svg")


def test_series_are_found() -> None:
    """Keys 0, 1, 2 and epoch-0, epoch-1 make series by number. Single keys and texts do not."""
    found = results(
        {
            "10": {"loss": 1}, "9": {"loss": 2.5, "note": "x"}, "-1": {"loss": 3},
            "epoch-2": {"acc": 0.5}, "epoch-10": {"acc": 0.7}, "final": {"acc": 0.9}, "best7": {"acc": 1.0},
        }
    )  # fmt: skip
    series = series_of(found)
    assert [(each.group, each.name, each.points) for each in series] == [
        ("", "loss", [(-1, 3.0), (9, 2.5), (10, 1.0)]),
        ("epoch-", "acc", [(2, 0.5), (10, 0.7)]),
    ]
    assert single_results(found, series) == [
        ("9", "note", "x"),
        ("final", "acc", 0.9),
        ("best7", "acc", 1.0),
    ]
    assert [each.joined for each in series] == [False, True]  # replicas are no line
    assert last_values(found) == {"loss": 3.0, "acc": 1.0, "note": "x"}


def test_values_that_are_no_numbers_leave_gaps(parse: Parse) -> None:
    """NaN, infinities and too large numbers break the line and are named in the table."""
    odd = [1.0, math.nan, 2.0, math.inf, 3.0, -math.inf, 10**400, 4.0, 1e308, -1e308]
    page = parse(
        app_report(
            app_data(results=results({str(k): {"loss": value} for k, value in enumerate(odd)}))
        )
    )
    assert "6 not drawn" in page.text(".//figcaption")
    assert "nan" in page.text(".//section[@id='results']//table")
    constant = results({str(k): {"same": 5, "tiny": 1e-300, "zero": 0} for k in range(3)})
    parse(app_report(app_data(results=constant)))


def test_steps_that_were_never_a_number_are_left_out(parse: Parse) -> None:
    """A curve of nothing but NaN is left out of the page."""
    steps = {"0": {"loss": {1.0: math.nan, 2.0: math.inf}, "accuracy": {1.0: 0.5, 2.0: math.nan}}}
    data = app_data(results=AppResults("h", AppState.RUNNING, {}), steps=steps)
    assert data.results is not None
    assert [each.name for each in series_of(data.results, steps)] == ["accuracy"]
    parse(app_report(data)).check()


def test_steps_are_drawn() -> None:
    """Each curve is a series by step. With several keys its name has the key."""
    results = AppResults("local://s/a", AppState.RUNNING, {"0": {"loss": 1}, "1": {"loss": 2}})
    steps = {"0": {"loss": {2.0: 1.0, 1.0: 3.0}, "once": {1.0: 1.0}}}
    assert [(each.name, each.group, each.points) for each in series_of(results, steps)] == [
        ("loss", "step ", [(1.0, 3.0), (2.0, 1.0)]),
        ("loss", "", [(0, 1.0), (1, 2.0)]),
    ]
    assert [each.name for each in series_of(results, {**steps, "b": steps["0"]})] == [
        "loss of replica 0",
        "loss of b",
        "loss",
    ]


@pytest.mark.parametrize("group", ["epoch-", ""])
def test_long_series_are_thinned(parse: Parse, group: str) -> None:
    """A hundred thousand points are drawn in a few hundred, with least and greatest."""
    values: dict[str, dict[str, int | float | str]] = {
        f"{group}{k}": {"loss": math.sin(k / 1000)} for k in range(100_000)
    }
    values[f"{group}54321"] = {"loss": 99.0}
    html = app_report(app_data(results=results(values)))
    assert len(html) < 140_000
    page = parse(html)
    assert "greatest 99 at 54321" in page.text(".//figcaption")
    path = "".join(each.get("d") or "" for each in page.all(f".//{SVG}path[@class='line']"))
    tops = [float(pair.split()[1]) for pair in path.removeprefix("M").split("L") if pair]
    tops += [float(each.get("cy") or 0) for each in page.all(f".//{SVG}circle[@class='dot']")]
    assert min(tops) < 40 and len(tops) <= 400
    assert bool(path) == bool(group)


def test_search_page(parse: Parse) -> None:
    """The best trial, the trials without a value, one plot for each parameter that differs."""
    data = search_data()
    page = parse(search_report(data))
    best = min(
        (trial for trial in data.trials if trial.value is not None),
        key=lambda trial: trial.value or 0,
    )
    assert f"trial {best.index}" in page.text(".//section[@id='overview']")
    drawn = page.lines(f".//{SVG}svg/{SVG}title")
    assert {
        "loss of each trial, and the best so far",
        "loss against lr",
        "loss against layers",
    } <= set(drawn)
    assert len(page.all(".//section[@id='trials']//tbody/tr")) == len(data.trials)
    crosses = [
        each for each in page.all(f".//{SVG}path") if (each.get("class") or "").startswith("cross")
    ]
    assert len(crosses) == sum(trial.value is None for trial in data.trials)
    greatest = parse(search_report(replace(data, minimize=False)))
    assert "Greatest loss" in greatest.text(".//section[@id='overview']")


def test_runs_page_compares_results(parse: Parse) -> None:
    """Each run has a row with a curve's last value and replica 0's.

    Numbers of two runs are drawn.
    """
    curve = {"epoch-0": {"acc": 0.5}, "epoch-1": {"acc": 0.75}}
    first = app_data(
        results=results({"0": {"loss": 3}, "1": {"loss": 2}, "note": {"text": "x"}, **curve})
    )
    runs = [first, replace(first, handle="slurm://s/other", results=results({"0": {"loss": 1}}))]
    page = parse(runs_report(RunsData("Two", runs, NOW)))
    rows = page.lines(".//section[@id='runs']//tbody/tr")
    assert rows[0].endswith("3 0.75") and rows[1].endswith("1") and "slurm://s/other" in rows[1]
    assert "loss of each run" in page.lines(f".//{SVG}svg/{SVG}title")
    assert "Progress" not in page.text(".//section[@id='runs']//thead")
    page = parse(runs_report(RunsData("Two", [first, interrupted_data()], NOW)))
    assert "Progress Restarts Interruptions" in page.text(".//section[@id='runs']//thead")
    assert "83 %, 1 h 53 min left 1 3" in page.lines(".//section[@id='runs']//tbody/tr")[1]


def test_runs_page_compares_arguments(parse: Parse) -> None:
    """What runs were called with has a column where it differs."""
    app = AppDef("train", [Role("main", "", entrypoint="true")])
    runs = [
        replace(app_data(), app=replace(app, arguments=arguments))
        for arguments in (
            {"lr": 0.1, "data": "mnist", "deep": [1, 2]},
            {"lr": 0.25, "data": "mnist"},
        )
    ]
    page = parse(runs_report(RunsData("Two", [*runs, replace(runs[0], app=None)], NOW)))
    heads = page.lines(".//section[@id='runs']//thead//th")
    assert "lr" in heads and "deep" in heads
    rows = page.lines(".//section[@id='runs']//tbody/tr")
    assert "0.1" in rows[0] and "[1, 2]" in rows[0] and "0.25" in rows[1]
    commands = [command_app(["train", "--hidden", "32", last]) for last in ("16", "8")]
    lists = [replace(app_data(), app=replace(app, arguments=each.arguments)) for each in commands]
    shown = parse(runs_report(RunsData("Lists", lists, NOW)))
    assert "hidden" in shown.lines(".//section[@id='runs']//thead//th")
    same = parse(runs_report(RunsData("Same", runs[:1] * 2, NOW)))
    assert "lr" not in same.lines(".//section[@id='runs']//thead//th")


def test_large_lineage_is_a_table(parse: Parse) -> None:
    """A lineage of a thousand runs is not drawn, its links are listed."""
    edges = [LineageEdge(f"run-{k}", "root", None) for k in range(1000)]
    page = parse(
        lineage_report(
            LineageData(Lineage("root", [], [f"run-{k}" for k in range(1000)], edges), NOW)
        )
    )
    assert not page.all(f".//main//{SVG}svg")
    assert "500 more links are not shown" in page.text(".//caption")


# -------------------------------------------------------------------------------------------------------
# the pieces


def _luminance(color: str) -> float:
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast(theme: int) -> None:
    """Texts reach 4.5 on every ground that they stand on, lines of plots 3 (WCAG 2.2, AA)."""
    colors = {name: pair[theme] for name, pair in COLORS.items()}
    texts = ["ink", "quiet", "accent", *(state.name for state in AppState)]
    for ground in ("paper", "card", "sunk"):
        assert {
            name: _contrast(colors[name], colors[ground])
            for name in texts
            if _contrast(colors[name], colors[ground]) < 4.5
        } == {}
    assert (
        min(_contrast(colors[name], colors["card"]) for name in ("series", "second", "focus")) >= 3
    )


def test_every_state_has_a_sign_and_a_colour() -> None:
    """Both tables are total, and no two states share a sign."""
    assert set(SIGNS) == set(AppState) and len(set(SIGNS.values())) == len(SIGNS)
    assert {state.name for state in AppState} <= set(COLORS)


@given(st.text())
def test_clean_text_is_fit_for_a_page(text: str) -> None:
    """What is cleaned has no control characters, no surrogates, and stays as it is when cleaned
    again.
    """
    done = clean(text)
    done.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done)
    assert clean(done) == done
    if text.isascii() and text.isprintable():
        assert done == text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain"),
        ("\x1b[1;31mred\x1b[0m é\n", "red é"),
        ("10%\r50%\r100%\n", "100%"),
        ("50%\r\n", "50%"),
        ("a\tb\x00c\n", "a\tb\\x00c"),
        ("\x1b]0;title\x07text", "text"),
        ("postgres://me:pw@db/x", "postgres://******@db/x"),
        ("x" * 1500, "x" * 1000 + " … (500 more characters)"),
    ],
)  # fmt: skip
def test_log_lines(line: str, shown: str) -> None:
    """Colours go, a progress bar shows its last state, passwords are masked, endless lines are
    cut.
    """
    assert log_text(line) == shown


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_marks_of_an_axis(low: float, width: float) -> None:
    """Marks are few, within the axis, in order, and can be told apart."""
    high = low + width
    marks = ticks(low, high)
    assert len(marks) <= 12
    assert marks == sorted(marks)
    if high > low:
        assert all(low - width * 1e-6 <= mark <= high + width * 1e-6 for mark in marks)
    if width > abs(low) * 1e-3:
        texts = [tick_text(mark, marks) for mark in marks]
        assert len(set(texts)) == len(texts)


@given(st.floats(1e-4, 1e9))
def test_marks_of_a_duration(seconds: float) -> None:
    """Marks of a timeline begin at 0, are few, and no two say the same."""
    marks = duration_ticks(seconds)
    assert marks[0] == (0.0, "0")
    assert len(marks) <= 9 and all(at <= seconds * (1 + 1e-6) for at, _ in marks)
    assert len({text for _, text in marks}) == len(marks)


def test_marks_of_a_logarithmic_axis() -> None:
    """Marks are powers of ten, and where there are few, what is between as well."""
    assert log_ticks(0.5, 2000) == [1.0, 10.0, 100.0, 1000.0]
    assert log_ticks(0.015, 0.9) == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert len(log_ticks(1e-300, 1e300)) <= 9
    assert [duration for _, duration in duration_ticks(90)] == [
        "0",
        "15 s",
        "30 s",
        "45 s",
        "60 s",
        "75 s",
        "90 s",
    ]


# -----------------------------------------------------------------------------------------------
# whatever there may be

NUMBERS = st.one_of(st.floats(), st.integers(), st.text(max_size=20), st.floats(1e-3, 1e3))
KEYS = st.one_of(
    st.integers(-5, 40).map(str), st.text(max_size=8), st.integers(0, 5).map(lambda k: f"e-{k}")
)
REPORTED = st.dictionaries(
    KEYS, st.dictionaries(st.sampled_from(["a", "b\x00", "<c>"]), NUMBERS, max_size=3), max_size=9
)
MOMENTS = st.none() | st.floats(NOW - 1e6, NOW + 1e6)
STATES = st.sampled_from(list(AppState))
CODES = st.none() | st.integers(-70, 255)
CAUSES = st.sampled_from([None, "failed", "preempted", "<b>"])
ANY_NUMBER = st.none() | st.floats() | st.integers() | st.floats(0, 1e4)
ATTEMPTS = st.lists(
    st.builds(ReplicaAttempt, STATES, CODES, MOMENTS, MOMENTS, CAUSES, ANY_NUMBER), max_size=2
)
PROGRESS = st.none() | st.builds(
    Progress,
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_NUMBER,
    MOMENTS | ANY_NUMBER,
    st.text(max_size=5),
)
REPLICAS = st.builds(
    ReplicaStatus, st.integers(0, 9), STATES, st.sampled_from(["a", "b<"]), st.text(max_size=5), st.text(max_size=5),
    CODES, MOMENTS, MOMENTS, st.integers(0, 3), ATTEMPTS,
)  # fmt: skip
VALUES = st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=5))
TRIALS = st.builds(
    TrialData, st.integers(0, 50), st.dictionaries(st.sampled_from(["p", "q"]), VALUES, max_size=2),
    st.text(max_size=5), STATES, st.none() | st.floats(), st.text(max_size=5),
)  # fmt: skip
few = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@few
@given(REPORTED, st.lists(REPLICAS, max_size=6), STATES, MOMENTS, PROGRESS)
def test_any_app_has_a_valid_page(
    reported: dict[str, dict[str, int | float | str]],
    replicas: list[ReplicaStatus],
    state: AppState,
    created: float,
    progress: Progress | None,
) -> None:
    """Pages are valid HTML for times in any order, any exit code and any number."""
    roles = {name: [each for each in replicas if each.role == name] for name in ("a", "b<")}
    status = AppStatus(state, roles=[RoleStatus(name, listed) for name, listed in roles.items()])
    status.progress = progress
    status.ends_by = created
    data = AppData("local://s/x", status, NOW, created=created, results=results(reported))
    Page(app_report(data)).check()
    Page(runs_report(RunsData("two", [data, data], NOW))).check()


@few
@given(st.lists(TRIALS, max_size=8), st.booleans())
def test_any_search_has_a_valid_page(trials: list[TrialData], minimize: bool) -> None:
    """Pages are valid HTML for objectives and parameters of any kind."""
    Page(search_report(SearchData("any", "loss", minimize, trials, NOW))).check()
