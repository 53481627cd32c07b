"""Pages, parsed strictly, and what they are made from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib

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
)
from transload.tracker import Lineage, LineageEdge, TrackerArtifact
from transload_report import AppData, LogTail, SearchData, TrialData

HOSTILE = (
    "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'single'"
)
EXPERIMENT = Path(__file__).with_name("experiment.json")
NOW = 1_800_000_000.0


class Page:
    """A page that is parsed strictly, so that invalid HTML fails the test.

    Args:
        html: its text.
    """

    def __init__(self, html: str) -> None:
        self.html = html
        parser = html5lib.HTMLParser(
            tree=html5lib.getTreeBuilder("etree"), namespaceHTMLElements=False, strict=True
        )
        self.root: ElementTree.Element = parser.parse(html.encode())

    def all(self, path: str) -> list[ElementTree.Element]:
        """Return the elements of an ElementTree path."""
        return self.root.findall(path)

    def text(self, path: str = ".//body") -> str:
        """Return the text of the first such element, with one blank between its pieces."""
        found = self.root.find(path)
        assert found is not None, f"no {path}"
        return " ".join(" ".join(found.itertext()).split())

    def lines(self, path: str) -> list[str]:
        """Return the text of each such element, with one blank between its pieces."""
        return [" ".join(" ".join(each.itertext()).split()) for each in self.all(path)]

    def check(self) -> None:
        """Check a page's landmarks, captions, ids and texts, and that nothing is from outside."""
        assert len(self.all(".//main")) == len(self.all(".//h1")) == len(self.all(".//nav")) == 1
        assert len(self.all(".//script")) == len(self.all(".//style")) == 1
        ids = [each.get("id") for each in self.root.iter() if each.get("id")]
        assert sorted(ids) == sorted(set(ids))
        for link in self.all(".//nav//a"):
            assert (link.get("href") or "").removeprefix("#") in ids
        for section in self.all(".//section"):
            assert section.get("aria-labelledby") in ids
        for table in self.all(".//table"):
            assert table.find("caption") is not None
        for drawn in self.root.iter("{http://www.w3.org/2000/svg}svg"):
            assert drawn.get("role") == "img"
            assert drawn.find("{http://www.w3.org/2000/svg}title") is not None
        for each in self.root.iter():
            for name, value in each.attrib.items():
                assert not name.startswith("on") and name != "style", f"{each.tag} {name}"
                if name in ("src", "href", "{http://www.w3.org/1999/xlink}href"):
                    assert value.startswith(("#", "data:image/svg+xml,")), value


def shell(script: str, **more: Any) -> Role:
    """Return a role that runs a shell script."""
    return Role(**{"name": "main", "image": "", "entrypoint": "sh", "args": ["-c", script], **more})


def python(code: str, **more: Any) -> Role:
    """Return a role that runs Python code."""
    return Role(
        **{"name": "main", "image": "", "entrypoint": sys.executable, "args": ["-c", code], **more}
    )


def replica(
    k: int = 0, state: AppState = AppState.SUCCEEDED, role: str = "main", **more: Any
) -> ReplicaStatus:
    """Return the status of a replica that took ten seconds."""
    code = {AppState.SUCCEEDED: 0, AppState.FAILED: 3}.get(state)
    values = {
        "exit_code": code,
        "start_time": NOW - 60 + k * 0.01,
        "end_time": NOW - 50 + k * 0.01,
        **more,
    }
    return ReplicaStatus(k, state, role, "node-1", **values)


def app_data(
    *replicas: ReplicaStatus, state: AppState = AppState.SUCCEEDED, **more: Any
) -> AppData:
    """Return the data of an app with these replicas, without reading anything."""
    listed: Sequence[ReplicaStatus] = replicas or (replica(),)
    roles = [
        RoleStatus(name, [r for r in listed if r.role == name])
        for name in dict.fromkeys(r.role for r in listed)
    ]
    restarts = sum(each.restarts for each in listed)
    values = {
        "status": AppStatus(state, restarts, roles=roles),
        "written": NOW,
        "created": NOW - 62,
        **more,
    }
    return AppData(handle="local://transload/app-1", **values)


