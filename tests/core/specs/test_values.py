"""Every type that is read, from a text that was typed and from JSON."""

from __future__ import annotations

import enum
import json
import math
import pathlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.components import arguments_of
from transload.specs import AppDef, Resource, RetryPolicy, SpecError
from transload.specs.text import split_pairs
from transload.specs.values import Count, Delay, Seconds, Size, read, type_name, type_problem

pytestmark = pytest.mark.unit


class Color(enum.Enum):
    """A choice."""

    RED = 1
    BLUE = "b"


@dataclass
class Inner:
    """A part of a part."""

    size: int = 1


@dataclass
class Optimizer:
    """An argument of several fields."""

    name: str
    rate: float = 0.1
    nested: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError("rate must not be negative")


UserId = NewType("UserId", int)

# type, text, JSON value, what it means
SAME: list[tuple[Any, str, Any, Any]] = [
    (str, "x", "x", "x"),
    (str, "", "", ""),
    (int, "-3", -3, -3),
    (float, "1e-3", 0.001, 0.001),
    (float, "2", 2, 2.0),
    (bool, "yes", True, True),
    (bool, "OFF", False, False),
    (list[str], "a,b;c", ["a", "b", "c"], ["a", "b", "c"]),
    (list[int], "1,2", [1, 2], [1, 2]),
    (list[int], "[1, 2]", [1, 2], [1, 2]),
    (list[float], "", [], []),
    (list, "a,b", ["a", "b"], ["a", "b"]),
    (list[list[int]], "[[1], [2, 3]]", [[1], [2, 3]], [[1], [2, 3]]),
    (tuple[int, str], "1,x", [1, "x"], (1, "x")),
    (tuple[int, ...], "1,2,3", [1, 2, 3], (1, 2, 3)),
    (
        dict[str, str],
        "A=1,B=x,y;C=",
        {"A": "1", "B": "x,y", "C": ""},
        {"A": "1", "B": "x,y", "C": ""},
    ),
    (dict[str, int], '{"a": 1}', {"a": 1}, {"a": 1}),
    (dict[int, float], "1=0.5,2=1", {"1": 0.5, "2": 1}, {1: 0.5, 2: 1.0}),
    (dict[str, list[int]], "a=1,2,b=3", {"a": [1, 2], "b": [3]}, {"a": [1, 2], "b": [3]}),
    (Optional[int], "4", 4, 4),  # noqa: UP045
    (int | None, "", None, None),
    (int | None, "none", None, None),
    (Optional[str], "none", "none", "none"),  # noqa: UP045
    (Optional[dict[str, str]], "", None, None),  # noqa: UP045
    (Literal["adam", "sgd"], "sgd", "sgd", "sgd"),
    (Literal[1, 2], "2", 2, 2),
    (Color, "RED", "RED", Color.RED),
    (Color, "b", "b", Color.BLUE),
    (Color, "1", 1, Color.RED),
    (RetryPolicy, "ROLE", "ROLE", RetryPolicy.ROLE),
    (Union[int, float], "3", 3, 3),  # noqa: UP007
    (int | float, "3.5", 3.5, 3.5),
    (int | str, "3", 3, 3),
    (int | str, "2024_01", "2024_01", "2024_01"),
    (float | str, "1_0.5", "1_0.5", "1_0.5"),
    (float | str, "1e3", 1e3, 1e3),
    (int | str, "\u0663\u0664", "\u0663\u0664", "\u0663\u0664"),
    (bool | int, "1", 1, 1),
    (bool | str, "true", True, True),
    (list[str] | str, "a,b", "a,b", "a,b"),
    (list[str] | str, '["a"]', ["a"], ["a"]),
    (Color | str, "RED", "RED", Color.RED),
    (Color | str, "green", "green", "green"),
    (Optimizer, "name=adam,rate=0.5", {"name": "adam", "rate": 0.5}, Optimizer("adam", 0.5)),
    (
        Optimizer,
        '{"name": "a", "nested": {"size": 3}}',
        {"name": "a", "nested": {"size": 3}},
        Optimizer("a", 0.1, Inner(3)),
    ),
    (Optimizer | None, "", None, None),
    (Resource, "cpu=1,gpu=0,memMB=5", {"cpu": 1, "gpu": 0, "memMB": 5}, Resource(1, 0, 5)),
    (pathlib.Path, "/a/b", "/a/b", pathlib.Path("/a/b")),
    (UserId, "5", 5, 5),
    (Annotated[int, "seconds"], "5", 5, 5),
    (Seconds, "1h30m", "1:30:00", 5400.0),
    (Delay, "0", 0, 0.0),
    (Size, "10M", 10 << 20, 10 << 20),
    (Count, "7", 7, 7),
    (Seconds | None, "none", None, None),
    (list[Size], "1M,2M", ["1M", 2 << 20], [1 << 20, 2 << 20]),
    (tuple[Count, Size] | None, '[1, "1G"]', [1, "1G"], (1, 1 << 30)),
]


