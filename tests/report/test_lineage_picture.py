"""A lineage as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from transload.tracker import Lineage, LineageEdge, TrackerArtifact
from transload_report import lineage_svg
from transload_testing.odd_texts import ODD_TEXTS

SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def _titles(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def test_picture_shows_everything() -> None:
    """Runs, artifacts and names of links are all there, with sources left of their results."""
    lineage = Lineage(
        "train",
        ["prep"],
        ["eval", "report"],
        [
            LineageEdge("train", "prep", "data"),
            LineageEdge("eval", "train", "model"),
            LineageEdge("report", "prep", "far"),
        ],
        {
            "train": {
                f"artifact-{n}": TrackerArtifact(f"artifact-{n}", f"/p/{n}", None) for n in range(9)
            }
        },
    )
    svg = lineage_svg(lineage)
    texts = _texts(svg)
    assert {
        "prep",
        "train",
        "eval",
        "report",
        "data",
        "model",
        "far",
        "▪ artifact-0",
        "… 3 more",
    } <= set(texts)
    assert "artifact-0: /p/0" in _titles(svg)
    x = {
        node.text: float(node.get("x", ""))
        for node in ElementTree.fromstring(svg).iter(f"{SVG}text")
    }
    assert x["prep"] < x["train"] < x["eval"]
    assert (
        sum(
            "self" in (node.get("class") or "")
            for node in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        )
        == 1
    )


def test_picture_without_a_style_of_its_own() -> None:
    """A page that brings the style sheet gets none, or its own in the place of the built-in one."""
    lineage = Lineage("train", ["prep"], [], [LineageEdge("train", "prep", None)])
    assert "<style>" in lineage_svg(lineage)
    assert "<style>" not in lineage_svg(lineage, style="") and "#" not in lineage_svg(
        lineage, style=""
    ).replace("#arrow", "")
    assert "<style>.box{fill:red}</style>" in lineage_svg(lineage, style=".box{fill:red}")


def test_picture_escapes() -> None:
    """No text can break the picture or smuggle something into it."""
    texts = [*ODD_TEXTS.values(), "</text><script>alert(1)</script>", "]]>", "&amp;"]
    edges = [LineageEdge(text, "run", text) for text in texts]
    svg = lineage_svg(
        Lineage("run", [], texts, edges, {"run": {t: TrackerArtifact(t, t, None) for t in texts}})
    )
    root = ElementTree.fromstring(svg)
    assert {node.tag for node in root.iter()} <= {
        f"{SVG}{tag}"
        for tag in ("svg", "title", "style", "defs", "marker", "path", "rect", "g", "text")
    }
    assert "</text><script>alert(1)</script>" in _titles(svg)
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=20))
def test_any_graph_can_be_drawn(pairs: list[tuple[str, str]]) -> None:
    """Cycles, loops and lonely runs are drawn, every run once and every link once, nothing outside
    the picture.
    """
    runs = sorted({run for pair in pairs for run in pair} - {"a"})
    svg = lineage_svg(
        Lineage("a", [], runs, [LineageEdge(child, source) for child, source in pairs])
    )
    root = ElementTree.fromstring(svg)
    assert sorted(_texts(svg)) == sorted(["a", *runs])
    assert sum(node.get("class") == "link" for node in root.iter(f"{SVG}path")) == len(set(pairs))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
        assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height