def rich_data(count: int = 4) -> AppData:
    """Return the data of a job with retries, series, logs, lineage and hostile texts."""
    earlier = [
        ReplicaAttempt(AppState.FAILED, 3, NOW - 60, NOW - 55),
        ReplicaAttempt(AppState.CANCELLED, -15, NOW - 54, NOW - 53),
    ]
    replicas = [replica(k, role="trainer" if k % 4 else "reader") for k in range(count - 1)]
    replicas.append(
        replica(
            count,
            AppState.FAILED,
            "trainer",
            earlier=earlier,
            restarts=2,
            start_time=NOW - 52,
            end_time=NOW - 20,
        )
    )
    handle = "local://transload/app-1"
    steps = {str(k): {"loss": 2.0 / (k + 1), "accuracy": 1 - 1 / (k + 2)} for k in range(30)}
    results = AppResults(
        handle, AppState.FAILED, {**steps, HOSTILE: {HOSTILE: HOSTILE}}, {HOSTILE: HOSTILE}
    )
    lineage = Lineage(
        handle, ["prep"], [HOSTILE], [LineageEdge(handle, "prep", "data"), LineageEdge(HOSTILE, handle, HOSTILE)],
        {handle: {"model": TrackerArtifact("model", "s3://user:hunter2@bucket/m", None)}},
    )  # fmt: skip
    roles = [
        shell(f"echo {HOSTILE}", name=name, env={"API_TOKEN": "hunter2", "EPOCHS": "3"})
        for name in ("trainer", "reader")
    ]
    logs = [
        LogTail(each.role, each.id, [HOSTILE + "\n", "\x1b[31mé 中文\x1b[0m \x00\x07\n"], True)
        for each in replicas[:3]
    ]
    return app_data(
        *replicas,
        state=AppState.FAILED,
        app=AppDef("app", roles, metadata={"note": HOSTILE}),
        results=results,
        logs=logs,
        logs_left_out=count - 3,
        lineage=lineage,
        cfg={"partition": HOSTILE},
        tracker_base="s3://user:hunter2@bucket/x",
    )


def interrupted_data() -> AppData:
    """Return the data of a job that was interrupted three times, failed once, and has stalled."""
    hour = 3600.0
    ended = [
        ("preempted", 10.0, 6.8, 420),
        ("segment", 6.6, 4.6, 610),
        ("preempted", 4.5, 3.9, 640),
        ("failed", 3.8, 3.5, 650),
    ]
    earlier = [
        ReplicaAttempt(AppState.FAILED, 75, NOW - start * hour, NOW - end * hour, cause, step)
        for cause, start, end, step in ended
    ]
    going = replica(
        0,
        AppState.RUNNING,
        "trainer",
        start_time=NOW - 3.3 * hour,
        end_time=None,
        restarts=1,
        earlier=earlier,
        interruptions=3,
    )
    data = app_data(going, state=AppState.RUNNING, created=NOW - 10.4 * hour)
    status = data.status
    status.msg = "trainer/0 has stalled: no progress, no log line and no result for 20 min"
    status.stalled = True
    status.progress = Progress(0.83, 830, 1000, 1.9 * hour, NOW - 30, HOSTILE)
    status.time_limit = 12 * hour
    status.ends_by = NOW + 1.2 * hour
    return data


def search_data(count: int = 30) -> SearchData:
    """Return the data of a search in which every fifth trial failed."""
    trials = [
        TrialData(
            k, {"lr": 10 ** -(k % 4 + 1), "layers": k % 3, "solver": "adam" if k % 2 else HOSTILE},
            "FAILED" if k % 5 == 4 else "SUCCEEDED", AppState.FAILED if k % 5 == 4 else AppState.SUCCEEDED,
            None if k % 5 == 4 else 1.0 / (k + 1) + k % 3, f"local://transload/trial-{k}",
        )
        for k in range(count)
    ]  # fmt: skip
    return SearchData(HOSTILE, "loss", True, trials, NOW, count + 10, {"Component": HOSTILE})


LONG = "validation/mean_average_precision_of_all_classes_at_an_overlap_of_one_half"


def long_named_search() -> SearchData:
    """Return the data of a search whose names and choices are longer than a picture is wide."""
    choices = [f"a-rather-long-name-of-an-optimizer-{k}" for k in range(5)] + [
        "一个很长的中文名字的优化器"
    ]
    trials = [
        TrialData(
            k, {LONG: 10**6 * (k + 1), "choice": choices[k % 6], "rate": 10.0 ** (-k / 10), "x": k * 1e-9},
            "SUCCEEDED", AppState.SUCCEEDED, 123456.789 * (k + 1), f"local://transload/trial-{k}",
        )
        for k in range(12)
    ]  # fmt: skip
    return SearchData("long", LONG, False, trials, NOW, log_parameters=["rate"])