@pytest.mark.parametrize(
    ("tp", "text", "value", "meaning"), SAME, ids=[f"{type_name(c[0])}:{c[1]}" for c in SAME]
)
def test_text_and_json_mean_the_same(tp: Any, text: str, value: Any, meaning: Any) -> None:
    """A type is read alike from what was typed, from JSON, and from a text inside JSON."""
    assert type_problem(tp) is None
    for decoded in (read(text, tp, "p", typed=True), read(value, tp, "p")):
        assert decoded == meaning
        assert type(decoded) is type(meaning)


@pytest.mark.parametrize(
    ("tp", "text", "says"),
    [
        (int, "3.5", "must be an int"),
        (int, "2024_01", "must be an int"),
        (int, "\u0663", "must be an int"),
        (float, "1_0.5", "must be a number"),
        (list[int], "1,1_2", r"p\[1\]='1_2'"),
        (dict[int, int], "1_0=1", "p key="),
        (int, "", "must be an int"),
        (float, "fast", "must be a number"),
        (bool, "maybe", "true or false"),
        (bool, "2", "true or false"),
        (int | None, "x", "must be an int"),
        (list[int], "1,x", r"p\[1\]='x'"),
        (tuple[int, int], "1", "must have 2 elements, has 1"),
        (dict[str, str], "A", "key=value"),
        (dict[str, int], "A=x", r"p\['A'\]='x'"),
        (Literal["adam", "sgd"], "sdg", "did you mean 'sgd'"),
        (Color, "GREEN", "RED, BLUE"),
        (int | float, "x", "int | float"),
        (Optimizer, "name=a,speed=2", "no field 'speed'"),
        (Optimizer, "rate=2", "'name' of Optimizer is missing"),
        (Optimizer, "name=a,rate=-1", "rate must not be negative"),
        (Optimizer, "name=a,rate=x", r"p\.rate='x'"),
        (Optimizer, "{broken", "key=value"),
        (Resource, "cpu=-4,gpu=0,memMB=5", r"p\.cpu=-4.*0 or more"),
        (Seconds, "90", "unit"),
        (Seconds, "0s", "above 0"),
        (Seconds | None, "soon", "duration such as"),
        (Delay, "-1s", "duration such as"),
        (Size, "500", "unit"),
        (list[Size], "1M,5", r"p\[1\]='5'"),
        (Count, "-1", "0 or more"),
        (Count, "1_0", "whole number"),
    ],
)
def test_wrong_text_is_one_clear_line(tp: Any, text: str, says: str) -> None:
    """What is wrong is said with its path, its value and what is allowed, in one line."""
    with pytest.raises(SpecError, match=says) as caught:
        read(text, tp, "p", typed=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tp", "value"),
    [
        (str, 3),
        (str, None),
        (int, True),
        (int, 2.5),
        (int, None),
        (float, True),
        (bool, 1),
        (list[str], "x=" and {"a": 1}),
        (list[str], [1]),
        (dict[str, str], ["a"]),
        (dict[str, str], {"a": 1}),
        (Literal["a"], 1),
        (Literal[1], True),
        (Color, 7),
        (Optimizer, [1]),
        (int | None, [1]),
        (int | str, [1]),
        (pathlib.Path, 1),
        (tuple[int, int], [1, 2, 3]),
        (Seconds, 90),
        (Seconds, True),
        (Delay, 0.5),
        (Size, 8),
        (Size, 2.5),
        (Count, 1.5),
        (Count, True),
        (Count | None, [1]),
    ],
)
def test_wrong_json_is_refused(tp: Any, value: Any) -> None:
    """A JSON value of another type is refused, never converted behind the user's back."""
    with pytest.raises(SpecError, match="p"):
        read(value, tp, "p")


def test_json_from_other_tools() -> None:
    """3.0 is 3 where an int is due (some tools know only doubles), and a str is read as if
    typed.
    """
    assert read(3.0, int, "p") == 3
    assert isinstance(read(3.0, int, "p"), int)
    assert read("3", int, "p") == 3
    assert read("a=1", dict[str, int], "p") == {"a": 1}
    assert read(["1", 2], list[int], "p") == [1, 2]
    assert read("5", int | str, "p") == "5"
    assert read("5", int | None, "p") == 5


def test_values_of_the_type_pass() -> None:
    """A program may hand over what it has already."""
    optimizer = Optimizer("a")
    assert read(optimizer, Optimizer, "p") is optimizer
    assert read(optimizer, Optimizer | None, "p") is optimizer
    assert read(Color.RED, Color, "p") is Color.RED
    assert read((1, 2), list[int], "p") == [1, 2]


@pytest.mark.parametrize(
    ("tp", "name"),
    [
        (set[int], "set"),
        (bytes, "bytes"),
        (complex, "complex"),
        (Any, "any"),
        (list[bytes], "bytes"),
        (dict[tuple[int, int], str], "keys of a dict"),
        (type(None), "None"),
        ("not a type", "not a type"),
    ],
)
def test_unsupported_types_are_named(tp: Any, name: str) -> None:
    """A type that cannot be given as an argument is refused by name."""
    problem = type_problem(tp)
    assert problem is not None
    assert name in problem


def test_secrets_do_not_reach_errors() -> None:
    """The value of a parameter, or of a pair, whose name looks secret is not in the message."""
    for text, tp, path in (
        ("hunter2", int, "c: --api_key"),
        ("API_TOKEN=hunter2,B=1", dict[str, int], "c: --env"),
    ):
        with pytest.raises(SpecError) as caught:
            read(text, tp, path, typed=True)
        assert "hunter2" not in str(caught.value)


def test_pairs() -> None:
    """Delimiters belong to the value unless a key follows.

    Quotes keep all, and spaces are dropped.
    """
    assert split_pairs("A='x,B=1',C=2") == {"A": "x,B=1", "C": "2"}
    assert split_pairs('A="", B=1') == {"A": "", "B": "1"}
    assert split_pairs("URL=http://h/?q=1") == {"URL": "http://h/?q=1"}
    assert split_pairs("A=b=c") == {"A": "b=c"}
    assert split_pairs("app/x=1;k8s.io/y=2,") == {"app/x": "1", "k8s.io/y": "2"}
    assert split_pairs("  ") == {}
    assert split_pairs("A=line\nnext") == {"A": "line\nnext"}


keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,8}", fullmatch=True)
plain = st.text(st.characters(codec="utf-8", exclude_characters="=,;'\""), max_size=12).map(
    str.strip
)


@given(st.dictionaries(keys, plain, max_size=5))
def test_pairs_round_trip(pairs: dict[str, str]) -> None:
    """What is joined with '=' and ',' is split into the same."""
    assert split_pairs(",".join(f"{key}={value}" for key, value in pairs.items())) == pairs


scalars = st.one_of(st.integers(-(10**9), 10**9), st.booleans(), st.text(max_size=8))


@given(st.dictionaries(st.text(max_size=6), st.lists(st.integers(), max_size=4), max_size=4))
def test_json_text_is_the_json_value(value: dict[str, list[int]]) -> None:
    """A JSON literal on the command line is the JSON value."""
    tp = dict[str, list[int]]
    assert read(json.dumps(value), tp, "p", typed=True) == read(value, tp, "p") == value


@given(st.text(max_size=30), st.sampled_from([case[0] for case in SAME]))
def test_any_text_is_decoded_or_refused(text: str, tp: Any) -> None:
    """No text makes anything but a value or a SpecError."""
    try:
        read(text, tp, "p", typed=True)
    except SpecError as exc:
        assert str(exc).startswith("p")  # noqa: PT017 - most texts are fine


@given(
    st.recursive(
        st.none() | scalars | st.floats(), lambda inner: st.lists(inner, max_size=3), max_leaves=4
    ),
    st.sampled_from([case[0] for case in SAME]),
)
def test_any_json_is_decoded_or_refused(value: Any, tp: Any) -> None:
    """No JSON value makes anything but a value or a SpecError."""
    try:
        read(value, tp, "p")
    except SpecError:
        pass


@given(st.floats(allow_nan=False))
def test_floats_survive(value: float) -> None:
    """A float is the same from its repr and from JSON."""
    assert read(repr(value), float, "p", typed=True) == read(value, float, "p") == value
    assert math.isnan(read("nan", float, "p", typed=True))


@dataclass
class Mixed:
    """Fields of several types."""

    n: int | str = 0
    word: str = ""


def test_texts_are_read_one_way_everywhere() -> None:
    """A text is read alike when it is typed, set as a default, or a field of a dataclass that is
    typed.
    """

    def component(n: int | str, mixed: Mixed, flag: bool | None = None, *rest: int | str) -> AppDef:
        """Do nothing."""
        raise AssertionError

    typed = arguments_of(component, ["--n", "5", "--mixed", "n=5,word=5", "--", "7", "x"])
    assert typed == {"n": 5, "mixed": Mixed(5, "5"), "flag": None, "rest": [7, "x"]}
    settings = {"n": "5", "mixed": "n=5,word=5", "rest": "7 x"}
    assert arguments_of(component, [], settings) == typed
    assert arguments_of(component, ["--n", "5"], {"mixed": {"n": "5", "word": "5"}})[
        "mixed"
    ] == Mixed("5", "5")


def test_an_optional_bool_is_a_flag_too() -> None:
    """``--flag`` alone is true for ``bool | None``, as it is for ``bool``."""

    def component(flag: bool | None = None, other: bool = False) -> AppDef:
        """Do nothing."""
        raise AssertionError

    assert arguments_of(component, ["--flag", "--other"]) == {"flag": True, "other": True}
    assert arguments_of(component, ["--flag", "no"]) == {"flag": False, "other": False}
    assert arguments_of(component, ["--flag=none"]) == {"flag": None, "other": False}
